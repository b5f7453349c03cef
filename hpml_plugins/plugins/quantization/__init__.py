"""From float32 to integers: by hand, by libraries, and the matrix products underneath."""

from __future__ import annotations

from hpml_plugins import Benchmark, hookimpl
from hpml_plugins.plugins.quantization.steps import STEPS


@hookimpl
def hpml_benchmarks() -> list[Benchmark]:
    """Accuracy after each step."""
    return [STEPS]
