"""The last readings of the watched GPUs, in memory that the watching process (`gpu_monitor`) shares
with those that measure."""

from __future__ import annotations

import multiprocessing
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple

#: s between two readings of the telemetry: the power regulator's own period is about a second.
TELEMETRY_INTERVAL = 0.02
#: And while a process wants to know when the energy counter moves, which it does about every 0.1 s.
FAST_TELEMETRY_INTERVAL = 0.002
#: The columns of what is seen of a GPU over time, and their units.
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
    """What a GPU did last. at: s of the monotonic clock.  throttled: s, in total, for which power
    or heat held it down.

    clock: of the SMs, Hz.  power: W.  energy: J, in total.  energy_at: when the energy counter
    moved last, s of the monotonic clock.  utilization, memory_utilization: 0 to 1.  memory_used: B.
    All are 0 where the card does not tell.
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
    """The last reading of each watched GPU, in memory that the watching process shares with those
    that measure."""

    def __init__(self, count: int) -> None:
        self._values = multiprocessing.RawArray("d", count * len(Reading._fields))
        self._fast = multiprocessing.RawValue("b", 0)
        #: W for each GPU, 0 for its own limit: what a measuring process wants, and what is set
        #: (`power_limit`).
        self.wanted_limits = multiprocessing.RawArray("d", count)
        self.set_limits = multiprocessing.RawArray("d", count)

    @contextmanager
    def fast(self) -> Iterator[None]:
        """Read the cards more often while the block runs, to see when their energy counters
        move."""
        self._fast.value = 1
        try:
            yield
        finally:
            self._fast.value = 0

    @property
    def interval(self) -> float:
        """How long the watching process waits between two readings, s."""
        return FAST_TELEMETRY_INTERVAL if self._fast.value else TELEMETRY_INTERVAL

    def write(self, number: int, reading: Reading) -> None:
        """Replace the reading of a GPU. Called by the watching process only."""
        start = number * len(reading)
        self._values[start : start + len(reading)] = reading

    def read(self, number: int = 0) -> Reading | None:
        """The last reading of a GPU; None where it is not watched, or has not been read yet."""
        size = len(Reading._fields)
        place = slice(number * size, (number + 1) * size)
        values = self._values[place]
        while values != (again := self._values[place]):  # it was being written
            values = again
        return Reading(*values) if len(values) == size and values[0] else None
