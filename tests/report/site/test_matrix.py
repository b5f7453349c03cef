"""The numbers of GPU types, from Records and from imported results."""

from __future__ import annotations

import dataclasses
import itertools
import random
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest
from records import a_record
from site_history import read

from hpml_plugins.analysis.measured import MeasuredValue, mean_over_cards
from hpml_plugins.analysis.sides import MeasuredRun, SideRuns
from hpml_plugins.model import formatting
from hpml_plugins.model.record import MetricSamples, Record
from hpml_plugins.report.reading import hardware_of
from hpml_plugins.report.site.matrix import Costs, Matrix, TaskCell, TaskRow, build
from hpml_plugins.report.site.page import fill, graph_link, point_link
from hpml_plugins.report.site.task_table import show_cell
from hpml_plugins.report.site.tasks import judge_rows
from hpml_plugins.report.site.workloads import find_workloads
from hpml_plugins.store import append_record, record_file
from hpml_plugins.store.declarations import read_declarations

NAN = float("nan")
NASTY = "<script>alert(1)</script>"
NEW, OLD = "b" * 40, "a" * 40
DAY = 86_400_000
DATES = {OLD: DAY, NEW: 2 * DAY}

TIME = {
    "name": "softmax.track_time",
    "benchmark": "softmax",
    "metric": "time",
    "plugin": "p",
    "direction": "lower",
    "si_unit": "s",
    "unit": "seconds",
    "type": "track",
    "version": "1",
    "params": [["64", "256"]],
    "param_names": ["cols"],
}
RATE = {
    **TIME,
    "name": "softmax.track_rate",
    "metric": "rate",
    "direction": "higher",
    "si_unit": "B/s",
    "unit": "B/s",
}
FOREIGN = {
    "name": "other.track_x",
    "type": "track",
    "unit": "unit",
    "version": "1",
    "params": [],
    "param_names": [],
}
BENCHMARKS: dict[str, dict[str, Any]] = {
    each["name"]: each for each in (TIME, RATE, FOREIGN)
}  # type: ignore[misc]

Add = Callable[..., Any]


def machine(name: str = "m", **params: str) -> dict[str, str]:
    return {"machine": name, **params}


H200 = machine("node1", gpu="NVIDIA H200", num_gpu="1")
A100 = machine("node2", gpu="NVIDIA A100", num_gpu="1")


@pytest.fixture
def add(add_result: Add) -> Add:
    def with_our_benchmarks(*arguments: Any, **more: Any) -> Any:
        return add_result(*arguments, **{"benchmarks": BENCHMARKS, **more})

    return with_our_benchmarks


@pytest.fixture
def matrix(tmp_path: Path) -> Callable[[], Matrix]:
    return lambda: build(read(tmp_path / "results", BENCHMARKS, DATES), Costs({}))


def groups(matrix: Matrix) -> list[list[TaskRow]]:
    """The rows of each metric."""
    found = itertools.groupby(matrix.rows, key=lambda row: row.metric.name)
    return [list(rows) for _, rows in found]


def cells(matrix: Matrix, group: int = 0) -> list[list[TaskCell]]:
    return [list(row.cells.values()) for row in groups(matrix)[group]]


def texts(matrix: Matrix, group: int = 0) -> list[list[str]]:
    """What stands in the cells of a group: the number without its interval, or that it failed."""
    return [
        [
            "failed"
            if column.number in row.failed
            else formatting.quantity(row.cells[column.number].number.value, row.metric.unit)
            for column in matrix.columns
        ]
        for row in groups(matrix)[group]
    ]


def test_rows_are_points_and_columns_are_gpu_types(
    add: Add, matrix: Callable[[], Matrix]
) -> None:
    add(H200, OLD, DAY, {TIME["name"]: [0.001, 0.002], FOREIGN["name"]: [7.0]})
    add(A100, OLD, DAY, {TIME["name"]: [0.004, 0.005]})
    made = matrix()
    assert [column.hardware.label for column in made.columns] == [
        "NVIDIA A100 ×1",
        "NVIDIA H200 ×1",
    ]
    assert [
        (rows[0].metric.benchmark.heading, rows[0].metric.metric) for rows in groups(made)
    ] == [
        ("other.track_x", "value"),
        ("softmax", "time"),
    ]
    assert [row.point for row in groups(made)[1]] == ["cols=64", "cols=256"]
    assert texts(made, 1) == [
        ["4.000 ms", "1.000 ms"],
        ["5.000 ms", "2.000 ms"],
    ]
    other = made.rows[0]
    assert (other.point, list(other.cells), other.failed) == ("", [1], frozenset())


