"""What the process of a point sends is about the point that was asked for, or it is refused."""

from __future__ import annotations

import inspect
import os
from collections.abc import Callable
from typing import Any

import pytest
from msgspec.structs import replace

from hpml_plugins.measure import Context, measure_point
from hpml_plugins.measure.bench import Bench
from hpml_plugins.measure.point import unmeasured
from hpml_plugins.model import Benchmark, Metric, Node
from hpml_plugins.model.record import MetricSamples, Record
from hpml_plugins.model.serialization import encode

METRICS = [Metric("time", "s", "lower")]
GOOD = MetricSamples("s", "lower", [1.0])


def speaking(here: Node, **changes: Any) -> Record:
    """The Record of a point that itself writes a Record with these changes into the pipe, and
    ends."""
    context = Context(
        here, machine="m", commit="a" * 40, environment="env", run="r", watch=False
    )

    def measure(bench: Bench) -> dict[str, Any]:
        send: Callable[[bytes], None] = inspect.getclosurevars(bench._report).nonlocals[
            "send"
        ]
        forged = replace(
            unmeasured("toy", "1", {}, context), status="ok", metrics={"time": GOOD}
        )
        send(encode(replace(forged, **changes)))
        os._exit(0)

    return measure_point(Benchmark("toy", measure, METRICS), {}, context)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("benchmark", "other"),
        ("plugin", "other"),
        ("version", "2"),
        ("params", {"n": 1}),
        ("machine", "other"),
        ("commit", "b" * 40),
        ("environment", "stack-x"),
        ("run", "s"),
    ],
)
def test_a_record_of_anything_else_fails_the_point(
    node: Node, field: str, value: object
) -> None:
    record = speaking(node, **{field: value})
    assert record.status == "failed"
    assert f"it sent what cannot be read: a Record of another {field}" in record.reason
    assert (record.benchmark, record.machine, record.commit, record.run) == (
        "toy",
        "m",
        "a" * 40,
        "r",
    )


@pytest.mark.parametrize(
    "metrics",
    [
        {"other": GOOD},
        {"time": replace(GOOD, unit="B")},
        {"time": replace(GOOD, direction=None)},
    ],
)
def test_metrics_that_are_not_declared_so_fail_the_point(
    node: Node, metrics: dict[str, MetricSamples]
) -> None:
    record = speaking(node, metrics=metrics)
    assert (record.status, record.metrics) == ("failed", {})
    assert "which is not declared" in record.reason


@pytest.mark.parametrize(
    "changes",
    [
        {"metrics": {"time": replace(GOOD, samples=[-1.0])}},
        {"metrics": {"time": replace(GOOD, interval=(1.0, 1.0))}},
        {"reason": "x" * 10**6},
    ],
)
def test_what_no_reader_would_take_fails_the_point(
    node: Node, changes: dict[str, Any]
) -> None:
    record = speaking(node, **changes)
    assert (record.status, record.metrics) == ("failed", {})
    assert "cannot be" in record.reason and len(record.reason) <= 10_000


def test_when_it_was_and_on_which_node_is_not_the_point_s_to_say(node: Node) -> None:
    record = speaking(
        node, started=1.0, node={"cpu": "made up"}, energy=1e9, planned_rounds=7, seed=5
    )
    assert record.status == "ok"
    assert record.started > 1.6e9 and record.node["cpu"] == node.cpu
    assert (record.energy, record.planned_rounds, record.seed) == (0.0, 1, 0)


def test_a_point_that_reports_twice_is_not_believed(node: Node) -> None:
    def measure(bench: Bench) -> dict[str, float]:
        # both processes return, and both report: the second waits for the first, since what
        # still runs when it ends is killed
        if child := os.fork():
            os.waitpid(child, 0)
        return {"time": 1.0}

    record = measure_point(
        Benchmark("toy", measure, METRICS), {}, Context(node, watch=False)
    )
    assert record.status == "failed"
    assert "it reported 2 times" in record.reason


def test_a_reason_of_any_length_is_stored_with_its_head_and_tail(node: Node) -> None:
    def measure(bench: Bench) -> dict[str, float]:
        print("p" * 10**6)
        raise ValueError("begins " + "x" * 10**7 + " ends")

    record = measure_point(
        Benchmark("toy", measure, METRICS), {}, Context(node, watch=False)
    )
    assert record.status == "failed"
    assert "begins x" in record.reason and "characters left out" in record.reason
    assert len(encode(record)) < 100_000
