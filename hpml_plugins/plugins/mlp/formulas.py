"""What a batch computes and passes on, and how long that should take: one pure function each.

D: inputs, H: hidden size, C: classes, B: batch over all ranks, p: ranks, each of which has B / p images. A multiply-add
is 2 FLOP. Source of the counts: the exercise's questions 2.3 to 2.5 (Project Final Assignment, a neural network in CUDA
and MPI, with its solution); what is ours says so.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import exp, log
from statistics import fmean

from hpml_plugins import HpmlError


@dataclass(frozen=True)
class Sizes:
    """Of the network: D – H – C."""

    inputs: int
    hidden: int
    classes: int

    @property
    def parameters(self) -> int:
        """H D + H + C H + C: both layers' weights and biases."""
        return self.hidden * self.inputs + self.hidden + self.classes * self.hidden + self.classes


def share(batch: int, ranks: int) -> int:
    """B' = B / p, each rank's images. Raises HpmlError where they cannot be shared out evenly."""
    each, left = divmod(batch, ranks)
    if left or not each:
        raise HpmlError(f"a batch of {batch} cannot be shared out evenly over {ranks} ranks; use a multiple")
    return each


def product_flops(sizes: Sizes, images: int) -> dict[str, float]:
    """FLOP of each matrix product for so many images (B')."""
    first = 2.0 * images * sizes.hidden * sizes.inputs
    second = 2.0 * images * sizes.hidden * sizes.classes
    return {
        "forward GEMM 1": first,
        "forward GEMM 2": second,
        "backward GEMM 1": second,
        "backward GEMM 2": second,
        "backward GEMM 3": first,
    }


def counted_flops(sizes: Sizes, images: int) -> float:
    """4 B' H (D + C): both products of the forward pass, first and third of the backward pass, as the exercise counts.

    The second one of the backward pass, 2 B' H C, is left out there, and so it is here.
    """
    return 4.0 * images * sizes.hidden * (sizes.inputs + sizes.classes)


def copied_bytes(sizes: Sizes, item: int) -> float:
    """Gradients from the device and back, of a batch, B: 2 (H D + H + C H + C) b. Images are not counted."""
    return 2.0 * sizes.parameters * item


def reduced_bytes(sizes: Sizes, item: int, ranks: int = 2) -> float:
    """Of a batch's all-reduce, B: 2 (H D + H + C H + C) b between two ranks, there and back; nothing for one rank.

    For more than two, ours: what one rank sends and receives in a ring, 4 (p − 1) / p · b, which is the same for two.
    """
    return 4.0 * (ranks - 1) / ranks * sizes.parameters * item


def image_bytes(sizes: Sizes, images: int, item: int) -> float:
    """A rank's images and labels (as vectors of C) of a batch, B: B' (D + C) b. Ours; the exercise leaves them out."""
    return float(images * (sizes.inputs + sizes.classes) * item)


def intensity(sizes: Sizes, images: int, item: int, ranks: int = 2) -> float:
    """FLOP by byte copied and reduced, of a batch: 4 B' H (D + C) / (4 (H D + H + C H + C) b) on two ranks."""
    return counted_flops(sizes, images) / (copied_bytes(sizes, item) + reduced_bytes(sizes, item, ranks))


def roofline(intensity: float, flops: float, pci: float, mpi: float) -> float:
    """FLOP/s at this arithmetic intensity: AI / (AI / P_flops + ½ (1 / P_pci + 1 / P_mpi)).

    flops: P_flops, FLOP/s.  pci, mpi: P_pci, P_mpi, B/s. The ½: as many bytes are copied as are reduced.
    """
    return intensity / (intensity / flops + 0.5 * (1 / pci + 1 / mpi))


def seconds_of_batch(sizes: Sizes, images: int, item: int, ranks: int, flops: float, pci: float, mpi: float) -> float:
    """The roofline as a time, s: FLOP / P_flops + bytes copied / P_pci + bytes reduced / P_mpi."""
    return (
        counted_flops(sizes, images) / flops
        + copied_bytes(sizes, item) / pci
        + (reduced_bytes(sizes, item, ranks) / mpi if ranks > 1 else 0.0)
    )


