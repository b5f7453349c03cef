"""The reference steps, measured first in each visit to a GPU: the speed of this card within its
type."""

from __future__ import annotations

from hpml_plugins import Benchmark, hookimpl
from hpml_plugins.plugins.reference.reference import REFERENCE_STEPS


@hookimpl
def hpml_benchmarks() -> list[Benchmark]:
    """The one benchmark of this plugin, `reference`."""
    return [REFERENCE_STEPS]
