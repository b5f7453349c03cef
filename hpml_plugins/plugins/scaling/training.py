"""The models, and a training step of them, eager or as one CUDA graph. Imports torch: imported on
use only."""

from __future__ import annotations

import gc
import math
import statistics
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from itertools import cycle
from typing import Any

import torch
from torch import nn
from torch.profiler import record_function

from hpml_plugins import Bench, HpmlError, Rank, Samples
from hpml_plugins.plugins.scaling.jobs import Dtype, Job, Workload

MOMENTUM, WEIGHT_DECAY = 0.9, 5e-4
#: DDP records events for its own statistics in its first ten steps, which a capture must not
#: contain.
STEPS_BEFORE_CAPTURE = 12
#: A sample is a window of steps of at least this length, s: within one, the host runs ahead as in
#: any training loop. On a CPU nothing runs ahead.
WINDOW = {"cuda": 0.1, "cpu": 0.02}
LONGEST_WINDOW = 200
#: Turns of each kind of alternating steps, and windows per turn, whose median counts, so that an
#: interruption by another program does not.
TURNS, WINDOWS = 4, 3
SMALL_WIDTH = 16  # channels
#: Tolerance between two gradients or steps of the same batch, as a share of their length: cuDNN's
#: fastest algorithms are not deterministic. A gradient without the other ranks' part, or without
#: the division, differs by about its own length.
TOLERANCE = {"float32": 3e-2, "bf16": 1e-1}
Batch = tuple[Any, Any]


class SmallResNet(nn.Module):  # type: ignore[misc]  # torch is untyped to mypy here
    """One residual block between a convolution and a classifier: a minimal ResNet18."""

    def __init__(self, channels: int, classes: int, *, zero_gamma: bool) -> None:
        super().__init__()

        def convolution(channels: int) -> list[nn.Module]:
            return [
                nn.Conv2d(channels, SMALL_WIDTH, 3, padding=1, bias=False),
                nn.BatchNorm2d(SMALL_WIDTH),
            ]

        self.stem = nn.Sequential(*convolution(channels), nn.ReLU())
        self.block = nn.Sequential(*convolution(SMALL_WIDTH), nn.ReLU(), *convolution(SMALL_WIDTH))
        self.head = nn.Sequential(
            nn.ReLU(), nn.AdaptiveAvgPool2d(2), nn.Flatten(), nn.Linear(4 * SMALL_WIDTH, classes)
        )
        if zero_gamma:
            nn.init.zeros_(self.block[-1].weight)

    def forward(self, images: Any) -> Any:
        """Logits."""
        images = self.stem(images)
        return self.head(images + self.block(images))


def build(name: str, shape: tuple[int, int, int], classes: int, *, zero_gamma: bool = False) -> Any:
    """The model, freshly initialised from torch's generator, on the CPU.

    resnet18: He's, with the usual stem for small images: a 3×3 convolution of stride 1, no pooling;
    11,173,962 parameters for three channels and ten classes.  vgg16: torchvision's.  small: for
    machines without a GPU. zero_gamma: the last normalisation of each residual block starts with γ
    = 0, so that each block is the identity.
    """
    if name == "resnet18":
        from torchvision.models import resnet

        model = resnet.ResNet(
            resnet.BasicBlock, [2, 2, 2, 2], num_classes=classes, zero_init_residual=zero_gamma
        )
        model.conv1 = nn.Conv2d(shape[0], 64, 3, padding=1, bias=False)
        nn.init.kaiming_normal_(model.conv1.weight, mode="fan_out", nonlinearity="relu")
        model.maxpool = nn.Identity()
        return model
    if name == "vgg16":
        from torchvision.models import vgg16

        return vgg16(num_classes=classes)
    if name == "small":
        return SmallResNet(shape[0], classes, zero_gamma=zero_gamma)
    raise HpmlError(f"scaling has no model {name!r}; use resnet18, vgg16 or small")


class InDtype(nn.Module):  # type: ignore[misc]  # torch is untyped to mypy here
    """The model, computing in bf16 if requested. Autocast is inside the module because
    DataParallel's threads do not inherit it."""

    def __init__(self, model: nn.Module, dtype: Dtype) -> None:
        super().__init__()
        self.model = model
        self.bf16 = dtype == "bf16"

    def forward(self, images: Any) -> Any:
        """Logits in float32."""
        # Without the cache: each weight is used once, and a captured graph may not hold what a
        # cache will free.
        with torch.autocast(
            images.device.type, torch.bfloat16, enabled=self.bf16, cache_enabled=False
        ):
            return self.model(images).float()


class NamedParts(nn.DataParallel):  # type: ignore[misc]  # torch is untyped to mypy here
    """DataParallel, each of its four parts inside a `record_function` range of the part's name."""

    scatter = record_function("scatter")(nn.DataParallel.scatter)
    replicate = record_function("replicate")(nn.DataParallel.replicate)
    parallel_apply = record_function("parallel_apply")(nn.DataParallel.parallel_apply)
    gather = record_function("gather")(nn.DataParallel.gather)


