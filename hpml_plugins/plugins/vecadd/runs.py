"""Whole runs of a program, its phases measured apart, repeated until their sum is known."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping

from hpml_plugins import Bench, Samples

#: A run longer than this, s, repeats three times, not ten: it shows no more, and takes minutes.
LONG_RUN = 1.0
FEWEST_LONG = 3
#: A kernel this long, s, is a thousand times its launch (numba's takes 30 to 60 µs): it needs no timing of its own.
LONG_KERNEL = 0.1


class Stopwatch:
    """Splits one run into laps by the host's clock.

    wait: called before each look at the clock, so that a lap holds the GPU's work and not only its request.
    """

    def __init__(self, wait: Callable[[], object]) -> None:
        self.laps: dict[str, float] = {}
        self._wait = wait
        wait()
        self._last = time.perf_counter()

    def lap(self, name: str) -> None:
        """End the lap of this name, s, and begin the next."""
        self._wait()
        now = time.perf_counter()
        self.laps[name] = now - self._last
        self._last = now


def warm_up(run: Callable[[], object], seconds: float) -> None:
    """Make one run that does not count, for what a first use sets up; beside launches of `seconds` s it is not seen."""
    if seconds < LONG_RUN:
        run()


def warn_if_unsure(bench: Bench, name: str, samples: Samples, stopped: object) -> None:
    """Put into the Record that a median that `bench.time` did not sample is less well known than asked."""
    known, wanted = samples.relative_precision, bench.plan.precision
    if known > wanted:
        bench.warn(
            f"{name}: the median is known to ±{known:.1%}, not ±{wanted:.1%}, after {len(samples)} samples ({stopped})"
        )


def repeat(bench: Bench, run: Callable[[], Mapping[str, float]], parts_of_total: tuple[str, ...]) -> dict[str, Samples]:
    """Samples of each lap of a run, s, and of their sum as `total`.

    run: makes one whole run and returns its laps.  parts_of_total: the laps that `total` adds up. Ends when the 95 %
    interval of the median of `total` is within the bench's precision or its budget has passed; the info says which.
    """
    plan = bench.plan
    laps: list[dict[str, float]] = []
    started = time.perf_counter()
    fewest = plan.fewest
    while True:
        done = dict(run())
        laps.append({**done, "total": sum(done[name] for name in parts_of_total)})
        if len(laps) == 1 and laps[0]["total"] > LONG_RUN:
            fewest = min(FEWEST_LONG, fewest)
        bench.progress(f"run {len(laps)} of at least {fewest}", min(0.9, 0.1 + 0.8 * len(laps) / fewest))
        total = Samples.of((lap["total"] for lap in laps), "s")
        converged = total.relative_precision <= plan.precision
        if len(laps) >= fewest and (converged or time.perf_counter() - started >= plan.budget):
            break
    info: dict[str, str | float] = {
        "timer": "perf_counter with device synchronisation",
        "batch": 1,
        "stopped": "converged" if converged else "budget",
    }
    warn_if_unsure(bench, "total", total, info["stopped"])
    return {name: Samples.of((lap[name] for lap in laps), "s", **info) for name in laps[0]}
