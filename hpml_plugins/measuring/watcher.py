"""Watching the GPUs while a point is measured: clocks, utilisation, power, temperature, memory, throttling.

It runs in the process that waits for the measuring one, between two looks at the pipe: the measured process gives it
no time of its own and shares no interpreter lock with it.
"""

from __future__ import annotations

import functools
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any

from hpml_plugins.model.node import Gpu
from hpml_plugins.model.record import Series

#: s between two looks, at first; doubled whenever the series reach MOST_ROWS, so that a long run stays small.
INTERVAL = 0.05
MOST_ROWS = 300
#: Clock event reasons that mean heat or power: SW power cap, HW slowdown, SW and HW thermal, HW power brake.
THROTTLED = 0x4 | 0x8 | 0x20 | 0x40 | 0x80
REASONS = {
    0x4: "power cap",
    0x8: "hardware slowdown",
    0x20: "heat (software)",
    0x40: "heat (hardware)",
    0x80: "power brake",
}
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


class Watcher:
    """Looks at some GPUs through NVML. `problem` says why it cannot, where it cannot; it then records nothing."""

    def __init__(self, gpus: Sequence[Gpu]) -> None:
        self.problem = ""
        self.warnings: list[str] = []
        self.energy = 0.0
        self._interval = INTERVAL
        self._next = 0.0
        self._rows: list[list[list[float]]] = [[] for _ in gpus]
        self._started = time.monotonic()
        self._handles: list[Any] = []
        self._joules_before: list[float | None] = []
        if not gpus:
            return
        try:
            import pynvml

            self._nvml = pynvml
            pynvml.nvmlInit()
            self._handles = [pynvml.nvmlDeviceGetHandleByUUID(gpu.uuid) for gpu in gpus]
        except Exception as error:
            self.problem = f"measured without watching the GPU: {error}"
            return
        self._joules_before = [self._joules(handle) for handle in self._handles]
        self._say_who_is_there(gpus)

    @property
    def interval(self) -> float:
        """How long to wait for the next look, s."""
        return self._interval

    def look(self) -> None:
        """Take one row of each GPU, if it is time."""
        now = time.monotonic()
        if now < self._next or not self._handles:
            return
        self._next = now + self._interval
        for handle, rows in zip(self._handles, self._rows, strict=True):
            rows.append([round(now - self._started, 3), *self._row(handle)])
        if len(self._rows[0]) >= MOST_ROWS:
            self._rows = [rows[::2] for rows in self._rows]
            self._interval *= 2

    def finish(self) -> dict[str, Series]:
        """The series, one a GPU, and `energy`, J, of all of them since the start."""
        if not self._handles:
            return {}
        after = [self._joules(handle) for handle in self._handles]
        pairs = zip(self._joules_before, after, strict=True)
        self.energy = sum(new - old for old, new in pairs if new is not None and old is not None)
        with suppress(Exception):
            self._nvml.nvmlShutdown()
        self._warn_of_throttling()
        names = list(UNITS)
        return {
            f"gpu{number}": Series({name: [row[i] for row in rows] for i, name in enumerate(names)}, UNITS)
            for number, rows in enumerate(self._rows)
            if rows
        }

    def throttled(self, at: Sequence[float]) -> list[int]:
        """The indices of the samples that ended while any GPU was throttled for heat or power.

        at: s of the monotonic clock, ascending. A look stands for the time up to the next one.
        """
        spans = [
            (self._started + row[0] - self._interval, self._started + row[0] + self._interval)
            for rows in self._rows
            for row in rows
            if int(row[-1]) & THROTTLED
        ]
        return [index for index, when in enumerate(at) if any(start <= when <= end for start, end in spans)]

    def _row(self, handle: Any) -> list[float]:
        nvml = self._nvml
        utilization = self._ask(lambda: nvml.nvmlDeviceGetUtilizationRates(handle))
        memory = self._ask(lambda: nvml.nvmlDeviceGetMemoryInfo(handle))
        return [
            self._number(lambda: nvml.nvmlDeviceGetClockInfo(handle, nvml.NVML_CLOCK_SM), 1e6),
            self._number(lambda: nvml.nvmlDeviceGetClockInfo(handle, nvml.NVML_CLOCK_MEM), 1e6),
            utilization.gpu / 100 if utilization else 0.0,
            utilization.memory / 100 if utilization else 0.0,
            round(self._number(lambda: nvml.nvmlDeviceGetPowerUsage(handle), 1e-3), 1),
            self._number(lambda: nvml.nvmlDeviceGetTemperature(handle, nvml.NVML_TEMPERATURE_GPU), 1),
            float(memory.used) if memory else 0.0,
            self._number(lambda: nvml.nvmlDeviceGetCurrentClocksEventReasons(handle), 1),
        ]

    def _joules(self, handle: Any) -> float | None:
        millijoules = self._ask(lambda: self._nvml.nvmlDeviceGetTotalEnergyConsumption(handle))
        return None if millijoules is None else float(millijoules) * 1e-3

    def _say_who_is_there(self, gpus: Sequence[Gpu]) -> None:
        for gpu, handle in zip(gpus, self._handles, strict=True):
            ask = functools.partial(self._nvml.nvmlDeviceGetComputeRunningProcesses, handle)
            for process in self._ask(ask) or []:
                used = f", {process.usedGpuMemory / 2**20:.0f} MiB" if process.usedGpuMemory else ""
                self.warnings.append(f"{gpu.name} was in use by process {process.pid}{used} when the point began")

    def _warn_of_throttling(self) -> None:
        seen = 0
        for rows in self._rows:
            for row in rows:
                seen |= int(row[-1])
        if seen & THROTTLED:
            why = ", ".join(name for bit, name in REASONS.items() if seen & bit)
            self.warnings.append(f"the GPU held its clocks down while this was measured: {why}")

    def _number(self, question: Callable[[], float], factor: float) -> float:
        answer = self._ask(question)
        return 0.0 if answer is None else float(answer) * factor

    def _ask(self, question: Callable[[], Any]) -> Any:
        # What one card does not tell (power in a virtual machine, say) must not cost the rest of the row.
        try:
            return question()
        except Exception:
            return None
