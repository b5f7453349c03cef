"""Figures of benchmarks whose plugin declares none: for each metric a table of its values, and a
chart."""

from __future__ import annotations

import functools
from collections.abc import Iterable, Iterator, Mapping, Sequence

from hpml_plugins.model import Benchmark, Figure, Metric, Record, Table
from hpml_plugins.model.benchmark import Value
from hpml_plugins.model.figure import Chart
from hpml_plugins.report.charts import Axis, dot_chart, line_chart

#: A parameter with at least this many numbers is the x-axis of a line chart.
FEWEST_ON_AXIS = 3
#: That axis is logarithmic if the largest number is at least this many times the smallest.
LOGARITHMIC = 10


def default_figures(benchmark: Benchmark) -> Iterator[Figure]:
    """One figure per metric: lines over the parameter with most numbers, else one row of dots per
    point."""
    for metric in benchmark.metrics:
        yield Figure(
            f"{benchmark.name}_{metric.name}",
            f"{benchmark.name}: {_words(metric.name)}",
            (benchmark.name,),
            functools.partial(_table, metric.name),
            _chart(benchmark, metric),
            _caption(metric),
        )


def _table(metric: str, records: Iterable[Record]) -> Table:
    measured = [record for record in records if metric in record.metrics]
    return Table.of_records(measured, intervals=(metric,))


def _caption(metric: Metric) -> str:
    """The caption: what is measured, and which direction is better."""
    sentences = []
    if metric.description:
        described = metric.description[:1].upper() + metric.description[1:]
        sentences.append(f"{described.rstrip('.')}.")
    if metric.direction:
        sentences.append(f"{metric.direction.capitalize()} is better.")
    return " ".join(sentences)


def _chart(benchmark: Benchmark, metric: Metric) -> Chart:
    varied = {name: values for name, values in benchmark.grid.items() if len(values) > 1}
    swept = max(varied, key=lambda name: len(_numbers(varied[name])), default="")
    if swept and len(_numbers(varied[swept])) >= FEWEST_ON_AXIS:
        return _lines(metric, swept, varied)
    rows = [f"{name} {{{name}}}" for name in varied]
    return dot_chart(
        rows or "machine",
        Axis(metric.name, _words(metric.name), metric.unit),
        "machine" if rows else (),
        low=f"{metric.name}_low",
        high=f"{metric.name}_high",
    )


def _lines(metric: Metric, swept: str, varied: Mapping[str, Sequence[Value]]) -> Chart:
    """The metric over the swept parameter, one line for each combination of the others."""
    numbers = _numbers(varied[swept])
    log = min(numbers) > 0 and max(numbers) >= LOGARITHMIC * min(numbers)
    is_time_or_rate = "s" in metric.unit.split("/")
    others = [f"{name} {{{name}}}" for name in varied if name != swept]
    ends = [
        Axis(f"{metric.name}_{end}", f"{metric.name} {end}", metric.unit)
        for end in ("low", "high")
    ]
    return line_chart(
        Axis(swept, _words(swept), log=log),
        Axis(metric.name, _words(metric.name), metric.unit, log=log and is_time_or_rate),
        ("machine", *others),
        also=ends,
    )


def _words(name: str) -> str:
    return name.replace("_", " ")


def _numbers(values: Sequence[Value]) -> list[float]:
    """The values; empty if any of them is not a number."""
    found = [value for value in values if type(value) in (int, float)]
    return found if len(found) == len(values) else []  # type: ignore[return-value]
