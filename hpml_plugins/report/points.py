"""Describe measured points as text: a line and warnings for each, tables for a terminal, and the
results of this machine for the tasks of registry.yaml."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from typing import TYPE_CHECKING

import msgspec

from hpml_plugins.model.benchmark import Params
from hpml_plugins.model.formatting import (
    counted,
    estimate,
    format_point,
    half_width,
    name_point,
    quantity,
    times,
    unquoted,
)
from hpml_plugins.model.record import MetricSamples, Record
from hpml_plugins.model.rounds import join_rounds
from hpml_plugins.registry import Question, TaskEntry
from hpml_plugins.report.shares import Roof, describe_limit, shares
from hpml_plugins.terminal import align, cut, one_line, printable

if TYPE_CHECKING:
    from hpml_plugins.analysis.measured import MeasuredValue

#: A point is called noisy if its interval extends this share of its value to one side, or if its
#: rounds differ by it.
NOISY = 0.10
_GPUS = re.compile(r"\b\d+ GPUs?\b")
#: The most warnings, other than noise, that are shown for a point.
MOST_WARNINGS = 1
#: The longest name shown with all parameters.
LONGEST_NAME = 44


def point_lines(records: Sequence[Record], roof: Roof, width: int) -> Iterator[str]:
    """The measured and failed points, in their order: name, first metric, share of the limit; below
    it the warnings, cut to this width."""
    shown = [record for record in records if record.status in ("ok", "failed")]
    names = _names(shown)
    longest = max(map(len, names), default=0)
    for name, record in zip(names, shown, strict=True):
        is_ok = record.status == "ok"
        said = describe_first(record, roof) if is_ok else f"FAILED: {record.reason}"
        yield f"{one_line(name):{longest}}  {one_line(said)}"
        if is_ok and (found := doubts(record)):
            yield cut(f"    ! {one_line('; '.join(found))}", width)


def _names(records: Sequence[Record]) -> list[str]:
    """Benchmark and point of each; for long names only the parameters in which the points of the
    benchmark differ."""
    names = []
    for benchmark, group in itertools.groupby(records, lambda each: each.benchmark):
        points = [record.params for record in group]
        varying = _varying(points)
        for params in points:
            name = name_point(benchmark, params)
            if len(name) > LONGEST_NAME:
                short = {key: value for key, value in params.items() if key in varying}
                name = name_point(benchmark, short)
            names.append(name)
    return names


def describe_first(record: Record, roof: Roof) -> str:
    """The first metric with its interval, and the share of the limit if known."""
    if not record.metrics:
        return "no metric"
    name, samples = next(iter(record.metrics.items()))
    value = f"{name} {format_samples(samples, samples.unit)}"
    return ", ".join(filter(None, [value, describe_limit(record, roof)]))


def point_tables(records: Sequence[Record], width: int, roof: Roof) -> Iterator[str]:
    """The points of one benchmark for a terminal: one row each, in as many tables as the width
    requires.

    Parameters that all points share are in a line before the tables. After the metrics come the
    shares of peak and roof, if the work is declared.
    """
    cells = [_format_metrics(record) | shares(record, roof) for record in records]
    metrics = list(dict.fromkeys(name for each in cells for name in each))
    params = records[0].params if records else {}
    varying = _varying([record.params for record in records])
    if len(varying) < len(params):
        yield printable(
            format_point({key: params[key] for key in params if key not in varying})
        )
    points = []
    for record in records:
        points.append([unquoted(repr(record.params[key])) for key in varying])
    while metrics:
        for count in range(len(metrics), 0, -1):
            shown = metrics[:count]
            rows = [[*varying, *shown]]
            for point, each in zip(points, cells, strict=True):
                rows.append([*point, *(each.get(name, "–") for name in shown)])
            table = align([list(map(printable, row)) for row in rows])
            if max(map(len, table)) <= width:
                break
        yield from table
        metrics = metrics[count:]


def _format_metrics(record: Record) -> dict[str, str]:
    return {
        name: format_samples(samples, samples.unit)
        for name, samples in record.metrics.items()
    }


def _varying(points: Sequence[Params]) -> list[str]:
    """The parameters in which points of one benchmark differ."""
    names = points[0] if points else ()
    varying = []
    for key in names:
        values = {repr(each.get(key)) for each in points}
        if len(values) > 1:
            varying.append(key)
    return varying


def describe_points(
    records: Sequence[Record], width: int, roof: Roof, *, verbose: bool = False
) -> Iterator[str]:
    """The points of one benchmark for a terminal: measured ones as tables, the others and warnings
    by reason. verbose: with all warnings."""
    yield from point_tables(
        [record for record in records if record.status == "ok"], width, roof
    )
    # Below the table rather than in a column: a reason is longer than all numbers together.
    by_remark: dict[tuple[str, str], list[str]] = {}
    for record in records:
        doubtful = all_remarks(record) if verbose else doubts(record)
        remarks: list[tuple[str, str]] = [("warning", text) for text in doubtful]
        if record.status != "ok":
            remarks.insert(0, (record.status, record.reason))
        for remark in remarks:
            by_remark.setdefault(remark, []).append(format_point(record.params))
    for (kind, text), points in by_remark.items():
        which = f"{len(points)} of {len(records)} points"
        if len(points) == 1 and points[0]:
            which = points[0]
        yield printable(f"{kind}: {which}: {text}")


def format_samples(samples: MetricSamples | MeasuredValue, unit: str) -> str:
    """The median of a metric with its interval, as `formatting.estimate` writes it."""
    return f"{estimate(samples.estimate, unit)} {samples.regime}".rstrip()


def doubts(record: Record) -> list[str]:
    """Short descriptions of the doubts about a measured point."""
    found = []
    if record.missing_rounds:
        found.append(f"only {record.missing_rounds}")
    noise = _widest(record)
    if ratios := [max(medians) / min(medians) for _, medians in _differing_rounds(record)]:
        noise.append(f"rounds differ {times(max(ratios))}×")
    if noise:
        found.append(f"noisy: {', '.join(noise)}")
    shown = [] if found else record.warnings[:MOST_WARNINGS]
    found += shown
    if more := len(record.warnings) - len(shown):
        found.append(f"{counted(more, 'more warning')} (-v)")
    return found


def _widest(record: Record) -> list[str]:
    """The interval of the displayed first metric: `± 84 %`; else the widest, with the metric's
    name."""
    widths = {name: _relative_width(metric) for name, metric in record.metrics.items()}
    first = next(iter(widths), "")
    widest = max(widths, key=lambda each: widths[each], default="")
    if not widest or widths[widest] < NOISY:
        return []
    if widths[first] >= NOISY:
        return [half_width(widths[first])]
    return [f"{widest} {half_width(widths[widest])}"]


def _relative_width(metric: MetricSamples) -> float:
    """The longer side of the interval relative to the value; 0 without an interval."""
    found = metric.estimate
    if not metric.timers or not found.value or found.low is None or found.high is None:
        return 0.0
    return max(found.value - found.low, found.high - found.value) / abs(found.value)


def _differing_rounds(record: Record) -> Iterator[tuple[str, list[float]]]:
    """The timed metrics whose rounds disagree, with the medians of the rounds, which explains an
    interval wider than that of each round."""
    for name, metric in record.metrics.items():
        medians = metric.round_values if metric.timers else []
        if medians and max(medians) > min(medians) * (1 + NOISY) > 0:
            yield name, medians


def all_remarks(record: Record) -> list[str]:
    """All warnings in full."""
    missing = f"only {record.missing_rounds} measured"
    found = [missing] if record.missing_rounds else []
    found += record.remarks
    for name, medians in _differing_rounds(record):
        if record.metrics[name].unit == "s":
            shown = ", ".join(quantity(each, "s") for each in medians)
            found.append(f"{name}: the rounds differ, their medians are {shown}")
    return found


def kind_of(reason: str) -> str:
    """A reason for a missing number in a form common to many points: the first of several, without
    the number of GPUs."""
    return _GPUS.sub("more GPUs", reason.partition("; ")[0], count=1)


def headlines(
    tasks: Mapping[str, Sequence[TaskEntry]], records: Sequence[Record], runs: Set[str]
) -> list[str]:
    """For each task that this machine has measured: its value, interval and share of the limit.

    records: of this machine, joined or not; the newest of a point with the node's own packages
    counts.  runs: the runs being reported; values of others are marked as earlier.
    """
    joined = join_rounds(records)
    measured = [each for each in joined if each.status == "ok" and not each.of_stack]
    measured.sort(key=lambda each: each.started)
    newest = {each.point: each for each in measured}
    on_gpu = any(each.gpus for each in newest.values())
    roof = Roof(measured)
    rows = []
    for task in itertools.chain.from_iterable(tasks.values()):
        asked = task if on_gpu else task.on_cpu
        if not asked or not (found := _answer(asked, newest.values())):
            continue
        record, metric = found
        shown = record if task.regime == "settled" else _at_boost(record)
        samples = shown.metrics[metric]
        value = format_samples(samples, samples.unit)
        limit = describe_limit(shown, roof, metric)
        earlier = "" if record.run in runs else "earlier"
        rows.append([asked.task, value, limit, earlier])
    return align(rows)


def _answer(asked: Question, records: Iterable[Record]) -> tuple[Record, str] | None:
    """The newest Record that answers a question, and the metric; None if there is none."""
    benchmark, _, metric = asked.metric.partition(".")
    for record in records:
        of_point = asked.point.items() <= record.params.items()
        if record.benchmark == benchmark and of_point and metric in record.metrics:
            return record, metric
    return None


def _at_boost(record: Record) -> Record:
    """The Record with boost samples, for the metrics that have them."""
    metrics = {name: _boost_of(metric) for name, metric in record.metrics.items()}
    return msgspec.structs.replace(record, metrics=metrics)


def _boost_of(metric: MetricSamples) -> MetricSamples:
    if not metric.boost:
        return metric
    return msgspec.structs.replace(
        metric,
        samples=metric.boost,
        rounds=metric.boost_rounds,
        boost=[],
        boost_rounds=[],
        settled=False,
    )
