"""The matrix of benchmarks and GPU types: what the page `gpus.html` says, as values."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from hpml_plugins import display
from hpml_plugins.site.cells import Cell, direction_of, graph_link, make_cell, unit_of
from hpml_plugins.site.readings import Benchmarks, GpuType, Readings, collect


@dataclass(frozen=True)
class Column:
    """A GPU type. label: unique on the page, and what the address of the page remembers as the base."""

    label: str
    machines: tuple[str, ...]


@dataclass(frozen=True)
class Row:
    """One point of a benchmark metric, with one cell a column."""

    point: str
    cells: tuple[Cell, ...]


@dataclass(frozen=True)
class Group:
    """One benchmark metric. direction: "lower", "higher", or "" where it is not known."""

    title: str
    metric: str
    plugin: str
    unit: str
    direction: str
    link: str
    rows: tuple[Row, ...]


@dataclass(frozen=True)
class Matrix:
    """The page's content. base: the column that ratios are against before a reader chooses, counted from 0."""

    columns: tuple[Column, ...]
    groups: tuple[Group, ...]
    commits: int
    machines: int
    base: int = 0


def build(results: Iterable[Any], benchmarks: Benchmarks, hash_length: int = 8) -> Matrix:
    """The matrix of asv's results, sorted by benchmark, metric and point."""
    readings = collect(results, benchmarks)
    types = sorted(readings.machines)
    indices: dict[str, list[int]] = {}
    for name, index in sorted(readings.newest):
        indices.setdefault(name, []).append(index)
    names = sorted(indices, key=lambda name: _order(name, benchmarks[name]))
    groups = tuple(_group(name, benchmarks[name], indices[name], readings, types, hash_length) for name in names)
    columns = tuple(Column(kind.label, tuple(sorted(readings.machines[kind]))) for kind in types)
    machines = set().union(*readings.machines.values()) if readings.machines else set()
    return Matrix(columns, groups, len(readings.commits), len(machines))


def _group(
    name: str,
    benchmark: Mapping[str, Any],
    indices: Sequence[int],
    readings: Readings,
    types: Sequence[GpuType],
    hash_length: int,
) -> Group:
    points = list(itertools.product(*(benchmark.get("params") or [])))
    names = [str(each) for each in benchmark.get("param_names") or []]
    rows = []
    for index in indices:
        values = [str(value) for value in points[index]]
        own = {f"p-{key}": value for key, value in zip(names, values, strict=False)}
        cells = readings.newest[name, index]
        base = cells.get(types[0])
        rows.append(
            Row(
                display.point(names, values) or "one point",
                tuple(make_cell(name, benchmark, own, cells.get(kind), base, hash_length) for kind in types),
            )
        )
    return Group(
        title=str(benchmark.get("benchmark") or benchmark.get("pretty_name") or name),
        metric=str(benchmark.get("metric") or ""),
        plugin=str(benchmark.get("plugin") or ""),
        unit=display.shown_unit(unit_of(benchmark)).label,
        direction=direction_of(benchmark),
        link=graph_link(name, {}),
        rows=tuple(rows),
    )


def _order(name: str, benchmark: Mapping[str, Any]) -> tuple[str, str, str]:
    return str(benchmark.get("benchmark") or name), str(benchmark.get("metric") or ""), name
