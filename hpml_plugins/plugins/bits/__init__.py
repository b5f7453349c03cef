"""Whether a device computes what others of its type compute, bit for bit."""

from __future__ import annotations

from hpml_plugins import Benchmark, hookimpl
from hpml_plugins.plugins.bits.bits import BITS


@hookimpl
def hpml_benchmarks() -> list[Benchmark]:
    """The one benchmark of this plugin, `bits`."""
    return [BITS]