def test_the_newest_commit_wins_whatever_order_the_files_have(
    add: Add, matrix: Callable[[], Matrix]
) -> None:
    add(H200, NEW, 2 * DAY, {FOREIGN["name"]: [2.0]}, started=1)
    add(H200, OLD, DAY, {FOREIGN["name"]: [1.0]}, started=99)
    assert texts(matrix()) == [["2"]]


def test_machines_with_the_same_gpus_share_a_column_and_the_one_that_ran_last_wins(
    add: Add, matrix: Callable[[], Matrix]
) -> None:
    add(H200, NEW, DAY, {FOREIGN["name"]: [1.0]}, started=5)
    add({**H200, "machine": "node9"}, NEW, DAY, {FOREIGN["name"]: [2.0]}, started=9)
    made = matrix()
    assert [column.machines for column in made.columns] == [("node1", "node9")]
    assert texts(made) == [["2"]]


def test_a_point_that_a_partial_run_left_out_keeps_its_older_result(
    add: Add, matrix: Callable[[], Matrix]
) -> None:
    add(H200, OLD, DAY, {TIME["name"]: [0.001, 0.002]})
    add(H200, NEW, 2 * DAY, {TIME["name"]: [0.003, NAN]})
    assert texts(matrix()) == [["3.000 ms"], ["2.000 ms"]]


def test_a_skipped_point_and_a_failed_one_are_told_apart(
    add: Add, matrix: Callable[[], Matrix]
) -> None:
    add(H200, OLD, DAY, {TIME["name"]: [NAN, None]})
    add(A100, OLD, DAY, {TIME["name"]: [0.001, 0.002]})
    made = matrix()
    rate, (skipped, failed) = groups(made)
    assert (list(skipped.cells), skipped.failed) == ([0], set())
    assert (list(failed.cells), failed.failed) == ([0], {1})
    assert len(rate) == 1  # nobody measured a rate; of the point that failed nobody can


def test_a_point_that_nobody_measured_has_no_row(
    add: Add, matrix: Callable[[], Matrix]
) -> None:
    add(H200, OLD, DAY, {TIME["name"]: [NAN, 0.002], RATE["name"]: [NAN, NAN]})
    assert len(groups(matrix())) == 1
    assert texts(matrix()) == [["2.000 ms"]]


def test_a_benchmark_that_failed_at_every_point_is_shown_as_failed(
    add: Add, matrix: Callable[[], Matrix]
) -> None:
    add(H200, OLD, DAY, {TIME["name"]: [None, None]})
    assert texts(matrix()) == [["failed"], ["failed"]]


def test_a_newer_failure_is_not_hidden_by_an_older_number(
    add: Add, matrix: Callable[[], Matrix]
) -> None:
    add(H200, OLD, DAY, {FOREIGN["name"]: [1.0]})
    add(H200, NEW, 2 * DAY, {FOREIGN["name"]: [None]})
    assert texts(matrix()) == [["failed"]]


def test_a_point_that_the_grid_did_not_have_yet_did_not_fail(
    add: Add, matrix: Callable[[], Matrix]
) -> None:
    narrow = {TIME["name"]: {**TIME, "params": [["64"]]}}
    add(H200, OLD, DAY, {TIME["name"]: [0.001]}, benchmarks=narrow)
    assert [row.point for row in matrix().rows] == ["cols=64"]


def test_a_result_of_another_version_does_not_count(
    add: Add, matrix: Callable[[], Matrix]
) -> None:
    add(
        H200,
        OLD,
        DAY,
        {FOREIGN["name"]: [1.0]},
        benchmarks={FOREIGN["name"]: {**FOREIGN, "version": "0"}},
    )
    assert matrix().rows == ()


def test_what_only_cpus_measured_comes_last(add: Add, matrix: Callable[[], Matrix]) -> None:
    add(A100, NEW, DAY, {TIME["name"]: [0.004, 0.005]})
    add(
        machine("laptop", gpu="none", cpu="Xeon"),
        NEW,
        DAY,
        {FOREIGN["name"]: [7.0], RATE["name"]: [5.0, 6.0]},
    )
    assert [
        (rows[0].metric.benchmark.heading, rows[0].metric.metric)
        for rows in groups(matrix())
    ] == [
        ("softmax", "rate"),
        ("softmax", "time"),
        ("other.track_x", "value"),
    ]


