"""Two steps timed in turns in one process, so that what disturbs the machine meanwhile disturbs both."""

from __future__ import annotations

import gc
import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace

from hpml_plugins import Bench, Samples

#: s of sampling, all turns of both steps together, in all rounds of the point.
BUDGET = 1.5
#: In all rounds of the point. Even, so that each step goes first as often. Of six ratios the smallest and the largest
#: are the 95 % interval of the median; of fewer they are less.
ROUNDS = 6
#: Samples of a turn, at least.
FEWEST = 2
#: A step of as many seconds or more has fewer turns, of one sample: of four ratios the median still leaves out one that
#: was disturbed.
LONG = 1.0
ROUNDS_OF_LONG = 4
#: What the timer tells of a turn that is told of all together; where turns differ, all that they were.
HOW = ("timer", "affinity", "cache", "launch", "batch")


def time_in_turns(
    bench: Bench, step_of: Callable[[str], Callable[[], object]], names: tuple[str, str], seconds: float
) -> tuple[Samples, Samples, Samples]:
    """Samples of the time of one call of either step, s, and of the first's time over the second's, unit 1.

    step_of: makes ready and returns the step of that name; called before each turn.  seconds: roughly how long a call
    takes.  A round is a turn of each step and gives one ratio, that of the turns' medians. Who goes first changes from
    round to round, so that a machine that becomes slower all the while favours neither; one that does so at once spoils
    one ratio at most. A turn has its share of the budget and of the bench's warm-up.
    """
    rounds, fewest = (ROUNDS_OF_LONG, 1) if seconds >= LONG else (ROUNDS, FEWEST)
    # Precision 0: turns of one length, or those that end early would count less in what a step's turns have together.
    share = 1 / (2 * rounds)
    rounds = 2 * math.ceil(rounds / (2 * bench.plan.rounds))
    plan = replace(bench.plan, precision=0.0, budget=BUDGET * share, warm_up=bench.plan.warm_up * share, fewest=fewest)
    # A bench of its own: what a short turn warns of is no news of the point.
    timer = Bench(bench.node, bench.params, gpus=bench.gpus, plan=plan)
    turns: dict[str, list[Samples]] = {name: [] for name in names}
    with _little_garbage():
        for number in range(rounds):
            for name in names if number % 2 == 0 else reversed(names):
                turns[name].append(timer.time(step_of(name)))
    first, second = (turns[name] for name in names)
    return _joined(first), _joined(second), _medians(first) / _medians(second)


def warn_if_unsure(bench: Bench, name: str, samples: Samples) -> None:
    """Put into the Record that a median is less well known than the bench's precision asks."""
    known, wanted = samples.relative_precision, bench.plan.precision
    if known > wanted:
        bench.warn(f"{name}: the median is known to ±{known:.1%}, not ±{wanted:.1%}, after {len(samples)} samples")


def _joined(turns: list[Samples]) -> Samples:
    values = [value for turn in turns for value in turn.values]
    info: dict[str, str | float] = {}
    for name in HOW:
        if found := list(dict.fromkeys(turn.info[name] for turn in turns if name in turn.info)):
            info[name] = found[0] if len(found) == 1 else "; ".join(map(str, found))
    joined = Samples.of(values, "s", **info, turns=len(turns))
    told = {"variation": joined.coefficient_of_variation, "outliers": joined.outliers}
    return replace(joined, info={**joined.info, **told})


def _medians(turns: list[Samples]) -> Samples:
    return Samples.of([turn.median for turn in turns], "s", turns=len(turns))


@contextmanager
def _little_garbage() -> Iterator[None]:
    """Leave what is there out of collections: each turn begins with one, which takes 0.15 s of what torch imports."""
    gc.collect()
    gc.freeze()
    try:
        yield
    finally:
        gc.unfreeze()
