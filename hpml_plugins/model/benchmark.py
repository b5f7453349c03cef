"""Benchmark, Metric and Requires: the frozen values that a plugin declares, checked when
created."""

from __future__ import annotations

import inspect
import itertools
import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from hpml_plugins.errors import LONGEST, DefinitionError, nearest
from hpml_plugins.model.checking import (
    LARGEST_INTEGER,
    MOST_ENTRIES,
    MOST_NAME,
    MOST_TEXT,
    check_fields,
    format_given,
    takes,
)
from hpml_plugins.model.node import Node
from hpml_plugins.model.units import SIGNED, is_right_direction, may_be_negative, unit

Value = str | int | float | bool
Params = dict[str, Value]
Grid = Mapping[str, Sequence[Value]]
Direction = Literal["lower", "higher"]
Count = Annotated[int, Meta(ge=0, le=100_000)]
Memory = Annotated[float, Meta(ge=0, le=1e18)]

_NAME = re.compile(r"[a-z][a-z0-9_]*")
#: The benchmark that every visit to a GPU measures first. It shows how fast this card is among
#: cards of its type (`analysis.reference`), even if only other GPU benchmarks were selected.
REFERENCE = "reference"
#: The most points of a grid: asv writes every point into each of its files.
MOST_POINTS = 100_000


@dataclass(frozen=True)
class Metric:
    """One number of a point: its name, its unit and which direction is better.

    unit: a symbol of the closed set in `hpml_plugins.model.units`.  direction: "lower" or "higher"
    is better; None if neither is, as for a chosen batch size: such a metric is shown but never
    ranked.  possible: the lowest and the highest possible value, in the unit; None for no bound. A
    point with a value outside these bounds fails. Default: 0 and above, except for the units "1"
    and "degC", which have no bounds. Raises DefinitionError for a missing or unknown unit, an
    invalid direction, or bounds that allow no value.
    """

    name: str
    unit: str
    direction: Direction | None
    description: str = ""
    possible: tuple[float | None, float | None] | None = None

    def __post_init__(self) -> None:
        check_name("metric", self.name)
        if isinstance(self.unit, str) and not self.unit:
            raise DefinitionError(
                f"metric {self.name!r} has no unit; give one, such as 's' or 'B/s'"
            )
        if isinstance(self.direction, str) and self.direction not in ("lower", "higher"):
            hint = nearest(self.direction, ("lower", "higher"))
            what = f"direction is {self.direction!r}, not 'lower', 'higher' or None; {hint}"
            raise DefinitionError(f"metric {self.name!r}: {what}")
        check_fields(self, "metric", self.name)
        unit(self.unit)
        if not is_right_direction(self.unit, self.direction):
            what = (
                f"{self.direction} is never better in {self.unit}; use {unit(self.unit).better!r}"
                " or None"
            )
            raise DefinitionError(f"metric {self.name!r}: {what}")
        low, high = self.bounds
        if low < 0 and not may_be_negative(self.unit, self.direction):
            what = (
                f"{self.unit} cannot be negative; a difference can be, with the direction"
                " None"
            )
            raise DefinitionError(f"metric {self.name!r}: {what}")
        if not low < high:
            raise DefinitionError(
                f"metric {self.name!r}: possible={self.possible} allows no value"
            )

    @property
    def bounds(self) -> tuple[float, float]:
        """The lowest and the highest possible value; infinite if there is no bound."""
        low, high = self.possible or (None if self.unit in SIGNED else 0.0, None)
        return -math.inf if low is None else low, math.inf if high is None else high


