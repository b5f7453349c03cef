"""Values per joule: each card's power and speed together, and how two types compare."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from typing import Any

import pytest
from records import a_record, a_value
from scipy import stats

from hpml_plugins.analysis.measured import MeasuredValue
from hpml_plugins.analysis.sides import MeasuredRun, SideRuns
from hpml_plugins.model.record import MetricSamples
from hpml_plugins.report.reading import TrackedBenchmark, TrackedMetric
from hpml_plugins.report.site.joules import (
    OLDER_CODE,
    compare_per_joule,
    per_joule,
    ratios_per_joule,
)
from hpml_plugins.report.site.matrix import TaskCell, TaskRow
from hpml_plugins.report.site.tasks import OTHER_CODE
from hpml_plugins.store import Index

#: Card, seconds or rate of a step of 1 s, J.
Measured = tuple[str, float, float]
BENCHMARK = TrackedBenchmark("b", "p", "b", "1", Index({}))
H100 = [("A", 2.0, 500.0), ("A", 2.0, 520.0), ("B", 2.1, 540.0), ("C", 1.9, 510.0)]
H200 = [("D", 3.0, 690.0), ("E", 3.1, 680.0)]


def cell(
    measured: Sequence[Measured], *, code: str = "c", unit: str = "B/s", **facts: Any
) -> TaskCell:
    runs = []
    for number, (card, value, spent) in enumerate(measured):
        values = {
            "time": a_value(1.0, card, code=code),
            "time" if unit == "s" else "rate": a_value(value, card, code=code, **facts),
            "energy": a_value(0.4, card, code=code, spent=spent),
        }
        runs.append(MeasuredRun.of(values, (number,), "1a2b3c4d"))
    known = SideRuns.of(runs)
    values = known.values(code)
    return TaskCell(values["time" if unit == "s" else "rate"], None, values, known)


def row(
    *cells: TaskCell, unit: str = "B/s", regime: Any = "settled", direction: str = "higher"
) -> TaskRow:
    name = "time" if unit == "s" else "rate"
    metric = TrackedMetric(f"b.track_{name}", BENCHMARK, name, unit, direction)
    return TaskRow(metric, "", regime, dict(enumerate(cells)), frozenset(), "", "")


def test_a_rate_per_joule_is_the_mean_over_cards_with_an_interval_for_the_next() -> None:
    found = per_joule(row(cell(H100)), 0)
    assert found is not None
    of_a = (math.log(2 / 500) + math.log(2 / 520)) / 2
    levels = [of_a, math.log(2.1 / 540), math.log(1.9 / 510)]
    assert list(found.cards) == pytest.approx(levels)
    half = stats.t.ppf(0.975, 2) * statistics.stdev(levels) * math.sqrt(1 + 1 / 3)
    mean = statistics.fmean(levels)
    assert found.estimate.value == pytest.approx(math.exp(mean))
    assert found.estimate.low == pytest.approx(math.exp(mean - half))
    assert found.texts[0].endswith(" B/J") and found.texts[1].startswith("± ")
    few = per_joule(row(cell([("A", 1.0, 500.0), ("B", 3.0, 500.0)])), 0)
    assert few is not None
    assert "/s" not in few.texts[1] and few.texts[1].endswith("B/J)")


def test_a_time_costs_joules_and_one_card_has_no_interval() -> None:
    times = cell([("A", 2.0, 500.0)], unit="s")
    found = per_joule(row(times, unit="s"), 0)
    assert found is not None and found.texts == ("500.0 J", "")
    # the energy is not that of another time, such as the set-up's
    other = TaskRow(
        TrackedMetric("b.track_setup", BENCHMARK, "setup", "s", "lower"),
        "",
        "settled",
        {0: TaskCell(times.values["time"], None, {"setup": a_value(9.0, "A")}, times.runs)},
        frozenset(),
        "",
        "",
    )
    assert per_joule(other, 0) is None


def test_a_rate_is_not_divided_by_the_power_under_another_load() -> None:
    # 20 FLOP in 2 s where it was timed; under the load of the energy in 4 s at 5 W
    values = {
        "time": a_value(2.0, "A"),
        "rate": a_value(10.0, "A"),
        "energy": a_value(0.4, "A", spent=20.0),
    }
    runs = SideRuns.of([MeasuredRun.of(values, (0,), "1a2b3c4d")])
    found = per_joule(row(TaskCell(values["rate"], None, values, runs)), 0)
    assert found is not None and found.texts == ("1.000 B/J", "")


def test_what_was_not_measured_under_the_load_has_no_value_per_joule() -> None:
    without = cell([("A", 2.0, 0.0)])
    assert per_joule(row(without), 0) is None
    # an accuracy or a memory is no work
    assert per_joule(row(cell(H100, unit="B"), unit="B"), 0) is None
    # the sensor is too slow for a burst
    burst = cell(H100, boosted=a_value(2.2))
    assert per_joule(row(burst), 0) is not None
    assert per_joule(row(burst, regime="boost"), 0) is None
    # other processes on the CPUs
    assert per_joule(row(cell(H100, is_busy=True)), 0) is None


def test_types_are_compared_with_the_interval_of_their_cards() -> None:
    rows = row(cell(H100), cell(H200))
    one, other = (per_joule(rows, column) for column in (0, 1))
    assert one and other
    found = stats.ttest_ind(other.cards, one.cards).confidence_interval(0.95)
    difference = statistics.fmean(other.cards) - statistics.fmean(one.cards)
    low, ratio, high = map(math.exp, (found.low, difference, found.high))
    text = compare_per_joule(rows, 0, 1)
    assert text == f"{ratio:.2f}× per joule, {low:.2f} to {high:.2f}×"
    # one card of a type is taken to vary as those of the other do
    assert " to " in compare_per_joule(row(cell(H100), cell(H200[:1])), 0, 1)
    alone = compare_per_joule(row(cell(H100[:1]), cell(H200[:1])), 0, 1)
    assert alone.endswith("× per joule; one card each, so the interval is unknown")


def test_less_energy_is_better() -> None:
    slow, fast = cell([("A", 2.0, 500.0)], unit="s"), cell([("B", 2.0, 250.0)], unit="s")
    times = row(slow, fast, unit="s", direction="lower")
    assert compare_per_joule(times, 0, 1).startswith("2.00× per joule")


def test_types_are_compared_at_a_code_that_both_measured() -> None:
    newer = [MeasuredRun.of(cell([("A", 9.0, 500.0)], code="new").values, (9,), "5e6f7a8b")]
    older = cell(H100, code="old")
    runs = SideRuns.of([*older.runs.of_code("old"), *newer])
    both = TaskCell(newer[0].values["rate"], None, newer[0].values, runs)
    rows = row(both, cell(H200, code="old"))
    same = row(older, cell(H200, code="old"))
    text = compare_per_joule(same, 0, 1)
    assert text.endswith("×")
    assert compare_per_joule(rows, 0, 1) == f"{text}; {OLDER_CODE}"
    never = row(cell(H100, code="one"), cell(H200, code="two"))
    assert compare_per_joule(never, 0, 1) == f"{text}; {OTHER_CODE}"


def test_ratios_are_of_rows_that_both_measured() -> None:
    named = {"0": row(cell(H100), cell(H200)), "p0": row(cell(H100))}
    found = ratios_per_joule(named, 0, [0, 1])
    assert found.keys() == {1} and found[1].keys() == {"0"}


@pytest.mark.parametrize(
    ("info", "spent"),
    [({"power": 512.3, "gross": 0.6}, 0.6), ({"power": 512.3}, 0.4), ({}, 0.0)],
)
def test_the_energy_of_a_step_is_kept_with_the_idle_part(
    info: dict[str, float], spent: float
) -> None:
    energy = MetricSamples("J", "lower", [0.4], info)
    record = a_record("softmax", {"time": 0.001, "energy": energy}, gpu="NVIDIA H200")
    values = MeasuredValue.all_of(record)
    assert (values["energy"].spent, values["time"].spent) == (spent, 0.0)
