"""PALEO's arithmetic: the time of a layer from its FLOP and bytes, in each precision. Nothing here
imports torch."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from hpml_plugins import HpmlError, published_figures
from hpml_plugins.workloads import bus_factor

if TYPE_CHECKING:
    from hpml_plugins import GpuType, ModelCount

FLOAT32 = 4  # B


class Precision(NamedTuple):
    """width: of a number in memory, B.  capability: the least major compute capability that
    computes it.

    tolerance: relative error (2-norm) of logits against float64 up to which they count as correct.
    """

    width: int
    capability: int
    tolerance: float


PRECISIONS = {
    "float64": Precision(8, 2, 1e-9),
    "float32": Precision(FLOAT32, 0, 1e-3),
    # float32 in memory, rounded on its way into a tensor core
    "tf32": Precision(FLOAT32, 8, 2.5e-2),
    "bfloat16": Precision(2, 8, 2e-1),
    "float16": Precision(2, 5, 5e-2),
}


def find_precision(dtype: str) -> Precision:
    """The precision of this name. Raises HpmlError, naming the known ones, for another."""
    if dtype not in PRECISIONS:
        raise HpmlError(f"no precision {dtype!r}; use one of {', '.join(PRECISIONS)}")
    return PRECISIONS[dtype]


def published_peak(gpu: GpuType, dtype: str) -> tuple[str, float] | None:
    """The field of gpus.yaml that a precision is compared with (float64: tensor cores' if any), and
    its FLOP/s."""
    fields = ("float64_tensor", "float64") if dtype == "float64" else (dtype,)
    return next(((field, peak) for field in fields if (peak := gpu.peak(field))), None)


def default_ppp(of: str) -> float:
    """PALEO's own default, of "compute" or "communication": hpml_plugins/data/published.yaml."""
    (figure,) = published_figures("platform_percent_of_peak", of)
    return figure.value


def layer_time(
    flop: float, nbytes: float, peak: float, bandwidth: float, ppp: float = 1.0
) -> float:
    """Predicted time of a layer, s: (FLOP / peak + bytes / bandwidth) / PPP.

    peak: FLOP/s.  bandwidth: of the memory, B/s.  ppp: platform percent of peak, the share of both
    that is reached, 1 for a platform that wastes nothing. Computing and transfers do not overlap:
    this is PALEO's model, not a bound. Raises ValueError if the share is not above 0. Source: Qi et
    al., ICLR 2017, section 3: T = R + C + W; that PPP divides memory traffic too: the authors'
    code, TalwalkarLab/paleo, paleo/profilers/flops_profiler.py.
    """
    if not ppp > 0:
        raise ValueError(f"platform percent of peak is {ppp}, not above 0")
    return (flop / peak + nbytes / bandwidth) / ppp


def percent_of_peak(flop: float, seconds: float, peak: float) -> float:
    """Measured platform percent of peak, as a share: achieved FLOP/s over the published peak."""
    return flop / seconds / peak


def bytes_of_batch(nbytes: float, parameters: int, batch: int, width: int) -> float:
    """Bytes that a layer reads and writes for a batch: inputs and results once per input, weights
    once.

    nbytes: of one input in float32, weights included.  parameters: of the layer.  width: B of a
    number.
    """
    weights = min(nbytes, FLOAT32 * parameters)
    return (weights + (nbytes - weights) * batch) * width / FLOAT32


def ring_all_reduce_time(nbytes: float, ranks: int, link: float, ppp: float = 1.0) -> float:
    """Predicted time of an all-reduce over equal links, s: 2 (n − 1) / n · S / (PPP · link).

    nbytes: S, of the gradients on one rank.  link: of one card in one direction, B/s.  ppp: of
    communication, by Qi et al., ICLR 2017.  Raises HpmlError for fewer than two ranks.
    """
    return bus_factor("all_reduce", ranks) * nbytes / (ppp * link)


class LayerCost(NamedTuple):
    """FLOP and bytes of one layer's own operations for a batch; training: forward and backward
    together."""

    layer: str
    type: str
    flop: float
    nbytes: float
    training_flop: float
    training_bytes: float


def layer_costs(count: ModelCount, batch: int = 1, dtype: str = "float32") -> list[LayerCost]:
    """The layers that compute or move data, in the model's order; the model's own operations have
    the layer "".

    The backward pass of a layer has as many FLOP as forward for the gradient of its inputs, and
    again for that of its weights. Each gradient reads two and writes one of the three tensors
    (input, weights, result) that the forward pass reads and writes, or their gradients, which are
    as large. The operation that reads the model's own input, taken to be the first one made of
    multiply-adds, needs no gradient of it. Bytes of a precision are those of float32 by width.
    Source: Qi et al., ICLR 2017, section 3, and their code, which skips a first layer's data
    gradient (`backprop`).
    """
    width = find_precision(dtype).width
    first = next((operation for operation in count.operations if operation.multiply_adds), None)
    costs = []
    for layer, work in count.layers.items():
        if not (work.multiply_adds or work.bytes):
            continue
        parameters = count.layer_parameters[layer]
        flop = float(work.flops * batch)
        nbytes = bytes_of_batch(work.bytes, parameters, batch, width)
        training_flop, training_bytes = 3 * flop, (3 if parameters else 2) * nbytes
        if first and first.layer == layer:
            training_flop -= 2.0 * first.multiply_adds * batch
            training_bytes -= (
                bytes_of_batch(first.bytes, parameters, batch, width) if parameters else 0.0
            )
        costs.append(
            LayerCost(layer, count.layer_types[layer], flop, nbytes, training_flop, training_bytes)
        )
    return costs


def predict(
    costs: Sequence[LayerCost], gpu: GpuType, dtype: str, ppp: float
) -> dict[str, Any] | None:
    """The prediction for a GPU type, a row of the series `gpus`; None if it has no published peak
    in that precision.

    peak_of: the field of gpus.yaml.  peak: FLOP/s.  bandwidth: B/s.  at_peak: FLOP / peak alone, as
    if memory were free and no FLOP wasted, s.  forward, training: by `layer_time`, layer by layer,
    and summed, s.
    """
    if not (published := published_peak(gpu, dtype)):
        return None
    field, peak = published
    rates = peak, gpu.bandwidth, ppp
    return {
        "gpu": gpu.name,
        "peak_of": field,
        "peak": peak,
        "bandwidth": gpu.bandwidth,
        "at_peak": sum(cost.flop for cost in costs) / peak,
        "forward": sum(layer_time(cost.flop, cost.nbytes, *rates) for cost in costs),
        "training": sum(
            layer_time(cost.training_flop, cost.training_bytes, *rates) for cost in costs
        ),
    }