def test_the_headline_is_a_rate_else_a_time_else_what_has_a_direction(
    add_result: Add, tmp_path: Path
) -> None:
    size = {
        **TIME,
        "name": "softmax.track_a_size",
        "metric": "size",
        "direction": "none",
        "si_unit": "1",
    }
    share = {**RATE, "name": "softmax.track_b_share", "metric": "share", "si_unit": "1"}
    benchmarks = {str(each["name"]): each for each in (size, share, TIME)}
    add_result(
        H200, OLD, DAY, {name: [1.0, 2.0] for name in benchmarks}, benchmarks=benchmarks
    )

    def order() -> list[str]:
        made = build(read(tmp_path / "results", benchmarks, DATES), Costs({}))
        return [rows[0].metric.metric for rows in groups(made)]

    assert order() == ["time", "share", "size"]
    benchmarks[str(RATE["name"])] = RATE
    add_result(
        H200,
        OLD,
        DAY,
        {name: [1.0, 2.0] for name in benchmarks},
        benchmarks=benchmarks,
        started=9.0,
    )
    assert order() == ["rate", "time", "share", "size"]


def half_width(number: MeasuredValue) -> float:
    """Of its interval, %."""
    _, interval = formatting.split_estimate(formatting.estimate(number.estimate, "s"))
    return float(interval.removeprefix("± ").removesuffix(" %"))


def test_the_interval_is_for_the_next_run_whatever_the_samples_of_one_say(
    add: Add, matrix: Callable[[], Matrix]
) -> None:
    dice = random.Random(5)
    for run in range(30):
        times = [1e-3 * (1 + dice.gauss(0, 0.01)), 0.5 * (1 + dice.gauss(0, 0.01))]
        add(
            H200,
            OLD,
            DAY,
            {TIME["name"]: [[time] * 40 for time in times]},
            started=run,
            code="same",
        )
    add(H200, OLD, DAY, {TIME["name"]: [[0.001] * 40, [0.5]]}, started=99, code="same")
    found = [cell.number for (cell,) in cells(matrix())]
    # the mean over the runs, which is known to 1 % / √31
    assert [number.value for number in found] == [
        pytest.approx(1e-3, rel=6e-3),
        pytest.approx(0.5, rel=6e-3),
    ]
    # two runs of 1 % on two cards that are taken to differ by 1 %: ± 2.8 · √2 · √2 %
    for number in found:
        assert 4 < half_width(number) < 7


def test_verdicts_are_of_each_column_against_each(
    add: Add, matrix: Callable[[], Matrix]
) -> None:
    for run in range(4):
        for each, times in ((H200, [0.001, 0.002]), (A100, [0.001, 0.004])):
            around = [time * (1 + 1e-4 * run) for time in times]
            rates = {RATE["name"]: [1 / time for time in times]}
            add(each, OLD, DAY, {TIME["name"]: around, **rates}, started=run, code="same")
    made = matrix()
    assert [column.hardware.gpu for column in made.columns] == [
        "NVIDIA A100",
        "NVIDIA H200",
    ]
    found = [
        [each.verdict for each in judge_rows(rows, *pair).values()]
        for rows in groups(made)
        for pair in ((0, 1), (1, 0))
    ]
    assert found == [["SAME", "BETTER"], ["SAME", "WORSE"]] * 2


def throttled(
    machine: str, seconds: float, boost: float | None, gpu: str, run: int
) -> Record:
    """A run of a kernel that the card slows down, with both regimes; None: that it does not."""
    regime = {} if boost is None else {"regime": "sustained"}
    bursts = [] if boost is None else [boost] * 3
    info: dict[str, str | float] = {"timer": "cuda events", **regime}
    metric = MetricSamples("s", "lower", [seconds] * 3, info, boost=bursts)
    return a_record(
        "softmax",
        {"time": metric},
        params={"cols": 64},
        machine=machine,
        commit=OLD,
        run=f"{machine} {run}",
        started=float(run),
        source={"sha256": "code"},
        node={"gpus": [{"name": gpu, "uuid": f"{machine} {run}"}]},
    )


def stored(tmp_path: Path, *records: Record) -> Matrix:
    for each in records:
        append_record(record_file(tmp_path / "results", each.machine, OLD), each)
    return build(read(tmp_path / "results", BENCHMARKS, DATES), Costs({}))