@dataclass(frozen=True)
class Requires:
    """What a node must have. If a requirement is not met, the point is skipped with the reason.

    gpus: the number of GPUs, or the name of the parameter that gives it.  gpu_memory: bytes that
    each GPU must have, or a parameter's name.  data: names of data sets (`hpml data` lists them),
    or the name of the parameter that selects one.  modules: importable names; they are also
    imported once before points are forked.  tools: programs on the PATH.  cpu_fallback: on a node
    without a GPU, measure the point on the CPU instead.  also: the plugin's own requirements:
    functions called with the node and the point, which return why it cannot be measured there, or
    "".  Raises DefinitionError for a value of another type.
    """

    gpus: Count | str = 0
    gpu_memory: Memory | str = 0
    data: str | tuple[str, ...] = ()
    modules: tuple[Annotated[str, Meta(pattern=r"^[A-Za-z_][\w.]*$")], ...] = ()
    tools: tuple[Annotated[str, Meta(min_length=1)], ...] = ()
    cpu_fallback: bool = False
    also: tuple[Callable[[Node, Params], str], ...] = ()

    def __post_init__(self) -> None:
        check_fields(self, "Requires")
        for function in self.also:
            if not takes(function, 2):
                raise DefinitionError(
                    f"Requires: also: {_name_of(function)} must take two arguments, node and point"
                )


@dataclass(frozen=True)
class Benchmark:
    """A measurement over a grid of parameters.

    name: unique over all plugins, a lower-case Python identifier.  measure: called as
    `measure(bench, **point)`; returns {metric name: Samples or number}.  grid: parameter → values;
    its keys are keyword arguments of `measure`; those with a default may be omitted.  version:
    changes when the definition changes, not when the code gets faster.  timeout: s, for one round
    of a point.  rounds: how often a point is measured, each time in a new process; 1 for counted
    values, and for long trainings, which repeat their runs themselves.  terms: the meaning of a
    parameter (`recipe`) or of one of its values (`recipe=lab`) if the name does not explain it;
    shown beside the point. Raises DefinitionError with the line of the plugin if any of this is
    violated.
    """

    name: str
    measure: Callable[..., Mapping[str, Any]]
    metrics: Sequence[Metric]
    grid: Grid = field(default_factory=dict)
    requires: Requires = field(default_factory=Requires)
    version: str = "1"
    timeout: Annotated[float, Meta(gt=0, lt=LONGEST)] = 60.0
    description: str = ""
    rounds: Annotated[int, Meta(ge=1, le=1000)] = 3
    terms: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        check_name("benchmark", self.name)
        if isinstance(self.grid, Mapping):  # other sequences, such as range, become lists
            grid = {
                name: list(itertools.islice(each, MOST_POINTS + 1))
                if _is_list(each)
                else each
                for name, each in self.grid.items()
            }
            object.__setattr__(self, "grid", grid)
        for fault in _grid_faults(self.grid):
            raise DefinitionError(f"benchmark {self.name!r}: {fault}")
        check_fields(self, "benchmark", self.name)
        for fault in _faults(self):
            raise DefinitionError(f"benchmark {self.name!r}: {fault}")

    def points(self) -> Iterator[Params]:
        """Every point of the grid, in asv's order."""
        return points_of(self.grid)

    def with_grid(self, override: Grid, where: str = "") -> Benchmark:
        """Return the benchmark with the values of some parameters replaced. Raises DefinitionError
        naming the wrong key."""
        try:
            return replace(self, grid={**self.grid, **override})
        except DefinitionError as error:
            raise DefinitionError(error.what, where) from None


def points_of(grid: Grid) -> Iterator[Params]:
    """Every combination of the grid's values, the last parameter changing fastest."""
    for values in itertools.product(*grid.values()):
        yield dict(zip(grid, values, strict=True))


def _faults(benchmark: Benchmark) -> Iterator[str]:
    """Yield what is wrong in fields that have the right types."""
    if not benchmark.metrics:
        yield "declares no metric"
    yield from _too_large(benchmark)
    yield from _repeated("metric", [metric.name for metric in benchmark.metrics])
    for term in benchmark.terms:
        if term.partition("=")[0] not in benchmark.grid:
            yield f"terms explain {term!r}, whose parameter its grid lacks"
    yield from _mismatches(benchmark)
    for field_name, kind in {"gpus": Count, "gpu_memory": Memory, "data": str}.items():
        need = getattr(benchmark.requires, field_name)
        if isinstance(need, str) and need not in benchmark.grid:
            yield f"Requires names parameter {need!r}, which its grid lacks"
        values = benchmark.grid[need] if isinstance(need, str) else []
        try:
            msgspec.convert(values, list[kind])  # type: ignore[valid-type]
        except msgspec.ValidationError as error:
            yield f"Requires({field_name}={need!r}) does not fit the grid of {need!r}: {error}"


