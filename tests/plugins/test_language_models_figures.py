"""What the plugin `language_models` draws, from Records as cards would give them."""

from __future__ import annotations

from typing import Any

import pytest
from charted import picture
from records import a_record

from hpml_plugins import Record, Series
from hpml_plugins.model.record import MetricSamples
from hpml_plugins.plugins.language_models import hpml_benchmarks, hpml_figures

FIGURES = {figure.name: figure for figure in hpml_figures()}
BENCHMARKS = {benchmark.name: benchmark for benchmark in hpml_benchmarks()}


def record(
    name: str, values: dict[str, float], series: Any = (), card: str = "A", **params: Any
) -> Record:
    """A Record whose metrics are 1 where the test does not care."""
    benchmark = BENCHMARKS[name]
    metrics = {
        metric.name: MetricSamples(
            metric.unit,
            metric.direction,
            [values.get(metric.name, 1.0)] * 3,
            {"low": values.get("low", 1.0), "high": values.get("high", 1.0)},
        )
        for metric in benchmark.metrics
    }
    (first, *_) = benchmark.points()
    point = {**first, **params}
    facts: dict[str, Any] = {"params": point, "machine": "h100", "series": dict(series)}
    return a_record(benchmark, metrics, gpu="H100", card=card, **facts)


def explained(rung: str, time: float, times: dict[str, float], card: str = "A") -> Record:
    total = sum(times.values())
    values = {"time": time, "predicted": total, "low": 0.9 * total, "high": 1.1 * total}
    parts = Series({"part": list(times), "time": list(times.values())}, {"time": "s"})
    return record("lm_explained", values, {"parts": parts}, card, rung=rung)


RUNGS = [
    explained("decode_1", 0.008, {"attention": 0.001, "head": 0.003}),
    explained("prefill_8192", 0.1, {"attention": 0.08, "head": 0.02}),
]


def test_the_parts_are_shares_of_their_sum() -> None:
    rows = list(FIGURES["parts"].table(RUNGS).rows())
    assert [row["attention"] for row in rows] == pytest.approx([0.25, 0.8])
    assert [row["head"] for row in rows] == pytest.approx([0.75, 0.2])
    assert rows[0]["optimiser"] is None
    bars = picture(FIGURES["parts"], RUNGS).marks["bar"]
    assert len(bars) == 4
    assert any("decode_1" in bar and "75" in bar for bar in bars)


def test_a_prediction_is_corrected_by_the_other_rungs_alone() -> None:
    decode, prefill = FIGURES["predictions"].table(RUNGS).rows()
    # 4 ms of 8 ms predicted; 100 of 100
    assert decode["error"] == pytest.approx(-0.5)
    assert prefill["error"] == pytest.approx(0)
    assert decode["left_out"] == pytest.approx(0.004)
    assert prefill["left_out"] == pytest.approx(0.2)
    assert prefill["left_out_error"] == pytest.approx(1.0)
    assert (prefill["low"], prefill["high"]) == (pytest.approx(0.09), pytest.approx(0.11))
    (alone,) = FIGURES["predictions"].table(RUNGS[:1]).rows()
    assert (alone["left_out"], alone["left_out_error"]) == (None, None)
    assert len(picture(FIGURES["predictions"], RUNGS).marks) > 0


def test_a_prediction_is_not_corrected_by_another_card() -> None:
    elsewhere = explained("training_64", 0.3, {"attention": 0.1}, card="B")
    same = explained("decode_64", 0.012, {"attention": 0.010}, card="B")
    rows = list(FIGURES["predictions"].table([*RUNGS, elsewhere, same]).rows())
    # the rungs of card A correct each other as if B had measured nothing, and the other way round
    assert [row["left_out"] for row in rows] == pytest.approx([0.004, 0.2, 0.12, 0.03])
    (*_, alone) = FIGURES["predictions"].table([*RUNGS, elsewhere]).rows()
    assert (alone["left_out"], alone["left_out_error"]) == (None, None)


def test_a_shared_step_is_a_part_of_one_alone_and_the_additions() -> None:
    values = {"single": 0.006, "communication": 0.001, "time": 0.005}
    shared = [record("lm_decode_parallel", values, ranks=2)]
    (row,) = FIGURES["sharing"].table(shared).rows()
    assert row["predicted"] == pytest.approx(0.004)
    assert row["error"] == pytest.approx(-0.2)
    assert len(picture(FIGURES["sharing"], shared).marks["point"]) == 4


def test_latencies_are_drawn_over_the_rate_of_requests() -> None:
    served = [
        record("lm_serving", {"first_token": rate / 100}, arrival=rate)
        for rate in (12.0, 4.0)
    ]
    rows = list(FIGURES["latencies"].table(served).rows())
    assert [row["arrival"] for row in rows] == [4.0, 12.0]
    assert [row["first_token"] for row in rows] == [0.04, 0.12]
    assert len(picture(FIGURES["latencies"], served).marks) > 0


def test_every_run_has_a_curve() -> None:
    curves = Series(
        {
            "run": [0.0, 0.0, 1.0, 1.0],
            "step": [20.0, 40.0, 20.0, 40.0],
            "time": [1.0, 2.0, 1.1, 2.2],
            "loss": [3.0, 1.2, 3.1, 1.3],
        },
        {"time": "s", "loss": "1"},
    )
    trained = [record("lm_time_to_loss", {}, {"curves": curves})]
    rows = list(FIGURES["curves"].table(trained).rows())
    assert [row["run"] for row in rows] == [1, 1, 2, 2]
    assert {row["target"] for row in rows} == {1.3}
    assert len(picture(FIGURES["curves"], trained).marks) > 0
