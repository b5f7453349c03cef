"""Time several steps in turn in one process, to compare them."""

from __future__ import annotations

import itertools
import math
import random
import statistics
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from hpml_plugins.measure.cpu_timer import no_garbage_collection, time_once
from hpml_plugins.measure.session import Session
from hpml_plugins.model.samples import Samples

#: Turns of each step in all rounds of the point. An even number, so that each order has its
#: reverse; with six, each of two or three steps goes first equally often. The smallest and the
#: largest of six ratios are the 95 % interval of the median; with fewer they cover less.
TURNS = 6
#: The fewest samples of a turn.
FEWEST = 2
#: s from which a step has fewer turns, on a CPU of a single call without warm-up.
LONG = 1.0
#: The number of these turns: the median of four ratios still excludes a disturbed one.
TURNS_OF_LONG = 4
#: What the timer says of a turn that holds for all turns together; where turns differ, all that
#: they were.
HOW = ("timer", "affinity", "cache", "launch", "batch")


@dataclass(frozen=True)
class Alternating:
    """Times of alternating steps. samples: name → the samples of all turns, s.  turns: name → the
    median of each turn, s; turns of the same index were timed one after another, so their quotient
    is a paired ratio."""

    samples: Mapping[str, Samples]
    turns: Mapping[str, Samples]

    def ratio(self, first: str, second: str) -> Samples:
        """The first step's time divided by the second's, one sample per pair of turns."""
        return self.turns[first] / self.turns[second]


def time_alternately(
    session: Session,
    steps: Mapping[str, Callable[[], Callable[[], object]]],
    seconds: float,
    budget: float,
) -> Alternating:
    """See Bench.time_alternately.

    Every second turn has the reverse order: a machine that slows down steadily favours no step, and
    a sudden slow-down affects at most one ratio. The order rotates from pair to pair, so that every
    step goes first, because a rested GPU then runs at higher clocks. The rotation starts at random,
    because a round may have only one pair. A turn has its share of the budget and of the bench's
    warm-up.
    """
    turns, fewest = (TURNS_OF_LONG, 1) if seconds >= LONG else (TURNS, FEWEST)
    share = 1 / (len(steps) * turns)
    # Precision 0 makes all turns equally long; a turn that ended early would have less weight in
    # the samples of its step.
    rounds = session.plan.rounds  # divide the turns among the rounds, not their length
    plan = session.plan.but(
        precision=0.0,
        budget=budget * share * rounds,
        warm_up=session.plan.warm_up * share,
        fewest=fewest,
    )
    taken: dict[str, list[Samples]] = {name: [] for name in steps}
    # a plugin may have seeded Python's global generator
    start = random.SystemRandom().randrange(len(steps))
    with no_garbage_collection():
        for turn in range(2 * math.ceil(turns / (2 * rounds))):
            first = (start + turn // 2) % len(steps)
            order = [*steps][first:] + [*steps][:first]
            for name in order if turn % 2 == 0 else reversed(order):
                step = steps[name]()
                once = seconds >= LONG and session.device == "cpu"
                taken[name].append(
                    time_once(step) if once else session.time(step, plan=plan, quiet=True)
                )
    joined = {name: _joined(each) for name, each in taken.items()}
    return Alternating(joined, {name: _medians(each) for name, each in taken.items()})


def _medians(turns: list[Samples]) -> Samples:
    return Samples.of([turn.median for turn in turns], "s", turns=len(turns))


def _infos_of_turns(turns: list[Samples], name: str) -> list[str | float]:
    return [turn.info[name] for turn in turns if name in turn.info]


def _joined(turns: list[Samples]) -> Samples:
    values = itertools.chain.from_iterable(turn.values for turn in turns)
    joined = Samples.of(values, "s", turns=len(turns))
    for name in HOW:
        different = list(dict.fromkeys(_infos_of_turns(turns, name)))
        if different:
            same = len(different) == 1
            fact = different[0] if same else "; ".join(map(str, different))
            joined = joined.note(**{name: fact})
    rates = [float(rate) for rate in _infos_of_turns(turns, "core_rate")]
    if rates:
        joined = joined.note(core_rate=statistics.median(rates))
    return joined.note(variation=joined.coefficient_of_variation, outliers=joined.outliers)
