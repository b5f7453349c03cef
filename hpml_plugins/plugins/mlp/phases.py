"""Named parts of a batch: their times, by CUDA's events or the host's clock, and NVTX ranges of the same names."""

from __future__ import annotations

import contextlib
import importlib
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from typing import Any

#: `with phase("forward GEMM 1"): …`; on_host: what the host itself does, so that its clock is the one to ask.
Phase = Callable[..., AbstractContextManager[None]]

SETUP, IMAGES, ELEMENTWISE, STEP = "train setup", "copying images host to device", "element-wise", "step"
PRODUCTS = ("forward GEMM 1", "forward GEMM 2", "backward GEMM 1", "backward GEMM 2", "backward GEMM 3")
#: Those that the exercise counts.
COUNTED = tuple(name for name in PRODUCTS if name != "backward GEMM 2")
TO_HOST, REDUCE, TO_DEVICE, LAUNCHING = "device to host", "all-reduce", "host to device", "launching"
#: What holds other phases: ranges for a profiler, not times of their own.
BATCH, FORWARD, BACKWARD = "batch iteration", "forward", "backward"
#: In the order of a batch. What is computed, and what the host waits for.
COMPUTED = (*PRODUCTS, ELEMENTWISE)
ORDER = (IMAGES, *COMPUTED, TO_HOST, REDUCE, TO_DEVICE, STEP)


def added_up(times: Mapping[str, float], *, on_gpu: bool) -> float:
    """A batch from its phases, s. On a GPU what is computed takes as long as its launching, where that is longer."""
    computed = sum(times[name] for name in COMPUTED)
    others = sum(times[name] for name in ORDER if name not in COMPUTED)
    return others + (max(computed, times[LAUNCHING]) if on_gpu else computed)


_NOTHING = contextlib.nullcontext()


def no_phase(name: str, *, on_host: bool = False) -> AbstractContextManager[None]:
    """Nothing is timed."""
    return _NOTHING


class Phases:
    """Adds up the time of every phase entered, by name, while it is `active`: whole batches are timed without it."""

    def __init__(self, device: str) -> None:
        self.active = False
        self._on_gpu = device.startswith("cuda")
        self._push, self._pop = _ranges(self._on_gpu)
        self._events: list[tuple[str, Any, Any]] = []
        self._laps: list[tuple[str, float]] = []

    def __call__(self, name: str, *, on_host: bool = False) -> AbstractContextManager[None]:
        """Time what is inside: on a GPU what the current stream does in it, unless on_host."""
        return self._timed(name, on_host) if self.active else _NOTHING

    @contextmanager
    def _timed(self, name: str, on_host: bool) -> Iterator[None]:
        self._push(name)
        if self._on_gpu and not on_host:
            import torch

            start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            start.record()
            yield
            end.record()
            self._events.append((name, start, end))
        else:
            started = time.perf_counter()
            yield
            self._laps.append((name, time.perf_counter() - started))
        self._pop()

    def taken(self) -> dict[str, float]:
        """Seconds by name since the last call; waits for the device."""
        if self._on_gpu:
            import torch

            torch.cuda.synchronize()
        times: dict[str, float] = {}
        laps = [*self._laps, *((name, 1e-3 * float(a.elapsed_time(b))) for name, a, b in self._events)]
        for name, seconds in laps:
            times[name] = times.get(name, 0.0) + seconds
        self._events, self._laps = [], []
        return times


def _ranges(on_gpu: bool) -> tuple[Callable[[str], object], Callable[[], object]]:
    """How an NVTX range begins and ends: by the package nvtx, else by torch, else not at all."""
    with contextlib.suppress(ImportError):
        nvtx = importlib.import_module("nvtx")
        return nvtx.push_range, nvtx.pop_range
    if on_gpu:
        from torch.cuda import nvtx as of_torch

        return of_torch.range_push, of_torch.range_pop
    return (lambda name: None), (lambda: None)
