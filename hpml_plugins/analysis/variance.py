"""The variation of a metric's value from run to run and from card to card, estimated from all
Records of a machine type.

Values are compared as logarithms, because relative deviations are similar across sizes and cards.
Two variances are estimated for each value: that of a run on the same card, here, and that of a run
on any card of the type, by `hpml_plugins.analysis.cards`. A new point has no repeated runs, so it
borrows from its class (the same metric of the same benchmark), and a class with few repetitions
borrows from its kind (its physics, and whether it has one round or several). What is borrowed
follows the empirical Bayes estimator of G. K. Smyth, Linear models and empirical Bayes methods for
assessing differential expression, Statistical Applications in Genetics and Molecular Biology 3
(2004), article 3, sections 4 to 6: sample variances s² with d degrees of freedom follow a scaled F
distribution around a prior s0² that is worth d0 degrees of freedom, and the posterior variance is
(d0 s0² + d s²) / (d0 + d) with d0 + d degrees of freedom.

The points of a loose class have no physics in common, as their values are not timings. Its erratic
points (`find_erratic`) are a class of their own.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
from scipy.special import betaincinv, chdtri, digamma, polygamma, stdtr, stdtrit

Array = np.ndarray[Any, np.dtype[Any]]

#: Smallest relative deviation assumed: two runs that agree to the last digit say little about
#: the third.
FLOOR = 2e-4
#: Relative standard deviation assumed for a kind that was never measured twice.
UNKNOWN = 0.03
#: Degrees of freedom of that assumption.
UNKNOWN_FREEDOM = 2.0
#: Relative standard deviation assumed between cards of a type if only one was measured: H200s
#: differ by 0.7 % at settled clocks.
UNKNOWN_CARDS = 0.01
#: Degrees of freedom of that assumption.
UNKNOWN_CARDS_FREEDOM = 4.0
#: Variance between runs if none was repeated, as a multiple of what the rounds of one run imply.
#: On H200s the multiple is 1.0 for kernels that do not throttle, minutes apart; it may be larger on
#: other days.
ROUNDS_ALONE = 4.0
#: Degrees of freedom of that multiple.
ROUNDS_ALONE_FREEDOM = 4.0
#: The quartile used of the variances implied by the rounds of each run, so that up to a quarter
#: of the runs may have an outlying round. Then 2.3 % of the medians of three rounds are outliers,
#: fewer than an interval excludes.
QUARTILE = 0.75
#: Confidence level of the lower bound on the variance between runs that is derived from rounds.
SURE = 0.95
#: Bounds of the degrees of freedom that a prior is worth.
LEAST_FREEDOM = 1.0
MOST_FREEDOM = 50.0
#: An item of a loose class is erratic if its deviation is more than this multiple of that of the
#: calmer items. By chance that happens to 0.06 % of items if the calmer ones have ENOUGH_CALM
#: degrees of freedom, and to fewer if they have more.
ERRATIC, ENOUGH_CALM = 10.0, 4.0
#: Groups from which a prior is estimated; with fewer nothing is known of how they differ.
ENOUGH_GROUPS = 3


@dataclass(frozen=True)
class Observations:
    """Values of runs in order of time, one entry in every array. The arrays from `point` on hold
    numbers that stand for names.

    value: the natural logarithm.  rounds: its variance implied by the rounds of the point's runs,
    NaN for one round.  rounds_freedom: its degrees of freedom.  point: what was measured
    (benchmark, version, parameters, metric) on a machine.  group: its class.  kind: of the class;
    the same for all observations of a class.  code: of the plugin.  card: or the host.  run: a
    later entry of the same run replaces an earlier one.
    """

    value: Array
    rounds: Array
    rounds_freedom: Array
    point: Array
    group: Array
    kind: Array
    code: Array
    card: Array
    run: Array

    def only(self, chosen: Any) -> Observations:
        """The chosen observations.  chosen: their numbers, or a mask."""
        return Observations(*(each[chosen] for each in vars(self).values()))


class Spread(NamedTuple):
    """Variances of a value's natural logarithm, and their degrees of freedom.

    same_*: of a run on the same card.  any_*: of a run on any card of the type.  is_assumed:
    whether next to nothing was repeated: values of this kind were measured on one card, and how its
    runs vary is as good as unknown.
    """

    same_card: float
    same_freedom: float
    any_card: float
    any_freedom: float
    is_assumed: bool = False


class Estimated(NamedTuple):
    """For each of several items, the variance of a value's logarithm, its degrees of freedom, and
    whether it is known, that is, whether anything of its kind was repeated.

    own: the degrees of freedom that come from the item itself.
    """

    variance: Array
    freedom: Array
    known: Array
    own: Array


def estimate_runs(observed: Observations, loose: Collection[int] = ()) -> Estimated:
    """The variance of a run on the same card, for each observation.  loose: the kinds whose classes
    are loose."""
    sets = np.stack([observed.point, observed.code, observed.card])
    return _posterior(observed, sets, observed.run, loose)


def estimate_spreads(
    observed: Observations, same: Estimated, between: Estimated
) -> list[Spread]:
    """The spread of each point, by its number.

    same: `estimate_runs`.  between: for each observation, the variance of a run on any card; see
    `hpml_plugins.analysis.cards`.
    """
    # the same for all observations of a point
    _, first = np.unique(observed.point, return_index=True)
    runs, runs_freedom, known, own_runs = (each[first] for each in same)
    cards, cards_freedom, known_cards, _ = (each[first] for each in between)
    rounds = observed.rounds[first]
    rounds_freedom = observed.rounds_freedom[first]
    # Runs differ at least as much as the rounds of one run; if no run of the kind was repeated,
    # nothing else is known.
    unknown = ~known & ~known_cards & np.isfinite(rounds)
    surely = rounds * rounds_freedom / chdtri(rounds_freedom, 1 - SURE)
    runs = np.where(unknown, ROUNDS_ALONE * rounds, np.fmax(runs, surely))
    runs_freedom = np.where(unknown, ROUNDS_ALONE_FREEDOM, runs_freedom)
    # Measured on one card only: the variance on any card is that of its runs plus a guess for the
    # difference between cards.
    alone = (known & ~known_cards) | unknown
    cards = np.where(alone, runs + UNKNOWN_CARDS**2, cards)
    cards_freedom = np.where(
        alone, np.minimum(runs_freedom, UNKNOWN_CARDS_FREEDOM), cards_freedom
    )
    # Cards differ at least as much as runs. For a point without repeated runs on one card, only
    # its class shows how runs vary: no more than cards, if more is known about those.
    noisy = cards < surely
    assumed = alone & ~noisy & (runs_freedom <= LEAST_FREEDOM)
    cards = np.where(noisy, surely, cards)
    cards_freedom = np.where(noisy, cards_freedom + rounds_freedom, cards_freedom)
    borrowed = (
        known_cards & (own_runs == 0) & (runs > cards) & (runs_freedom <= cards_freedom)
    )
    runs = np.where(borrowed, cards, runs)
    runs_freedom = np.where(borrowed, cards_freedom, runs_freedom)
    wider = cards >= runs
    found = (
        runs,
        runs_freedom,
        np.where(wider, cards, runs),
        np.where(wider, cards_freedom, runs_freedom),
    )
    spreads = [Spread(*each) for each in np.transpose(found).tolist()]
    guesses = assumed.tolist()
    return [
        spread._replace(is_assumed=guess)
        for spread, guess in zip(spreads, guesses, strict=True)
    ]


def _posterior(
    observed: Observations, within: Array, replicate: Array, loose: Collection[int]
) -> Estimated:
    """Posterior variance of each observation, from sets of equal numbers.

    The variance is that of the last values of the replicates within each set.

    within: one column per observation.
    """
    point, variance, freedom = _sample_variances(observed.value, within, replicate)
    own, own_freedom = _pool(variance, freedom, point, int(observed.point.max()) + 1)
    is_erratic = _erratic_points(observed, own, own_freedom, loose)[observed.point]
    _, groups = np.unique(2 * observed.group + is_erratic, return_inverse=True)
    observed = replace(observed, group=groups)
    _, first_of_point = np.unique(observed.point, return_index=True)
    _, first_of_group = np.unique(observed.group, return_index=True)
    group_of = observed.group[first_of_point]
    kind_of = observed.kind[first_of_group]
    group = group_of[point]
    pooled, pooled_freedom = _pool(variance, freedom, group, len(kind_of))
    known = pooled_freedom > 0
    calm = known & ~is_erratic[first_of_group]
    of_group = np.full(len(kind_of), UNKNOWN**2)
    total = np.full(len(kind_of), UNKNOWN_FREEDOM)
    worth = total.copy()
    for kind in np.unique(kind_of[known]):
        of_kind = kind_of == kind
        prior, prior_freedom = fit_prior(
            pooled[of_kind & calm], pooled_freedom[of_kind & calm]
        )
        total[of_kind] = prior_freedom + pooled_freedom[of_kind]
        of_group[of_kind] = (
            prior_freedom * prior + (pooled_freedom * pooled)[of_kind]
        ) / total[of_kind]
        # How much points of a class differ from each other, over all classes of the kind.
        members = of_kind[group]
        ratios = np.maximum(variance, FLOOR**2)[members] / of_group[group[members]]
        worth[of_kind] = fit_prior(ratios, freedom[members])[1]
    group = observed.group
    share = np.minimum(worth[group], total[group])
    more = own_freedom[observed.point]
    repeated = np.isin(observed.kind, np.unique(kind_of[known]))
    freedom = share + more
    variance = (share * of_group[group] + more * own[observed.point]) / freedom
    return Estimated(variance, freedom, repeated, more)


def _erratic_points(
    observed: Observations, own: Array, freedom: Array, loose: Collection[int]
) -> Array:
    """The erratic points of loose classes: a mask.  own, freedom: the variance of each point."""
    erratic = np.zeros(len(own), bool)
    inside = np.isin(observed.kind, list(loose)) & (freedom[observed.point] > 0)
    # a group's points are next to each other
    members = np.unique(observed.group[inside] * len(own) + observed.point[inside])
    group, point = np.divmod(members, len(own))
    _, starts = np.unique(group, return_index=True)
    for points in np.split(point, starts[1:]):
        erratic[points] = find_erratic(own[points], freedom[points])
    return erratic


def find_erratic(sample: Array, freedom: Array) -> Array:
    """Which items of a class vary far more than most: a mask.

    The mean of variances follows the largest one, so that such an item would widen the intervals of
    all others. Each is compared with all items whose variance is smaller, if these are the majority
    and have ENOUGH_CALM degrees of freedom. Source of the idea: Phipson et al., Robust
    hyperparameter estimation protects against hypervariable genes and improves power to detect
    differential expression, Annals of Applied Statistics 10 (2016).

    sample, freedom: the variance of each and its degrees of freedom, above 0.
    """
    order = np.argsort(sample, kind="stable")
    squares, of_calmer = (
        np.cumsum(each[order])[:-1] for each in (sample * freedom, freedom)
    )
    calmer = np.maximum(squares / of_calmer, FLOOR**2)
    are_most = np.arange(1, len(sample)) > len(sample) / 2
    exceeds = sample[order][1:] > ERRATIC**2 * calmer
    erratic = np.zeros(len(sample), bool)
    erratic[order[1:]] = np.logical_or.accumulate(
        exceeds & are_most & (of_calmer >= ENOUGH_CALM)
    )
    return erratic


def _sample_variances(
    value: Array, within: Array, replicate: Array
) -> tuple[Array, Array, Array]:
    """(point, sample variance, degrees of freedom) of each set with at least two replicates.

    within: one column per observation, whose first row is the point. From four replicates on, in
    order of time, the variance is derived from the median of their squared successive differences:
    a lasting change of what is measured, such as a regression, then affects only one difference.
    Source of the differences: von Neumann, Kent, Bellinson and Hart, Ann. Math. Statist. 12 (1941),
    153 to 162.
    """
    keys = number_columns(np.concatenate([within, replicate[None]]))
    # the last entry of each replicate
    last = np.sort(len(keys) - 1 - np.unique(keys[::-1], return_index=True)[1])
    sets = number_columns(within[:, last])
    count = np.bincount(sets)
    mean = np.bincount(sets, value[last]) / count
    variance = np.bincount(sets, (value[last] - mean[sets]) ** 2) / np.maximum(count - 1, 1)
    freedom = (count - 1).astype(float)
    order = np.argsort(sets, kind="stable")
    squares = np.diff(value[last][order]) ** 2
    of_set = sets[order][1:]
    within_set = of_set == sets[order][:-1]
    for length in np.unique(count[count > 3]).tolist():
        scale, estimate_freedom = _calibration(length)
        long = count == length
        # one row for each of these sets, in the order of their numbers
        of_sets = squares[within_set & long[of_set]].reshape(-1, length - 1)
        variance[long] = scale * np.median(of_sets, axis=1)
        freedom[long] = estimate_freedom
    chosen = count > 1
    point = np.zeros(len(count), np.int64)
    point[sets] = within[0, last]
    return point[chosen], variance[chosen], freedom[chosen]


@functools.cache
def _calibration(count: int) -> tuple[float, float]:
    """The factor that turns the median squared successive difference of `count` values into a
    variance estimate.

    Also returns the degrees of freedom of that estimate. Both match the mean and variance of its
    logarithm to those of a sample variance, which `fit_prior` assumes. They come from a simulation
    of normal values with a fixed seed.
    """
    values = np.random.default_rng(0).standard_normal((4000, count))
    found = np.log(np.median(np.diff(values) ** 2, axis=1))
    freedom = _freedom_of(float(found.var()))
    return float(np.exp(_mean_log(freedom) - found.mean())), freedom


def _mean_log(freedom: float) -> float:
    """The mean of the logarithm of a sample variance if the true variance is 1."""
    return float(digamma(freedom / 2) - np.log(freedom / 2))


def number_columns(columns: Array) -> Array:
    """A number for each column, equal for equal columns."""
    return np.unique(columns, axis=1, return_inverse=True)[1].ravel()


def _pool(variance: Array, freedom: Array, key: Array, size: int) -> tuple[Array, Array]:
    """The pooled variance of each key, 0 if there is none, and its degrees of freedom."""
    total = np.bincount(key, freedom, minlength=size)
    summed = np.bincount(key, variance * freedom, minlength=size)
    return np.divide(summed, total, out=np.zeros(size), where=total > 0), total


def pool_rounds(told: Sequence[tuple[float, int]]) -> float:
    """The variance between runs of a point implied by their rounds, NaN if there are none.  told:
    (variance, its degrees of freedom) of each run."""
    unbiased = [
        variance / expected_quartile(len(told), freedom) for variance, freedom in told
    ]
    return float(np.quantile(unbiased, QUARTILE)) if unbiased else np.nan


@functools.cache
def expected_quartile(count: int, freedom: int) -> float:
    """The mean of the upper quartile of `count` sample variances if the true variance is 1.
    freedom: of each.

    The quartile is NumPy's, interpolated between two ranks. The value of rank r of n has the
    quantile of χ² at a share that is Beta(r, n + 1 - r) distributed. Source: David and Nagaraja,
    Order Statistics, 3rd ed. (2003), chapter 2.
    """
    shares = (np.arange(1000) + 0.5) / 1000
    below, part = divmod(QUARTILE * (count - 1), 1)
    ranks = np.minimum([below + 1, below + 2], count)[:, None]
    means = (
        chdtri(freedom, betaincinv(count + 1 - ranks, ranks, shares)).mean(axis=1) / freedom
    )
    return float((1 - part) * means[0] + part * means[1])


def fit_prior(variance: Array, freedom: Array) -> tuple[float, float]:
    """The prior variance and its degrees of freedom, from sample variances of similar items.

    variance: sample variances.  freedom: the degrees of freedom of each, above 0.  Matches moments
    of log s², which has the mean log s0² + ψ(d/2) − ψ(d0/2) + log(d0/d) and the variance ψ′(d/2) +
    ψ′(d0/2). Source: Smyth 2004, section 6.2.
    """
    variance = np.maximum(variance, FLOOR**2)
    shifted = np.log(variance) - digamma(freedom / 2) + np.log(freedom / 2)
    if len(shifted) < ENOUGH_GROUPS:
        return float(np.average(variance, weights=freedom)), UNKNOWN_FREEDOM
    excess = float(np.var(shifted, ddof=1) - polygamma(1, freedom / 2).mean())
    # Few similar groups say little about how much others differ: n groups are worth at most n
    # degrees of freedom.
    prior_freedom = min(_freedom_of(excess), float(len(shifted)))
    return float(np.exp(shifted.mean() + _mean_log(prior_freedom))), prior_freedom


def _freedom_of(excess: float) -> float:
    """Solve ψ′(d0/2) = excess for d0, within the bounds; accurate to 1e-5."""
    freedom, excesses = _excesses()
    return float(np.interp(-excess, -excesses, freedom))


@functools.cache
def _excesses() -> tuple[Array, Array]:
    """Degrees of freedom d0 within the bounds, and ψ′(d0/2) of each."""
    freedom = np.geomspace(LEAST_FREEDOM, MOST_FREEDOM, 1000)
    return freedom, polygamma(1, freedom / 2)


@functools.cache
def half_width(variance: float, freedom: float, cards: int = 1) -> float:
    """Half of the 95 % prediction interval for the logarithm of another run around the mean of
    `cards` runs, both of which vary."""
    return student_quantile(0.975, freedom) * math.sqrt(variance * (1 + 1 / cards))


@functools.cache
def student_quantile(share: float, freedom: float) -> float:
    """The quantile of Student's t distribution."""
    return float(stdtrit(freedom, share))


def p_value(difference: float, variance: float, freedom: float) -> float:
    """The two-sided p-value of the hypothesis of no difference, by Student's t.  variance: of the
    difference, 0 if it is exact."""
    if variance <= 0:
        return 0.0 if difference else 1.0
    return float(2 * stdtr(freedom, -abs(difference) / math.sqrt(variance)))
