"""Records and measured values for tests, made in one place: what a test does not name has a plain
value."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from hpml_plugins import Benchmark, Record
from hpml_plugins.analysis.measured import MeasuredValue
from hpml_plugins.analysis.physics import Physics
from hpml_plugins.model.record import MetricSamples

#: What a metric is given as: its samples, several numbers, or one.
Given = MetricSamples | Sequence[float] | float


def a_record(
    benchmark: str | Benchmark = "toy",
    metrics: Mapping[str, Given] = {},
    *,
    units: Mapping[str, str] = {},
    gpu: str = "",
    card: str = "",
    **facts: Any,
) -> Record:
    """The Record of a point that was measured on the machine `m`.

    benchmark: a Benchmark gives version, units and directions.  metrics: those without a declared
    unit have that of `units`, else s, and the direction "lower".  gpu: the name of the node's one
    card; "" for none.  card: its UUID.  facts: any fields of the Record.
    """
    declared = {}
    made: dict[str, Any] = {
        "benchmark": benchmark,
        "plugin": "toy",
        "version": "1",
        "params": {},
    }
    if isinstance(benchmark, Benchmark):
        declared = {
            metric.name: (metric.unit, metric.direction) for metric in benchmark.metrics
        }
        made |= {"benchmark": benchmark.name, "version": benchmark.version}
    made["metrics"] = {
        name: samples_of(given, *declared.get(name, (units.get(name, "s"), "lower")))
        for name, given in metrics.items()
    }
    if gpu:
        made["node"] = {"gpus": [{"name": gpu, "uuid": card} if card else {"name": gpu}]}
    return Record(**{"status": "ok", "machine": "m", **made, **facts})


def samples_of(given: Given, unit: str, direction: Any) -> MetricSamples:
    """The samples of a metric."""
    if isinstance(given, MetricSamples):
        return given
    numbers = list(given) if isinstance(given, Sequence) else [given]
    return MetricSamples(unit, direction, numbers)


def a_value(number: float, card: str = "A", **facts: Any) -> MeasuredValue:
    """What one run measured on a card: a time that never throttled.  facts: any of its fields."""
    plain: dict[str, Any] = {
        "low": None,
        "high": None,
        "count": 3,
        "direction": "lower",
        "physics": Physics.NEVER_THROTTLED,
        "code": "c",
        "started": 0.0,
    }
    return MeasuredValue(value=number, card=card, **{**plain, **facts})
