"""Variants of one operator: checks and times those that run here, and finds the fastest and its
speed-up over a baseline."""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

from hpml_plugins import Bench, Samples

Step = Callable[[], Any]
#: s of warm-up and of sampling of a variant during the search for the fastest.
TRIAL = 0.05
#: s of sampling variants alternately, all rounds together.
BUDGET = 0.9
#: A step is long from this time, s: one call is enough to compare it with others.
LONG = 0.1


@dataclass(frozen=True)
class Variants:
    """The results of `survey`.  steps: name → the step, if built in this process. fastest: the name
    of the fastest variant.

    errors: name → relative error, for the same variants.  reasons: name → why a variant cannot run
    here.
    """

    steps: Mapping[str, Step]
    errors: Mapping[str, float]
    fastest: str
    reasons: Mapping[str, str]


def survey(
    bench: Bench,
    builders: Mapping[str, Callable[[], Step]],
    error_of: Callable[[Any], float],
    tolerance: float,
    *,
    always: tuple[str, ...] = (),
    series: str = "variants",
) -> Variants:
    """Build, check and time every variant in the point's first round; in the others only the
    fastest and `always`.

    builders: name → function that returns the step; if the variant cannot run it raises an error
    that `is_refusal` recognises, whose text becomes the reason in the series `variants`. Any other
    error fails the point. error_of: the relative error of a step's result.  The point is skipped if
    no variant runs, and fails if a result is wrong.
    """
    steps: dict[str, Step] = {}
    errors: dict[str, float] = {}

    def build(name: str) -> None:
        step = builders[name]()
        error = error_of(bench.result(step()))
        bench.check(error <= tolerance, f"{name}: the result differs from float64")
        steps[name], errors[name] = step, error

    def try_all() -> list[list[Any]]:
        rows: list[list[Any]] = []
        for number, name in enumerate(builders):
            bench.progress(name, 0.5 * number / len(builders))
            if reason := refusal_of(partial(build, name)):
                release_memory(bench)
                rows.append([name, None, None, reason])
            else:
                rows.append([name, trial(bench, steps[name]).median, errors[name], ""])
        return rows

    rows = bench.once(series, try_all)
    usable = {name: seconds for name, seconds, _, _ in rows if seconds is not None}
    if not usable:
        bench.skip(
            "no variant runs here: " + "; ".join(f"{name}: {reason}" for name, _, _, reason in rows)
        )
    fastest = min(usable, key=lambda name: usable[name])
    for name in (fastest, *always):
        if name in usable and name not in steps:
            build(name)
    columns = dict(
        zip(("variant", "time", "error", "reason"), map(list, zip(*rows, strict=True)), strict=True)
    )
    for name in ("time", "error"):
        columns[name] = [math.nan if value is None else value for value in columns[name]]
    bench.series(series, columns, {"time": "s", "error": "1"})
    return Variants(steps, errors, fastest, {name: reason for name, _, _, reason in rows if reason})


def is_refusal(error: Exception) -> bool:
    """Whether the error means that a library lacks the operation, or that the card cannot run it.

    torch raises RuntimeError (NotImplementedError and torch.OutOfMemoryError are among them),
    Triton its own errors, such as OutOfResources. torch.AcceleratorError is not a refusal: after an
    illegal access nothing runs on the card any more. TypeError, ValueError and the like are faults
    of this plugin.
    """
    torch, triton = sys.modules.get("torch"), sys.modules.get("triton.errors")
    if torch is not None and isinstance(error, torch.AcceleratorError):
        return False
    return isinstance(
        error,
        ImportError | RuntimeError | (triton.TritonError if triton is not None else ImportError),
    )


def refusal_of(attempt: Callable[[], object]) -> str:
    """Why the attempt is not possible here; "" if it succeeded. Any error other than a refusal is
    raised.

    When this returns, the error and its traceback, and thus the tensors of the attempt, have been
    freed.
    """
    try:
        attempt()
    except Exception as error:
        if not is_refusal(error):
            raise
        return why(error)
    return ""


def trial(bench: Bench, step: Step) -> Samples:
    """A short timing, to choose among variants; not a metric. For a long step, one call after a
    first one."""
    if (seconds := _one_call(bench, step)) > LONG:
        return Samples.of([seconds], "s", timer="perf_counter")
    plan = bench.plan.but(warm_up=TRIAL, budget=TRIAL * bench.plan.rounds)
    return bench.time(step, plan=plan, quiet=True)


def _one_call(bench: Bench, step: Step) -> float:
    """Seconds of a call, including the launch by the host."""
    wait: Callable[[], object] = int
    if bench.device == "cuda":
        import torch

        wait = torch.cuda.synchronize
    wait()
    started = time.perf_counter()
    step()
    wait()
    return time.perf_counter() - started


def speedup(bench: Bench, baseline: Step, steps: Mapping[str, Step]) -> dict[str, Samples]:
    """Name → the baseline's time over that of the step, one ratio per pair of turns; timed
    alternately."""
    every = {"baseline": baseline, **steps}
    alternating = bench.time_alternately(
        {name: prepared(step) for name, step in every.items()}, budget=BUDGET
    )
    return {name: alternating.ratio("baseline", name) for name in steps}


def prepared(step: Step) -> Callable[[], Step]:
    """The callback of `bench.time_alternately` before each turn."""
    return lambda: step


def why(error: BaseException) -> str:
    """The first line of an error, as a reason."""
    text = next(
        (line.strip() for line in str(error).splitlines() if line.strip()), type(error).__name__
    )
    return text[:200]


def release_memory(bench: Bench) -> None:
    """Free the memory that a failed variant has left in torch's cache.

    Raises torch.AcceleratorError if the variant has left the GPU unusable.
    """
    import gc

    import torch

    gc.collect()
    if bench.device == "cuda":
        torch.cuda.synchronize()
        torch.cuda.empty_cache()


def relative_error(result: Any, exact: Any) -> float:
    """|result − exact| / |exact|, 2-norms, in float64."""
    exact = exact.double()
    return float((result.double() - exact).norm() / exact.norm())
