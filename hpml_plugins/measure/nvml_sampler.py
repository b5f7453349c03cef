"""Watching the GPUs while a point is measured: clocks, utilisation, power, temperature, memory, throttling, troubles.

It runs beside the measuring process (`watching`): it takes no time of its own and shares no interpreter lock.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any

from hpml_plugins.measure.gpu_faults import lost, memory_errors
from hpml_plugins.model.node import Gpu
from hpml_plugins.model.record import Series
from hpml_plugins.node.nvml import read_users

#: s between two looks, at first; doubled whenever the series reach MOST_ROWS, so that a long run stays small.
INTERVAL = 0.05
MOST_ROWS = 300
#: Clock event reasons that mean heat or power, as NVML's bits.
REASONS = {
    0x4: "power cap",
    0x8: "hardware slowdown",
    0x20: "heat (software)",
    0x40: "heat (hardware)",
    0x80: "power brake",
}
THROTTLED = sum(REASONS)
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
    """Looks at some GPUs through NVML. `problem` says why it cannot, where it cannot; it then records nothing.

    fault: why nothing that is measured here counts: a card is lost, or its memory failed.
    """

    def __init__(self, gpus: Sequence[Gpu]) -> None:
        self.problem = ""
        self.fault = ""
        self.warnings: list[str] = []
        self.energy = 0.0
        self._interval = INTERVAL
        self._rows: list[list[list[float | None]]] = [[] for _ in gpus]
        # Kept apart from the rows, which are thinned: no look that saw the card held down may be lost.
        self._held_down: list[tuple[float, float]] = []
        self._reasons = 0
        self._started = time.monotonic()
        self._handles: list[Any] = []
        self._joules_before: list[float | None] = []
        self._gpus = gpus
        if not gpus:
            return
        try:
            import pynvml

            self._nvml = pynvml
            pynvml.nvmlInit()
        except Exception as error:
            self.problem = f"measured without watching the GPU: {error}"
            return
        for number, gpu in enumerate(gpus):
            try:
                self._handles.append(pynvml.nvmlDeviceGetHandleByUUID(gpu.uuid))
            except Exception as error:
                self.fault, self._handles = lost(error, number, gpu), []
                self.problem = "" if self.fault else f"measured without watching the GPU: {error}"
                return
        self._joules_before = [self._joules(handle) for handle in self._handles]
        self._errors_before = [self._memory_errors(handle) for handle in self._handles]
        self._users = read_users(gpus)
        self.warnings += [f"{user} when the point began" for user in self._users]

    @property
    def interval(self) -> float:
        """How long to wait for the next look, s."""
        return self._interval

    def look(self) -> None:
        """Take one row of each GPU."""
        now = time.monotonic()
        if not self._handles:
            return
        for number, (handle, rows) in enumerate(zip(self._handles, self._rows, strict=True)):
            row = self._row(handle)
            if row[-1] is None and not self.fault:
                self._is_it_lost(number)
            rows.append([round(now - self._started, 3), *row])
            if (reasons := int(row[-1] or 0)) & THROTTLED:
                self._held_down.append((now - self._interval, now + self._interval))
                self._reasons |= reasons
        if len(self._rows[0]) >= MOST_ROWS:
            self._rows = [rows[::2] for rows in self._rows]
            self._interval *= 2

    def finish(self) -> dict[str, Series]:
        """The series, one a GPU; `energy`, J, of all of them since the start; `fault` and `warnings`, complete.

        Asked when the point's processes are gone: who is on a card then is somebody else.
        """
        if not self._handles:
            return {}
        after = [self._joules(handle) for handle in self._handles]
        for number in range(len(self._handles)):  # a point that CUDA ends is over before the next look
            if not self.fault:
                self._is_it_lost(number)
        fault, warnings = memory_errors(
            self._gpus, self._errors_before, [self._memory_errors(handle) for handle in self._handles]
        )
        self.fault = self.fault or fault
        self.warnings += warnings
        known = {user.pid for user in self._users}
        self.warnings += [f"{user} when the point ended" for user in read_users(self._gpus) if user.pid not in known]
        pairs = zip(self._joules_before, after, strict=True)
        self.energy = sum(new - old for old, new in pairs if new is not None and old is not None)
        with suppress(Exception):
            self._nvml.nvmlShutdown()
        if self._reasons:
            why = ", ".join(name for bit, name in REASONS.items() if self._reasons & bit)
            self.warnings.append(f"the GPU held its clocks down while this was measured: {why}")
        return {f"gpu{number}": _series(rows) for number, rows in enumerate(self._rows) if rows}

    def throttled(self, at: Sequence[float]) -> list[int]:
        """The indices of the samples that ended while any GPU was throttled for heat or power.

        at: s of the monotonic clock, ascending. A look stands for the time up to the next one.
        """
        return [i for i, when in enumerate(at) if any(start <= when <= end for start, end in self._held_down)]

    def _row(self, handle: Any) -> list[float | None]:
        nvml = self._nvml
        utilization = self._ask(lambda: nvml.nvmlDeviceGetUtilizationRates(handle))
        memory = self._ask(lambda: nvml.nvmlDeviceGetMemoryInfo(handle))
        return [
            self._number(lambda: nvml.nvmlDeviceGetClockInfo(handle, nvml.NVML_CLOCK_SM), 1e6),
            self._number(lambda: nvml.nvmlDeviceGetClockInfo(handle, nvml.NVML_CLOCK_MEM), 1e6),
            utilization.gpu / 100 if utilization else None,
            utilization.memory / 100 if utilization else None,
            self._number(lambda: nvml.nvmlDeviceGetPowerUsage(handle), 1e-3),
            self._number(lambda: nvml.nvmlDeviceGetTemperature(handle, nvml.NVML_TEMPERATURE_GPU), 1),
            float(memory.used) if memory else None,
            self._number(lambda: nvml.nvmlDeviceGetCurrentClocksEventReasons(handle), 1),
        ]

    def _is_it_lost(self, number: int) -> None:
        """A card that does not tell one thing may lack it; one that does not tell its memory either is asked why."""
        try:
            self._nvml.nvmlDeviceGetMemoryInfo(self._handles[number])
        except Exception as error:
            self.fault = lost(error, number, self._gpus[number])

    def _memory_errors(self, handle: Any) -> tuple[int | None, int | None]:
        """Corrected and uncorrected errors since the driver was loaded; None on a card without ECC."""
        return self._memory_errors_of(handle, 0), self._memory_errors_of(handle, 1)

    def _memory_errors_of(self, handle: Any, kind: int) -> int | None:
        # 0, 1: NVML_MEMORY_ERROR_TYPE_CORRECTED, _UNCORRECTED
        count = self._ask(lambda: self._nvml.nvmlDeviceGetTotalEccErrors(handle, kind, self._nvml.NVML_VOLATILE_ECC))
        return None if count is None else int(count)

    def _joules(self, handle: Any) -> float | None:
        millijoules = self._ask(lambda: self._nvml.nvmlDeviceGetTotalEnergyConsumption(handle))
        return None if millijoules is None else float(millijoules) * 1e-3

    def _number(self, question: Callable[[], float], factor: float) -> float | None:
        answer = self._ask(question)
        return None if answer is None else round(float(answer) * factor, 1)

    def _ask(self, question: Callable[[], Any]) -> Any:
        # What one card does not tell (power in a virtual machine, say) must not cost the rest of the row.
        try:
            return question()
        except Exception:
            return None


def _series(rows: Sequence[Sequence[float | None]]) -> Series:
    """The rows as columns. What the card did not tell every time is left out: a zero would be a measurement."""
    columns = {name: [row[i] for row in rows] for i, name in enumerate(UNITS)}
    told = {name: [value for value in values if value is not None] for name, values in columns.items()}
    whole: dict[str, list[float | str]] = {
        name: list(values) for name, values in told.items() if len(values) == len(rows)
    }
    return Series(whole, {name: UNITS[name] for name in whole})
