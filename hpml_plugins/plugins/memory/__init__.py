"""The memory that a network needs and uses on a card, and the largest sizes that fit."""

from __future__ import annotations

from hpml_plugins import Benchmark, Figure, hookimpl
from hpml_plugins.plugins.memory.batch import MEMORY_BATCH
from hpml_plugins.plugins.memory.card import MEMORY_CARD
from hpml_plugins.plugins.memory.layers import MEMORY_LAYERS
from hpml_plugins.plugins.memory.parts import MEMORY_PARTS


@hookimpl
def hpml_benchmarks() -> list[Benchmark]:
    """The parts anywhere, the card, the largest batch and the most layers."""
    return [MEMORY_PARTS, MEMORY_CARD, MEMORY_BATCH, MEMORY_LAYERS]


@hookimpl
def hpml_figures() -> list[Figure]:
    """A chart of each; the ratio and the layers with the published figures."""
    from hpml_plugins.plugins.memory.charts import FIGURES

    return FIGURES
