"""The benchmark `harness_energy`: checks the counted energy against integrated power, and with
twice the work.

A Hopper card's power sensor measures 25 of every 100 ms (Yang, Adámek, Armour, arXiv:2312.02741).
Work and rest alternate several times within 25 ms, because with longer periods the sensor would
measure varying shares of the work.
"""

from __future__ import annotations

import time
from typing import Any

from hpml_plugins import Bench, Benchmark, Metric, Requires

#: s of work before each rest, at least one call of the step; and the total length of the load, s.
WORK, LASTS = 0.002, 6.0


def measure(bench: Bench, *, case: str, load: float) -> dict[str, Any]:
    """Run a step for `load` of the time; compare the energy counter with the mean of power samples
    over that time.

    Under full load also `bench.energy` of two calls of the step with twice that of one: the second
    call is known work.
    """
    import torch

    from hpml_plugins.plugins.harness.kernels import step_of

    step = step_of(case)
    calls = max(1, round(WORK / bench.time(step, quiet=True).median))

    def work_and_rest() -> None:
        started = time.perf_counter()
        for _ in range(calls):
            step()
        torch.cuda.synchronize()
        time.sleep((time.perf_counter() - started) * (1 / load - 1))

    bench.progress("settling", 0.2)
    _repeat(work_and_rest, LASTS / 3)
    bench.progress("counting and integrating", 0.4)
    with bench.meter(interval=0.02) as meter:
        _repeat(work_and_rest, LASTS)
    if meter.energy is None:
        bench.skip(meter.problem)
    counted, integrated = meter.energy / meter.seconds, meter.mean("power") or 0.0
    bench.series("load", meter.columns, meter.units)
    once, twice = (
        bench.energy(one) if load == 1 else None for one in (step, lambda: (step(), step()))
    )
    return {
        "counted": counted,
        "integrated": integrated,
        "error": abs(integrated / counted - 1),
        "energy": once,
        "doubling": twice.median / (2 * once.median) if once and twice else None,
    }


def _repeat(step: Any, lasting: float) -> None:
    end = time.monotonic() + lasting
    while time.monotonic() < end:
        step()


ENERGY = Benchmark(
    "harness_energy",
    measure,
    [
        Metric("counted", "W", None, "mean power by the card's energy counter"),
        Metric("integrated", "W", None, "mean of the samples of power over the same time"),
        Metric("error", "1", "lower", "of integrated power against counted energy"),
        Metric("energy", "J", "lower", "of one call under full load, above that of the idle card"),
        Metric(
            "doubling",
            "1",
            None,
            "energy of two calls over twice that of one: 1 where energy counts work",
        ),
    ],
    grid={"case": ["vecadd_100m", "matmul_8192"], "load": [0.25, 0.5, 1.0]},
    requires=Requires(gpus=1, modules=("torch", "numba.cuda")),
    version="2",
    timeout=120,
    rounds=1,
    description=(
        "Energy per call: the card's counter against integrated power at several loads, and twice"
        " the work."
    ),
)
