"""The two-layer network on a device, by matrix products, and the times of its phases. Imports
torch."""

from __future__ import annotations

import itertools
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

import torch

from hpml_plugins import Bench
from hpml_plugins.plugins.mlp import reference
from hpml_plugins.plugins.mlp.formulas import ELEMENTWISE, STEP, Job, Product
from hpml_plugins.plugins.mlp.tiles import Variant

#: multiply(c, a, b, variant): C = op(A) op(B), in place.
Multiply = Callable[..., None]
_NOTHING = nullcontext()


class Phases:
    """Sums the time of every phase entered, by name, while it is `active`: whole batches are timed
    without it.

    On a GPU each phase is an NVTX range of the same name.
    """

    def __init__(self, device: str, *, active: bool = False) -> None:
        self.active = active
        self._on_gpu = device.startswith("cuda")
        self._events: list[tuple[str, Any, Any]] = []
        self._times: defaultdict[str, float] = defaultdict(float)

    def __call__(self, name: str, *, on_host: bool = False) -> AbstractContextManager[None]:
        """Time the block: on a GPU the current stream's work in it; with on_host by the host's
        clock."""
        return self._timed(name, on_host) if self.active else _NOTHING

    @contextmanager
    def _timed(self, name: str, on_host: bool) -> Iterator[None]:
        with torch.cuda.nvtx.range(name) if self._on_gpu else _NOTHING:
            if self._on_gpu and not on_host:
                start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
                start.record()
                yield
                end.record()
                self._events.append((name, start, end))
            else:
                started = time.perf_counter()
                yield
                self._times[name] += time.perf_counter() - started

    def taken(self) -> dict[str, float]:
        """Seconds by name since the last call; waits for the device."""
        if self._on_gpu:
            torch.cuda.synchronize()
        for name, start, end in self._events:
            self._times[name] += 1e-3 * float(start.elapsed_time(end))
        times, self._events, self._times = dict(self._times), [], defaultdict(float)
        return times


def multiply_by_torch(c: Any, a: Any, b: Any, variant: Variant) -> None:
    """C = op(A) op(B), in place; cuBLAS on a GPU."""
    torch.mm(a.T if variant[0] == "t" else a, b.T if variant[1] == "t" else b, out=c)


def make_multiply(bench: Bench, product: Product) -> Multiply:
    """The matrix product of this name. Skips the point if it needs a GPU and there is none."""
    torch.backends.cuda.matmul.allow_tf32 = False
    if product == "torch":
        return multiply_by_torch
    if not bench.device.startswith("cuda"):
        bench.skip("the tiled product needs a GPU")
    from hpml_plugins.plugins.mlp.product import Tiled

    return Tiled(bench)


