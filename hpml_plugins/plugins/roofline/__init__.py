"""The roofline: FLOP, DRAM bytes and time of models and kernels, under the published and the
measured roof."""

from __future__ import annotations

from hpml_plugins import Benchmark, Figure, hookimpl
from hpml_plugins.plugins.roofline.roof import COPY, MATMUL
from hpml_plugins.plugins.roofline.roofline import KERNEL, MODEL, POWER


@hookimpl
def hpml_benchmarks() -> list[Benchmark]:
    """`roofline_model`, `roofline_kernel`, and the roof itself: `roof_copy`, `roof_matmul`;
    `roof_power`."""
    return [MODEL, KERNEL, COPY, MATMUL, POWER]


@hookimpl
def hpml_figures() -> list[Figure]:
    """The chart `roofline`; the tables `roofs`, `points`, `kernels` and `tensor_cores`."""
    from hpml_plugins.plugins.roofline.charts import FIGURES

    return list(FIGURES)
