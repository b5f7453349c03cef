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
    returns {metric name: Samples or number}.  grid: parameter → values; its keys are measure's keyword arguments, of
    which those with a default may be left out.  version: changes when the definition does, not when the code gets
    faster.  timeout: s, one round of a point.  rounds: how often a point is measured, each time in a fresh process; 1
    for what is counted, and for long trainings, whose runs are their rounds.  terms: what a parameter
    (`recipe`) or one of its values (`recipe=lab`) means, where the name does not say it; shown beside the point.
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
    terms: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        code = getattr(self.measure, "__code__", None)
        where = f"{code.co_filename}:{code.co_firstlineno}" if code else ""
        check_name("benchmark", self.name, where)
        for fault in _faults(self):
            raise DefinitionError(f"benchmark {self.name!r}: {fault}", where)

    def points(self) -> Iterator[Params]:
        """Every point of the grid, in the order in which asv counts them."""
        return points_of(self.grid)

    def with_grid(self, override: Grid, where: str = "") -> Benchmark:
        """The benchmark with some parameters' values replaced. Raises DefinitionError naming the wrong key."""
        try:
            return replace(self, grid={**self.grid, **override})
        except DefinitionError as error:
            raise DefinitionError(error.what, where) from None


def points_of(grid: Grid) -> Iterator[Params]:
    """Every combination of the grid's values, the last parameter changing fastest."""
    for values in itertools.product(*grid.values()):
        yield dict(zip(grid, values, strict=True))


def _faults(benchmark: Benchmark) -> Iterator[str]:
    """What does not hold."""
    if not benchmark.metrics:
        yield "declares no metric"
    yield from _repeated("metric", [metric.name for metric in benchmark.metrics])
    if not benchmark.timeout > 0:
        yield f"timeout is {benchmark.timeout} s, not above 0"
    if not isinstance(benchmark.rounds, int) or benchmark.rounds < 1:
        yield f"{benchmark.rounds!r} rounds; give a whole number from 1"
    yield from _grid_faults(benchmark.measure, benchmark.grid)
    for term in benchmark.terms:
        if term.partition("=")[0] not in benchmark.grid:
            yield f"terms explain {term!r}, whose parameter its grid lacks"
    for need in (benchmark.requires.gpus, benchmark.requires.gpu_memory, benchmark.requires.data):
        if isinstance(need, str) and need not in benchmark.grid:
            yield f"Requires names parameter {need!r}, which its grid lacks"


def _grid_faults(measure: Callable[..., Any], grid: Grid) -> Iterator[str]:
    """The faults of a grid, compared with the signature of `measure`."""
    function = f"{measure.__module__}.{measure.__qualname__}"
    parameters = list(inspect.signature(measure).parameters.values())
    if not parameters or parameters[0].kind is inspect.Parameter.KEYWORD_ONLY:
        yield f"the first parameter of {function} must be the bench"
    names = [parameter.name for parameter in parameters[1:]]
    for name, values in grid.items():
        if name not in names:
            yield f"grid key {name!r} is not a parameter of {function} ({', '.join(names) or 'it has none'})"
        if isinstance(values, str) or not isinstance(values, Sequence):
            yield f"grid of {name!r} is not a list of values"
        if not values:
            yield f"grid of {name!r} is empty; give at least one value"
        for value in values:
            if not isinstance(value, str | int | float | bool):
                yield f"grid value {value!r} of {name!r} is not a string, number or bool"
        yield from _repeated(f"grid of {name!r} has value", values)
    if missing := [each.name for each in parameters[1:] if each.name not in grid and each.default is each.empty]:
        yield f"{function} has parameters that the grid does not define: {', '.join(missing)}"


def _repeated(what: str, values: Sequence[object]) -> Iterator[str]:
    yield from (f"{what} {value!r} twice" for i, value in enumerate(values) if value in values[:i])


def check_name(kind: str, name: str, where: str = "") -> None:
    """Raise DefinitionError for what cannot be a name."""
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise DefinitionError(f"{kind} name {name!r} must be lower-case letters, digits and _ (asv's names)", where)