class Network:
    """D – H – C with sigmoid and softmax, trained on `job.images` images at a time.

    weights: W1 (H × D), b1, W2 (C × H), b2 as NumPy arrays; images are rows. `gradient` is laid out
    like `parameters`, W1 first: so that parts of it can be sent while others are computed.
    """

    def __init__(
        self, job: Job, weights: list[Any], device: Any, multiply: Multiply, phases: Phases
    ) -> None:
        self.job, self.multiply, self.phases = job, multiply, phases

        def empty(*shape: int) -> Any:
            return torch.empty(shape, dtype=getattr(torch, job.dtype), device=device)

        self.parameters, self.gradient = empty(job.parameters), empty(job.parameters)
        self.w1, self.b1, self.w2, self.b2 = self._parts(self.parameters)
        self.dw1, self.db1, self.dw2, self.db2 = self._parts(self.gradient)
        self.x, self.targets = empty(job.images, job.inputs), empty(job.images, job.classes)
        self.hidden, self.back = empty(job.images, job.hidden), empty(job.images, job.hidden)
        self.y = empty(job.images, job.classes)
        self.load(weights)

    def load(self, weights: list[Any]) -> None:
        """Set the parameters."""
        self.parameters.copy_(torch.cat([torch.from_numpy(each).reshape(-1) for each in weights]))

    def forward(self, reduce: Callable[[Any], None] | None = None) -> None:
        """From x to y, the probabilities of the classes.

        reduce: with a part of the hidden layer, adds up the parts' shares of y before b2 and the
        softmax.
        """
        with self.phases("forward GEMM 1"):
            self.multiply(self.hidden, self.x, self.w1, "nt")
        with self.phases(ELEMENTWISE):
            self.hidden.add_(self.b1).sigmoid_()
        with self.phases("forward GEMM 2"):
            self.multiply(self.y, self.hidden, self.w2, "nt")
        if reduce:
            reduce(self.y)
        with self.phases(ELEMENTWISE):
            self.y.add_(self.b2)
            torch.softmax(self.y, 1, out=self.y)

    def backward(self, pieces: int = 1, send: Callable[[int, int], None] | None = None) -> None:
        """From y to the gradient of the sum over these images, divided by the whole batch.

        pieces: the number of parts of W1's gradient, which is computed last.  send: called with the
        start and end of each finished range of `gradient`.
        """
        inputs, hidden = self.job.inputs, self.job.hidden
        with self.phases(ELEMENTWISE):
            self.y.sub_(self.targets).mul_(1 / self.job.batch)
            torch.sum(self.y, 0, out=self.db2)
        with self.phases("backward GEMM 1"):
            self.multiply(self.dw2, self.y, self.hidden, "tn")
        with self.phases("backward GEMM 2"):
            self.multiply(self.back, self.y, self.w2, "nn")
        with self.phases(ELEMENTWISE):
            # hidden is no longer needed: it becomes the sigmoid's derivative.
            self.hidden.addcmul_(self.hidden, self.hidden, value=-1)
            self.back.mul_(self.hidden)
            torch.sum(self.back, 0, out=self.db1)
        if send:
            send(hidden * inputs, self.job.parameters)
        pieces = min(pieces, hidden)
        for begin, end in itertools.pairwise(hidden * i // pieces for i in range(pieces + 1)):
            back = self.back if pieces == 1 else self.back[:, begin:end].contiguous()
            with self.phases("backward GEMM 3"):
                self.multiply(self.dw1[begin:end], back, self.x, "tn")
            if send:
                send(begin * inputs, end * inputs)

    def step(self, rate: float = reference.RATE) -> None:
        """Gradient descent; ½ REG (|W1|² + |W2|²) is regularised."""
        with self.phases(STEP):
            self.w1.mul_(1 - rate * reference.REG)
            self.w2.mul_(1 - rate * reference.REG)
            self.parameters.sub_(self.gradient, alpha=rate)

    def weights(self) -> list[Any]:
        """W1, b1, W2, b2 as NumPy arrays, copied."""
        return [each.cpu().numpy().copy() for each in (self.w1, self.b1, self.w2, self.b2)]

    def _parts(self, flat: Any) -> list[Any]:
        job = self.job
        w1, b1, w2, b2 = flat.split(
            (job.hidden * job.inputs, job.hidden, job.classes * job.hidden, job.classes)
        )
        return [w1.view(job.hidden, job.inputs), b1, w2.view(job.classes, job.hidden), b2]


class Learner:
    """A network that goes through its images in batches, all of them on the device, in the same
    order every epoch."""

    def __init__(
        self, bench: Bench, images: reference.Images, job: Job, multiply: Multiply, rate: float
    ) -> None:
        self.images, self.job, self.rate = images, job, rate
        self.first = reference.first_weights(job, bench.seed)
        self.network = Network(job, self.first, bench.device, multiply, Phases(bench.device))
        dtype = getattr(torch, job.dtype)
        targets = reference.one_hot(images.labels, job.classes)
        self.x, self.targets, self.test_x = (
            torch.from_numpy(each).to(bench.device, dtype)
            for each in (images.x, targets, images.test_x)
        )
        self.test_labels = torch.from_numpy(images.test_labels).to(bench.device)

    def learn(self, batches: Iterable[slice]) -> None:
        """A step for each batch."""
        network = self.network
        for batch in batches:
            network.x.copy_(self.x[batch])
            network.targets.copy_(self.targets[batch])
            network.forward()
            network.backward()
            network.step(self.rate)

    def epochs(self, count: int) -> None:
        """Train `count` epochs."""
        self.learn(reference.in_batches(len(self.images.labels), self.job.batch, count))

    def precision(self) -> float:
        """Share of test images whose label is predicted."""
        return float((self._outputs(self.test_x).argmax(1) == self.test_labels).double().mean())

    def loss(self) -> float:
        """Mean cross-entropy over the training images."""
        likely = torch.log_softmax(self._outputs(self.x).double(), 1)
        return float(-(likely * self.targets).sum(1).mean())

    def _outputs(self, x: Any) -> Any:
        network = self.network
        hidden = torch.sigmoid(torch.addmm(network.b1, x, network.w1.T))
        return torch.addmm(network.b2, hidden, network.w2.T)
