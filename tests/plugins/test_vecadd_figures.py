"""The charts of the plugin `vecadd`, from Records as an H200 gives them."""

from __future__ import annotations

import msgspec
import pytest
from charted import picture
from records import a_record

from hpml_plugins import Record
from hpml_plugins.plugins.vecadd.charts import FIGURES as ALL

FIGURES = {figure.name: figure for figure in ALL}
UNITS = {"bandwidth": "B/s", "copy_bandwidth": "B/s", "vs_torch": "1"}


def record(
    benchmark: str,
    machine: str = "h200-x1",
    gpu: str = "NVIDIA H200",
    *,
    metrics: dict[str, float],
    **params: str | int,
) -> Record:
    return a_record(
        benchmark, metrics, units=UNITS, gpu=gpu, machine=machine, params=params
    )


def run(benchmark: str, **params: str | int) -> Record:
    return record(
        benchmark,
        metrics={"time": 4e-5, "bandwidth": 3e12, "total": 4.5e-3},
        millions=10,
        **params,
    )


CPU = record(
    "vecadd_cpu",
    metrics={"time": 9e-3, "bandwidth": 13e9},
    millions=10,
    implementation="cpp",
)
LAPTOP = record(
    "vecadd_cpu",
    "laptop",
    "",
    metrics={"time": 1.0, "bandwidth": 1e8},
    millions=10,
    implementation="cpp",
)
EXPLICIT = run("vecadd_cuda", launch="grid", memory="pinned")
EXPLICIT_CPP = run("vecadd_cuda_cpp", launch="grid", memory="explicit")
MANAGED_CPP = run("vecadd_cuda_cpp", launch="grid", memory="managed")
UNIFIED = run("vecadd_unified", launch="1x1", prefetch="on")
TUNED = record(
    "vecadd_tuned",
    metrics={"time": 3e-5, "bandwidth": 4e12, "vs_torch": 1.01, "copy_bandwidth": 4.2e12},
    millions=10,
    implementation="tuned",
)


def test_a_chart_over_k_has_the_cpu_beside_the_gpu_and_no_machine_without_one() -> None:
    table = FIGURES["explicit"].table([CPU, LAPTOP, EXPLICIT])
    assert [
        (row["machine"], row["program"], row["variant"], row["time"])
        for row in table.rows()
    ] == [
        ("h200-x1", "CPU", "cpp", 9e-3),
        ("h200-x1", "explicit", "grid", 4.5e-3),
    ]


def test_the_speed_up_is_of_whole_runs() -> None:
    (row,) = FIGURES["speedup"].table([CPU, UNIFIED]).rows()
    assert (row["variant"], row["memory"]) == ("1x1", "prefetched")
    assert row["speedup"] == pytest.approx(2.0)  # 9 ms over 4.5 ms
    assert len(FIGURES["speedup"].table([UNIFIED])) == 0


def test_the_bandwidth_has_the_card_s_copy_and_its_published_peak() -> None:
    found = {
        row["kernel"]: row for row in FIGURES["bandwidth"].table([TUNED, EXPLICIT]).rows()
    }
    assert {name: row["bandwidth"] for name, row in found.items()} == {
        "tuned": 4e12,
        "copy": 4.2e12,
        "one element per thread": 3e12,
    }
    assert found["tuned"]["peak"] == 4.8e12
    assert found["copy"]["vs_torch"] is None


def test_a_launch_that_leaves_the_card_idle_says_nothing_of_its_bandwidth() -> None:
    assert (
        len(FIGURES["bandwidth"].table([run("vecadd_cuda", launch="1x1", memory="pinned")]))
        == 0
    )


def test_an_unknown_card_has_no_peak_and_is_drawn_all_the_same() -> None:
    unknown = record(
        "vecadd_tuned",
        gpu="Somebody's GPU",
        metrics={
            "time": 3e-5,
            "bandwidth": 4e12,
            "vs_torch": 1.0,
            "copy_bandwidth": 4.2e12,
        },
        millions=10,
        implementation="tuned",
    )
    figure = FIGURES["bandwidth"]
    table = figure.table([unknown])
    assert table.columns["peak"] == [None, None]
    drawn = picture(figure, table).marks
    assert "rule mark" not in drawn
    assert len(drawn["point"]) == 2
    # both rows have the peak
    assert len(picture(figure, [TUNED]).marks["rule mark"]) == 1


@pytest.mark.parametrize("name", FIGURES)
def test_every_chart_has_all_machines_and_every_row(name: str) -> None:
    figure = FIGURES[name]
    one = [
        each
        for each in (CPU, EXPLICIT, UNIFIED, EXPLICIT_CPP, MANAGED_CPP, TUNED)
        if each.benchmark in figure.benchmarks
    ]
    three = [
        msgspec.structs.replace(each, machine=f"m{number}")
        for number in range(3)
        for each in one
    ]
    drawn = picture(figure, three)
    assert {"m0", "m1", "m2", "K, millions of elements"} <= drawn.texts
    assert (
        len(drawn.marks["point"]) == len(figure.table(three)) == 3 * len(figure.table(one))
    )


def test_the_programs_in_cuda_cpp_have_charts_of_their_own_beside_the_cpp_program() -> None:
    loop = record(
        "vecadd_cpu",
        metrics={"time": 9e-3, "bandwidth": 13e9},
        millions=10,
        implementation="loop",
    )
    records = [CPU, loop, EXPLICIT_CPP, MANAGED_CPP]
    rows = FIGURES["explicit_cpp"].table(records).rows()
    assert [(row["program"], row["memory"]) for row in rows] == [
        ("CPU", "host memory"),
        ("explicit, C++", "pageable"),
    ]
    rows = FIGURES["unified_cpp"].table(records).rows()
    assert [(row["program"], row["speedup"], row["over"]) for row in rows] == [
        ("CPU", 1.0, "C++"),
        ("unified, C++", pytest.approx(2.0), "C++"),
    ]
