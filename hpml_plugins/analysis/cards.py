"""The variation of values from card to card, estimated by classes of physics.

A class (`Physics`) on a type of hardware has members. For GPU computations these are the
benchmarks, because one factor per card explains most of the differences between cards and all
points of a benchmark share it; if the host takes part, they are the metrics of each point. For
every set of values of equal code on two or more cards, the squared deviations of a next run from
the mean of the set are pooled over the sets of the member. Their degrees of freedom are the number
of distinct cards minus the number of groups of cards that share a set. A member borrows from its
class by the empirical Bayes estimator of Smyth 2004 (see `hpml_plugins.analysis.variance`):

    variance of a member = (d0 τ0² + f s²) / (d0 + f), with d0 + f degrees of freedom
    τ0² = Σ w s² / Σ w, with w = f d0 / (f + d0)

A point borrows from its member in the same way: of one benchmark's points on eleven cards some vary
by 0.2 %, another by 2.2 %. The weight of a member for its points follows from how much the points
of all members of a class differ from their members. It is at most the degrees of freedom that the
member has beyond the point's own, because both are often measured on the same cards.

The weights are those of a mean of different members (DerSimonian and Laird, Meta-analysis in
clinical trials, Controlled Clinical Trials 7, 1986): the variance of one s² is proportional to 1 /
f + 1 / d0.

Types differ: seven H100s differ by 0.1 % in what streams from memory and by 1.5 % in boost, H200s
by 0.3 and 0.9 %. A type with too few distinct cards borrows from the class over all types, with at
most LEAST_WORTH.

The members of a loose class share a metric and no physics: the points of one benchmark whose values
are not timings. An erratic one (`find_erratic`) tells nothing about calm ones: the times of a
training that reaches its target by luck differ by 16 % between cards, those of another recipe, on
nine cards, by 0.5 %. It borrows from all members itself, and so does a member that was never
repeated, since it may be erratic too.
"""

from __future__ import annotations

import functools
from collections.abc import Collection
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components

from hpml_plugins.analysis.variance import (
    ENOUGH_GROUPS,
    FLOOR,
    UNKNOWN_CARDS,
    Array,
    Estimated,
    find_erratic,
    fit_prior,
)

#: The smallest weight of a class in degrees of freedom: one of its members may differ
#: considerably.
LEAST_WORTH = 2.0
#: If the deviation of a member is below this share of that of its class, it does not show how
#: much members differ: with one degree of freedom it may be near 0 by chance.
LEAST_SHARE = 0.1
#: From this number of degrees of freedom on, the variance of a class is accepted even below
#: UNKNOWN_CARDS.
ENOUGH_CARDS = 4
#: Iterations of fitting the weight of a class and its variance alternately; the third changes
#: nothing.
FITS = 3


@dataclass(frozen=True)
class CardObservations:
    """Values of runs, one entry in every array; all arrays except `value` hold numbers that stand
    for names.

    value: the natural logarithm; NaN is ignored.  point: what was measured, of which member.  spot:
    the point, type of hardware and code: values of one spot are repetitions.  member, pool: see
    above.  card: or the host.  modest: for each pool, whether a member borrows at most LEAST_WORTH
    from it, since hosts are few and different.  loose: for each pool, whether its members share no
    physics.  family: a number for each pool; pools with few cards borrow from all of their family.
    """

    value: Array
    point: Array
    spot: Array
    member: Array
    pool: Array
    card: Array
    modest: Array
    loose: Array
    family: Array

    @functools.cached_property
    def means(self) -> _CardMeans:
        """The mean of each card in each spot."""
        finite = np.isfinite(self.value)
        columns = self.value, self.spot, self.card, self.member, self.pool, self.point
        value, *of_mean = (each[finite] for each in columns)
        key = self.spot[finite] * (int(self.card.max()) + 1) + self.card[finite]
        _, first, place = np.unique(key, return_index=True, return_inverse=True)
        runs = np.bincount(place)
        mean = np.bincount(place, value) / runs
        within = np.bincount(place, (value - mean[place]) ** 2) / np.maximum(runs - 1, 1)
        return _CardMeans(mean, within * (1 - 1 / runs), *(each[first] for each in of_mean))

    def only(self, chosen: Array) -> CardObservations:
        """The chosen observations.  chosen: a mask over the observations."""
        return replace(
            self,
            value=self.value[chosen],
            point=self.point[chosen],
            spot=self.spot[chosen],
            member=self.member[chosen],
            pool=self.pool[chosen],
            card=self.card[chosen],
        )