def pipeline_seconds(stages: Sequence[float], pieces: int) -> float:
    """How long stages take when the work goes through them in pieces, s: Σ t / q + (q − 1) max t / q.

    stages: seconds of each for the whole.  pieces: q. One piece is one stage after the other; with many the longest
    stage is what remains. Ours; every piece is taken to cost its share and no more.
    """
    return (sum(stages) + (pieces - 1) * max(stages)) / pieces


def split_reduced_bytes(sizes: Sizes, batch: int, item: int, ranks: int) -> float:
    """Model parallel: of a batch's all-reduce of the C outputs of all B images, counted as in `reduced_bytes`, B.

    W1 is split by rows and W2 by columns: the hidden layer needs nothing from others, the outputs are sums over ranks,
    and every gradient stays where its weights are.
    """
    return 4.0 * (ranks - 1) / ranks * batch * sizes.classes * item


def split_copied_bytes(sizes: Sizes, batch: int, item: int) -> float:
    """Model parallel: the outputs from the device and back, B: 2 B C b."""
    return 2.0 * batch * sizes.classes * item


@dataclass(frozen=True)
class Line:
    """t = latency + work / rate.  latency: s.  rate: of the work's unit by the second; infinite where work is free."""

    latency: float
    rate: float

    def seconds(self, work: float) -> float:
        """How long that work takes, s."""
        return self.latency + (work / self.rate if work else 0.0)


def fitted_line(works: Sequence[float], seconds: Sequence[float]) -> Line:
    """The line through measured times that leaves the smallest squares of *relative* errors; neither part below zero.

    Raises HpmlError for fewer than two points.
    """
    if len(works) < 2:
        raise HpmlError(f"a line cannot be laid through {len(works)} point")
    # Of latency / t + slope · work / t = 1, by the normal equations.
    one, other = [1 / t for t in seconds], [work / t for work, t in zip(works, seconds, strict=True)]
    aa, bb = sum(x * x for x in one), sum(x * x for x in other)
    ab, a, b = sum(x * y for x, y in zip(one, other, strict=True)), sum(one), sum(other)
    determinant = aa * bb - ab * ab
    latency, slope = (0.0, 0.0) if determinant <= 1e-12 * aa * bb else (
        (a * bb - b * ab) / determinant, (b * aa - a * ab) / determinant,
    )  # fmt: skip
    if slope <= 0.0:
        latency, slope = a / aa, 0.0
    elif latency < 0.0:
        latency, slope = 0.0, b / bb
    return Line(latency, 1 / slope if slope else float("inf"))


def on_curve(works: Sequence[float], seconds: Sequence[float], work: float) -> float:
    """What that work should take by measured times, with rates that depend on size, s.

    Between its neighbours, and beyond the ends by the last two, on a straight line over logarithms, which neither falls
    nor rises faster than work does. Several times of one work are averaged (geometrically).
    Raises HpmlError where nothing was measured.
    """
    if not works:
        raise HpmlError("no time was measured to predict others by")
    known = {each: fmean(log(t) for w, t in zip(works, seconds, strict=True) if w == each) for each in set(works)}
    if work in known or len(known) == 1:
        return exp(known.get(work, next(iter(known.values()))))
    if min(*known, work) <= 0:
        raise HpmlError("works of zero and more than zero lie on no common curve")
    above = next((i for i, each in enumerate(sorted(known)) if each > work), len(known) - 1)
    left, right = sorted(known)[max(0, above - 1) : max(0, above - 1) + 2]
    slope = max(0.0, min(1.0, (known[right] - known[left]) / (log(right) - log(left))))
    nearest = right if work > right else left
    return exp(known[nearest] + slope * (log(work) - log(nearest)))


def left_out(
    works: Sequence[Mapping[str, float]],
    seconds: Sequence[Mapping[str, float]],
    predict: Callable[[Sequence[float], Sequence[float], float], float],
) -> list[dict[str, float]]:
    """What each point's parts should take by what all other points took, s: a part's name → s.

    works, seconds: a point's parts: name → work, and what it took.  predict: from the others' works and seconds.
    """
    predicted = []
    for index in range(len(works)):
        others = [i for i in range(len(works)) if i != index]
        predicted.append({
            name: predict([works[i][name] for i in others], [seconds[i][name] for i in others], work)
            for name, work in works[index].items()
        })  # fmt: skip
    return predicted


def on_line(works: Sequence[float], seconds: Sequence[float], work: float) -> float:
    """What that work should take by the line through measured times, s."""
    return fitted_line(works, seconds).seconds(work)
