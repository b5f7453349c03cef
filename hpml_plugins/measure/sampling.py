"""How long to sample: until the median is known well enough, or the budget ends; and what to say of
the result."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from hpml_plugins import clocks
from hpml_plugins.errors import ResultError
from hpml_plugins.model.formatting import half_width
from hpml_plugins.model.samples import Samples

#: A coefficient of variation above this is worth a warning: pyperf's threshold for a stable
#: benchmark.
UNSTABLE_VARIATION = 0.10
#: So is a share of far outliers above this.
UNSTABLE_OUTLIERS = 0.05
#: A first call also counts as set-up if it takes this many times as long as a later one
SLOW_FIRST_CALL = 5
#: and this many s longer: cold caches cost less.
SLOW_FIRST_CALL_SECONDS = 1e-4
#: A call that cannot be batched is warned of below this, s: 50 times the cost of reading the clock.
SHORTEST_CALL = 5e-6
#: s that the warm-up of a round may always take.
SHORTEST_WARM_UP = 0.3
#: The `timer` of samples of a GPU's step that the events on its stream could not time.
OTHER_STREAMS = (
    "perf_counter with device synchronisation: "
    "the step works on other streams than the current one"
)


@dataclass(frozen=True)
class SamplingPlan:
    """When sampling may stop.

    precision: half-width of the 95 % interval of the median, as a share of it.  budget: s, wall
    clock, warm-up apart.  warm_up: s, at most.  fewest: samples taken even past the budget, for
    steps under a second; three for longer ones.  most: a bound on memory.  rounds: how many rounds
    of the point share precision and budget.
    """

    precision: float = 0.005
    budget: float = 2.0
    warm_up: float = 1.0
    fewest: int = 10
    most: int = 2000
    rounds: int = 1

    def but(self, *, budget: float | None = None, **changes: Any) -> SamplingPlan:
        """The same plan with what is given and not None replaced. budget: s, of all rounds
        together.

        changes: of the other fields. A precision of 0 spends the whole budget.
        """
        given = {name: value for name, value in changes.items() if value is not None}
        return replace(
            self, budget=self.budget if budget is None else budget / self.rounds, **given
        )

    def in_rounds(self, rounds: int) -> SamplingPlan:
        """The plan of each of several rounds, which together take about as long and are as precise.

        An unstable step, whose warm-up only ends at its limit, is warmed up less long in each.
        """
        fewest = min(self.fewest, max(3, math.ceil(self.fewest / rounds)))
        precision = self.precision * math.sqrt(rounds)
        budget = self.budget / rounds
        warm_up = max(min(self.warm_up, SHORTEST_WARM_UP), self.warm_up / rounds)
        return replace(
            self,
            precision=precision,
            budget=budget,
            warm_up=warm_up,
            fewest=fewest,
            rounds=rounds,
        )


def warm_up(
    run: Callable[[], float], plan: SamplingPlan, *, least: float = 0.0
) -> dict[str, str | float]:
    """Call `run` (seconds it took, of whatever clock) until it is stable. Returns what the samples'
    info says of it.

    Stable: the last five within 2 % of one another, and `least` seconds gone (clocks take their
    time to rise). A step longer than a fifth of the warm-up's bound is run once: it warms itself
    up.
    """
    started = clocks.perf_counter()
    recent: list[float] = []
    while True:
        recent = [*recent[-4:], *_checked([run()])]
        elapsed = clocks.perf_counter() - started
        agree = max(recent) - min(recent) <= 0.02 * min(recent)
        if len(recent) == 5 and agree and elapsed >= least:
            return {"warm_up": elapsed, "warm": "stable"}
        longest = plan.warm_up / 5 if len(recent) == 1 else plan.warm_up
        if elapsed >= longest:
            return {"warm_up": elapsed, "warm": "not stable"}


def sample(
    take: Callable[[], Iterable[float]],
    plan: SamplingPlan,
    info: Mapping[str, str | float],
    *,
    batch: int,
    least: float = 0.0,
    interrupted: Callable[[], bool] = lambda: False,
    symbol: str = "s",
) -> Samples:
    """Call `take` (seconds of one step, one number or more) until the plan is met; the info says
    why it stopped.

    info: what else the samples say of themselves.  batch: how many steps one number is the mean of.
    least: s, the shortest time over which samples are spread, within the budget.  interrupted: ends
    the sampling once it is true. symbol: the unit of the numbers, where they are not seconds.
    """
    values: list[float] = []
    started = clocks.perf_counter()
    check_at = plan.fewest
    while True:
        taken = list(take())
        values += _checked(taken) if symbol == "s" else taken
        count = len(values)
        if interrupted():
            stopped = "interrupted"
            break
        elapsed = clocks.perf_counter() - started
        # A step over a second repeats less: ten of them would be a long wait for what three show.
        enough = count >= (3 if elapsed >= count else plan.fewest)
        if count >= check_at and elapsed >= min(least, plan.budget):
            if Samples(tuple(values)).relative_precision <= plan.precision:
                stopped = "converged"
                break
            # the interval costs a sort: look less often as samples grow
            check_at = count + max(1, count // 5)
        if count >= plan.most:
            stopped = "most samples"
            break
        if elapsed >= plan.budget and enough:
            stopped = "budget"
            break
    done = Samples.of(values, symbol, **info, batch=batch, stopped=stopped)
    return done.note(**summarise(done))


def summarise(samples: Samples) -> dict[str, float]:
    """What the info of samples says of their spread."""
    return {
        "effective": samples.effective_count,
        "variation": samples.coefficient_of_variation,
        "outliers": samples.outliers,
    }


def _checked(taken: list[float]) -> list[float]:
    """The seconds as they are. Raises ResultError for fewer than none: the clock was set back."""
    if taken and min(taken) < 0:
        raise ResultError(f"the clock went back: a step took {min(taken):g} s")
    return taken


#: Why sampling stopped before the plan was met, for readers.
_STOPPED = {
    "budget": "; time limit reached",
    "most samples": "; most that are taken",
    "interrupted": "; interrupted",
}


def remarks(samples: Samples, name: str) -> list[str]:
    """What a reader should know of how these samples were taken; empty where all is as it should
    be."""
    # they follow the regulator, and cover a period of it
    if samples.info.get("regime") == "sustained":
        if samples.info["stopped"] == "settled":
            return []
        return [f"{name}: {samples.info['stopped']}"]
    found = []
    if samples.info.get("timer") == OTHER_STREAMS:
        found.append(
            f"{name}: timed by the wall clock, which includes launching and synchronising, because"
            " the step left work on other streams than the current one; have it use the current"
            " stream, or, if it does, measure again and retract this Record (hpml retract)"
        )
    first = samples.info.get("first_call", 0.0)
    longest = samples.median + SLOW_FIRST_CALL_SECONDS
    if isinstance(first, float) and first > max(SLOW_FIRST_CALL * samples.median, longest):
        found.append(
            f"{name}: the first call took {first / samples.median:.3g} times as long as later ones;"
            " if the step uses up or changes its input, prepare each call with bench.time(step,"
            " setup=…)"
        )
    if samples.info.get("setup") == "every call" and samples.median < SHORTEST_CALL:
        found.append(
            f"{name}: a call that has a setup cannot be batched, and {samples.median * 1e6:.2g} µs"
            " is close to the cost of reading the clock; do more work in a step"
        )
    return found


def noise(samples: Samples, plan: SamplingPlan, name: str) -> list[str]:
    """How far these samples scatter, where that is more than a stable measurement does."""
    if samples.info.get("regime") == "sustained":
        return []
    found = []
    if samples.relative_precision > plan.precision:
        stopped = _STOPPED.get(str(samples.info.get("stopped")), "")
        found.append(
            f"{name}: noisy: {half_width(samples.relative_precision)} after"
            f" {len(samples)} samples{stopped}"
        )
    if samples.coefficient_of_variation > UNSTABLE_VARIATION:
        core = samples.info.get("core_variation", 0)
        if isinstance(core, float) and core > UNSTABLE_VARIATION:
            why = f" (CPU speed: {100 * core:.0f} %)"
        else:
            why = ""
        percent = f"{100 * samples.coefficient_of_variation:.0f} %"
        found.append(f"{name}: unstable: CV {percent}{why}")
    if samples.outliers > UNSTABLE_OUTLIERS * len(samples):
        found.append(
            f"{name}: {samples.outliers} of {len(samples)} samples are outliers; kept"
        )
    return found
