"""The last readings of the GPUs, in memory that the GPU monitor (`gpu_monitor`) shares with the
measuring processes."""

from __future__ import annotations

import multiprocessing
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple

#: s between two readings of the telemetry; the power regulator's period is about a second.
TELEMETRY_INTERVAL = 0.02
#: The same while a process waits for an update of the energy counter, which happens about every
#: 0.1 s.
FAST_TELEMETRY_INTERVAL = 0.002
#: The columns of the time series of a GPU, and their units.
UNITS = {
    "time": "s",
    "sm_clock": "Hz",
    "memory_clock": "Hz",
    "utilization": "1",
    "memory_utilization": "1",
    "power": "W",
    "temperature": "degC",
    "memory_used": "B",
    "throttle_reasons": "1",
}


class Reading(NamedTuple):
    """The last reading of a GPU. at: s of the monotonic clock.  throttled: s, in total, for which
    power or heat lowered its clocks.

    clock: of the SMs, Hz.  power: W.  energy: J, in total.  energy_at: the last update of the
    energy counter, s of the monotonic clock.  utilization, memory_utilization: 0 to 1.
    memory_used: B. Values that the card does not report are 0.
    """

    at: float
    throttled: float
    clock: float = 0.0
    power: float = 0.0
    energy: float = 0.0
    energy_at: float = 0.0
    utilization: float = 0.0
    memory_utilization: float = 0.0
    memory_used: float = 0.0


class Telemetry:
    """The last reading of each monitored GPU, in memory shared by the GPU monitor and the measuring
    processes."""

    def __init__(self, count: int) -> None:
        self._values = multiprocessing.RawArray("d", count * len(Reading._fields))
        self._fast = multiprocessing.RawValue("b", 0)
        #: W for each GPU, 0 for its default limit: requested by a measuring process, and
        #: actually set (`power_limit`).
        self.wanted_limits = multiprocessing.RawArray("d", count)
        self.set_limits = multiprocessing.RawArray("d", count)

    @contextmanager
    def fast(self) -> Iterator[None]:
        """Read the cards more often while the block runs, to detect updates of their energy
        counters."""
        self._fast.value = 1
        try:
            yield
        finally:
            self._fast.value = 0

    @property
    def interval(self) -> float:
        """s that the GPU monitor waits between two readings."""
        return FAST_TELEMETRY_INTERVAL if self._fast.value else TELEMETRY_INTERVAL

    def write(self, number: int, reading: Reading) -> None:
        """Replace the reading of a GPU. Called by the GPU monitor only."""
        start = number * len(reading)
        self._values[start : start + len(reading)] = reading

    def read(self, number: int = 0) -> Reading | None:
        """The last reading of a GPU; None if it is not monitored, or has not been read yet."""
        size = len(Reading._fields)
        place = slice(number * size, (number + 1) * size)
        values = self._values[place]
        while values != (again := self._values[place]):  # it was being written
            values = again
        return Reading(*values) if len(values) == size and values[0] else None
