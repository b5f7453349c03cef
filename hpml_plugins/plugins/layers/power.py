"""The card's power while a step runs again and again: by its energy counter, over the steps alone."""

from __future__ import annotations

import math
import time
from collections.abc import Callable

from hpml_plugins import Bench

#: s before the counter is read, so that clocks and power have settled, and s between its two readings. The counter
#: moves in steps of some tens of milliseconds, which are a few per cent of this.
SETTLE, LASTS = 0.3, 1.2
MOST_CALLS = 50_000


def attach_power(bench: Bench, step: Callable[[], object], seconds: float) -> None:
    """Attach the series `power`, of the point's first round: average power and energy of a call.

    Where the card does not tell its energy, a warning says so and there is no series: a zero would be a measurement.
    """
    if columns := bench.once("power", lambda: _power(bench, step, seconds)):
        bench.series("power", columns, {"power": "W", "energy": "J", "calls": "1", "time": "s"})


def _power(bench: Bench, step: Callable[[], object], seconds: float) -> dict[str, list[float]]:
    """The columns: a step of so many seconds is repeated on the GPU. None where the card does not tell its energy."""
    import torch

    def repeat(lasting: float) -> tuple[int, float]:
        calls = min(MOST_CALLS, max(1, math.ceil(lasting / seconds)))
        started = time.perf_counter()
        for _ in range(calls):
            step()
        torch.cuda.synchronize()
        return calls, time.perf_counter() - started

    try:
        import pynvml

        pynvml.nvmlInit()
        handle = pynvml.nvmlDeviceGetHandleByUUID(bench.node.gpus[0].uuid)
        pynvml.nvmlDeviceGetTotalEnergyConsumption(handle)
    except Exception as error:
        bench.warn(f"power is not known: {error}")
        return {}
    repeat(SETTLE)
    before = pynvml.nvmlDeviceGetTotalEnergyConsumption(handle)
    calls, lasted = repeat(LASTS)
    joules = (pynvml.nvmlDeviceGetTotalEnergyConsumption(handle) - before) * 1e-3
    return {"power": [joules / lasted], "energy": [joules / calls], "calls": [calls], "time": [lasted]}
