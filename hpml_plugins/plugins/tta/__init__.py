"""Time to accuracy: the time until a network reaches its target, its variation, and the use of the
GPU."""

from __future__ import annotations

from hpml_plugins import Benchmark, DataSource, Figure, hookimpl


@hookimpl
def hpml_benchmarks() -> list[Benchmark]:
    """Sets of runs to the target accuracy, and the utilisation of the processor."""
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
    """Photographs for testing networks that were trained on CIFAR-10."""
    from hpml_plugins.plugins.tta.photographs import PHOTOGRAPHS

    return [PHOTOGRAPHS]


@hookimpl
def hpml_figures() -> list[Figure]:
    """Times and their spread, accuracy over time and on other images, utilisation and how to raise
    it."""
    from hpml_plugins.plugins.tta.charts import FIGURES

    return list(FIGURES)