def _mismatches(benchmark: Benchmark) -> Iterator[str]:
    """Yield the differences between the parameters of `measure` and the keys of the grid."""
    keys = list(map(str, benchmark.grid))
    parameters = []
    with suppress(TypeError, ValueError):  # a built-in function without a signature
        parameters = list(inspect.signature(benchmark.measure).parameters.values())[1:]
    function = _name_of(benchmark.measure)
    names = [each.name for each in parameters]
    needed = [each.name for each in parameters if each.default is each.empty]
    if unknown := [key for key in keys if key not in names]:
        known = ", ".join(names) or "it has none"
        yield f"grid key {unknown[0]!r} is not a parameter of {function} ({known})"
    if missing := [name for name in needed if name not in keys]:
        yield f"{function} has parameters that the grid does not define: {', '.join(missing)}"
    if not takes(benchmark.measure, 1, keys):
        yield f"{function} must take the bench first, and its other parameters by name"


def _too_large(benchmark: Benchmark) -> Iterator[str]:
    """Yield what is too large to be stored in a Record."""
    for what, count in (
        ("metrics", len(benchmark.metrics)),
        ("parameters", len(benchmark.grid)),
    ):
        if count > MOST_ENTRIES:
            yield f"declares {count:,} {what}; at most {MOST_ENTRIES:,} are possible"
    if len(benchmark.version.encode()) > MOST_NAME or not benchmark.version.isprintable():
        yield (
            f"version {format_given(benchmark.version)} must be at most {MOST_NAME} printable"
            " characters"
        )


def _grid_faults(grid: Any) -> Iterator[str]:
    """Yield why this is not a valid grid."""
    if not isinstance(grid, Mapping):
        yield f"grid is a {type(grid).__name__}, not a dict of parameter → list of values"
    for key, values in grid.items():
        name = format_given(key)
        if not _is_list(values):
            yield f"grid of {name} is not a list of values"
        if not values:
            yield f"grid of {name} is empty; give at least one value"
        for value in values:
            # no subclasses: NumPy scalars and enums cannot be stored
            if type(value) not in (str, int, float, bool):
                yield (
                    f"grid value {format_given(value)} of {name} is a {type(value).__name__},"
                    " not text, a number or a bool"
                )
            if isinstance(value, float) and not math.isfinite(value):
                yield f"grid value {value!r} of {name} is not finite"
            if isinstance(value, str) and len(value) > MOST_TEXT:
                what = f"has {len(value):,} characters; at most {MOST_TEXT:,} can be stored"
                yield f"grid value {format_given(value)} of {name} {what}"
            if isinstance(value, int) and abs(value) > LARGEST_INTEGER:
                yield f"a grid value of {name} is an integer of more than 64 bits"
        yield from _repeated(f"grid of {name} has value", values)
    if (points := math.prod(map(len, grid.values()))) > MOST_POINTS:
        yield f"its grid has {points:.3g} points; at most {MOST_POINTS} are possible"


def _is_list(values: object) -> bool:
    return isinstance(values, Sequence) and not isinstance(
        values, str | bytes | bytearray | memoryview
    )


def _name_of(function: Any) -> str:
    name = getattr(function, "__qualname__", type(function).__name__)
    return f"{getattr(function, '__module__', '')}.{name}".lstrip(".")


def _repeated(what: str, values: Sequence[object]) -> Iterator[str]:
    seen = set()
    for value in values:
        if value in seen:
            yield f"{what} {format_given(value)} twice"
        seen.add(value)


def check_name(kind: str, name: object) -> None:
    """Raise DefinitionError for an invalid name."""
    if not isinstance(name, str) or not _NAME.fullmatch(name) or len(name) > 100:
        shown = repr(name) if isinstance(name, str) else f"of type {type(name).__name__}"
        raise DefinitionError(
            f"{kind} name {shown} must be at most 100 lower-case letters, digits and _"
        )
