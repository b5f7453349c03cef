"""PALEO's arithmetic: a layer's time from its FLOP and bytes, and what a backward pass costs. Pure functions."""

from __future__ import annotations

FLOAT32 = 4  # B


def layer_time(flop: float, nbytes: float, peak: float, bandwidth: float, ppp: float = 1.0) -> float:
    """Predicted time of a layer, s: (FLOP / peak + bytes / bandwidth) / PPP.

    peak: FLOP/s.  bandwidth: of the memory, B/s.  ppp: platform percent of peak, the share of both that is reached, 1
    for a platform that wastes nothing. Computing and moving do not overlap: this is PALEO's model, not a bound.
    Raises ValueError where the share is not above 0.
    Source: Qi et al., ICLR 2017, section 3: T = R + C + W; that PPP divides memory traffic too: the authors' code,
    TalwalkarLab/paleo, paleo/profilers/flops_profiler.py.
    """
    if not ppp > 0:
        raise ValueError(f"platform percent of peak is {ppp}, not above 0")
    return (flop / peak + nbytes / bandwidth) / ppp


def percent_of_peak(flop: float, seconds: float, peak: float) -> float:
    """Measured platform percent of peak, as a share: achieved FLOP/s over the published peak."""
    return flop / seconds / peak


def bytes_of_batch(nbytes: float, parameters: int, batch: int, width: int) -> float:
    """Bytes that a layer reads and writes for a batch: inputs and results once an input, weights once.

    nbytes: of one input in float32, weights included.  parameters: of the layer.  width: B of a number.
    VGG16's last layer, 4096 → 1000: 16,408,384 B for one picture in float32, of which weights 16,388,000; for 32
    pictures 16,388,000 + 32 · 20,384 = 17,040,288.
    """
    weights = min(nbytes, FLOAT32 * parameters)
    return (weights + (nbytes - weights) * batch) * width / FLOAT32


def backward_flop(flop: float, first: float = 0.0) -> float:
    """FLOP of the backward pass of a layer: as many as forward for its inputs' gradient, and again for its weights'.

    first: FLOP of those of its operations that read the model's own input, whose gradient nobody asks for.
    Source: Qi et al., ICLR 2017, section 3, and their code, which skips a first layer's data gradient (`backprop`).
    """
    return 2 * flop - first


def backward_bytes(nbytes: float, has_weights: bool, first: float = 0.0) -> float:
    """Bytes of the backward pass of a layer with weights: twice forward's; without: once.

    Each of the two gradients reads two and writes one of the three tensors (input, weights, result) that the forward
    pass reads and writes, or their gradients, which are as large. Without weights there is one gradient.
    first: bytes of the operation that reads the model's own input.
    """
    return 2 * nbytes - first if has_weights else nbytes


def ring_all_reduce_time(nbytes: float, ranks: int, link: float, ppp: float = 1.0) -> float:
    """Predicted time of an all-reduce over equal links, s: 2 (n − 1) / n · S / (PPP · link).

    nbytes: S, of the gradients on one rank.  link: of one card in one direction, B/s.  Raises ValueError for fewer than
    two ranks.  Source: nccl-tests, doc/PERFORMANCE.md; PPP for communication: Qi et al., ICLR 2017.
    """
    if ranks < 2:
        raise ValueError(f"{ranks} rank exchanges nothing; use two or more")
    return 2 * (ranks - 1) / ranks * nbytes / (ppp * link)