def make_batches(workload: Workload, batch: int, device: Any, seed: int) -> Iterator[Batch]:
    """Synthetic images and labels on the device, cycling through batches that are views."""
    count = max(batch, min(workload.images, 4096) // batch * batch)
    generator = torch.Generator(device).manual_seed(seed)
    images = torch.randn(count, *workload.shape, generator=generator, device=device)
    images = images.to(memory_format=layout(device))
    labels = torch.randint(workload.classes, (count,), generator=generator, device=device)
    return cycle(zip(images.split(batch), labels.split(batch), strict=True))


class Trainer:
    """SGD with momentum and weight decay; each step is one CUDA graph once it is captured.

    batches: those of `step`.  logits, loss: of the last step.
    """

    def __init__(self, module: nn.Module, batches: Iterator[Batch], lr: float) -> None:
        self.module = module
        self.batches = batches
        on_gpu = next(module.parameters()).is_cuda
        self.optimizer = torch.optim.SGD(
            module.parameters(), lr=lr, momentum=MOMENTUM, weight_decay=WEIGHT_DECAY, fused=on_gpu
        )
        self.logits: Any = None
        self.loss: Any = None
        self.graph: Any = None

    def step(self) -> None:
        """One step on the next batch."""
        images, labels = next(self.batches)
        if self.graph is None:
            self.train_on(images, labels)
            return
        self.images.copy_(images)
        self.labels.copy_(labels)
        self.graph.replay()
        self.loss = self.captured_loss

    def steps(self, count: int) -> None:
        """Run `count` steps."""
        for _ in range(count):
            self.step()

    def train_on(self, images: Any, labels: Any) -> None:
        """One step on this batch, launched kernel by kernel."""
        self.optimizer.zero_grad(set_to_none=True)
        with record_function("forward"):
            self.logits = self.module(images)
            self.loss = nn.functional.cross_entropy(self.logits, labels)
        with record_function("backward"):
            self.loss.backward()
        with record_function("update"):
            self.optimizer.step()

    def capture(self) -> None:
        """Capture the step as a CUDA graph, which the host launches in one call. Not on the default
        stream."""
        images, labels = next(self.batches)
        self.images, self.labels = images.clone(memory_format=torch.preserve_format), labels.clone()
        for _ in range(STEPS_BEFORE_CAPTURE):
            self.step()
        self.optimizer.zero_grad(set_to_none=True)
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        # "thread_local": NCCL's watchdog thread may query its events during the capture.
        with torch.cuda.graph(
            graph, stream=torch.cuda.current_stream(), capture_error_mode="thread_local"
        ):
            self.train_on(self.images, self.labels)
        self.graph, self.captured_loss = graph, self.loss
        torch.cuda.synchronize()

    def replay_error(self) -> float:
        """The relative difference between the change of state by a replay and by the same step
        launched."""
        before = [tensor.clone() for tensor in self._state()]
        self.graph.replay()
        replayed = _change(self._state(), before)
        for tensor, old in zip(self._state(), before, strict=True):
            tensor.copy_(old)
        self.train_on(self.images, self.labels)
        return relative_error(replayed, _change(self._state(), before))

    def drop_graph(self) -> None:
        """Release the graph, if there is one: NCCL's communicator cannot be destroyed while a graph
        uses it."""
        if self.graph is not None:
            torch.cuda.synchronize()
            self.graph.reset()

    def _state(self) -> list[Any]:
        """The state that a step changes: parameters, buffers, momenta."""
        momenta = [value for state in self.optimizer.state.values() for value in state.values()]
        tensors = [*self.module.parameters(), *self.module.buffers(), *momenta]
        return [tensor.detach() for tensor in tensors if isinstance(tensor, torch.Tensor)]


def make_module(workload: Workload, dtype: Dtype, device: Any, seed: int) -> nn.Module:
    """The model with weights drawn from the seed: the same on every rank."""
    torch.manual_seed(seed)
    model = InDtype(build(workload.model, workload.shape, workload.classes), dtype)
    return model.to(device, memory_format=layout(device)).train()


def layout(device: Any) -> Any:
    """The memory format of images and models on the device."""
    return torch.channels_last if str(device).startswith("cuda") else torch.contiguous_format


def make_single(bench: Bench, job: Job, batch: int) -> Trainer:
    """A Trainer on one device, this bench's or rank's own, with batches of this size."""
    module = make_module(job.workload, job.dtype, bench.device, bench.seed)
    batches = make_batches(job.workload, batch, bench.device, bench.seed)
    return Trainer(module, batches, job.workload.lr)


def train_alone(bench: Bench, job: Job) -> tuple[Samples, Trainer]:
    """Time steps on one device, this bench's or rank's own."""
    trainer = make_single(bench, job, job.batch)
    samples = time_steps(bench, trainer, job, "single")
    trainer.drop_graph()
    return samples, trainer


def time_steps(
    bench: Bench, trainer: Trainer, job: Job, name: str, rank: Rank | None = None
) -> Samples:
    """Samples of a step's time, s, from windows of steps; a graph is captured and checked first.

    rank: with it, all ranks time the slowest.
    """
    count = prepare(bench, trainer, job)
    if rank:
        count = rank.share(count)
        samples = rank.time(lambda: trainer.steps(count), launch="visible", over="max", name=name)
    else:
        samples = bench.time(lambda: trainer.steps(count), launch="visible", name=name)
    bench.check(bool(torch.isfinite(trainer.loss)), "the loss is finite")
    return (samples / count).note(steps=count * float(samples.info["batch"]), window=count)


def prepare(bench: Bench, trainer: Trainer, job: Job) -> int:
    """Capture and check the graph, if the job has one, and warm up; returns the steps of a
    window."""
    if job.graph:
        trainer.capture()
        same = trainer.replay_error() < TOLERANCE[job.dtype]
        bench.check(same, "a replayed step changes the state as a launched one does")
    trainer.steps(3)
    synchronize()
    started = time.perf_counter()
    trainer.steps(2)
    synchronize()
    seconds = (time.perf_counter() - started) / 2
    window = WINDOW[bench.device.partition(":")[0]]
    return max(1, min(LONGEST_WINDOW, math.ceil(window / seconds)))


def time_in_turns(
    trainers: Mapping[str, Trainer], counts: Mapping[str, int], rank: Rank | None = None
) -> dict[str, Samples]:
    """The time of a step of each kind, s, one sample per turn.

    The load of the host, and the card's clocks, change within seconds, so the kinds are measured
    alternately. A step before each turn does not count.  trainers: kind → its trainer.  counts:
    kind → steps of a window.  rank: with it, all ranks begin each window together and time the
    slowest; a kind that this rank lacks only runs on the others.
    """

    def window(kind: str) -> float:
        synchronize()
        if rank:
            rank.barrier()
        started = time.perf_counter()
        if kind in trainers:
            trainers[kind].steps(counts[kind])
        synchronize()
        seconds = time.perf_counter() - started
        if rank:
            seconds = max(each[0] for each in rank.gather_numbers([seconds]))
        return seconds / counts[kind]

    taken: dict[str, list[float]] = {kind: [] for kind in counts}
    for turn in range(TURNS):
        for kind in list(counts)[:: 1 if turn % 2 == 0 else -1]:
            if kind in trainers:
                trainers[kind].step()
            taken[kind].append(statistics.median(window(kind) for _ in range(WINDOWS)))
    return {kind: Samples.of(values, "s", turns=TURNS) for kind, values in taken.items()}


def gradient(module: nn.Module, images: Any, labels: Any, seed: int) -> Any:
    """The gradient of the mean loss as one vector on the device. The seed is for dropout.

    With deterministic algorithms: with others, two gradients of one batch differ by 3 % in TF32.
    """
    module.zero_grad(set_to_none=True)
    torch.manual_seed(seed)
    cudnn = torch.backends.cudnn
    before = cudnn.benchmark, cudnn.deterministic
    cudnn.benchmark, cudnn.deterministic = False, True
    try:
        nn.functional.cross_entropy(module(images), labels).backward()
    finally:
        cudnn.benchmark, cudnn.deterministic = before
    return torch.cat([parameter.grad.reshape(-1) for parameter in module.parameters()])


def relative_error(found: Any, wanted: Any) -> float:
    """|found − wanted| / |wanted|, of vectors."""
    return float((found - wanted).norm() / wanted.norm())


@contextmanager
def skip_if_out_of_memory(bench: Bench, batch: int) -> Iterator[None]:
    """Skip the point if a batch does not fit: the memory limit is part of the result."""
    try:
        yield
    except torch.OutOfMemoryError as error:
        # "CUDA out of memory. Tried to allocate 8.00 GiB. GPU 0 has a total capacity of 139.80 GiB
        # of which …"
        reason = ". ".join(str(error).split(". ")[1:3])
        bench.skip(f"batch {batch} does not fit into GPU memory: {reason}")


def synchronize() -> None:
    """Wait for this process's GPU, if it uses one."""
    if torch.cuda.is_initialized():
        torch.cuda.synchronize()


def free_memory() -> None:
    """Return unused GPU memory to the driver."""
    gc.collect()
    torch.cuda.empty_cache()


def _change(state: list[Any], before: list[Any]) -> Any:
    pairs = zip(state, before, strict=True)
    return torch.cat(
        [(new - old).double().reshape(-1) for new, old in pairs if new.is_floating_point()]
    )
