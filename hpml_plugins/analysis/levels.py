"""The levels of a series of values over commits, and how sure a difference between two of them is.

A reading's logarithm is the level of its commit, plus what its card differs from its type, plus
what its run differs from other runs on that card. The card is a random effect: the covariance of
two readings is τ² where one card gave both, and the variance of a reading is τ² + σ². Levels are
estimated by generalised least squares, so that a change that one card saw counts by how far runs on
a card differ, and one that may be the cards' own counts by how far cards differ.

Both variances are known before from repeated runs, with degrees of freedom, and are moderated by
what the series itself shows (Smyth 2004; see `hpml_plugins.analysis.variance`). Sources: Searle,
Casella and McCulloch, Variance Components (1992), section 5.3, for the estimates by Henderson's
method 3; Satterthwaite, Biometrics Bulletin 2 (1946), for degrees of freedom; Olshen et al.,
Biostatistics 5 (2004), for the search by segments that begin and end inside of a series.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np
from scipy.special import stdtr

Array = np.ndarray[Any, np.dtype[np.float64]]
Numbers = np.ndarray[Any, np.dtype[np.int64]]
#: First and end of each of many segments.
Places = tuple[Numbers, Numbers]

#: Readings that a level needs: of a single one that stands out the next run tells.
ENOUGH = 2
#: Readings that a drift needs.
ENOUGH_TO_DRIFT = 6
#: Largest p-value, corrected for where a change may be, of a change that is taken into the model.
ENTRY = 0.01
#: The most levels of a series.
MOST_LEVELS = 60
#: Difference of twice the logarithms of two likelihoods that leaves both likely: 95 % of χ² with
#: one degree of freedom.
LIKELY = 3.84
#: Visits to a card of which it is asked to which side of a change they belong: the nearest.
MOST_VISITS = 12
#: Standard deviation of the logarithm of what busy CPUs slow all busy readings down by: a core that
#: two processes share gives each half, so that a factor of 2 is two standard deviations.
BUSY = math.log(2) / 2
#: Readings that must have a covariate; the share of the variance between cards that one leaves, and
#: the freedom of that guess: over 44 cards, one factor for each explains 83 to 85 % of it.
COVARIATE_READINGS, LEFT, LEFT_FREEDOM = 5, 0.16, 2.0


@dataclass(frozen=True, eq=False)
class ReadingSeries:
    """Readings in the order of commits.

    values: natural logarithms.  cards: a number for each card.  runs: the variance of each
    reading's logarithm on one card, σ².  runs_freedom: degrees of freedom behind it.  between: the
    variance between cards, τ².  between_freedom: likewise.  covariates: one column for each
    quantity that may explain what differs between cards, such as the logarithm of a reference step
    of the same visit; NaN where there is none.  busy: which readings other processes slowed down,
    all of them by one unknown factor besides; see BUSY.
    """

    values: Array
    cards: Numbers
    runs: Array
    runs_freedom: float
    between: float
    between_freedom: float
    covariates: Array = field(default_factory=lambda: np.empty((0, 0)))
    busy: np.ndarray[Any, np.dtype[np.bool_]] = field(default_factory=lambda: np.zeros(1, np.bool_))

    def __len__(self) -> int:
        return len(self.values)

    @functools.cached_property
    def columns(self) -> Array:
        """The covariates about their means, without those that too few readings have or that never
        differ."""
        found = np.empty((len(self), 0))
        for column in self.covariates.T if self.covariates.size else ():
            known = np.isfinite(column)
            if known.sum() >= COVARIATE_READINGS and np.ptp(column[known]) > 0:
                centred = np.where(known, column - column[known].mean(), 0.0)
                found = np.column_stack([found, centred])
        return found


class Contrast(NamedTuple):
    """A difference of two levels' logarithms. variance: of the estimate.  freedom: behind the
    variance."""

    value: float
    variance: float
    freedom: float

    @property
    def p(self) -> float:
        """Two-sided p-value of no difference."""
        if self.variance <= 0:
            return 0.0 if self.value else 1.0
        return float(2 * stdtr(self.freedom, -abs(self.value) / math.sqrt(self.variance)))


class Fit:
    """A series as a sum of these columns, the card's effect and noise, by generalised least
    squares.

    design: one column for each coefficient.  offset: the mean of the values, of which the estimates
    are without. estimates: one for each column, then that of busy CPUs where there are busy
    readings: a further reading, of 0, says how large it may be.  runs, between: both variances,
    moderated; the first as a multiple of what was known before.
    """

    def __init__(self, series: ReadingSeries, design: Array) -> None:
        self.series, self.design = series, design
        # apart, so that squares of large values do not cancel
        self.offset = float(series.values.mean())
        self.values, self.cards = series.values - self.offset, series.cards
        self.variances, self.columns = series.runs, design
        if series.busy.any():
            self.values = np.append(self.values, 0.0)
            self.cards = np.append(series.cards, series.cards.max() + 1)
            self.variances = np.append(series.runs, BUSY**2)
            further = np.append(np.zeros(design.shape[1]), 1.0)
            self.columns = np.vstack([np.column_stack([design, series.busy]), further])
        weights = 1 / self.variances
        self.of_card = np.eye(self.cards.max() + 1)[self.cards]
        residual, rank, inverse = _least_squares(self.columns, weights, self.values)
        both = np.concatenate([self.columns, self.of_card], axis=1)
        within, rank_of_both, _ = _least_squares(both, weights, self.values)
        freedom = len(self.values) - rank_of_both
        self.runs_freedom = series.runs_freedom + freedom
        self.runs = (series.runs_freedom + within) / self.runs_freedom
        degrees = rank_of_both - rank
        common = self.columns.T @ (self.of_card * weights[:, None])
        worth = float(weights.sum() - np.sum(common * (inverse @ common)))
        found = (
            max(0.0, (residual - within - self.runs * degrees) / worth)
            if degrees and worth > 1e-9
            else 0.0
        )
        self.between_freedom = series.between_freedom + degrees
        self.between = (
            series.between_freedom * series.between + degrees * found
        ) / self.between_freedom
        weighed = self.solve(self.columns)
        self._inverse = np.linalg.pinv(self.columns.T @ weighed)
        self._weights = self._inverse @ weighed.T  # coefficients of the readings in each estimate
        self.estimates: Array = self._weights @ self.values
        self.residuals: Array = self.values - self.columns @ self.estimates

    def solve(self, columns: Array) -> Array:
        """V⁻¹ times a column, or several, by the moderated variances."""
        return _solve(columns, self.cards, self.runs * self.variances, self.between)

    def contrast(self, coefficients: Array) -> Contrast:
        """A sum of the estimates with these coefficients."""
        weights = coefficients @ self._weights
        of_runs = self.runs * float(np.sum(weights**2 * self.variances))
        of_cards = self.between * float(np.sum(np.bincount(self.cards, weights) ** 2))
        variance = of_runs + of_cards
        spread = of_runs**2 / self.runs_freedom + of_cards**2 / max(self.between_freedom, 1e-9)
        freedom = variance**2 / spread if spread > 0 else self.runs_freedom
        return Contrast(float(coefficients @ self.estimates), variance, freedom)

    @property
    def criterion(self) -> float:
        """Schwarz's, of the readings by the moderated variances: the smaller the better."""
        variances = self.runs * self.variances
        totals = np.bincount(self.cards, 1 / variances)
        determinant = np.sum(np.log(variances)) + np.sum(np.log1p(self.between * totals))
        squares = self.residuals @ self.solve(self.residuals)
        return float(determinant + squares + self.columns.shape[1] * math.log(len(self.values)))

    def candidates(self) -> tuple[Array, Places]:
        """How much each further segment would explain, as the square of a normal deviate; see
        `_places`."""
        count = len(self.series)
        weights = 1 / (self.runs * self.variances)
        share = self.between / (1 + self.between * np.bincount(self.cards, weights))
        residual = self.solve(self.residuals)[:, None]
        design = self.solve(self.columns)
        of_card = self.of_card * weights[:, None]
        explained, weighed, by_card = (_cumulated(each) for each in (residual, design, of_card))
        first, end = _places(count)
        sums = by_card[end] - by_card[first]
        own = sums.sum(axis=1) - (sums**2) @ share
        others = weighed[end] - weighed[first]
        left = own - np.einsum("ij,jk,ik->i", others, self._inverse, others)
        gain = (explained[end] - explained[first])[:, 0] ** 2
        known = left > 1e-9 * own
        return np.where(known, gain / np.where(known, left, 1.0), 0.0), (first, end)


