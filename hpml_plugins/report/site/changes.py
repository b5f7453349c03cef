"""Changes of level over the history, and whether they are for the worse: by direction, beyond the noise.

asv fits a piecewise constant level to each series (`Graph.get_steps`). Its own search for regressions in these steps
knows only that more is worse. Here it is handed times as they are and throughputs mirrored.
"""

from __future__ import annotations

import bisect
import itertools
import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass, field

#: asv's: first revision, last revision + 1, level, minimum, mean deviation from the level.
Step = tuple[int, int, float, float, float]
#: Smallest part of the level that counts, where asv.conf.json says nothing (`regressions_thresholds`).
THRESHOLD = 0.05
#: Readings of a level on either side of a change: two that say how well they are known, or three. A single run that
#: stands out has often been a busy machine; the next one tells.
ENOUGH_WITH_INTERVAL, ENOUGH = 2, 3


@dataclass(frozen=True)
class Change:
    """A change of level between two revisions.

    last: the last revision of the old level.  first: the first known one of the new.  before, after: the levels.
    verdict: "better", "worse", or "" where the benchmark's direction is not known.
    """

    last: int
    first: int
    before: float
    after: float
    verdict: str

    @property
    def times(self) -> float:
        """After over before; NaN from 0."""
        return self.after / self.before if self.before else math.nan


@dataclass(frozen=True)
class Regressed:
    """A series that is worse now than it was. changes: those for the worse that still hold, oldest first."""

    latest: float
    best: float
    changes: tuple[Change, ...]


@dataclass(frozen=True)
class Band:
    """The intervals of one series' readings, by ascending revision, where they have any.

    readings: the revisions of all its readings.  known: what `over` has come to.
    """

    revisions: list[int]
    low: list[float]
    high: list[float]
    readings: list[int]
    known: dict[tuple[int, int], tuple[float, float] | None] = field(default_factory=dict, compare=False, repr=False)

    def enough(self, first: int, last: int) -> bool:
        """Whether revisions first ≤ r < last have as many readings as a level needs."""
        intervals = bisect.bisect_left(self.revisions, last) - bisect.bisect_left(self.revisions, first)
        readings = bisect.bisect_left(self.readings, last) - bisect.bisect_left(self.readings, first)
        return intervals >= ENOUGH_WITH_INTERVAL or readings >= ENOUGH

    def over(self, first: int, last: int) -> tuple[float, float] | None:
        """The median of the lower and of the upper bounds of revisions first ≤ r < last; None where there are none."""
        if (first, last) not in self.known:
            inside = slice(bisect.bisect_left(self.revisions, first), bisect.bisect_left(self.revisions, last))
            some = bool(self.revisions[inside])
            ends = (statistics.median(self.low[inside]), statistics.median(self.high[inside])) if some else None
            self.known[first, last] = ends
        return self.known[first, last]


def changes(
    steps: Sequence[Step], direction: str, band: Band | None = None, threshold: float = THRESHOLD
) -> list[Change]:
    """Every change of level that is larger than the threshold, the scatter around both levels and their intervals."""
    found = []
    for old, new in itertools.pairwise(steps):
        if beyond_noise(old, new, band, threshold):
            rises = new[2] > old[2]
            verdict = "" if not direction else "worse" if rises == (direction == "lower") else "better"
            found.append(Change(old[1] - 1, new[0], old[2], new[2], verdict))
    return found


def beyond_noise(old: Step, new: Step, band: Band | None, threshold: float) -> bool:
    """Whether two levels differ: by more than the threshold and their scatter, and interval against interval."""
    difference = abs(new[2] - old[2])
    if not difference > max(threshold * abs(old[2]), old[4], new[4]):
        return False
    if band is None:
        return True
    if not (band.enough(old[0], old[1]) and band.enough(new[0], new[1])):
        return False
    before, after = band.over(old[0], old[1]), band.over(new[0], new[1])
    return before is None or after is None or before[1] < after[0] or after[1] < before[0]


def regressed(
    steps: Sequence[Step], direction: str, band: Band | None = None, threshold: float = THRESHOLD
) -> Regressed | None:
    """What is worse now than at its best, and the changes that made it so; None where nothing is.

    A change that was made good again later is none. A benchmark whose direction is not known has none: nobody can say.
    """
    if direction not in ("lower", "higher") or len(steps) < 2:
        return None
    from asv.step_detect import detect_regressions

    mirror = _Mirror.of(steps, direction)
    latest, best, jumps = detect_regressions([mirror.step(step) for step in steps], threshold)
    if not jumps:
        return None
    kept = []
    for last, first, before, after in jumps:
        old = next(step for step in steps if step[0] <= last < step[1])
        new = next(step for step in steps if step[0] == first)
        if beyond_noise(old, new, band, 0):  # the threshold has been applied, to the sum of several small steps
            kept.append(Change(last, first, mirror.back(before), mirror.back(after), "worse"))
    return Regressed(mirror.back(latest), mirror.back(best), tuple(kept)) if kept else None


@dataclass(frozen=True)
class _Mirror:
    """Turns a benchmark of which more is better into one of which less is, and back.

    by: "none"; "inverse", 1 / v, which keeps shares; "sign", −v, where a level is not above 0.
    """

    by: str

    @classmethod
    def of(cls, steps: Sequence[Step], direction: str) -> _Mirror:
        if direction == "lower":
            return cls("none")
        return cls("inverse" if all(step[2] > 0 for step in steps) else "sign")

    def back(self, value: float) -> float:
        return 1 / value if self.by == "inverse" else -value if self.by == "sign" else value

    def step(self, step: Step) -> Step:
        left, right, value, least, scatter = step
        if self.by == "inverse":
            return left, right, 1 / value, 1 / value, scatter / value**2
        return left, right, self.back(value), self.back(least), scatter