def test_a_value_at_settled_clocks_says_so_and_boost_has_a_row_of_its_own(
    tmp_path: Path,
) -> None:
    made = stored(tmp_path, throttled("m", 0.002, 0.001, "NVIDIA H200", 1))
    assert texts(made) == [["2.000 ms"], ["1.000 ms"]]
    numbers = [cell.number for (cell,) in cells(made)]
    assert [number.regime for number in numbers] == ["sustained", "boost"]
    assert [(row.point, row.regime) for row in made.rows] == [
        ("cols=64", "settled"),
        ("cols=64", "boost"),
    ]


def test_a_workload_is_answered_at_settled_clocks_though_boost_has_the_larger_number(
    tmp_path: Path,
) -> None:
    made = stored(tmp_path, throttled("m", 0.002, 0.003, "NVIDIA H200", 1))
    history = read(tmp_path / "results", BENCHMARKS, DATES)
    found = find_workloads(history, made, [])
    (workload,) = (each for each in found if each.benchmark.name == "softmax")
    strong, _ = workload.answer
    assert strong.startswith("softmax · time at cols=64: NVIDIA H200 ×1: 2.000 ms")
    at_boost = dataclasses.replace(workload, lead=1)
    assert at_boost.answer[0].startswith("softmax · time at cols=64, boost clocks: ")


def test_boost_is_judged_against_boost_and_not_against_what_did_not_throttle(
    tmp_path: Path,
) -> None:
    slower = [throttled("a", 2e-3, 1.0e-3, "NVIDIA A100", run) for run in range(4)]
    faster = [throttled("b", 2e-3, 0.5e-3, "NVIDIA H200", run) for run in range(4)]
    other = [throttled("c", 2e-3, None, "NVIDIA B200", run) for run in range(4)]
    made = stored(tmp_path, *slower, *faster, *other)
    assert [column.hardware.gpu[-4:] for column in made.columns] == ["A100", "B200", "H200"]
    rows = made.rows
    found = judge_rows(rows, 0, 2)
    # settled, then at boost; B200 has no boost
    assert [found[place].verdict for place in (0, 1)] == ["SAME", "BETTER"]
    assert list(judge_rows(rows, 0, 1)) == [0]


def test_a_card_that_the_mean_leaves_out_is_counted_where_the_value_stands(
    tmp_path: Path,
) -> None:
    settled = [throttled("m", 2e-3, 1e-3, "NVIDIA H200", run) for run in range(2)]
    cool = throttled("m", 2e-3, None, "NVIDIA H200", 2)
    (time,) = cool.metrics.values()
    seen = msgspec.structs.replace(time, launch_visible=True)
    beside = msgspec.structs.replace(
        cool,
        run="m 3",
        node={"gpus": [{"name": "NVIDIA H200", "uuid": "m 3"}]},
        metrics={"time": seen},
    )
    made = stored(tmp_path, *settled, cool, beside)
    row = made.rows[0]
    # one of the three others did not throttle, and is averaged with them
    assert (row.cells[0].cards, row.left_out(0)) == (3, 1)
    assert {key: show_cell(row, 0)[key] for key in ("cards", "left_out")} == {
        "cards": 3,
        "left_out": 1,
    }
    about = dict.fromkeys(("picture", "command", "about", "link"), "")
    shown = fill("drawer.html", row=row, measured=made.columns, **about)
    assert "4 Records on 4 cards, of which the mean leaves 1 out, timed in" in shown
    alone = stored(tmp_path / "alone", *settled, cool).rows[0]
    assert (alone.cells[0].cards, alone.left_out(0)) == (3, 0)
    # values that are not above 0 are averaged too
    around = [
        msgspec.structs.replace(each, value=value)
        for each, value in zip(alone.readings(0), (-1.0, 0.0, 1.0), strict=True)
    ]
    runs = SideRuns(around, lambda each: MeasuredRun.of({"time": each}, each.started, each))
    mean = mean_over_cards(around)
    cells = {0: TaskCell(mean, values={"time": mean}, runs=runs)}
    assert dataclasses.replace(alone, cells=cells).left_out(0) == 0


def test_imported_results_keep_the_interval_that_asv_gave(
    add: Add, matrix: Callable[[], Matrix]
) -> None:
    samples = [2.0 * (1 + i / 1000) for i in range(40)]
    result = add(H200, OLD, DAY, {FOREIGN["name"]: [samples]})
    stats = result.get_result_stats(FOREIGN["name"], [])[0]
    half = (
        (stats["ci_99_b"] - stats["ci_99_a"])
        / 2
        / result.get_result_value(FOREIGN["name"], [])[0]
    )
    ((cell,),) = cells(matrix())
    assert half_width(cell.number) == pytest.approx(100 * half, rel=0.05)


