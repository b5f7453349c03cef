"""The levels of a series of values over commits, and the certainty of the differences between them.

The logarithm of a reading is the sum of the level of its commit, the deviation of its card from the
type, and the deviation of its run from other runs on that card. The card is a random effect: two
readings of one card have the covariance τ², and a reading has the variance τ² + σ². Levels are
estimated by generalised least squares, so that a change measured on one card is judged by the
variation of runs on a card, and a change that may come from the cards by the variation between
cards.

Both variances are known in advance from repeated runs, with degrees of freedom, and are moderated
by what the series shows (Smyth 2004; see `hpml_plugins.analysis.variance`). Sources: Searle,
Casella and McCulloch, Variance Components (1992), section 5.3, for the estimates by Henderson's
method 3; Satterthwaite, Biometrics Bulletin 2 (1946), for degrees of freedom; Olshen et al.,
Biostatistics 5 (2004), for the search by segments that begin and end inside a series.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np

from hpml_plugins.analysis.variance import Array, p_value, student_quantile

Numbers = np.ndarray[Any, np.dtype[np.int64]]
#: The first index and the end of each of many segments.
Places = tuple[Numbers, Numbers]

#: The fewest readings of a level: a single outlier is decided by the next run.
ENOUGH = 2
#: The fewest readings of a drift.
ENOUGH_TO_DRIFT = 6
#: Largest p-value of a change that is added to the model, corrected for the number of possible
#: places.
ENTRY = 0.01
#: The most levels of a series.
MOST_LEVELS = 60
#: Two places of a change are both likely if twice the difference of their log-likelihoods is at
#: most this: 95 % of χ² with one degree of freedom.
LIKELY = 3.84
#: The number of nearest visits to a card whose side of a change is determined.
MOST_VISITS = 12
#: Standard deviation of the logarithm of the factor by which busy CPUs slow down all busy
#: readings: two processes that share a core get half of it each, so a factor of 2 is taken as two
#: standard deviations.
BUSY = math.log(2) / 2
#: The fewest readings with a covariate for using it.
COVARIATE_READINGS = 5
#: The share of the variance between cards that a covariate leaves unexplained: over 44 cards,
#: one factor per card explains 83 to 85 % of it.
LEFT = 0.16
#: Degrees of freedom of that share.
LEFT_FREEDOM = 2.0
#: Columns are linearly dependent if an eigenvalue of their matrix of products is at most this part
#: of the largest one.
DEPENDENT = 1e-10
#: Up to this part of the largest eigenvalue, an eigenvalue is only rounding.
SINGULAR = 1e-15


@dataclass(frozen=True, eq=False)
class ReadingSeries:
    """Readings in the order of commits.

    values: natural logarithms.  cards: a number for each card.  runs: the variance of each
    reading's logarithm on one card, σ².  runs_freedom: its degrees of freedom.  between: the
    variance between cards, τ².  between_freedom: its degrees of freedom.  covariates: one column
    for each quantity that may explain differences between cards, such as the logarithm of a
    reference step of the same visit; NaN if missing.  busy: the readings that other processes
    slowed down, all by one additional unknown factor; see BUSY.
    """

    values: Array
    cards: Numbers
    runs: Array
    runs_freedom: float
    between: float
    between_freedom: float
    covariates: Array = field(default_factory=lambda: np.empty((0, 0)))
    busy: np.ndarray[Any, np.dtype[np.bool_]] = field(
        default_factory=lambda: np.zeros(1, np.bool_)
    )

    def __len__(self) -> int:
        return len(self.values)

    @functools.cached_property
    def prepared(self) -> _Prepared:
        """What all fits of the series share."""
        return _Prepared(self)

    @functools.cached_property
    def columns(self) -> Array:
        """The centred covariates, without those that too few readings have or that are constant."""
        found = np.empty((len(self), 0))
        for column in self.covariates.T if self.covariates.size else ():
            known = np.isfinite(column)
            if known.sum() >= COVARIATE_READINGS and np.ptp(column[known]) > 0:
                centred = np.where(known, column - column[known].mean(), 0.0)
                found = np.column_stack([found, centred])
        return found


class Contrast(NamedTuple):
    """A difference between the logarithms of two levels. variance: of the estimate.  freedom: of
    the variance."""

    value: float
    variance: float = 0.0
    freedom: float = math.inf

    @property
    def p(self) -> float:
        """Two-sided p-value of the hypothesis of no difference."""
        return p_value(self.value, self.variance, self.freedom)

    @property
    def least(self) -> float:
        """The one-sided 95 % bound that is closer to no difference."""
        if self.variance <= 0:
            return self.value
        reach = student_quantile(0.95, self.freedom) * math.sqrt(self.variance)
        return self.value - math.copysign(reach, self.value)


class _Products(NamedTuple):
    """Weighted sums over the readings, from which all estimates are computed.

    squares: the products of all pairs of columns.  values: the products of the columns and the
    values.  by_card: the sum of each column for each card.  Several designs add a leading
    dimension.
    """

    squares: Array
    values: Array
    by_card: Array


class _Prepared:
    """What all fits of a series share.

    The values are centred, so that squares of large values do not cancel. If there are busy
    readings, an additional reading of 0 limits the size of their common factor.
    """

    def __init__(self, series: ReadingSeries) -> None:
        self.busy = series.busy if series.busy.any() else None
        self.offset = float(series.values.mean())
        self.values = series.values - self.offset
        self.cards = series.cards
        self.variances = series.runs
        if self.busy is not None:
            self.values = np.append(self.values, 0.0)
            self.cards = np.append(series.cards, series.cards.max() + 1)
            self.variances = np.append(series.runs, BUSY**2)
        self.weights = 1 / self.variances
        self.of_card = np.eye(self.cards.max() + 1)[self.cards]
        weighed = self.weights * self.values
        self.squares = float(weighed @ self.values)
        self.by_card = weighed @ self.of_card
        self.totals = self.weights @ self.of_card
        # a card without readings
        self.reciprocals = 1 / np.where(self.totals > 0, self.totals, 1.0)

    def complete(self, design: Array) -> Array:
        """A design, or several, completed with the factor of busy readings."""
        if self.busy is None:
            return design
        *several, rows, count = design.shape
        columns = np.zeros((*several, rows + 1, count + 1))
        columns[..., :-1, :-1] = design
        columns[..., :-1, -1] = self.busy
        columns[..., -1, -1] = 1.0
        return columns

    def products(self, columns: Array) -> _Products:
        """The products of the columns of a complete design, or of several."""
        weighed = np.swapaxes(columns, -1, -2) * self.weights
        return _Products(weighed @ columns, weighed @ self.values, weighed @ self.of_card)


class _Fit:
    """A series modelled as a sum of these columns, the effect of the card and noise, by generalised
    least squares.

    design: one column for each coefficient.  offset: the mean of the values, which was subtracted
    before estimating.  estimates: one for each column, then that of busy CPUs if there are busy
    readings.  runs, between: both variances, moderated; the first as a multiple of its value known
    in advance.
    """

    def __init__(self, series: ReadingSeries, design: Array) -> None:
        self.series = series
        self.design = design
        self._known = series.prepared
        known = self._known
        self.offset = known.offset
        self.columns = known.complete(design)
        products = known.products(self.columns)
        inverse, rank = _inverse(products.squares, DEPENDENT)
        residual = _left(known.squares, products.values, inverse)
        # With an effect for each card, the remainder is what both say about the means of the
        # cards.
        means = products.by_card * known.reciprocals
        about_means = products.squares - means @ products.by_card.T
        values = products.values - means @ known.by_card
        squares = known.squares - float(known.reciprocals @ known.by_card**2)
        inverse_within, rank_within = _inverse(
            about_means, DEPENDENT, np.trace(products.squares)
        )
        within = _left(squares, values, inverse_within)
        cards = int(np.count_nonzero(known.totals))
        freedom = len(known.values) - cards - rank_within
        self.runs_freedom = series.runs_freedom + freedom
        self.runs = (series.runs_freedom + within) / self.runs_freedom
        degrees = cards + rank_within - rank
        worth = float(
            known.totals.sum() - np.sum(products.by_card * (inverse @ products.by_card))
        )
        if degrees and worth > 1e-9:
            found = max(0.0, (residual - within - self.runs * degrees) / worth)
        else:
            found = 0.0
        self.between_freedom = series.between_freedom + degrees
        self.between = (
            series.between_freedom * series.between + degrees * found
        ) / self.between_freedom
        self._shrinkage = self.between / (self.runs + self.between * known.totals)
        squares_solved, values_solved = self._solved(products)
        self._inverse, _ = _inverse(squares_solved, SINGULAR)
        self.estimates: Array = self._inverse @ values_solved
        # what the effect of each card adds to each coefficient
        left = (1 - self._shrinkage * known.totals) / self.runs
        self._of_cards = self._inverse @ (products.by_card * left)

    def _solved(self, products: _Products) -> tuple[Array, Array]:
        """The squares and the values of products, with V⁻¹ as the weights; see `_solve`."""
        shrunk = products.by_card * self._shrinkage
        squares = products.squares - shrunk @ np.swapaxes(products.by_card, -1, -2)
        values = products.values - shrunk @ self._known.by_card
        return squares / self.runs, values / self.runs

    def solve(self, columns: Array) -> Array:
        """V⁻¹ times a column, or several, with the moderated variances."""
        known = self._known
        return _solve(columns, known.cards, self.runs * known.variances, self.between)

    @functools.cached_property
    def residuals(self) -> Array:
        """The residual of each reading."""
        return np.asarray(self._known.values - self.columns @ self.estimates)

    def contrast(self, coefficients: Array) -> Contrast:
        """The linear combination of the estimates with these coefficients."""
        variance = float(coefficients @ self._inverse @ coefficients)
        of_cards = self.between * float(np.sum((coefficients @ self._of_cards) ** 2))
        of_runs = max(variance - of_cards, 0.0)
        spread = of_runs**2 / self.runs_freedom + of_cards**2 / max(
            self.between_freedom, 1e-9
        )
        freedom = variance**2 / spread if spread > 0 else self.runs_freedom
        return Contrast(float(coefficients @ self.estimates), variance, freedom)

    @property
    def criterion(self) -> float:
        """Schwarz's criterion of the readings with the moderated variances; smaller is better."""
        known = self._known
        variances = self.runs * known.variances
        ratio = self.between / self.runs
        determinant = np.sum(np.log(variances)) + np.sum(np.log1p(ratio * known.totals))
        squares = self.residuals @ self.solve(self.residuals)
        return float(
            determinant + squares + self.columns.shape[1] * math.log(len(known.values))
        )

    def plain_criterion(self) -> float:
        """Schwarz's criterion from the residuals and the variances known in advance."""
        series = self.series
        known = self._known
        solved = _solve(self.residuals, known.cards, known.variances, series.between)
        count = series.runs_freedom + len(series)
        squares = series.runs_freedom + float(self.residuals @ solved)
        return count * math.log(squares) + len(self.estimates) * math.log(len(series))

    def deviances(self, designs: Array) -> Array:
        """Minus twice the log-likelihood of each of several designs with this fit's variances, up
        to a constant."""
        known = self._known
        squares, values = self._solved(known.products(known.complete(designs)))
        inverse, _ = _inverse(squares, SINGULAR)
        total = (known.squares - float(self._shrinkage @ known.by_card**2)) / self.runs
        return np.asarray(total - np.einsum("ij,ijk,ik->i", values, inverse, values))

    def candidates(self) -> tuple[Array, Places]:
        """How much each additional segment would explain, as the square of a normal deviate; see
        `_places`."""
        known = self._known
        weights = known.weights / self.runs
        residual = self.solve(self.residuals)[:, None]
        design = self.solve(self.columns)
        of_card = known.of_card * weights[:, None]
        explained, weighed, by_card = (
            _cumulated(each) for each in (residual, design, of_card)
        )
        first, end = _places(len(self.series))
        sums = by_card[end] - by_card[first]
        own = sums.sum(axis=1) - (sums**2) @ (self.runs * self._shrinkage)
        others = weighed[end] - weighed[first]
        left = own - np.sum((others @ self._inverse) * others, axis=1)
        gain = (explained[end] - explained[first])[:, 0] ** 2
        known_places = left > 1e-9 * own
        gains = np.where(known_places, gain / np.where(known_places, left, 1.0), 0.0)
        return gains, (first, end)


