"""What the plugin `language_models` draws, from Records as cards would give them."""

from __future__ import annotations

from typing import Any

import msgspec
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


def explained(
    rung: str,
    time: float,
    times: dict[str, float],
    card: str = "A",
    benchmark: str = "lm_explained",
) -> Record:
    total = sum(times.values())
    values = {"time": time, "predicted": total, "low": 0.9 * total, "high": 1.1 * total}
    ends = {"low": [0.9 * each for each in times.values()]}
    ends["high"] = [1.1 * each for each in times.values()]
    columns = {"part": list(times), "time": list(times.values()), **ends}
    parts = Series(columns, dict.fromkeys(("time", "low", "high"), "s"))
    return record(benchmark, values, {"parts": parts}, card, rung=rung)


RUNGS = [
    explained("decode_1", 0.008, {"attention": 0.001, "head": 0.003}),
    explained("prefill_8192", 0.1, {"attention": 0.08, "head": 0.02}),
]


def launched(rung: str, launches: dict[str, float], gap: float) -> Record:
    counts = Series({"part": list(launches), "launches": list(launches.values())})
    return record("lm_launches", {"gap": gap}, {"launches": counts}, rung=rung)


def test_the_parts_are_shares_of_their_sum() -> None:
    rows = list(FIGURES["parts"].table(RUNGS).rows())
    shares = [[row["part"], row["share"]] for row in rows]
    assert shares[:2] == [["attention", pytest.approx(0.25)], ["head", pytest.approx(0.75)]]
    assert shares[3:5] == [["attention", pytest.approx(0.8)], ["head", pytest.approx(0.2)]]
    # not measured: still within the parts
    assert shares[2] == shares[5] == ["launch_gaps", None]
    bars = picture(FIGURES["parts"], RUNGS).marks["bar"]
    assert any("decode_1" in bar and "75" in bar for bar in bars)


def test_launch_gaps_are_a_part_of_their_own_and_leave_the_sum_as_it_is() -> None:
    # 1 ms and 3 ms, of which 100 and 200 launches take 2 µs each
    gaps = launched("decode_1", {"attention": 100.0, "head": 200.0}, 2e-6)
    attention, head, between = FIGURES["parts"].table([RUNGS[0], gaps]).rows()
    assert attention["time"] == pytest.approx(0.8e-3)
    assert head["time"] == pytest.approx(2.6e-3)
    assert (between["part"], between["time"]) == ("launch_gaps", pytest.approx(0.6e-3))
    assert [row["launches"] for row in (attention, head, between)] == [100, 200, 300]
    assert sum(row["share"] for row in (attention, head, between)) == pytest.approx(1)
    assert between["low"] <= between["time"] <= between["high"]
    # those of another rung are not taken
    (*_, unknown) = FIGURES["parts"].table([RUNGS[1], gaps]).rows()
    assert unknown["time"] is None


def test_the_bars_of_the_parts_are_stacked_in_their_order() -> None:
    chart = FIGURES["parts"].chart
    assert chart is not None
    (bar,) = [layer for layer in chart["layer"] if layer["mark"]["type"] == "bar"]
    assert bar["encoding"]["x"]["stack"] == "zero"
    assert bar["encoding"]["order"] == {"field": "part order"}
    assert any("window" in each for each in chart["transform"])
    colours = bar["encoding"]["color"]["scale"]["range"]
    assert len(set(colours)) == len(colours) == 9


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


def test_a_prediction_is_corrected_by_its_own_kind_where_there_is_one() -> None:
    training = [
        explained("training_16", 0.09, {"head": 0.1}),
        explained("training_64", 0.46, {"head": 0.5}),
    ]
    rows = {
        row["rung"]: row for row in FIGURES["predictions"].table([*RUNGS, *training]).rows()
    }
    assert rows["training_64"]["left_out"] == pytest.approx(0.45)
    assert rows["training_64"]["left_out_error"] == pytest.approx(0.45 / 0.46 - 1)
    assert (rows["training_64"]["allowed"], rows["training_64"]["within"]) == (0.10, "yes")
    # decode_1 has no other of its kind: 4 ms of 8 ms, corrected by the three others
    assert rows["decode_1"]["left_out"] == pytest.approx(
        0.004 * (1.0 * 0.9 * 0.92) ** (1 / 3)
    )
    assert (rows["decode_1"]["allowed"], rows["decode_1"]["within"]) == (0.15, "no")


def test_a_prediction_is_not_corrected_by_another_card() -> None:
    elsewhere = explained("training_64", 0.3, {"attention": 0.1}, card="B")
    same = explained("decode_64", 0.012, {"attention": 0.010}, card="B")
    rows = list(FIGURES["predictions"].table([*RUNGS, elsewhere, same]).rows())
    # the rungs of card A correct each other as if B had measured nothing, and the other way round
    assert [row["left_out"] for row in rows] == pytest.approx([0.004, 0.2, 0.12, 0.03])
    assert rows[0]["within"] == "no"
    (*_, alone) = FIGURES["predictions"].table([*RUNGS, elsewhere]).rows()
    assert (alone["left_out"], alone["left_out_error"]) == (None, None)
    assert alone["within"] is None


def test_a_prediction_for_the_gpu_is_not_corrected_by_the_rungs_of_its_nodes_cpu() -> None:
    tiny = explained("decode_tiny", 0.001, {"head": 0.002}, benchmark="lm_explained_cpu")
    rows = list(FIGURES["predictions"].table([*RUNGS, tiny]).rows())
    assert [row["left_out"] for row in rows] == pytest.approx([0.004, 0.2, None])
    assert [row["benchmark"] for row in rows] == [
        "lm_explained",
        "lm_explained",
        "lm_explained_cpu",
    ]


