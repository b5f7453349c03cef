"""A training step: forward, loss, backward, update; eager or as one CUDA graph. Imports torch: imported on use only."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from typing import Any

import torch
from torch import nn
from torch.profiler import record_function

from hpml_plugins import Bench, Rank
from hpml_plugins.plugins.scaling.workloads import Dtype, Workload, build

MOMENTUM, WEIGHT_DECAY = 0.9, 5e-4
#: DDP takes events for its own statistics in its first ten steps, which a capture must not hold.
STEPS_BEFORE_CAPTURE = 12
#: A sample is a window of steps of at least this long, s: within one, the host runs ahead as in any training loop. On a
#: CPU nobody runs ahead.
WINDOW = {"cuda": 0.1, "cpu": 0.02}
LONGEST_WINDOW = 200


class InDtype(nn.Module):  # type: ignore[misc]  # torch is untyped to mypy here
    """The model computing in bf16 where asked to. Inside the module, for DataParallel's threads do not inherit it."""

    def __init__(self, model: nn.Module, dtype: Dtype) -> None:
        super().__init__()
        self.model = model
        self.bf16 = dtype == "bf16"

    def forward(self, images: Any) -> Any:
        """Logits in float32."""
        # Without the cache: each weight is used once, and a captured graph may not hold what a cache will free.
        with torch.autocast(images.device.type, torch.bfloat16, enabled=self.bf16, cache_enabled=False):
            return self.model(images).float()


