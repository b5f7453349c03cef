"""The levels of a series of readings, and the certainty of their differences.

`segments` fits levels to numbers. This module converts readings to numbers, leaves out those that
may not be compared, and discards segments with too few readings. Counted values repeat exactly:
each different value is another level.
"""

from __future__ import annotations

import functools
import hashlib
import itertools
import math
from collections import Counter
from collections.abc import Callable, Container, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from hpml_plugins.analysis.measured import EXACT, MeasuredValue
from hpml_plugins.analysis.segments import (
    BEGIN,
    END,
    Contrast,
    ReadingSeries,
    Segmentation,
    find_segments,
)
from hpml_plugins.analysis.variance import (
    FLOOR,
    UNKNOWN,
    UNKNOWN_CARDS,
    UNKNOWN_CARDS_FREEDOM,
    UNKNOWN_FREEDOM,
    Spread,
)
from hpml_plugins.analysis.verdicts import why_not_judged
from hpml_plugins.model import formatting

#: The fewest readings with an interval for a level on either side of a change. A single outlying
#: run is often caused by a busy machine; the next run decides.
ENOUGH_WITH_INTERVAL = 2
#: The fewest readings for a level if fewer have an interval.
ENOUGH = 3
#: The newest readings of a series that are judged. The time of a fit grows with this number
#: times that of cards.
MOST_READINGS = 2000
#: The most cards of a series that are distinguished.
MOST_CARDS = 64
#: What is known of values that were never repeated.
UNKNOWN_SPREAD = Spread(
    UNKNOWN**2, UNKNOWN_FREEDOM, UNKNOWN**2 + UNKNOWN_CARDS**2, UNKNOWN_CARDS_FREEDOM
)


class Level(NamedTuple):
    """A part of a series. first, last: revisions.  scatter: mean deviation from the value.

    end: the value at the end of a drift; None if the level does not drift.
    """

    first: int
    last: int
    value: float
    scatter: float
    end: float | None = None

    @property
    def ends(self) -> tuple[float, ...]:
        """The value, or both end values of a drift."""
        return (self.value,) if self.end is None else (self.value, self.end)


