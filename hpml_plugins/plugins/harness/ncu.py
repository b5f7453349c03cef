"""A kernel's own duration from Nsight Compute: the truth that event timing is held against."""

from __future__ import annotations

import sys

from hpml_plugins import count_kernels

METRIC = "gpu__time_duration.sum"


def durations(case: str, *, cold: bool) -> list[float]:
    """Seconds of each kernel of a case, in the order launched.  cold: with caches emptied before each."""
    program = [sys.executable, "-m", "hpml_plugins.plugins.harness.kernels", case]
    return [kernel.counters[METRIC] for kernel in count_kernels(program, [METRIC], cold=cold)]
