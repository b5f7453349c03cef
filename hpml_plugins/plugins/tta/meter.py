"""How busy the processor is, over time: the GPU's own figures by NVML, or this process's share of the CPUs."""

from __future__ import annotations

import os
import statistics
import threading
import time
from types import TracebackType
from typing import Any

from hpml_plugins import Bench

#: s between two looks. NVML's figures are means over the last sixth of a second to second.
INTERVAL = 0.2
UNITS = {"time": "s", "core": "1", "memory": "1", "power": "W", "energy": "J"}


class Meter:
    """Looks at the processor in a thread while its block runs: `columns` has what was seen, `mean` its mean.

    On a GPU: core, the share of time in which a kernel ran (nvidia-smi's utilization.gpu); memory, in which memory
    was read or written; power.  On a CPU: core, the time that this process and its ended children computed over that of
    all CPUs that it may use. What is not told is no column.
    """

    def __init__(self, bench: Bench, interval: float = INTERVAL) -> None:
        self.columns: dict[str, list[float]] = {}
        self.problem = ""
        self._interval = interval
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self._started = 0.0
        self._look: Any = self._look_at_cpu
        self._last = (0.0, 0.0)
        if bench.gpus:
            try:
                import pynvml

                pynvml.nvmlInit()
                self._nvml = pynvml
                self._handle = pynvml.nvmlDeviceGetHandleByUUID(bench.node.gpus[0].uuid)
                pynvml.nvmlDeviceGetUtilizationRates(self._handle)
                self._look = self._look_at_gpu
            except Exception as error:
                self.problem = f"the GPU's utilisation is not known: {error}"

    def __enter__(self) -> Meter:
        self._started = time.perf_counter()
        self._last = (self._started, _cpu_seconds())
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._ended.set()
        self._thread.join()
        if not self.columns and not error:
            self._note(self._look())

    def mean(self, column: str) -> float | None:
        """Of what was seen; None where nothing was."""
        return statistics.fmean(self.columns[column]) if self.columns.get(column) else None

    def _watch(self) -> None:
        while not self._ended.wait(self._interval):
            try:
                self._note(self._look())
            except Exception as error:
                self.problem = f"the utilisation is known in part only: {error}"
                return

    def _note(self, seen: dict[str, float]) -> None:
        for name, value in {"time": time.perf_counter() - self._started, **seen}.items():
            self.columns.setdefault(name, []).append(value)

    def _look_at_gpu(self) -> dict[str, float]:
        rates = self._nvml.nvmlDeviceGetUtilizationRates(self._handle)
        power = self._nvml.nvmlDeviceGetPowerUsage(self._handle) * 1e-3
        return {"core": rates.gpu / 100, "memory": rates.memory / 100, "power": power}

    def _look_at_cpu(self) -> dict[str, float]:
        now, used = time.perf_counter(), _cpu_seconds()
        before, had = self._last
        self._last = (now, used)
        return {"core": (used - had) / (now - before) / len(os.sched_getaffinity(0))}


def _cpu_seconds() -> float:
    return sum(os.times()[:4])
