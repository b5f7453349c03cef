"""What a plugin declares: Benchmark, Metric, Requires. Frozen values, checked when they are made."""

from __future__ import annotations

import inspect
import itertools
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Literal

from hpml_plugins.errors import DefinitionError
from hpml_plugins.model.units import unit

if TYPE_CHECKING:
    from hpml_plugins.model.node import Node

Value = str | int | float | bool
Params = dict[str, Value]
Grid = Mapping[str, Sequence[Value]]
Direction = Literal["lower", "higher"]

_NAME = re.compile(r"[a-z][a-z0-9_]*")


@dataclass(frozen=True)
class Metric:
    """One number of a point: its name, unit and which direction is better.

    unit: a symbol of the closed set in `hpml_plugins.model.units`.  direction: "lower" or "higher" is better; None
    where neither is, as of a chosen batch size: such a metric is shown, never ranked.
    Raises DefinitionError for a missing or unknown unit, or another direction.
    """

    name: str
    unit: str
    direction: Direction | None
    description: str = ""

    def __post_init__(self) -> None:
        check_name("metric", self.name)
        if not self.unit:
            raise DefinitionError(f"metric {self.name!r} has no unit; give one, such as 's' or 'B/s'")
        unit(self.unit)
        if self.direction not in ("lower", "higher", None):
            what = f"direction is {self.direction!r}, not 'lower', 'higher' or None"
            raise DefinitionError(f"metric {self.name!r}: {what}")


@dataclass(frozen=True)
class Requires:
    """What a node must have. Unmet means skipped, with the reason.

    gpus: how many, or the name of the parameter that says how many.  gpu_memory: bytes that each must hold, or a
    parameter's name.  data: names of data sets (`hpml data` lists them), or the name of the parameter that says which
    one.  modules: importable names; they are also what is imported once before points are forked.
    tools: programs on the PATH.  cpu_fallback: a node without any GPU measures the point on its CPU instead.
    also: requirements of the plugin's own: each called with the node and the point, returns why it cannot be measured
    there, or "".
    """

    gpus: int | str = 0
    gpu_memory: float | str = 0
    data: str | tuple[str, ...] = ()
    modules: tuple[str, ...] = ()
    tools: tuple[str, ...] = ()
    cpu_fallback: bool = False
    also: tuple[Callable[[Node, Params], str], ...] = ()


@dataclass(frozen=True)
class Benchmark:
    """A measurement over a grid of parameters.

    name: unique over all plugins, a Python identifier in lower case.  measure: called as `measure(bench, **point)`;
    returns {metric name: Samples or number}.  grid: parameter → values; its keys are exactly measure's keyword
    arguments.  version: changes when the definition does, not when the code gets faster.  timeout: s, one round of a
    point.  rounds: how often a point is measured, each time in a fresh process; 1 for what is counted, and for long
    trainings, whose runs are their rounds.
    Raises DefinitionError with the place of `measure` when any of this does not hold.
    """

    name: str
    measure: Callable[..., Mapping[str, Any]]
    metrics: Sequence[Metric]
    grid: Grid = field(default_factory=dict)
    requires: Requires = field(default_factory=Requires)
    version: str = "1"
    timeout: float = 60.0
    description: str = ""
    rounds: int = 3

    def __post_init__(self) -> None:
        where = _place(self.measure)
        check_name("benchmark", self.name, where)
        if not self.metrics:
            raise DefinitionError(f"benchmark {self.name!r} declares no metric", where)
        _check_unique(f"benchmark {self.name!r}: metric", [metric.name for metric in self.metrics], where)
        if not self.timeout > 0:
            raise DefinitionError(f"benchmark {self.name!r}: timeout is {self.timeout} s, not above 0", where)
        if not isinstance(self.rounds, int) or self.rounds < 1:
            raise DefinitionError(f"benchmark {self.name!r}: {self.rounds!r} rounds; give a whole number from 1", where)
        check_grid(self, self.grid, where)
        for need in (self.requires.gpus, self.requires.gpu_memory, self.requires.data):
            if isinstance(need, str) and need not in self.grid:
                raise DefinitionError(
                    f"benchmark {self.name!r}: Requires names parameter {need!r}, which its grid lacks", where
                )

    def points(self) -> Iterator[Params]:
        """Every point of the grid, in the order in which asv counts them."""
        return points_of(self.grid)

    def with_grid(self, override: Grid, where: str = "") -> Benchmark:
        """The benchmark with some parameters' values replaced. Raises DefinitionError naming the wrong key."""
        check_grid(self, {**self.grid, **override}, where)
        merged = {name: tuple(override.get(name, values)) for name, values in self.grid.items()}
        return replace(self, grid=merged)


def points_of(grid: Grid) -> Iterator[Params]:
    """Every combination of the grid's values, the last parameter changing fastest."""
    for values in itertools.product(*grid.values()):
        yield dict(zip(grid, values, strict=True))


def check_grid(benchmark: Benchmark, grid: Grid, where: str = "") -> None:
    """Hold a grid against the signature of `measure`. Raises DefinitionError naming what does not hold."""
    wanted = _keyword_arguments(benchmark.measure, where)
    spelled = f"{benchmark.measure.__module__}.{benchmark.measure.__qualname__}"
    for name, values in grid.items():
        if name not in wanted:
            raise DefinitionError(
                f"benchmark {benchmark.name!r}: grid key {name!r} is not a parameter of {spelled} "
                f"({', '.join(wanted) or 'it takes none'})",
                where,
            )
        if isinstance(values, str) or not isinstance(values, Sequence):
            raise DefinitionError(f"benchmark {benchmark.name!r}: grid of {name!r} is not a list of values", where)
        if not values:
            raise DefinitionError(
                f"benchmark {benchmark.name!r}: grid of {name!r} is empty; give at least one value", where
            )
        for value in values:
            if not isinstance(value, str | int | float | bool):
                raise DefinitionError(
                    f"benchmark {benchmark.name!r}: grid value {value!r} of {name!r} is not a string, number or bool",
                    where,
                )
        _check_unique(f"benchmark {benchmark.name!r}: grid of {name!r} has value", values, where)
    if missing := [name for name in wanted if name not in grid]:
        raise DefinitionError(
            f"benchmark {benchmark.name!r}: {spelled} takes {', '.join(missing)}, which the grid lacks", where
        )


def _keyword_arguments(measure: Callable[..., Any], where: str) -> list[str]:
    parameters = list(inspect.signature(measure).parameters.values())
    if not parameters or parameters[0].kind is inspect.Parameter.KEYWORD_ONLY:
        raise DefinitionError(f"{measure.__qualname__} must take the bench as its first argument", where)
    return [parameter.name for parameter in parameters[1:]]


def check_name(kind: str, name: str, where: str = "") -> None:
    """Raise DefinitionError for what cannot be a name."""
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise DefinitionError(f"{kind} name {name!r} must be lower-case letters, digits and _ (asv's names)", where)


def _check_unique(what: str, values: Sequence[object], where: str) -> None:
    seen: set[object] = set()
    for value in values:
        if value in seen:
            raise DefinitionError(f"{what} {value!r} twice", where)
        seen.add(value)


def _place(function: Callable[..., Any]) -> str:
    code = getattr(function, "__code__", None)
    return f"{code.co_filename}:{code.co_firstlineno}" if code else ""
