"""The FLOP and bytes of a batch, and its predicted time.

D: inputs, H: hidden size, C: classes, B: batch over all ranks, p: ranks, B' = B / p, b: bytes of a
number. A multiply-add is 2 FLOP. Source of the counts: questions 2.3 to 2.5 of the coursework
(Project Final Assignment, a neural network in CUDA and MPI, with its solution); our own formulas
are marked.
"""

from __future__ import annotations

from bisect import bisect
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import exp, log
from statistics import fmean
from typing import Literal

from hpml_plugins import HpmlError
from hpml_plugins.plugins.mlp.tiles import ITEM, Dtype

Product = Literal["own", "torch"]
#: Methods of summing gradients over the ranks, with descriptions.
Way = Literal["mpi", "mpi_pinned", "cuda_mpi", "nccl", "gloo"]
WAYS: dict[str, str] = {
    "mpi": "MPI through pageable host memory",
    "mpi_pinned": "MPI through pinned host memory",
    "cuda_mpi": "MPI on GPU pointers",
    "nccl": "NCCL on GPU pointers",
    "gloo": "gloo through pageable host memory",
}
TERMS = {
    **{f"way={way}": f"gradients reduced by {what}" for way, what in WAYS.items()},
    "product=own": "matrix products by this plugin's tiled kernel",
    "product=torch": "matrix products by torch",
}

IMAGES, ELEMENTWISE, STEP = "copying images host to device", "element-wise", "step"
PRODUCTS = (
    "forward GEMM 1",
    "forward GEMM 2",
    "backward GEMM 1",
    "backward GEMM 2",
    "backward GEMM 3",
)
#: The methods in the document.
COUNTED = tuple(name for name in PRODUCTS if name != "backward GEMM 2")
LAUNCHING = "launching"
COMPUTED = (*PRODUCTS, ELEMENTWISE)
EXCHANGE = TO_HOST, REDUCE, TO_DEVICE = "device to host", "all-reduce", "host to device"
#: The phases of a batch, in order.
ORDER = (IMAGES, *COMPUTED, *EXCHANGE, STEP)
#: Tolerance of the weights after three steps: a hundred roundings.
TOLERANCE = {"float32": 1.2e-5, "float64": 2.2e-14}
#: The effective throughputs P_flops, P_pci and P_mpi.
RATE_UNITS = {"flops": "FLOP/s", "pci": "B/s", "mpi": "B/s"}


@dataclass(frozen=True)
class Job:
    """A network D – H – C, trained on batches split over ranks. Raises HpmlError for a batch that
    cannot be split evenly.

    pinned: host memory is page-locked.  waiting: parts of a gradient are reduced through the host
    by blocking calls.
    """

    hidden: int
    batch: int
    ranks: int = 1
    dtype: Dtype = "float32"
    product: Product = "torch"
    way: Way = "gloo"
    pinned: bool = False
    waiting: bool = False
    inputs: int = 784
    classes: int = 10

    def __post_init__(self) -> None:
        if self.batch < self.ranks or self.batch % self.ranks:
            uneven = f"a batch of {self.batch} cannot be shared out evenly over {self.ranks} ranks"
            raise HpmlError(f"{uneven}; use a multiple")

    @property
    def images(self) -> int:
        """B': images of a rank."""
        return self.batch // self.ranks

    @property
    def item(self) -> int:
        """b: bytes of a number."""
        return ITEM[self.dtype]

    @property
    def through_host(self) -> bool:
        """Whether gradients are reduced in the host's memory."""
        return self.way in ("mpi", "mpi_pinned", "gloo")

    @property
    def launcher(self) -> Literal["torch", "mpi"]:
        """The program that starts the ranks."""
        return "mpi" if "mpi" in self.way else "torch"

    @property
    def parameters(self) -> int:
        """H D + H + C H + C: weights and biases of both layers."""
        return self.hidden * self.inputs + self.hidden + self.classes * self.hidden + self.classes

    @property
    def counted_flops(self) -> float:
        """4 B' H (D + C): the products that the document counts, without the second one of the
        backward pass."""
        return 4.0 * self.images * self.hidden * (self.inputs + self.classes)

    @property
    def copied_bytes(self) -> float:
        """Gradients from the device and back, B: 2 (H D + H + C H + C) b. Images are not
        counted."""
        return 2.0 * self.parameters * self.item

    @property
    def reduced_bytes(self) -> float:
        """Bytes that a rank sends and receives in a batch's ring all-reduce: 4 (p − 1) / p · (H D +
        H + C H + C) b.

        With two ranks these are the document's 2 (H D + H + C H + C) b, there and back. Source for
        more: Patarasuk and Yuan, JPDC 69, 2009: a rank sends 2 (p − 1) / p of the buffer.
        """
        return 4.0 * (self.ranks - 1) / self.ranks * self.parameters * self.item

    @property
    def copied_share(self) -> float:
        """The copies' share of the bytes moved: 2 / (2 + 4 (p − 1) / p) = p / (3 p − 2). ½ on two
        ranks, 0.4 on 4."""
        return self.copied_bytes / (self.copied_bytes + self.reduced_bytes)

    @property
    def intensity(self) -> float:
        """FLOP per byte copied and reduced: 4 B' H (D + C) / (4 (H D + H + C H + C) b) on two
        ranks."""
        return self.counted_flops / (self.copied_bytes + self.reduced_bytes)

    def rates(self, times: Mapping[str, float]) -> dict[str, float]:
        """P_flops, P_pci and P_mpi from the times of a batch's phases, s; without those that the
        method does not use."""
        rates = {"flops": self.counted_flops / total(times, COUNTED)}
        if copies := times[TO_HOST] + times[TO_DEVICE]:
            rates["pci"] = self.copied_bytes / copies
        if self.ranks > 1:
            rates["mpi"] = self.reduced_bytes / times[REDUCE]
        return rates

    def roofline_seconds(self, *, flops: float, pci: float, mpi: float) -> float:
        """The roofline AI / (AI / P_flops + s / P_pci + (1 − s) / P_mpi) as the time of a batch, s.

        s: `copied_share`; the document has two ranks, and therefore ½ for both.
        """
        return self.counted_flops / flops + self.copied_bytes / pci + self.reduced_bytes / mpi

    @property
    def work(self) -> dict[str, float]:
        """The work of each phase, to which its time should be proportional: FLOP of products, B of
        all others; 0 for launching."""
        first, second = (
            2.0 * self.images * self.hidden * width for width in (self.inputs, self.classes)
        )
        return {
            **dict(zip(PRODUCTS, (first, second, second, second, first), strict=True)),
            # Ours: seven passes read or write the hidden layer or its gradient; arrays of width 10
            # do not count.
            ELEMENTWISE: 7.0 * self.images * self.hidden * self.item,
            # Ours: labels are vectors of C.
            IMAGES: float(self.images * (self.inputs + self.classes) * self.item),
            TO_HOST: self.copied_bytes / 2,
            TO_DEVICE: self.copied_bytes / 2,
            REDUCE: self.reduced_bytes,
            STEP: 3.0 * self.parameters * self.item,
            LAUNCHING: 0.0,
        }


