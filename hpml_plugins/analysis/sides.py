"""Which Records stand for the two sides of a comparison: all of one code, on all cards that
measured it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

from hpml_plugins.analysis.measured import MeasuredValue, Values, mean_over_cards


class Run(Protocol):
    """One Record of a point: `code`, which is equal for repetitions, its rank in age, and its
    values."""

    @property
    def code(self) -> str:
        """See `measured.code_of`."""

    @property
    def age(self) -> tuple[bool | int | float, ...]:
        """For sorting: the newest highest."""

    @property
    def values(self) -> Values:
        """Of each metric."""


Measured = TypeVar("Measured", bound=Run)


@dataclass(frozen=True)
class ChosenRuns(Generic[Measured]):
    """The runs of both sides, at least one each. across: whether no code was measured on both."""

    a: list[Measured]
    b: list[Measured]
    across: bool


def choose_sides(
    a: Sequence[Measured], b: Sequence[Measured], *, common: bool
) -> ChosenRuns[Measured]:
    """The runs of a point that stand for each side.

    a, b: all runs of one point, at least one each.  common: whether the sides are types of
    hardware, which are compared at the newest code that both measured; else, and where there is
    none, each side's newest code stands for it.
    """
    codes = {run.code for run in a} & {run.code for run in b} if common else set()
    if codes:
        code = max(codes, key=lambda each: min(_newest(a, each), _newest(b, each)))
        return ChosenRuns(_of_code(a, code), _of_code(b, code), across=False)
    newest = (max(side, key=lambda run: run.age).code for side in (a, b))
    of_a, of_b = (_of_code(side, code) for side, code in zip((a, b), newest, strict=True))
    return ChosenRuns(of_a, of_b, across=common)


def _newest(runs: Sequence[Measured], code: str) -> tuple[bool | int | float, ...]:
    return max(run.age for run in runs if run.code == code)


def _of_code(runs: Sequence[Measured], code: str) -> list[Measured]:
    return [run for run in runs if run.code == code]


def side_values(runs: Sequence[Run]) -> dict[str, MeasuredValue]:
    """Of each metric that the newest run has the mean over the cards of all runs."""
    newest = max(runs, key=lambda run: run.age)
    return {
        name: mean_over_cards([run.values[name] for run in runs if name in run.values])
        for name in newest.values
    }
