"""Energy of a step that runs on and on: by the card's counter, or the CPU package's. Imports torch: on use only."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

from hpml_plugins import Bench

#: s before a counter is read, so that clocks and power have settled, and s between its readings.
SETTLE, LASTS = 0.3, 1.2
RAPL = Path("/sys/class/powercap/intel-rapl:0")


def attach_energy(bench: Bench, step: Callable[[], object], images: int) -> None:
    """The series `energy`, of the point's first round: J an image and average power of a step over so many images.

    The whole card's, or the whole CPU package's, whatever else it does. Where nothing tells, a warning and no series.
    """
    if columns := bench.once("energy", lambda: _energy(bench, step, images)):
        bench.series("energy", columns, {"energy": "J", "power": "W", "images": "1"})


def _energy(bench: Bench, step: Callable[[], object], images: int) -> dict[str, list[float]]:
    """The columns: the step is repeated for LASTS. None where nothing tells."""
    read, end = _counter(bench)
    if read is None:
        bench.warn(f"energy is not known: {end}")
        return {}
    _repeat(step, SETTLE, bench.device)
    before = read()
    steps, seconds = _repeat(step, LASTS, bench.device)
    joules = read() - before
    if joules <= 0:
        bench.warn("energy is not known: the counter did not move forward")
        return {}
    return {
        "energy": [joules / (steps * images)],
        "power": [joules / seconds],
        "images": [steps * images],
    }


def _counter(bench: Bench) -> tuple[Callable[[], float] | None, str]:
    """What reads joules, or why there is none."""
    if bench.device == "cpu":
        counter = RAPL / "energy_uj"
        try:
            counter.read_text()
        except OSError as error:
            return None, f"{counter}: {error.strerror}"
        return lambda: int(counter.read_text()) * 1e-6, ""
    try:
        import pynvml

        pynvml.nvmlInit()
        handle = pynvml.nvmlDeviceGetHandleByUUID(bench.node.gpus[0].uuid)
        pynvml.nvmlDeviceGetTotalEnergyConsumption(handle)
    except Exception as error:
        return None, str(error)
    return lambda: pynvml.nvmlDeviceGetTotalEnergyConsumption(handle) * 1e-3, ""


def _repeat(step: Callable[[], object], lasting: float, device: str) -> tuple[int, float]:
    """Run the step for about so long. How often, and how long it took."""
    import torch

    synchronize = torch.cuda.synchronize if device == "cuda" else lambda: None
    step()
    synchronize()
    started, steps = time.perf_counter(), 0
    while (seconds := time.perf_counter() - started) < lasting:
        # Waited for now and then: the host would enqueue far more than the card does in that time.
        for _ in range(10 if device == "cuda" else 1):
            step()
            steps += 1
        synchronize()
    return steps, seconds
