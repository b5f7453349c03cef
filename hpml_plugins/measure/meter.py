"""Measure energy, power, clocks, utilisation and memory over a block of code.

GPUs are read by the GPU monitor (`gpu_monitor`), because a process that opened NVML must not fork
one that uses CUDA. CPUs are read through Linux's RAPL counters, if the machine has them and this
user may read them.
"""

from __future__ import annotations

import math
import os
import statistics
import threading
from collections.abc import Sequence
from contextlib import AbstractContextManager
from pathlib import Path

from hpml_plugins import clocks
from hpml_plugins.measure.telemetry import UNITS, Reading, Telemetry

RAPL = Path("/sys/class/powercap")


class EnergyCounter:
    """The energy counters of some monitored GPUs; without GPUs, those of all CPU packages.

    problem: why the energy is unknown, "" if it is known.
    """

    def __init__(self, telemetry: Telemetry | None, gpus: Sequence[int]) -> None:
        self._telemetry = telemetry
        self._gpus = gpus
        self._packages = [] if gpus else sorted(RAPL.glob("intel-rapl:[0-9]"))
        self._last = [math.inf] * len(self._packages)
        self._used = 0.0
        self.problem = ""
        if not gpus:
            self.problem = (
                "" if self._packages else f"no energy counter of the CPU in {RAPL}"
            )
        elif not self.readings():
            self.problem = "the GPUs are not monitored here"
        elif not all(reading.energy for reading in self.readings()):
            self.problem = "the GPU does not count its energy"

    def readings(self) -> list[Reading]:
        """The last readings of the GPUs."""
        if self._telemetry:
            found = [self._telemetry.read(number) for number in self._gpus]
        else:
            found = []
        return [reading for reading in found if reading]

    def moved(self) -> tuple[float, float] | None:
        """The last update of the first GPU's counter: its time, s of the monotonic clock, and its
        value, J."""
        if self._gpus:
            reading = self.readings()[0]
            return reading.energy_at, reading.energy
        used = self.read()
        return None if used is None else (clocks.monotonic(), used)

    def read(self) -> float | None:
        """The energy up to now, J. A GPU's counter is updated about every 0.1 s; the time since
        then is extrapolated from the card's power."""
        if not self.problem and not self._gpus:
            self._read_packages()
        if self.problem:
            return None
        now = clocks.monotonic()
        since = [
            (reading.energy, reading.power * max(0.0, now - reading.energy_at))
            for reading in self.readings()
        ]
        return self._used + sum(map(sum, since))

    def _read_packages(self) -> None:
        try:
            for number, folder in enumerate(self._packages):
                value = int(folder.joinpath("energy_uj").read_text()) * 1e-6
                if value < self._last[number] < math.inf:  # the counter wrapped around
                    self._last[number] -= (
                        int(folder.joinpath("max_energy_range_uj").read_text()) * 1e-6
                    )
                # the first reading adds nothing
                self._used += max(0.0, value - self._last[number])
                self._last[number] = value
        except OSError as error:
            self.problem = f"{error.filename}: {error.strerror}"


class Meter(AbstractContextManager["Meter"]):
    """Measurements of the processor while a block ran; see Bench.meter. Available after the block,
    except `columns`.

    seconds: the duration of the block.  energy: J.  columns: the samples.
    """

    def __init__(self, telemetry: Telemetry | None, *, gpus: int, interval: float) -> None:
        self.seconds = 0.0
        self.energy: float | None = None
        self.columns: dict[str, list[float]] = {}
        self._gpus = gpus
        self._interval = interval
        self._counter = EnergyCounter(telemetry, range(gpus))
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)

    def __enter__(self) -> Meter:
        self._started = clocks.monotonic()
        self._cpu = _cpu_seconds()
        self._last = self._started
        self._energy = self._counter.read()
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join()
        if not self.columns:
            self._look()
        self.seconds = clocks.monotonic() - self._started
        end = self._counter.read()
        if end is not None and self._energy is not None:
            self.energy = end - self._energy

    @property
    def problem(self) -> str:
        """Why the energy is unknown; "" if it is known."""
        return self._counter.problem

    @property
    def power(self) -> float | None:
        """Mean power, W: energy over time if energy is counted, else the mean of the samples; None
        without either."""
        return self.mean("power") if self.energy is None else self.energy / self.seconds

    def mean(self, column: str) -> float | None:
        """The mean of a column; None without samples."""
        return statistics.fmean(self.columns[column]) if self.columns.get(column) else None

    @property
    def units(self) -> dict[str, str]:
        """The units of the columns."""
        return {name: UNITS[name] for name in self.columns}

    def _watch(self) -> None:
        while not self._ended.wait(self._interval):
            self._look()

    def _look(self) -> None:
        seen = {
            "time": clocks.monotonic() - self._started,
            **(self._read_gpus() if self._gpus else self._read_cpus()),
        }
        for name, value in seen.items():
            self.columns.setdefault(name, []).append(value)

    def _read_gpus(self) -> dict[str, float]:
        """Readings over the point's GPUs: sums of power and memory, means of the others."""
        readings = self._counter.readings()
        if not readings:
            return {}
        return {
            "sm_clock": statistics.fmean(reading.clock for reading in readings),
            "utilization": statistics.fmean(reading.utilization for reading in readings),
            "memory_utilization": statistics.fmean(
                reading.memory_utilization for reading in readings
            ),
            "power": sum(reading.power for reading in readings),
            "memory_used": sum(reading.memory_used for reading in readings),
        }

    def _read_cpus(self) -> dict[str, float]:
        """The share of the CPUs that this process and its ended children used since the previous
        call."""
        now = clocks.monotonic()
        used = _cpu_seconds()
        seconds = max(now - self._last, 1e-9)
        cpus = len(os.sched_getaffinity(0))
        share = (used - self._cpu) / seconds / cpus
        self._last = now
        self._cpu = used
        return {"utilization": share}


def _cpu_seconds() -> float:
    return sum(os.times()[:4])
