"""How long to sample: until the median is precise enough or the budget ends; and warnings about the
result."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal

from hpml_plugins import clocks
from hpml_plugins.errors import ResultError
from hpml_plugins.model.formatting import half_width
from hpml_plugins.model.samples import Samples

#: What a GPU step finds in the L2 cache, and whether its launch is timed; see `Session.time`.
Cache = Literal["hot", "cold", "dirty"]
Launch = Literal["hidden", "visible"]
#: A higher coefficient of variation adds a warning: pyperf's threshold for a stable benchmark.
UNSTABLE_VARIATION = 0.10
#: A higher share of far outliers adds a warning.
UNSTABLE_OUTLIERS = 0.05
#: A first call gets a warning if it takes this many times as long as later ones
SLOW_FIRST_CALL = 5
#: and this many s longer: cold caches cost less.
SLOW_FIRST_CALL_SECONDS = 1e-4
#: A call that cannot be batched is warned of below this, s: 50 times the cost of reading the clock.
SHORTEST_CALL = 5e-6
#: s that the warm-up of a round may always take.
SHORTEST_WARM_UP = 0.3
#: The `timer` of samples of a GPU step that events on its stream could not time.
OTHER_STREAMS = (
    "perf_counter with device synchronisation: "
    "the step works on other streams than the current one"
)


@dataclass(frozen=True)
class SamplingPlan:
    """When sampling may stop.

    precision: half-width of the 95 % interval of the median, relative to the median.  budget: s,
    wall clock, excluding warm-up.  warm_up: s, at most.  fewest: samples taken even beyond the
    budget, for steps under a second; three for longer ones.  most: a bound on memory.  rounds: the
    number of rounds of the point that share precision and budget.
    """

    precision: float = 0.005
    budget: float = 2.0
    warm_up: float = 1.0
    fewest: int = 10
    most: int = 2000
    rounds: int = 1

    def but(self, *, budget: float | None = None, **changes: Any) -> SamplingPlan:
        """Return the plan with the given values that are not None replaced. budget: s, of all
        rounds together.

        changes: of the other fields. A precision of 0 uses the whole budget.
        """
        given = {name: value for name, value in changes.items() if value is not None}
        return replace(
            self, budget=self.budget if budget is None else budget / self.rounds, **given
        )

    def in_rounds(self, rounds: int) -> SamplingPlan:
        """The plan of each of several rounds, which together take about as long and are as precise.

        The warm-up of an unstable step, which lasts until its limit, is shorter in each round.
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
    """Call `run`, which returns its seconds by any clock, until it is stable. Returns info about
    the warm-up for the samples.

    Stable: the last five agree within 2 %, and at least `least` seconds have passed (clocks need
    time to ramp up). A step longer than a fifth of the warm-up limit is run only once: it warms
    itself up.
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

    info: further info about the samples.  batch: the number of steps whose mean is one number.
    least: s, the shortest time over which samples are spread, within the budget.  interrupted: ends
    the sampling as soon as it returns true.  symbol: the unit of the numbers, if it is not seconds.
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
        # Steps over a second take fewer samples: ten would take long and show little more than
        # three.
        enough = count >= (3 if elapsed >= count else plan.fewest)
        if count >= check_at and elapsed >= min(least, plan.budget):
            if Samples(tuple(values)).relative_precision <= plan.precision:
                stopped = "converged"
                break
            # computing the interval sorts the samples: check less often as they grow
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
    """Statistics about the spread of samples for their info."""
    return {
        "effective": samples.effective_count,
        "variation": samples.coefficient_of_variation,
        "outliers": samples.outliers,
    }


def _checked(taken: list[float]) -> list[float]:
    """Return the seconds unchanged. Raises ResultError if one is negative because the clock was set
    back."""
    if taken and min(taken) < 0:
        raise ResultError(f"the clock went back: a step took {min(taken):g} s")
    return taken


#: Why sampling stopped before the plan was met, in words.
_STOPPED = {
    "budget": "; time limit reached",
    "most samples": "; sample limit reached",
    "interrupted": "; interrupted",
}


def remarks(samples: Samples, name: str) -> list[str]:
    """Warnings about how these samples were taken; empty if there are none."""
    found = []
    launching = samples.info.get("launching")
    if isinstance(launching, float):
        found.append(
            f"{name}: the CPU takes {launching:.3g} s to launch a call that the GPU runs in"
            f" {samples.value:.3g} s; launching is hidden here, but a loop of such calls waits for"
            " it"
        )
    # samples at settled clocks follow the regulator over one of its periods
    if samples.info.get("regime") == "sustained":
        if samples.info["stopped"] != "settled":
            found.append(f"{name}: {samples.info['stopped']}")
        return found
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
    """Warnings about the scatter of these samples, if it is larger than in a stable measurement."""
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
