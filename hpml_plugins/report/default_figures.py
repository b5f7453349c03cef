"""Figures of benchmarks whose plugin declares none: for each metric a table of its values, and a
chart."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from hpml_plugins.model import Benchmark, Figure, Metric, Table
from hpml_plugins.model.benchmark import Value
from hpml_plugins.model.figure import Chart
from hpml_plugins.report.charts import Axis, dot_chart, line_chart

#: A parameter with as many numbers is the x-axis of a line chart; one whose largest is this many
#: times its smallest has a logarithmic axis.
FEWEST_ON_AXIS, LOGARITHMIC = 3, 10


def default_figures(benchmark: Benchmark) -> Iterator[Figure]:
    """A figure per metric: over the parameter with most numbers as lines, else one row of dots per
    point."""
    for metric in benchmark.metrics:
        better = f"{metric.direction.capitalize()} is better." if metric.direction else ""
        description = f"{metric.description[:1].upper()}{metric.description[1:]}".rstrip(".")
        yield Figure(
            f"{benchmark.name}_{metric.name}",
            f"{benchmark.name}: {metric.name.replace('_', ' ')}",
            (benchmark.name,),
            lambda records, name=metric.name: Table.of_records(  # type: ignore[misc]
                (record for record in records if name in record.metrics), intervals=(name,)
            ),
            _chart(benchmark, metric),
            " ".join(filter(None, [description and f"{description}.", better])),
        )


def _chart(benchmark: Benchmark, metric: Metric) -> Chart:
    low, high = f"{metric.name}_low", f"{metric.name}_high"
    varied = {name: values for name, values in benchmark.grid.items() if len(values) > 1}
    swept = max(varied, key=lambda name: _count_numbers(varied[name]), default="")
    is_time_or_rate = "s" in metric.unit.split("/")
    title = metric.name.replace("_", " ")
    if swept and _count_numbers(varied[swept]) >= FEWEST_ON_AXIS:
        numbers = [value for value in varied[swept] if isinstance(value, int | float)]
        log = min(numbers) > 0 and max(numbers) >= LOGARITHMIC * min(numbers)
        series = ("machine", *(f"{name} {{{name}}}" for name in varied if name != swept))
        y = Axis(metric.name, title, metric.unit, log=log and is_time_or_rate)
        ends = [
            Axis(f"{metric.name}_{end}", f"{metric.name} {end}", metric.unit)
            for end in ("low", "high")
        ]
        return line_chart(Axis(swept, swept.replace("_", " "), log=log), y, series, also=ends)
    x = Axis(metric.name, title, metric.unit)
    if not varied:
        return dot_chart("machine", x, low=low, high=high)
    return dot_chart([f"{name} {{{name}}}" for name in varied], x, "machine", low=low, high=high)


def _count_numbers(values: Sequence[Value]) -> int:
    """How many values; 0 where one is no number."""
    return len(values) * all(
        isinstance(value, int | float) and not isinstance(value, bool) for value in values
    )