class Pool:
    """Synthetic images and labels on the device, in batches that are slices of it, round and round."""

    def __init__(self, workload: Workload, batch: int, device: Any, seed: int) -> None:
        count = max(batch, min(workload.images, 4096) // batch * batch)
        generator = torch.Generator(device).manual_seed(seed)
        images = torch.randn(count, *workload.shape, generator=generator, device=device)
        self.images = images.to(memory_format=_layout(device))
        self.labels = torch.randint(workload.classes, (count,), generator=generator, device=device)
        self.batch, self._next = batch, 0

    def take(self) -> tuple[Any, Any]:
        """The next batch: views, nothing is copied."""
        part = slice(self._next, self._next + self.batch)
        self._next = (self._next + self.batch) % len(self.labels)
        return self.images[part], self.labels[part]


class Trainer:
    """SGD with momentum and weight decay on batches from a pool."""

    def __init__(self, module: nn.Module, pool: Pool, lr: float) -> None:
        self.module = module
        self.pool = pool
        on_gpu = pool.images.device.type == "cuda"
        self.optimizer = torch.optim.SGD(
            module.parameters(), lr=lr, momentum=MOMENTUM, weight_decay=WEIGHT_DECAY, fused=on_gpu
        )
        self.loss: Any = None

    def step(self) -> None:
        """One step on the next batch."""
        self.train_on(*self.pool.take())

    def train_on(self, images: Any, labels: Any) -> None:
        """One step on this batch."""
        self.optimizer.zero_grad(set_to_none=True)
        with record_function("forward"):
            self.loss = nn.functional.cross_entropy(self.module(images), labels)
        with record_function("backward"):
            self.loss.backward()
        with record_function("update"):
            self.optimizer.step()

    def state(self) -> list[Any]:
        """All that a step changes: parameters, buffers, momenta."""
        momenta = [value for state in self.optimizer.state.values() for value in state.values()]
        tensors = [*self.module.parameters(), *self.module.buffers(), *momenta]
        return [tensor.detach() for tensor in tensors if isinstance(tensor, torch.Tensor)]


class Captured:
    """A trainer's step as one CUDA graph: the host launches one thing a step instead of hundreds.

    Must be made and used on a stream that is not the default one (`stream_for`).
    """

    def __init__(self, trainer: Trainer) -> None:
        self.trainer = trainer
        images, labels = trainer.pool.take()
        self.images, self.labels = images.clone(memory_format=torch.preserve_format), labels.clone()
        for _ in range(STEPS_BEFORE_CAPTURE):
            trainer.step()
        trainer.optimizer.zero_grad(set_to_none=True)
        torch.cuda.synchronize()
        self.graph = torch.cuda.CUDAGraph()
        # "thread_local": NCCL's watchdog thread may look at its events meanwhile.
        with torch.cuda.graph(self.graph, stream=torch.cuda.current_stream(), capture_error_mode="thread_local"):
            trainer.train_on(self.images, self.labels)
        self.loss = trainer.loss
        torch.cuda.synchronize()

    def step(self) -> None:
        """One step on the next batch."""
        images, labels = self.trainer.pool.take()
        self.images.copy_(images)
        self.labels.copy_(labels)
        self.graph.replay()
        self.trainer.loss = self.loss

    def differs(self) -> float:
        """How far the state after a replay is from that after the same step launched one by one, as a share."""
        before = [tensor.clone() for tensor in self.trainer.state()]
        self.graph.replay()
        replayed = _change(self.trainer.state(), before)
        for tensor, old in zip(self.trainer.state(), before, strict=True):
            tensor.copy_(old)
        self.trainer.train_on(self.images, self.labels)
        launched = _change(self.trainer.state(), before)
        return relative_error(replayed, launched)

    def drop(self) -> None:
        """Let go of the graph: NCCL's communicator cannot be taken down while one holds it."""
        torch.cuda.synchronize()
        self.graph.reset()


def make_module(workload: Workload, dtype: Dtype, device: Any, seed: int) -> nn.Module:
    """The model with weights drawn from the seed: the same on every rank."""
    torch.manual_seed(seed)
    model = InDtype(build(workload.model, workload.shape, workload.classes), dtype)
    return model.to(device, memory_format=_layout(device)).train()


def prepare(*, by_trial: bool = True) -> None:
    """Choose convolutions by trying them: what one does where all batches have one shape."""
    torch.backends.cudnn.benchmark = by_trial


def window_of_all(rank: Rank, step: Callable[[], None]) -> int:
    """The same for a step that all ranks make: rank 0's answer, on every rank."""
    return int(rank.share(window_of(step, rank.device)))


def window_of(step: Callable[[], None], device: str) -> int:
    """How many steps make a window."""
    synchronize = synchronizer(device)
    for _ in range(3):
        step()
    synchronize()
    started = time.perf_counter()
    for _ in range(2):
        step()
    synchronize()
    seconds = (time.perf_counter() - started) / 2
    return max(1, min(LONGEST_WINDOW, math.ceil(WINDOW[device.partition(":")[0]] / seconds)))


def repeated(step: Callable[[], None], count: int) -> Callable[[], None]:
    """So many steps as one."""

    def window() -> None:
        for _ in range(count):
            step()

    return window


def gradient(module: nn.Module, images: Any, labels: Any, seed: int) -> Any:
    """The gradient of the mean loss as one vector on the device. The seed is that of a dropout.

    Of algorithms that give the same twice: with others two gradients of one batch lie 3 % apart in TF32.
    """
    module.zero_grad(set_to_none=True)
    torch.manual_seed(seed)
    with _repeatable():
        nn.functional.cross_entropy(module(images), labels).backward()
    return torch.cat([parameter.grad.reshape(-1) for parameter in module.parameters()])


@contextmanager
def _repeatable() -> Iterator[None]:
    cudnn = torch.backends.cudnn
    before = cudnn.benchmark, cudnn.deterministic
    cudnn.benchmark, cudnn.deterministic = False, True
    try:
        yield
    finally:
        cudnn.benchmark, cudnn.deterministic = before


def relative_error(found: Any, wanted: Any) -> float:
    """|found − wanted| / |wanted|, of vectors."""
    return float((found - wanted).norm() / wanted.norm())


def tolerance(dtype: Dtype) -> float:
    """How far two gradients or steps of the same batch may be apart, as a share of their length.

    cuDNN's fastest algorithms are not the same twice. A gradient that lacks the other ranks' part, or its division, is
    about as far away as it is long.
    """
    return {"float32": 3e-2, "bf16": 1e-1}[dtype]


def stream_for(graph: bool) -> Any:
    """What to be inside of: a stream of one's own where a graph is captured."""
    if not graph:
        return nullcontext()
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    return torch.cuda.stream(stream)


@contextmanager
def memory_is_the_question(bench: Bench, batch: int) -> Iterator[None]:
    """A batch that does not fit skips the point: where memory ends is what is asked."""
    try:
        yield
    except torch.OutOfMemoryError as error:
        # "CUDA out of memory. Tried to allocate 8.00 GiB. GPU 0 has a total capacity of 139.80 GiB of which …"
        said = ". ".join(str(error).split(". ")[1:3])
        bench.skip(f"batch {batch} does not fit into GPU memory: {said}")


def synchronizer(device: Any) -> Callable[[], None]:
    """What waits for the device."""
    return torch.cuda.synchronize if str(device).startswith("cuda") else lambda: None


def _layout(device: Any) -> Any:
    return torch.channels_last if str(device).startswith("cuda") else torch.contiguous_format


def _change(state: list[Any], before: list[Any]) -> Any:
    pairs = zip(state, before, strict=True)
    return torch.cat([(new - old).double().reshape(-1) for new, old in pairs if new.is_floating_point()])