def _solve(columns: Array, cards: Numbers, runs: Array, between: float) -> Array:
    """V⁻¹ times a column, or several.  runs: σ² of each reading.  between: τ².

    V is diagonal except for τ² between readings of one card, so its inverse has a closed form
    (Sherman and Morrison).
    """
    weights = 1 / runs
    weighed = (columns.T * weights).T
    totals = np.bincount(cards, weights)
    sums = np.zeros((len(totals), *columns.shape[1:]))
    np.add.at(sums, cards, weighed)
    shrunk = (sums.T * (between / (1 + between * totals))).T
    return np.asarray(weighed - (shrunk[cards].T * weights).T)


def _inverse(squares: Array, share: float, scale: float | None = None) -> tuple[Array, int]:
    """The pseudo-inverse of a symmetric matrix, or of several, and the largest of their ranks.

    share: eigenvalues up to this share of the scale count as 0.  scale: the largest eigenvalue by
    default.
    """
    sizes, directions = np.linalg.eigh(squares)
    kept = sizes > share * (sizes[..., -1:] if scale is None else scale)
    reciprocals = np.where(kept, 1 / np.where(kept, sizes, 1.0), 0.0)
    inverse = (directions * reciprocals[..., None, :]) @ np.swapaxes(directions, -1, -2)
    return inverse, int(kept.sum(axis=-1).max())


