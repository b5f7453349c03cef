"""The two sides of a comparison of one point: the Records that represent each side, and their
values.

Both `hpml compare` and the pages choose the sides here.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

from hpml_plugins.analysis.measured import MeasuredValue, Values, mean_over_cards
from hpml_plugins.analysis.physics import Physics

#: The regime that is compared in addition to the settled one.
BOOST = "boost"

#: The values of A and of B.
ValuesOfSides = tuple[Values, Values]
#: Code → the mean over the cards of the runs of a point on one side; kept by callers that compare
#: this side several times.
Means = dict[str, dict[str, MeasuredValue]]


#: Sort key: the newest run has the highest.
Age = tuple[bool | int | float, ...]


#: What a caller keeps of a Record: the Record itself, or its commit.
Origin = TypeVar("Origin")


@dataclass(frozen=True, slots=True)  # there may be a million
class MeasuredRun(Generic[Origin]):
    """One measured Record of a point. code: equal for repetitions, see `measured.code_of`; "" for a
    Record without a value.  values: of each metric."""

    code: str
    age: Age
    values: Values
    origin: Origin

    @classmethod
    def of(cls, values: Values, age: Age, origin: Origin) -> MeasuredRun[Origin]:
        """The run with these values, which have one code."""
        code = next((each.code for each in values.values()), "")
        return cls(code, age, values, origin)


class PointSides(Generic[Origin]):
    """The runs of a point that represent each side, all with the same code.

    a, b: at least one each.  across: whether the sides are types of hardware without any code
    measured on both.
    """

    def __init__(
        self,
        a: Sequence[MeasuredRun[Origin]],
        b: Sequence[MeasuredRun[Origin]],
        *,
        common: bool,
        means: tuple[Means, Means] | None = None,
    ) -> None:
        """a, b: all runs of one point, at least one each.

        common: whether the sides are types of hardware, which are compared at the newest code
        measured on both. Otherwise, or if there is none, the newest code of each side is used.
        means: those known of a and of b, which are extended.
        """
        newest_of_a, newest_of_b = (
            _newest_by_code(runs) if common else {} for runs in (a, b)
        )
        shared = newest_of_a.keys() & newest_of_b.keys()
        if shared:
            code_of_a = max(
                shared, key=lambda code: min(newest_of_a[code], newest_of_b[code])
            )
            code_of_b = code_of_a
        else:
            code_of_a = newest_run(a).code
            code_of_b = newest_run(b).code
        self.a = _of_code(a, code_of_a)
        self.b = _of_code(b, code_of_b)
        self.across = common and not shared
        self._means = means or ({}, {})

    @functools.cached_property
    def settled(self) -> ValuesOfSides:
        """The values of both sides."""
        of_a, of_b = self._means
        return known_values(self.a, of_a), known_values(self.b, of_b)

    @functools.cached_property
    def at_boost(self) -> ValuesOfSides:
        """The values of both sides in the regime boost."""
        of_a, of_b = self.settled
        return boosted(of_a), boosted(of_b)

    def compared(self, metric: str, regime: str, shown: ValuesOfSides) -> ValuesOfSides:
        """The values by which a metric is compared in a regime.

        shown: the values of each side's newest code, used if the runs that represent the sides lack
        the metric in this regime.
        """
        found = self.at_boost if regime == BOOST else self.settled
        if all(
            metric in values and _is_of_regime(values[metric], regime) for values in found
        ):
            return found
        of_a, of_b = shown
        return (boosted(of_a), boosted(of_b)) if regime == BOOST else shown


def boosted(values: Values) -> Values:
    """The values of one side, with boost values replacing settled ones."""
    return {name: at_boost(value) for name, value in values.items()}


def at_boost(value: MeasuredValue) -> MeasuredValue:
    """The value in the regime boost. A step that the GPU never throttled has the same rate in both
    regimes."""
    return value.boosted or value


def _is_of_regime(value: MeasuredValue, regime: str) -> bool:
    """Whether this is a value of the regime: samples of a throttled card are not boost."""
    return regime != BOOST or value.physics is not Physics.THROTTLED


def newest_run(runs: Sequence[MeasuredRun[Origin]]) -> MeasuredRun[Origin]:
    """The newest run, by age."""
    return max(runs, key=lambda run: run.age)


def _newest_by_code(runs: Sequence[MeasuredRun[Origin]]) -> dict[str, Age]:
    found: dict[str, Age] = {}
    for run in runs:
        found[run.code] = max(run.age, found.get(run.code, run.age))
    return found


def _of_code(runs: Sequence[MeasuredRun[Origin]], code: str) -> list[MeasuredRun[Origin]]:
    return [run for run in runs if run.code == code]


def side_values(runs: Sequence[MeasuredRun[Origin]]) -> dict[str, MeasuredValue]:
    """The mean over the cards of all runs, for each metric that the newest run has."""
    means = {}
    for name in newest_run(runs).values:
        readings = [run.values[name] for run in runs if name in run.values]
        means[name] = mean_over_cards(readings)
    return means


def known_values(
    runs: Sequence[MeasuredRun[Origin]], means: Means
) -> dict[str, MeasuredValue]:
    """`side_values` of all runs of one code, which is computed once."""
    code = runs[0].code
    if code not in means:
        means[code] = side_values(runs)
    return means[code]