def total(times: Mapping[str, float], phases: Iterable[str]) -> float:
    """The time of these phases, s."""
    return sum(times[name] for name in phases)


def sum_of_phases(times: Mapping[str, float], *, on_gpu: bool) -> float:
    """A batch from its phases, s. On a GPU the computation takes at least as long as its
    launching."""
    computed = total(times, COMPUTED)
    return (
        total(times, ORDER) - computed + (max(computed, times[LAUNCHING]) if on_gpu else computed)
    )


def on_line(works: Sequence[float], seconds: Sequence[float], work: float) -> float:
    """Predicted time of that work from measured times, s: the line (latency, slope ≥ 0) of least
    squared relative errors.

    Raises HpmlError for fewer than two points.
    """
    if len(works) < 2:
        raise HpmlError(f"a line cannot be laid through {len(works)} point")
    from scipy.optimize import nnls

    scale = max(works) or 1.0  # FLOP and bytes are many orders of magnitude larger than 1
    rows = [[1 / t, w / scale / t] for w, t in zip(works, seconds, strict=True)]
    latency, slope = nnls(rows, [1.0] * len(rows))[0]
    return float(latency + slope * work / scale)


def on_curve(works: Sequence[float], seconds: Sequence[float], work: float) -> float:
    """Predicted time of that work from measured times, with rates that depend on size, s. Raises
    HpmlError without any.

    Interpolated between its neighbours, and extrapolated from the last two, on a straight line over
    logarithms, which neither falls nor rises faster than the work. Several times for the same work
    are averaged (geometrically).
    """
    if not works:
        raise HpmlError("no time was measured to predict others by")
    known = {
        each: fmean(log(t) for w, t in zip(works, seconds, strict=True) if w == each)
        for each in set(works)
    }
    if work in known or len(known) == 1:
        return exp(known.get(work, next(iter(known.values()))))
    ordered = sorted(known)
    after = min(max(1, bisect(ordered, work)), len(ordered) - 1)
    left, right = ordered[after - 1], ordered[after]
    slope = max(0.0, min(1.0, (known[right] - known[left]) / (log(right) - log(left))))
    nearest = right if work > right else left
    return exp(known[nearest] + slope * (log(work) - log(nearest)))


def leave_one_out(
    works: Sequence[Mapping[str, float]],
    seconds: Sequence[Mapping[str, float]],
    predict: Callable[[Sequence[float], Sequence[float], float], float],
) -> list[dict[str, float]]:
    """Predicted times of each point's phases, s, from the works and seconds of all other points."""

    def others(values: Sequence[Mapping[str, float]], index: int, name: str) -> list[float]:
        return [each[name] for i, each in enumerate(values) if i != index]

    return [
        {
            name: predict(others(works, i, name), others(seconds, i, name), work)
            for name, work in point.items()
        }
        for i, point in enumerate(works)
    ]
