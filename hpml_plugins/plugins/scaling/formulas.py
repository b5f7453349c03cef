"""Speed-up, efficiency, the ring all-reduce, and Goyal's learning rate: one pure function each.

seconds: numbers or Samples; the result is then of the same kind.
"""

from __future__ import annotations

from typing import Any, Literal

from hpml_plugins import HpmlError

Scaling = Literal["weak", "strong"]


def steps_in_epoch(images: int, batch: int, ranks: int) -> float:
    """How many steps take `images` through `ranks` ranks of `batch` images each; not rounded.

    An epoch is then the same work for every batch, also where it is no whole number of steps.
    """
    return images / (batch * ranks)


def speedup(scaling: Scaling, single: Any, several: Any, ranks: int) -> Any:
    """How many times sooner `ranks` GPUs have done the work of an epoch than one.

    single: seconds a step on one GPU.  several: seconds a step on `ranks`.  weak: the batch of *each* GPU is that of
    the one, so that a step does `ranks` times the work; strong: the batches together are that of the one.
    """
    return single / several * (ranks if scaling == "weak" else 1)


def efficiency(scaling: Scaling, single: Any, several: Any, ranks: int) -> Any:
    """Speed-up over the number of GPUs; 1 is perfect. Arguments as for `speedup`."""
    return single / several / (1 if scaling == "weak" else ranks)


def ring_bytes(nbytes: float, ranks: int) -> float:
    """What one rank sends (and receives) in a ring all-reduce of `nbytes`, B: 2 (n − 1) / n · S.

    Each rank passes n − 1 pieces of S / n on in the reduce-scatter, and as many in the all-gather. No all-reduce can do
    with less. Raises HpmlError for fewer than two ranks, where nothing crosses a link.
    Source: Patarasuk & Yuan, Bandwidth optimal all-reduce algorithms for clusters of workstations, J. Parallel Distrib.
    Comput. 69 (2009), 117–124, section 4.
    """
    if ranks < 2:
        raise HpmlError(f"{ranks} rank reduces nothing over a link; use two or more")
    return 2 * (ranks - 1) * nbytes / ranks


def ring_bandwidth(nbytes: float, seconds: Any, ranks: int) -> Any:
    """Bandwidth that a ring all-reduce of `nbytes` in so many seconds makes of each link, one way, B/s."""
    return ring_bytes(nbytes, ranks) / seconds


def ring_seconds(nbytes: float, bandwidth: float, ranks: int) -> float:
    """How long a ring all-reduce of `nbytes` takes over links of that bandwidth (one way, B/s), latency apart, s."""
    return ring_bytes(nbytes, ranks) / bandwidth


def learning_rate(epoch: float, *, base: float, factor: float, warm_up: float) -> float:
    """Goyal's linear scaling with gradual warm-up.

    epoch: epochs done so far, with fractions.  base: the rate of the small batch.  factor: the large batch over the
    small one.  warm_up: epochs over which the rate rises in a line from base to base · factor; 0: it is there at once.
    Source: Goyal et al., Accurate, Large Minibatch SGD: Training ImageNet in 1 Hour (2017), sections 2.1 and 2.2.
    """
    risen = min(1.0, epoch / warm_up) if warm_up > 0 else 1.0
    return base * (1 + (factor - 1) * risen)