def test_a_shared_step_is_a_part_of_one_alone_and_the_sums() -> None:
    values = {"single": 0.006, "own": 0.003, "sums": 0.001, "time": 0.005}
    shared = [record("lm_decode_parallel", values, ranks=2)]
    (row,) = FIGURES["sharing"].table(shared).rows()
    assert row["predicted"] == pytest.approx(0.004)
    assert row["low"] <= row["predicted"] <= row["high"]
    assert row["error"] == pytest.approx(-0.2)
    assert (row["allowed"], row["within"]) == (0.15, "no")
    assert len(picture(FIGURES["sharing"], shared).marks["point"]) == 5


def test_a_shared_step_without_its_own_part_is_not_predicted() -> None:
    new = record("lm_decode_parallel", {"own": 0.003, "time": 0.005}, ranks=2)
    metrics = {name: each for name, each in new.metrics.items() if name != "own"}
    old = msgspec.structs.replace(new, metrics=metrics)
    first, second = FIGURES["sharing"].table([old, new]).rows()
    assert (first["own"], first["predicted"], first["within"]) == (None, None, None)
    assert second["within"] == "no"


def test_a_shared_training_step_is_one_alone_and_the_collectives() -> None:
    steps = [
        record("lm_training_ranks", {"single": 0.050, "time": 0.052}, way=way)
        for way in ("ddp", "fsdp")
    ]
    alone = record("lm_communication", {"time": 0.004}, way="ddp")
    ddp, fsdp = FIGURES["training_sharing"].table([*steps, alone]).rows()
    assert ddp["predicted"] == pytest.approx(0.054)
    assert ddp["error"] == pytest.approx(0.054 / 0.052 - 1)
    assert (ddp["allowed"], ddp["within"]) == (0.10, "yes")
    assert ddp["low"] <= ddp["single"] <= ddp["predicted"] <= ddp["high"]
    # its collectives were not measured
    assert (fsdp["communication"], fsdp["predicted"], fsdp["within"]) == (None, None, None)
    assert len(picture(FIGURES["training_sharing"], [*steps, alone]).marks["point"]) == 6


def test_latencies_are_drawn_over_the_rate_of_requests() -> None:
    served = [
        record("lm_serving", {"first_token": rate / 100}, arrival=rate)
        for rate in (12.0, 4.0)
    ]
    rows = list(FIGURES["latencies"].table(served).rows())
    assert [row["arrival"] for row in rows] == [4.0, 12.0]
    assert [row["first_token"] for row in rows] == [0.04, 0.12]
    assert {(row["engine"], row["format"]) for row in rows} == {("ours", "bfloat16")}
    marks = picture(FIGURES["latencies"], served).marks
    assert len(marks["point"]) == 8 and len(marks["line mark"]) == 4


def test_other_engines_stand_beside_ours() -> None:
    served = [
        record("lm_serving", {}, arrival=4.0),
        record("lm_serving_engines", {}, engine="vllm", arrival=4.0),
    ]
    rows = list(FIGURES["latencies"].table(served).rows())
    assert [row["engine"] for row in rows] == ["ours", "vllm"]
    shown = picture(FIGURES["latencies"], served)
    assert {"h100, ours, bfloat16", "h100, vllm, bfloat16"} <= shown.texts


@pytest.mark.parametrize(
    ("name", "benchmark", "points"),
    [
        ("training", "lm_training", [{"checkpointing": each} for each in (False, True)]),
        ("decode", "lm_decode", [{"batch": each} for each in (1, 64)]),
        ("prefill", "lm_prefill", [{"length": each} for each in (512, 8192)]),
    ],
)
def test_rates_have_an_interval_and_tokens_per_joule(
    name: str, benchmark: str, points: list[dict[str, Any]]
) -> None:
    records = [
        record(benchmark, {"energy": 0.25, "rate": 100.0}, **each) for each in points
    ]
    rows = list(FIGURES[name].table(records).rows())
    assert [row["tokens_per_joule"] for row in rows] == [4.0, 4.0]
    assert all(row["rate_low"] <= row["rate"] <= row["rate_high"] for row in rows)
    assert len(picture(FIGURES[name], records).marks["point"]) >= 2
    unknown = FIGURES[name].table([record(benchmark, {"energy": 0.0}, **points[0])]).rows()
    assert [row["tokens_per_joule"] for row in unknown] == [None]


def test_the_step_by_our_kernels_stands_beside_the_compiled_one() -> None:
    both = [record("lm_decode", {}), record("lm_decode_fused", {})]
    rows = list(FIGURES["decode"].table(both).rows())
    assert [row["step"] for row in rows] == ["compiled", "fused"]
    texts = picture(FIGURES["decode"], both).texts
    assert {"h100, bfloat16, batch 1, context 2048", "compiled", "fused"} <= texts


def test_every_figure_of_a_benchmark_is_one_of_the_plugins_own() -> None:
    shown = {name for figure in FIGURES.values() for name in figure.benchmarks}
    assert shown == set(BENCHMARKS)


def test_runs_to_a_loss_have_their_variation_and_their_text() -> None:
    text = Series({"python": ["3.12"], "train": [1e6], "digest": ["ab"]}, {"train": "B"})
    trained = [record("lm_time_to_loss", {"mean_time": 40.0}, {"text": text}, runs=10)]
    (row,) = FIGURES["losses"].table(trained).rows()
    assert (row["mean_time"], row["runs"], row["python"], row["bytes"]) == (
        40.0,
        10,
        "3.12",
        1e6,
    )


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
