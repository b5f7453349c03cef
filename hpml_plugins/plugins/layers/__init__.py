"""Single layers on a GPU and a CPU, and VGG16 with max pooling before ReLU."""

from __future__ import annotations

from hpml_plugins import Benchmark, Figure, hookimpl
from hpml_plugins.plugins.layers.layers import LAYERS_CPU, LAYERS_CUDA
from hpml_plugins.plugins.layers.swap import SWAP_CPU, SWAP_CUDA


@hookimpl
def hpml_benchmarks() -> list[Benchmark]:
    """Single layers, and the swap in VGG16, each on a GPU and on the CPU."""
    return [LAYERS_CUDA, LAYERS_CPU, SWAP_CUDA, SWAP_CPU]


@hookimpl
def hpml_figures() -> list[Figure]:
    """Time, memory and power of the layers; the savings of swapping."""
    from hpml_plugins.plugins.layers.charts import FIGURES

    return FIGURES
