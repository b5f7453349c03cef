"""Time to accuracy: how long until a network is as good as it should be, how much that varies, what
the GPU does."""

from __future__ import annotations

from hpml_plugins import Benchmark, DataSource, Figure, hookimpl


@hookimpl
def hpml_benchmarks() -> list[Benchmark]:
    """Sets of runs to the target accuracy, and what the processor does meanwhile."""
    from hpml_plugins.plugins.tta.eager import EAGER
    from hpml_plugins.plugins.tta.time_to_accuracy import DDP, DDP_CPU, TTA, TTA_CPU
    from hpml_plugins.plugins.tta.utilisation import (
        TRICKS,
        TRICKS_CPU,
        UTILISATION,
        UTILISATION_CPU,
    )

    sets = [TTA, TTA_CPU, EAGER, DDP, DDP_CPU]
    return [*sets, UTILISATION, UTILISATION_CPU, TRICKS, TRICKS_CPU]


@hookimpl
def hpml_data() -> list[DataSource]:
    """Photographs on which networks are judged that were trained on CIFAR-10."""
    from hpml_plugins.plugins.tta.photographs import PHOTOGRAPHS

    return [PHOTOGRAPHS]


@hookimpl
def hpml_figures() -> list[Figure]:
    """Times and their spread, accuracy over time and on other images, utilisation and what drives
    it up."""
    from hpml_plugins.plugins.tta.charts import FIGURES

    return list(FIGURES)
