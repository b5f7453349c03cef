"""The end of a run: what this machine reaches in the tasks of registry.yaml, against its limits."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence, Set

import msgspec

from hpml_plugins.model.record import MetricSamples, Record
from hpml_plugins.model.rounds import join_rounds
from hpml_plugins.registry import Question, TaskEntry
from hpml_plugins.report.shares import Roof, describe_limit
from hpml_plugins.report.tables import align, spell_samples


def headlines(
    tasks: Mapping[str, Sequence[TaskEntry]], records: Sequence[Record], runs: Set[str]
) -> list[str]:
    """Of each task that this machine has measured its value, with its interval and its share of the
    limit.

    records: of this machine, joined or not; the newest of a point with its own packages counts.
    runs: those that are told of; a value of another one is said to be earlier.
    """
    measured = [
        each for each in join_rounds(records) if each.status == "ok" and not each.of_stack
    ]
    newest = {each.point: each for each in sorted(measured, key=lambda each: each.started)}
    if not newest:
        return []
    on_gpu = any(each.gpus for each in newest.values())
    roof = Roof(measured)
    rows = []
    for task in (each for section in tasks.values() for each in section):
        asked = task if on_gpu else task.on_cpu
        found = _answer(asked, newest.values()) if asked else None
        if asked is None or found is None:
            continue
        record, metric = found
        shown = record if task.regime == "settled" else _at_boost(record)
        samples = shown.metrics[metric]
        value = spell_samples(samples, samples.unit)
        earlier = "" if record.run in runs else "earlier"
        rows.append([asked.task, value, describe_limit(shown, roof, metric), earlier])
    return align(rows)


def _answer(asked: Question, records: Iterable[Record]) -> tuple[Record, str] | None:
    """The newest Record that answers a question, and the metric; None where nothing does."""
    benchmark, _, metric = asked.metric.partition(".")
    for record in records:
        of_point = asked.point.items() <= record.params.items()
        if record.benchmark == benchmark and of_point and metric in record.metrics:
            return record, metric
    return None


def _at_boost(record: Record) -> Record:
    """The Record with the samples at boost, of the metrics that have any."""
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