def _left(squares: float, values: Array, inverse: Array) -> float:
    """The weighted sum of squared residuals of the columns.  inverse: of their products."""
    return max(squares - float(values @ inverse @ values), 0.0)


@functools.lru_cache(maxsize=256)
def _places(count: int) -> Places:
    """Candidate segments as (first, end): every tail of the series, and inner segments of roughly
    geometric lengths."""
    first = [np.arange(1, count)]
    end = [np.full(max(count - 1, 0), count)]
    length = 1
    while length < count - 1:
        inside = np.arange(1, count - length)
        first.append(inside)
        end.append(inside + length)
        length = max(length + 1, length * 4 // 3)
    return np.concatenate(first), np.concatenate(end)


def _cumulated(columns: Array) -> Array:
    return np.concatenate([np.zeros((1, columns.shape[1])), np.cumsum(columns, axis=0)])


class _Segment(NamedTuple):
    """A part of a series. first, end: readings.  drifts: whether its level changes steadily from
    one end to the other."""

    first: int
    end: int
    drifts: bool = False


#: Where a level is evaluated: at the beginning, in the middle, or at the end of its segment.
BEGIN = -0.5
MIDDLE = 0.0
END = 0.5


@dataclass(frozen=True)
class Segmentation:
    """The levels of a series. fit: of the columns of `_design`."""

    segments: Sequence[_Segment]
    fit: _Fit

    def coefficients(self, segment: int, at: float) -> Array:
        """The coefficients of the estimates that give the level of a segment at one of its ends."""
        found = np.zeros(len(self.fit.estimates))
        found[segment] = 1.0
        if self.segments[segment].drifts:
            drifting = sum(each.drifts for each in self.segments[:segment])
            found[len(self.segments) + drifting] = at
        return found

    def value(self, segment: int, at: float = MIDDLE) -> float:
        """The logarithm of a segment's level on the average card."""
        return self.fit.offset + float(self.coefficients(segment, at) @ self.fit.estimates)

    def contrast(self, old: tuple[int, float], new: tuple[int, float]) -> Contrast:
        """The difference between two levels.  old, new: segment and position in it."""
        difference = self.coefficients(*new) - self.coefficients(*old)
        return self.fit.contrast(difference) if difference.any() else Contrast(0.0)

    @property
    def outliers(self) -> list[int]:
        """Single readings that deviate from a level that continues after them."""
        places = len(self.fit.series) - 1
        return [
            segment.first
            for number, segment in enumerate(self.segments[1:-1], 1)
            if segment.end - segment.first == 1
            and places * self.contrast((number - 1, END), (number + 1, BEGIN)).p > ENTRY
        ]

    def boundary(self, segment: int) -> tuple[int, int]:
        """The first and the last reading at which a segment, except the first one, may begin (95 %
        by likelihood).

        Readings of a card that was not measured on both sides may belong to either side.
        """
        segments = self.segments
        cards = self.fit.series.cards
        before = segments[segment - 1]
        after = segments[segment]
        # Within a visit to one card, a change is visible; what has to be determined is the side
        # of each visit.
        visits = np.flatnonzero(np.diff(cards[before.first : after.end])) + before.first + 1
        nearest = sorted(visits.tolist(), key=lambda place: abs(place - after.first))[
            :MOST_VISITS
        ]
        beside = (after.first - 1, after.first + 1, *nearest)
        places = [
            after.first,
            *(place for place in beside if before.first < place < after.end),
        ]
        drifting = sum(each.drifts for each in segments)
        covariates = self.fit.design[:, len(segments) + drifting :]
        designs = [
            _design(
                [
                    *segments[: segment - 1],
                    before._replace(end=place),
                    after._replace(first=place),
                    *segments[segment + 1 :],
                ],
                covariates,
            )
            for place in places
        ]
        deviances = self.fit.deviances(np.stack(designs))
        likely = np.array(places)[deviances - deviances[0] <= LIKELY]
        return int(likely.min()), int(likely.max())


def find_segments(series: ReadingSeries) -> Segmentation:
    """The segments of a series that differ in level.

    Segments are added one by one, the one that explains most first, as long as the p-value,
    corrected for the number of places, is at most ENTRY. Segments made redundant by others are
    removed again. Steps in one direction that a steady drift explains better become one drifting
    segment. The covariate is the one with which the segments explain most by Schwarz's criterion,
    or none if none improves it.
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

    @functools.cache
    def fitted(*starts: int) -> Segmentation:
        ends = (*starts[1:], len(series))
        return _segmentation(series, list(map(_Segment, starts, ends)), covariates)

    starts = [0]
    while len(starts) < MOST_LEVELS:
        found = fitted(*starts)
        gains, (firsts, ends) = found.fit.candidates()
        if not gains.size or gains.max() <= 0:
            break
        best = int(gains.argmax())
        inside = int(firsts[best]), int(ends[best])
        added = sorted({*starts, *inside} - {len(series)})
        new = sorted(set(added) - set(starts))
        if not new:
            break
        if len(new) == 1:
            # One more level then spans the same space as one more column: reuse its fit.
            place = added.index(new[0])
            p_value = fitted(*added).contrast((place - 1, MIDDLE), (place, MIDDLE)).p
        else:
            p_value = _p_value_inside(found.fit, *inside)
        if len(gains) * p_value > ENTRY:
            break
        starts = added
    while True:
        found = fitted(*starts)
        p_values = [
            found.contrast((n, MIDDLE), (n + 1, MIDDLE)).p for n in range(len(starts) - 1)
        ]
        if not p_values or (len(series) - 1) * max(p_values) <= ENTRY:
            return _with_drifts(found, covariates)
        del starts[int(np.argmax(p_values)) + 1]


def _p_value_inside(fit: _Fit, first: int, end: int) -> float:
    """The p-value of no difference between the readings of a part and the others, given what is
    already fitted."""
    count = fit.design.shape[1]
    design = np.column_stack([fit.design, np.zeros(len(fit.design))])
    design[first:end, count] = 1.0
    more = _Fit(fit.series, design)
    coefficients = np.zeros(len(more.estimates))
    coefficients[count] = 1.0
    return more.contrast(coefficients).p


def _segmentation(
    series: ReadingSeries, segments: Sequence[_Segment], covariates: Array
) -> Segmentation:
    return Segmentation(segments, _Fit(series, _design(segments, covariates)))


def _design(segments: Sequence[_Segment], covariates: Array) -> Array:
    """One column for each segment, one for each drift, from BEGIN to END, then the covariates."""
    count = len(segments)
    drifting = sum(each.drifts for each in segments)
    design = np.zeros((len(covariates), count + drifting + covariates.shape[1]))
    design[:, count + drifting :] = covariates
    drift = count
    for number, (first, end, drifts) in enumerate(segments):
        design[first:end, number] = 1.0
        if drifts:
            design[first:end, drift] = np.linspace(BEGIN, END, end - first)
            drift += 1
    return design


def _with_drifts(found: Segmentation, covariates: Array) -> Segmentation:
    """Replace steps in one direction by drifts if these explain the readings better.

    Better means a smaller criterion of Schwarz (Annals of Statistics 6, 1978), from the residuals
    and the variances known in advance.
    """
    series = found.fit.series
    best = found
    for first, last in _monotonic(
        [found.value(number) for number in range(len(found.segments))]
    ):
        drift = _Segment(found.segments[first].first, found.segments[last].end, drifts=True)
        kept = [
            each
            for each in best.segments
            if each.end <= drift.first or each.first >= drift.end
        ]
        replaced = len(best.segments) - len(kept)
        if replaced < last - first + 1 or drift.end - drift.first < ENOUGH_TO_DRIFT:
            continue  # part of it is in another drift, or it is short
        segments = sorted([*kept, drift])
        other = _segmentation(series, segments, covariates)
        number = segments.index(drift)
        is_certain = other.contrast((number, BEGIN), (number, END)).p <= ENTRY
        if is_certain and other.fit.plain_criterion() < best.fit.plain_criterion():
            best = other
    return best


def _monotonic(values: Sequence[float]) -> Iterator[tuple[int, int]]:
    """(first, last) of each maximal part in which values only rise or only fall; adjacent parts
    share an end."""
    first = 0
    for place in range(1, len(values) + 1):
        turns = place == len(values) or (
            place - first > 1
            and (values[place] > values[place - 1])
            != (values[place - 1] > values[place - 2])
        )
        if turns:
            yield first, place - 1
            first = place - 1
