"""Language models with random weights: inference and training, each explained by its parts."""

from __future__ import annotations

from hpml_plugins import Benchmark, Figure, hookimpl
from hpml_plugins.plugins.language_models.communication import (
    COMMUNICATION,
    COMMUNICATION_CPU,
)
from hpml_plugins.plugins.language_models.decoding import DECODE, DECODE_CPU
from hpml_plugins.plugins.language_models.engines import SERVING_ENGINES
from hpml_plugins.plugins.language_models.explanation import EXPLAINED, EXPLAINED_CPU
from hpml_plugins.plugins.language_models.fused import TRAINING_FUSED
from hpml_plugins.plugins.language_models.fused_decoding import DECODE_FUSED
from hpml_plugins.plugins.language_models.launches import LAUNCHES, LAUNCHES_CPU
from hpml_plugins.plugins.language_models.parallel import PARALLEL, PARALLEL_CPU
from hpml_plugins.plugins.language_models.prefill import PREFILL, PREFILL_CPU
from hpml_plugins.plugins.language_models.serving import SERVING, SERVING_CPU
from hpml_plugins.plugins.language_models.time_to_loss import TIME_TO_LOSS, TIME_TO_LOSS_CPU
from hpml_plugins.plugins.language_models.training import (
    RANKS,
    RANKS_CPU,
    TRAINING,
    TRAINING_CPU,
)


@hookimpl
def hpml_benchmarks() -> list[Benchmark]:
    """Benchmarks on GPUs, and of tiny models on the CPU."""
    on_gpus = [TRAINING, DECODE, PREFILL, RANKS, PARALLEL, SERVING, EXPLAINED, TIME_TO_LOSS]
    beside = [TRAINING_FUSED, DECODE_FUSED, LAUNCHES, COMMUNICATION, SERVING_ENGINES]
    small = [TRAINING_CPU, DECODE_CPU, PREFILL_CPU, RANKS_CPU, PARALLEL_CPU, SERVING_CPU]
    return [
        *on_gpus,
        *beside,
        *small,
        EXPLAINED_CPU,
        LAUNCHES_CPU,
        COMMUNICATION_CPU,
        TIME_TO_LOSS_CPU,
    ]


@hookimpl
def hpml_figures() -> list[Figure]:
    """Time per token by part, predictions, parallel decoding, latencies and losses."""
    from hpml_plugins.plugins.language_models.charts import FIGURES

    return FIGURES