@dataclass(frozen=True)
class Readings:
    """One series: ascending revisions with one reading each.  left_out: reason why readings are not
    judged → their number."""

    revisions: np.ndarray
    readings: Sequence[MeasuredValue]
    left_out: Counter[str] = field(default_factory=Counter)

    @classmethod
    def of(cls, line: Sequence[tuple[int, MeasuredValue]]) -> Readings:
        """Select from ascending (revision, reading) those that may be compared with the newest."""
        why = [why_not_judged(reading, line[-1][1]) for _, reading in line]
        kept = [each for each, reason in zip(line, why, strict=True) if not reason]
        left_out = Counter(reason for reason in why if reason)
        if len(kept) > MOST_READINGS:
            left_out[f"older than the newest {MOST_READINGS:,}"] = len(kept) - MOST_READINGS
            kept = kept[-MOST_READINGS:]
        return cls(
            np.array([revision for revision, _ in kept]),
            [reading for _, reading in kept],
            left_out,
        )

    @property
    def are_counts(self) -> bool:
        """Whether the values were counted and so repeat exactly."""
        return all(reading.spread == EXACT for reading in self.readings)

    def series(self) -> ReadingSeries:
        """The input of the statistics: logarithms, with the reference steps of their visits as a
        covariate; if a value is not above 0, multiples of the median absolute value."""
        values = np.array([reading.value for reading in self.readings], float)
        references = np.array([_reference(reading) for reading in self.readings])
        if self._is_logarithmic:
            values = np.log(values)
            covariates = references[:, None]
        else:
            values = values / self._scale
            covariates = np.empty((0, 0))
        numbers: dict[str, int] = {}
        cards = np.array(
            [numbers.setdefault(reading.card, len(numbers)) for reading in self.readings]
        )
        spreads = [_rounded(reading.spread or UNKNOWN_SPREAD) for reading in self.readings]
        newest = spreads[-1] if math.isfinite(spreads[-1].same_freedom) else UNKNOWN_SPREAD
        runs = np.array([max(spread.same_card, FLOOR**2) for spread in spreads])
        between = max(newest.any_card - newest.same_card, 0.0)
        freedom = newest.same_freedom
        # few cards are repeated: treat cards as noise
        if len(numbers) > min(MOST_CARDS, len(values) / 2):
            runs = runs + between
            between = 0.0
            cards = np.zeros_like(cards)
            freedom = newest.any_freedom
        busy = np.array([reading.is_busy for reading in self.readings])
        variances = runs, freedom, between, newest.any_freedom
        return ReadingSeries(values, cards, *variances, covariates, busy)

    def digest(self) -> bytes:
        """A digest of everything that decides the levels."""
        numbers: dict[str, int] = {}
        rows = []
        for reading in self.readings:
            card = numbers.setdefault(reading.card, len(numbers))
            spread = _rounded(reading.spread or UNKNOWN_SPREAD)
            known = reading.value, _reference(reading), reading.is_busy
            rows.append((*known, card, *spread, reading.has_interval))
        table = np.array(rows, float)
        return hashlib.sha256(self.revisions.tobytes() + table.tobytes()).digest()

    @property
    def _scale(self) -> float:
        return float(np.median([abs(reading.value) for reading in self.readings])) or 1.0

    def find_levels(self) -> Levels:
        """The levels of the readings, and how probable their differences are for equal code."""
        if self.are_counts:
            return self._levels_of_counts()
        found = find_segments(self.series())
        if found.outliers:
            return self._without(found.outliers).find_levels()
        inner = (found.boundary(number) for number in range(1, len(found.segments)))
        boundaries = [(0, 0), *inner, (len(self.readings), 0)]
        numbers = [
            number
            for number, segment in enumerate(found.segments)
            if self._is_level(segment.first, segment.end)
        ]
        levels = [
            self._fitted_level(found, number, boundaries[number], boundaries[number + 1])
            for number in numbers
        ]

        def contrast(old: tuple[int, float], new: tuple[int, float]) -> Contrast:
            return found.contrast((numbers[old[0]], old[1]), (numbers[new[0]], new[1]))

        return Levels(levels, contrast, logarithmic=self._is_logarithmic)

    def _without(self, outliers: Container[int]) -> Readings:
        kept = [number for number in range(len(self.readings)) if number not in outliers]
        return Readings(self.revisions[kept], [self.readings[number] for number in kept])

    @functools.cached_property
    def _is_logarithmic(self) -> bool:
        return min(reading.value for reading in self.readings) > 0

    def _fitted_level(
        self, found: Segmentation, number: int, start: tuple[int, int], end: tuple[int, int]
    ) -> Level:
        """The level of a segment. start, end: its boundaries, see `boundary`; readings that may
        belong to either side of one are of neither level."""
        segment = found.segments[number]
        begins = self._value(found.value(number, BEGIN))
        ends = self._value(found.value(number, END))
        if self._is_logarithmic:
            fitted = np.geomspace(begins, ends, segment.end - segment.first)
        else:
            fitted = np.array([begins])
        drifts_to = ends if segment.drifts else None
        level = self._level(segment.first, segment.end, fitted, drifts_to)
        first = int(self.revisions[start[1]])
        last = int(self.revisions[end[0] - 1])
        return level._replace(first=first, last=max(first, last))

    def _value(self, level: float) -> float:
        """A level of `series` in the unit of the readings."""
        return math.exp(level) if self._is_logarithmic else level * self._scale

    def _levels_of_counts(self) -> Levels:
        values = [reading.value for reading in self.readings]
        starts = [0, *(at for at in range(1, len(values)) if values[at] != values[at - 1])]
        parts = itertools.pairwise((*starts, len(values)))
        levels = [
            self._level(a, b, np.array([values[a]]))
            for a, b in parts
            if self._is_level(a, b)
        ]
        return Levels(
            levels,
            lambda old, new: Contrast(levels[new[0]].value - levels[old[0]].value),
            logarithmic=False,
        )

    def _is_level(self, first: int, end: int) -> bool:
        """Whether there are enough readings for a level: a single outlier is decided by the next
        run."""
        known = sum(reading.has_interval for reading in self.readings[first:end])
        counted = sum(reading.spread == EXACT for reading in self.readings[first:end])
        return known >= ENOUGH_WITH_INTERVAL or counted >= ENOUGH or end - first >= ENOUGH

    def _level(
        self, first: int, end: int, fitted: np.ndarray, drifts_to: float | None = None
    ) -> Level:
        values = np.array([reading.value for reading in self.readings[first:end]])
        scatter = float(np.mean(np.abs(values - fitted)))
        return Level(
            int(self.revisions[first]),
            int(self.revisions[end - 1]),
            float(fitted[0]),
            scatter,
            drifts_to,
        )


@functools.lru_cache(maxsize=4096)
def _rounded(spread: Spread) -> Spread:
    """The spread with three digits.

    A run of another series changes a pooled variance by less than that, so the levels of this
    series stay the same and are not searched again.
    """
    *numbers, is_assumed = spread
    same_card, same_freedom, any_card, any_freedom = (
        float(f"{number:.3g}") for number in numbers
    )
    return Spread(same_card, same_freedom, any_card, any_freedom, is_assumed)


def _reference(reading: MeasuredValue) -> float:
    return math.nan if reading.reference is None else reading.reference


@dataclass(frozen=True)
class Levels:
    """The levels of a series, oldest first. contrast: the difference of two, each given as (number,
    BEGIN or END).  logarithmic: whether differences are of logarithms."""

    levels: Sequence[Level]
    contrast: Callable[[tuple[int, float], tuple[int, float]], Contrast]
    logarithmic: bool

    def steps(self) -> list[Contrast]:
        """The differences from the end of each level to the beginning of the next."""
        return [
            self.contrast((number, END), (number + 1, BEGIN))
            for number in range(len(self.levels) - 1)
        ]

    def bound(self, difference: Contrast) -> str:
        """The bound on the ratio of two levels, in words: `at least 1.10×`."""
        if not self.logarithmic or not difference.variance:
            return ""
        return formatting.least_times(math.exp(difference.least))


def best_level(levels: Sequence[Level], direction: str) -> tuple[int, float]:
    """The best level of a series in a direction, and at which of its ends; of equal ones the
    newest."""
    ends = [
        (value, number, at)
        for number, level in enumerate(levels)
        for at, value in zip((BEGIN, END)[: len(level.ends)], level.ends, strict=True)
    ]
    sign = 1 if direction == "higher" else -1
    _, number, at = max(ends, key=lambda end: (sign * end[0], end[1], end[2]))
    return number, at
