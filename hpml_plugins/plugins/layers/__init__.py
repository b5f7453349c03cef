"""Layers alone on GPU and CPU, and whether ReLU and max pooling had better change places."""

from __future__ import annotations

from hpml_plugins import Benchmark, Figure, hookimpl
from hpml_plugins.plugins.layers.single import LAYERS_CPU, LAYERS_CUDA
from hpml_plugins.plugins.layers.swap import SWAP_CPU, SWAP_CUDA


@hookimpl
def hpml_benchmarks() -> list[Benchmark]:
    """One layer alone, and the swap in VGG16, each on a GPU and on the CPU."""
    return [LAYERS_CUDA, LAYERS_CPU, SWAP_CUDA, SWAP_CPU]


@hookimpl
def hpml_figures() -> list[Figure]:
    """Time, memory and power of the layers; what swapping saves."""
    from hpml_plugins.plugins.layers.figures import FIGURES

    return list(FIGURES)