def _solve(columns: Array, cards: Numbers, runs: Array, between: float) -> Array:
    """V⁻¹ times a column, or several.  runs: σ² of each reading.  between: τ².

    V is diagonal but for τ² between readings of one card, so that its inverse has a closed form
    (Sherman and Morrison).
    """
    weights = 1 / runs
    weighed = (columns.T * weights).T
    totals = np.bincount(cards, weights)
    sums = np.zeros((len(totals), *columns.shape[1:]))
    np.add.at(sums, cards, weighed)
    shrunk = (sums.T * (between / (1 + between * totals))).T
    return np.asarray(weighed - (shrunk[cards].T * weights).T)


def _least_squares(columns: Array, weights: Array, values: Array) -> tuple[float, int, Array]:
    """The weighted squares that these columns leave, their rank, and the inverse of their
    products."""
    weighed = columns * weights[:, None]
    sizes, directions = np.linalg.eigh(columns.T @ weighed)
    kept = sizes > 1e-10 * sizes[-1]
    inverse = (directions[:, kept] / sizes[kept]) @ directions[:, kept].T
    explained = weighed.T @ values
    squares = float(weights @ values**2 - explained @ inverse @ explained)
    return max(squares, 0.0), int(kept.sum()), inverse


@functools.lru_cache(maxsize=256)
def _places(count: int) -> Places:
    """Candidate segments as (first, end): every tail of the series, and inner segments of roughly
    geometric lengths."""
    first, end = [np.arange(1, count)], [np.full(max(count - 1, 0), count)]
    length = 1
    while length < count - 1:
        inside = np.arange(1, count - length)
        first.append(inside)
        end.append(inside + length)
        length = max(length + 1, length * 4 // 3)
    return np.concatenate(first), np.concatenate(end)


def _cumulated(columns: Array) -> Array:
    return np.concatenate([np.zeros((1, columns.shape[1])), np.cumsum(columns, axis=0)])


class Segment(NamedTuple):
    """A part of a series. first, end: readings.  drifts: whether its level moves steadily from one
    end to the other."""

    first: int
    end: int
    drifts: bool = False


#: Where a level is asked for: at the beginning of a segment, in its middle, at its end.
BEGIN, MIDDLE, END = -0.5, 0.0, 0.5


@dataclass(frozen=True)
class Segmentation:
    """The levels of a series. fit: of the columns of `_fit`."""

    segments: Sequence[Segment]
    fit: Fit

    def coefficients(self, segment: int, at: float) -> Array:
        """Of the estimates, for the level of a segment at one of its ends."""
        found = np.zeros(len(self.fit.estimates))
        found[segment] = 1.0
        if self.segments[segment].drifts:
            drifting = sum(each.drifts for each in self.segments[:segment])
            found[len(self.segments) + drifting] = at
        return found

    def value(self, segment: int, at: float = MIDDLE) -> float:
        """The logarithm of a segment's level, on the average card."""
        return self.fit.offset + float(self.coefficients(segment, at) @ self.fit.estimates)

    def p_value(self, old: tuple[int, float], new: tuple[int, float]) -> float:
        """Of no difference between two levels.  old, new: segment and where in it."""
        difference = self.coefficients(*new) - self.coefficients(*old)
        return self.fit.contrast(difference).p if difference.any() else 1.0

    @property
    def outliers(self) -> list[int]:
        """Readings that stand out alone from a level that goes on after them."""
        places = len(self.fit.series) - 1
        return [
            segment.first
            for number, segment in enumerate(self.segments[1:-1], 1)
            if segment.end - segment.first == 1
            and places * self.p_value((number - 1, END), (number + 1, BEGIN)) > ENTRY
        ]

    def boundary(self, segment: int) -> tuple[int, int]:
        """The first and the last reading with which a segment, not the first one, may begin (95 %
        by likelihood).

        Readings of a card that was not seen before or after may belong to either side.
        """
        segments, cards = list(self.segments), self.fit.series.cards
        before, after = segments[segment - 1], segments[segment]
        least = self._deviance(segments)
        likely = [after.first]
        # Within a visit to one card, a change shows; what is asked is to which side a visit
        # belongs.
        visits = np.flatnonzero(np.diff(cards[before.first : after.end])) + before.first + 1
        nearest = sorted(visits.tolist(), key=lambda place: abs(place - after.first))[:MOST_VISITS]
        for place in (after.first - 1, after.first + 1, *nearest):
            if before.first < place < after.end:
                moved = [before._replace(end=place), after._replace(first=place)]
                segments[segment - 1 : segment + 1] = moved
                if self._deviance(segments) - least <= LIKELY:
                    likely.append(place)
        return min(likely), max(likely)

    def _deviance(self, segments: Sequence[Segment]) -> float:
        """Minus twice the logarithm of the likelihood of these segments, by this fit's variances,
        plus a constant."""
        fit = self.fit
        covariates = fit.design[
            :, len(self.segments) + sum(each.drifts for each in self.segments) :
        ]
        columns = _fit(fit.series, segments, covariates).columns
        weighed = fit.solve(columns)
        estimates = np.linalg.pinv(columns.T @ weighed) @ (weighed.T @ fit.values)
        left = fit.values - columns @ estimates
        return float(left @ fit.solve(left))


def find_segments(series: ReadingSeries) -> Segmentation:
    """The segments of a series that differ in level.

    Segments are added one after another, the one that explains most first, as long as its p-value,
    corrected for the number of places, is at most ENTRY. Those that the others have made needless
    are taken out again. Steps of one direction that a steady drift explains better are one drifting
    segment. The covariate is taken with which the segments explain most, by the criterion of
    Schwarz; none where none does.
    """
    found = [_search(series, np.empty((len(series), 0)))]
    if series.columns.size:
        left = LEFT * series.between
        seen = replace(
            series, between=left, between_freedom=min(series.between_freedom, LEFT_FREEDOM)
        )
        found += [_search(seen, column[:, None]) for column in series.columns.T]
    return min(found, key=lambda each: each.fit.criterion)


def _search(series: ReadingSeries, covariates: Array) -> Segmentation:
    """The segments, with these covariates."""
    starts = [0]
    while len(starts) < MOST_LEVELS:
        fit = _fit(series, _segments(series, starts), covariates)
        gains, candidates = fit.candidates()
        if not gains.size or gains.max() <= 0:
            break
        best = int(gains.argmax())
        first, end = int(candidates[0][best]), int(candidates[1][best])
        inside = np.zeros(len(series))
        inside[first:end] = 1.0
        more = Fit(series, np.column_stack([fit.design, inside]))
        coefficients = np.zeros(len(more.estimates))
        coefficients[fit.design.shape[1]] = 1.0
        added = sorted({*starts, first, end} - {len(series)})
        if len(gains) * more.contrast(coefficients).p > ENTRY or added == starts:
            break
        starts = added
    while True:
        segments = _segments(series, starts)
        found = Segmentation(segments, _fit(series, segments, covariates))
        p_values = [found.p_value((n, MIDDLE), (n + 1, MIDDLE)) for n in range(len(starts) - 1)]
        if not p_values or (len(series) - 1) * max(p_values) <= ENTRY:
            return _with_drifts(found, covariates)
        del starts[int(np.argmax(p_values)) + 1]


def _segments(series: ReadingSeries, starts: Sequence[int]) -> list[Segment]:
    return [Segment(first, end) for first, end in itertools.pairwise((*starts, len(series)))]


def _fit(series: ReadingSeries, segments: Sequence[Segment], covariates: Array) -> Fit:
    """Of a column for each segment, one for each that drifts, from BEGIN to END, then the
    covariates."""
    levels = np.zeros((len(series), len(segments)))
    drifts = np.zeros((len(series), 0))
    for number, (first, end, drifting) in enumerate(segments):
        levels[first:end, number] = 1.0
        if drifting:
            column = np.zeros((len(series), 1))
            column[first:end, 0] = np.linspace(BEGIN, END, end - first)
            drifts = np.hstack([drifts, column])
    return Fit(series, np.hstack([levels, drifts, covariates]))


def _with_drifts(found: Segmentation, covariates: Array) -> Segmentation:
    """The same with steps of one direction replaced by drifts, where these explain the readings
    better.

    Better is the smaller criterion of Schwarz (Annals of Statistics 6, 1978), by the residuals, and
    the variances as they were known before.
    """
    series, best = found.fit.series, found
    for first, last in _monotonic([found.value(number) for number in range(len(found.segments))]):
        drift = Segment(found.segments[first].first, found.segments[last].end, drifts=True)
        kept = [
            each for each in best.segments if each.end <= drift.first or each.first >= drift.end
        ]
        replaced = len(best.segments) - len(kept)
        if replaced < last - first + 1 or drift.end - drift.first < ENOUGH_TO_DRIFT:
            continue  # a part of it is in another drift, or it is short
        segments = sorted([*kept, drift])
        other = Segmentation(segments, _fit(series, segments, covariates))
        number = segments.index(drift)
        is_certain = other.p_value((number, BEGIN), (number, END)) <= ENTRY
        if is_certain and _criterion(other.fit) < _criterion(best.fit):
            best = other
    return best


def _monotonic(values: Sequence[float]) -> Iterator[tuple[int, int]]:
    """(first, last) of each longest part in which values only rise, or only fall; they share their
    ends."""
    first = 0
    for place in range(1, len(values) + 1):
        turns = place == len(values) or (
            place - first > 1
            and (values[place] > values[place - 1]) != (values[place - 1] > values[place - 2])
        )
        if turns:
            yield first, place - 1
            first = place - 1


def _criterion(fit: Fit) -> float:
    series = fit.series
    squares = float(fit.residuals @ _solve(fit.residuals, fit.cards, fit.variances, series.between))
    count = series.runs_freedom + len(series)
    return count * math.log(series.runs_freedom + squares) + len(fit.estimates) * math.log(
        len(series)
    )
