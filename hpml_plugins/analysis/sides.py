"""The two sides of a comparison of one point: the Records that represent each side, and their
values.

Both `hpml compare` and the pages choose the sides here.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from msgspec.structs import replace

from hpml_plugins.analysis.measured import MeasuredValue, Values, mean_over_cards
from hpml_plugins.analysis.physics import Physics

#: The regime that is compared in addition to the settled one.
BOOST = "boost"

#: The values of A and of B.
ValuesOfSides = tuple[Values, Values]


#: Sort key: the newest run has the highest.
Age = tuple[bool | int | float, ...]


#: What a caller keeps of a Record: the Record itself, or its commit.
Origin = TypeVar("Origin")


@dataclass(frozen=True, slots=True)
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


class SideRuns(Generic[Origin]):
    """All runs of a point on one side, with any code. What is known of a code is kept, because a
    page compares each type of hardware with every other; the others are made when they are asked
    for, because there may be a million."""

    def __init__(
        self, stored: Sequence[Any], make: Callable[[Any], MeasuredRun[Origin]]
    ) -> None:
        """make: a run of what is stored of it."""
        self._stored = stored
        self._make = make
        self._of_code: dict[str, list[MeasuredRun[Origin]]] = {}
        self._values: dict[str, dict[str, MeasuredValue]] = {}

    @classmethod
    def of(cls, runs: Sequence[MeasuredRun[Origin]]) -> SideRuns[Origin]:
        """Of runs that exist."""
        return cls(runs, lambda run: run)

    def _runs(self) -> Iterator[MeasuredRun[Origin]]:
        return map(self._make, self._stored)

    @functools.cached_property
    def newest(self) -> MeasuredRun[Origin]:
        """The newest run; there must be one."""
        return newest_run(self._runs())

    @functools.cached_property
    def ages(self) -> dict[str, Age]:
        """Code → the age of its newest run."""
        found: dict[str, Age] = {}
        for run in self._runs():
            found[run.code] = max(run.age, found.get(run.code, run.age))
        return found

    def of_code(self, code: str) -> list[MeasuredRun[Origin]]:
        """The runs with a code."""
        if code not in self._of_code:
            self._of_code[code] = [run for run in self._runs() if run.code == code]
        return self._of_code[code]

    def values(self, code: str) -> dict[str, MeasuredValue]:
        """The `side_values` of the runs with a code, of which there must be one, with the direction
        that each metric has today."""
        if code not in self._values:
            values = side_values(self.of_code(code))
            self._values[code] = {
                name: self._as_today(name, value) for name, value in values.items()
            }
        return self._values[code]

    def _as_today(self, name: str, value: MeasuredValue) -> MeasuredValue:
        newest = self.newest.values.get(name, value)
        if newest.direction == value.direction:
            return value
        boosted = value.boosted and replace(value.boosted, direction=newest.direction)
        return replace(value, direction=newest.direction, boosted=boosted)


class PointSides(Generic[Origin]):
    """The runs of a point that represent each side, all with the same code.

    a, b: at least one each.  across: whether the sides are types of hardware without any code
    measured on both.  is_older: whether a side has runs of newer code.
    """

    def __init__(self, a: SideRuns[Origin], b: SideRuns[Origin], *, common: bool) -> None:
        """a, b: all runs of one point, at least one each.

        common: whether the sides are types of hardware, which are compared at the newest code
        measured on both. Otherwise, or if there is none, the newest code of each side is used.
        """
        shared = _newest_shared(a, b) if common else None
        code_of_a = a.newest.code if shared is None else shared
        code_of_b = b.newest.code if shared is None else shared
        self.a = a.of_code(code_of_a)
        self.b = b.of_code(code_of_b)
        self.across = common and shared is None
        self.is_older = (code_of_a, code_of_b) != (a.newest.code, b.newest.code)
        self._values = (
            functools.partial(a.values, code_of_a),
            functools.partial(b.values, code_of_b),
        )

    @functools.cached_property
    def settled(self) -> ValuesOfSides:
        """The values of both sides."""
        of_a, of_b = self._values
        return of_a(), of_b()

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


def newest_run(runs: Iterable[MeasuredRun[Origin]]) -> MeasuredRun[Origin]:
    """The newest run, by age."""
    return max(runs, key=lambda run: run.age)


def _newest_shared(a: SideRuns[Origin], b: SideRuns[Origin]) -> str | None:
    """The newest code that both sides have; None if there is none."""
    if a.newest.code == b.newest.code:
        return a.newest.code
    shared = a.ages.keys() & b.ages.keys()
    return max(shared, key=lambda code: min(a.ages[code], b.ages[code]), default=None)


def side_values(runs: Sequence[MeasuredRun[Origin]]) -> dict[str, MeasuredValue]:
    """The mean over the cards of all runs, for each metric that the newest run has."""
    means = {}
    for name in newest_run(runs).values:
        readings = [run.values[name] for run in runs if name in run.values]
        means[name] = mean_over_cards(readings)
    return means
