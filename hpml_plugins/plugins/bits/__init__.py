"""Checks whether a device computes the same bits as others of its type."""

from __future__ import annotations

from hpml_plugins import Benchmark, hookimpl
from hpml_plugins.plugins.bits.bits import BITS


@hookimpl
def hpml_benchmarks() -> list[Benchmark]:
    """The one benchmark of this plugin, `bits`."""
    return [BITS]