class _CardMeans(NamedTuple):
    """The mean of each card in each spot, one entry each.

    averaged: the variance removed by averaging over the runs of the card, which the next run has.
    """

    mean: Array
    averaged: Array
    spot: Array
    card: Array
    member: Array
    pool: Array
    point: Array

    def compared(self, chosen: Array) -> _CardMeans:
        """The chosen entries whose spot has several cards; spots are renumbered."""
        cards = np.bincount(self.spot, chosen)
        several = chosen & (cards[self.spot] > 1)
        found = _CardMeans(*(each[several] for each in self))
        return found._replace(spot=np.unique(found.spot, return_inverse=True)[1])


def estimate_points(
    observed: CardObservations,
    without: Collection[int] = (),
    pools: Collection[int] | None = None,
) -> Estimated:
    """The variance between cards of each point, by its number.

    without: cards left out.  pools: those whose points are needed; None: all.
    """
    kept = ~np.isin(observed.means.card, list(without))
    points = int(observed.point.max()) + 1
    member_of, pool_of = np.zeros((2, points), np.int64)
    member_of[observed.point] = observed.member
    pool_of[observed.point] = observed.pool
    variance, freedom, known, _ = (
        each[member_of] for each in _estimate_members(observed, kept, pools)
    )
    found = observed.means.compared(kept)
    squares, repeats, own = _sum_squares(found._replace(member=found.point), points)
    sample = np.divide(squares, repeats, out=np.zeros(points), where=repeats > 0)
    has_own = own > 0
    several = has_own & (np.bincount(member_of, has_own)[member_of] > 1)
    for pool in _needed_pools(pool_of[several], pools):
        inside = several & (pool_of == pool)
        ratios = np.maximum(sample[inside] / variance[inside], LEAST_SHARE**2)
        _, prior_freedom = fit_prior(ratios, own[inside])
        rest = np.maximum(freedom[inside] - own[inside], LEAST_WORTH)
        borrowed = np.minimum(prior_freedom, rest)
        freedom[inside] = borrowed + own[inside]
        variance[inside] = (
            borrowed * variance[inside] + own[inside] * sample[inside]
        ) / freedom[inside]
    return Estimated(variance, freedom, known, own)


def _needed_pools(pool: Array, pools: Collection[int] | None) -> list[int]:
    """The distinct pools, limited to those that are needed."""
    found = np.unique(pool).tolist()
    return found if pools is None else [each for each in found if each in pools]


def _estimate_members(
    observed: CardObservations, kept: Array, pools: Collection[int] | None
) -> Estimated:
    """The variance between cards of each member, by its number.  kept: mask over the means of
    cards.  pools: see `estimate_points`."""
    members = int(observed.member.max()) + 1
    pool_of = np.zeros(members, np.int64)
    pool_of[observed.member] = observed.pool
    squares, repeats, own = _sum_squares(observed.means.compared(kept), members)
    of_pool = _cards_by(observed.means, kept, observed.means.pool, len(observed.family))
    sample = np.divide(squares, repeats, out=np.zeros(members), where=repeats > 0)
    variance = np.full(members, UNKNOWN_CARDS**2)
    freedom = np.full(members, LEAST_WORTH)
    known = np.zeros(members, bool)
    has_own = own > 0
    family_of = observed.family[pool_of]
    for pool in _needed_pools(pool_of[np.isin(family_of, family_of[has_own])], pools):
        inside = pool_of == pool
        informative = inside & has_own
        is_modest = bool(observed.modest[pool])
        cards = float(of_pool[pool])
        are_few = cards < ENOUGH_CARDS
        of_whole_family = (family_of == observed.family[pool]) & has_own
        if are_few and of_whole_family.sum() > informative.sum():
            informative = of_whole_family
            is_modest = True
            families = observed.family[observed.means.pool]
            of_family = kept & (families == observed.family[pool])
            cards = float(
                _cards_by(observed.means, of_family, np.zeros_like(families), 1)[0]
            )
        lending = [(inside, informative)]
        if observed.loose[pool]:
            calm = has_own.copy()
            calm[informative] = ~find_erratic(sample[informative], own[informative])
            if not calm[informative].all():
                lending = [
                    (inside & calm, informative & calm),
                    (inside & ~calm, informative),
                ]
        for borrowers, lenders in lending:
            prior, prior_freedom = _fit_class(
                sample[lenders], own[lenders], cards, modest=is_modest
            )
            for_others = max(prior, UNKNOWN_CARDS**2) if are_few else prior
            borrowed = np.where(has_own[borrowers], prior, for_others)
            freedom[borrowers] = prior_freedom + own[borrowers]
            variance[borrowers] = (
                prior_freedom * borrowed + own[borrowers] * sample[borrowers]
            ) / freedom[borrowers]
        known[inside] = True
    return Estimated(variance, freedom, known, own)