@pytest.mark.parametrize(
    ("params", "label"),
    [
        ({"gpu": "NVIDIA H200", "num_gpu": "2"}, "NVIDIA H200 ×2"),
        ({"gpu": "NVIDIA H200"}, "NVIDIA H200"),
        ({"gpu": "none", "num_gpu": "0", "cpu": "Xeon"}, "no GPU (Xeon)"),
        ({"gpu": "none"}, "no GPU (unknown CPU)"),
        ({"gpu": "", "cpu": "Xeon"}, "unknown"),
        ({"gpu": None}, "unknown"),
        ({}, "unknown"),
    ],
)
def test_a_machine_s_parameters_say_its_gpu_type(
    params: dict[str, Any], label: str
) -> None:
    assert hardware_of(params).label == label


def test_gpus_stand_before_cpus_and_unknown_machines_last() -> None:
    kinds = [
        hardware_of(params)
        for params in ({}, {"gpu": "none", "cpu": "A"}, {"gpu": "Z", "num_gpu": "1"})
    ]
    assert [kind.label for kind in sorted(kinds)] == ["Z ×1", "no GPU (A)", "unknown"]


@pytest.mark.parametrize(
    ("benchmark", "direction", "unit"),
    [
        ({"type": "time", "unit": "seconds"}, "lower", "s"),
        ({"type": "peakmemory", "unit": "bytes"}, "lower", "B"),
        ({"type": "track", "unit": "points"}, None, "points"),
        (
            {"type": "track", "unit": "B/s", "si_unit": "B/s", "direction": "higher"},
            "higher",
            "B/s",
        ),
        (
            {"type": "track", "unit": "bytes", "si_unit": "B", "direction": "none"},
            None,
            "B",
        ),
        ({}, None, "1"),
    ],
)
def test_a_foreign_benchmark_is_judged_only_where_its_kind_is_clear(
    benchmark: dict[str, str], direction: str | None, unit: str
) -> None:
    entry = {"version": "1", "param_names": [], "params": [], **benchmark}
    (declared,) = read_declarations({"foreign": entry}).values()
    assert (declared.better, declared.symbol) == (direction, unit)


def test_a_link_is_written_as_asv_s_script_reads_it() -> None:
    link = graph_link("a.track_b", {"machine": "n 1", "p-mode": "'x=y&z'"})
    assert link == "asv.html#a.track_b?machine=n%201&p-mode='x%3Dy%26z'"


def test_a_history_s_address_names_the_benchmark_and_the_point() -> None:
    assert point_link("a", "b", "n=1, mode=x&y") == "workload-a.html#b?n=1&mode=x&y"


def test_prices_are_those_of_all_gpus_of_a_column(add: Add, tmp_path: Path) -> None:
    add({**H200, "num_gpu": "2"}, OLD, DAY, {TIME["name"]: [0.001, 0.002]})
    add(
        machine("odd", gpu="Unheard of", num_gpu="4"),
        OLD,
        DAY,
        {TIME["name"]: [0.001, 0.002]},
    )
    made = build(
        read(tmp_path / "results", BENCHMARKS, DATES), Costs({"NVIDIA H200": 3.5}, "USD")
    )
    known, odd = made.columns
    assert (known.price, odd.price) == (7.0, None)  # 2 × 3.5


def test_importing_the_publisher_is_cheap() -> None:
    script = (
        "import sys, hpml_plugins.asv.publisher; "
        "print({'jinja2', 'numpy', 'hpml_plugins.report.site.page'} & set(sys.modules))"
    )
    ran = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    assert ran.stdout.strip() == "set()"


def test_an_error_of_ours_reaches_asv_s_user_as_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from types import SimpleNamespace

    from hpml_plugins.asv import patches
    from hpml_plugins.asv.publisher import GpuTypes

    monkeypatch.chdir(tmp_path)
    folders = {"results_dir": str(tmp_path / "results"), "html_dir": str(tmp_path)}
    conf = SimpleNamespace(
        **folders, repo=".", project="p", hash_length=8, show_commit_url="#"
    )
    monkeypatch.setattr(
        patches, "_run_command", lambda *_: GpuTypes.publish(conf, None, {}, None, {})
    )
    with pytest.raises(SystemExit) as ended:
        patches.run_command(None, GpuTypes, conf, None)
    assert ended.value.code == 2
    said = capsys.readouterr().err
    assert re.fullmatch(
        r"hpml: .*: asv has not written index.html; run `asv publish`\n", said
    )
