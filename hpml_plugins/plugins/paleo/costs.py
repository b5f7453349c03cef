"""What each layer of a model costs in a forward pass and in a training step, from its count."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from hpml_plugins import GpuType, ModelCount
from hpml_plugins.plugins.paleo.formulas import backward_bytes, backward_flop, bytes_of_batch, layer_time
from hpml_plugins.plugins.paleo.precisions import WIDTH, published_peak


@dataclass(frozen=True)
class LayerCost:
    """FLOP and bytes of one layer's own operations for a batch; training: forward and backward together."""

    layer: str
    type: str
    flop: float
    nbytes: float
    training_flop: float
    training_bytes: float


@dataclass(frozen=True)
class Prediction:
    """What PALEO says of a model on a GPU type, s.

    peak_of: the field of gpus.yaml.  at_peak: FLOP / peak alone, as if memory were free and no FLOP wasted.  forward,
    training: by `formulas.layer_time`, layer by layer, and summed.
    """

    peak_of: str
    peak: float
    at_peak: float
    forward: float
    training: float
    layers: Sequence[float]


def layer_costs(count: ModelCount, batch: int = 1, dtype: str = "float32") -> list[LayerCost]:
    """The layers that compute or move anything, in the model's order; the model's own operations have the layer "".

    The first operation made of multiply-adds is taken for the one that reads the model's input and needs no gradient of
    it. Bytes of a precision are those of float32 by its width.
    """
    first = next((operation for operation in count.operations if operation.multiply_adds), None)
    costs = []
    for layer, work in count.layers.items():
        if not (work.multiply_adds or work.bytes):
            continue
        parameters = count.layer_parameters[layer]
        flop = float(work.flops * batch)
        nbytes = bytes_of_batch(work.bytes, parameters, batch, WIDTH[dtype])
        own_first = first is not None and first.layer == layer
        first_flop = 2.0 * first.multiply_adds * batch if first and own_first else 0.0
        first_bytes = bytes_of_batch(first.bytes, parameters, batch, WIDTH[dtype]) if first and own_first else 0.0
        costs.append(
            LayerCost(
                layer,
                count.layer_types[layer],
                flop,
                nbytes,
                flop + backward_flop(flop, first_flop),
                nbytes + backward_bytes(nbytes, parameters > 0, first_bytes),
            )
        )
    return costs


def predict(costs: Sequence[LayerCost], gpu: GpuType, dtype: str, ppp: float) -> Prediction | None:
    """The prediction for a GPU type; None where it has no published peak in that precision."""
    if not (published := published_peak(gpu, dtype)):
        return None
    field, peak = published
    layers = [layer_time(cost.flop, cost.nbytes, peak, gpu.bandwidth, ppp) for cost in costs]
    training = sum(layer_time(cost.training_flop, cost.training_bytes, peak, gpu.bandwidth, ppp) for cost in costs)
    return Prediction(field, peak, sum(cost.flop for cost in costs) / peak, sum(layers), training, layers)