def _cards_by(means: _CardMeans, kept: Array, group: Array, groups: int) -> Array:
    """The degrees of freedom of all cards of each group together.  group: of each mean."""
    _, spot = np.unique(means.spot * groups + group, return_inverse=True)
    found = means._replace(spot=spot, member=group).compared(kept)
    return _card_freedom(found, groups)


def _fit_class(
    sample: Array, freedom: Array, cards: float, *, modest: bool
) -> tuple[float, float]:
    """τ0² and d0 of a class.  sample, freedom: of its members.  cards: the degrees of freedom of
    all its cards."""
    prior = float(np.average(sample, weights=freedom))
    prior_freedom = LEAST_WORTH
    if len(sample) < ENOUGH_GROUPS:
        return max(prior, FLOOR**2), prior_freedom
    for _ in range(FITS):
        if not modest:
            _, fitted = fit_prior(np.maximum(sample, LEAST_SHARE**2 * prior), freedom)
            prior_freedom = max(min(fitted, cards), LEAST_WORTH)
        prior = max(
            float(
                np.average(
                    sample, weights=freedom * prior_freedom / (freedom + prior_freedom)
                )
            ),
            FLOOR**2,
        )
    return prior, prior_freedom


def _sum_squares(found: _CardMeans, members: int) -> tuple[Array, Array, Array]:
    """For each member the squared deviations of next runs, their number, and the degrees of
    freedom."""
    count = np.bincount(found.spot)
    repeats = np.maximum(count - 1, 0)
    mean = np.bincount(found.spot, found.mean) / np.maximum(count, 1)
    share = (repeats / np.maximum(count, 1))[found.spot]
    deviations = (found.mean - mean[found.spot]) ** 2 + share * found.averaged
    squares = np.bincount(found.member, deviations, minlength=members)
    member_of = np.zeros(len(count), np.int64)
    member_of[found.spot] = found.member
    repetitions = np.bincount(member_of, repeats, minlength=members).astype(float)
    return squares, repetitions, _card_freedom(found, members)


def _card_freedom(found: _CardMeans, members: int) -> Array:
    """The degrees of freedom of each member: its distinct cards minus the groups of cards that
    share a spot."""
    if not len(found.member):
        return np.zeros(members)
    keys = found.member * (found.card.max() + 1) + found.card
    _, nodes = np.unique(keys, return_inverse=True)
    cards = int(nodes.max()) + 1
    spots = int(found.spot.max()) + 1
    shape = (cards + spots, cards + spots)
    links = coo_array((np.ones(len(nodes)), (nodes, cards + found.spot)), shape=shape)
    _, group = connected_components(links, directed=False)
    of_node = np.zeros(cards, np.int64)
    of_node[nodes] = found.member
    _, first = np.unique(group[:cards], return_index=True)
    distinct = np.bincount(of_node, minlength=members)
    groups = np.bincount(of_node[first], minlength=members)
    return (distinct - groups).astype(float)
