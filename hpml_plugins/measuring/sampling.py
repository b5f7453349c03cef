"""How long to sample: until the median is known well enough, or the budget ends."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, replace

from hpml_plugins.model.samples import Samples


@dataclass(frozen=True)
class Plan:
    """When sampling may stop.

    precision: half-width of the 95 % interval of the median, as a share of it.  budget: s, wall clock, warm-up
    apart.  fewest: samples taken even past the budget, for steps under a second.  most: a bound on memory.
    """

    precision: float = 0.005
    budget: float = 1.0
    fewest: int = 10
    most: int = 2000

    def with_budget(self, budget: float) -> Plan:
        """The same plan with another budget, s."""
        return replace(self, budget=budget)


def sample(take: Callable[[], float], plan: Plan, *, timer: str, batch: int) -> Samples:
    """Call `take` (seconds of one step) until the plan is met; the samples' info says why it stopped."""
    values: list[float] = []
    started = time.perf_counter()
    check_at = plan.fewest
    while True:
        values.append(take())
        count = len(values)
        elapsed = time.perf_counter() - started
        long_step = values[0] * batch >= 1.0
        enough = count >= plan.fewest or (long_step and count >= 3)
        if count >= check_at:
            low, high = (seen := Samples.of(values, "s")).interval()
            if (high - low) / 2 <= plan.precision * seen.median:
                stopped = "converged"
                break
            check_at = count + max(1, count // 5)  # the interval costs a sort: look less often as samples grow
        if count >= plan.most:
            stopped = "most samples"
            break
        if elapsed >= plan.budget and enough:
            stopped = "budget"
            break
    return Samples.of(values, "s", timer=timer, batch=batch, stopped=stopped)
