"""Points that differ only in the type of a value, such as 1 and "1", are told apart everywhere."""

from __future__ import annotations

import csv
import io
import itertools
import json
import shlex
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from records import a_record

from hpml_plugins.cli.run import choose
from hpml_plugins.model import Table
from hpml_plugins.model.formatting import format_choice, format_point
from hpml_plugins.model.record import Record
from hpml_plugins.report.charts import Axis, complete, dot_chart
from hpml_plugins.report.compare import Side, as_lines, compare, summarise
from hpml_plugins.report.known import KnownRecords
from hpml_plugins.report.points import describe_points
from hpml_plugins.report.reading import History, read_history
from hpml_plugins.report.shares import Roof
from hpml_plugins.report.site.page import run_command
from hpml_plugins.report.tables import as_csv, as_markdown, as_text
from hpml_plugins.store import append_record, record_file

COMMIT = "a" * 40
#: Values that look alike, or would without care.
LOOK_ALIKE: list[Any] = [
    *(1, "1", 1.0, "1.0", "'1'", '"1"', "01", -1, "-1", 1e30, "1e+30", "1e30"),
    *(True, "True", "true", False, "False", "None", "none", "nan", "inf", ""),
    *(
        "a",
        "'a'",
        "a, y=2",
        "a b",
        "a=b",
        "\\",
        "it's",
        'a"b',
        "a\nb",
        "a\\nb",
        " 1",
        "(1, 2)",
    ),
]
PAIRS = [(1, "1"), (1, 1.0), (1.5, "1.5"), (True, "True"), ("a", "'a'"), ("1", "'1'")]


def as_declared(values: list[Any], **more: str) -> dict[str, Any]:
    entry = {"benchmark": "toy", "metric": "time", "plugin": "p", "direction": "lower"}
    entry |= {"si_unit": "s", "version": "1"} | more
    return {
        "toy.track_time": {
            **entry,
            "param_names": ["x"],
            "params": [list(map(repr, values))],
        }
    }


def measured(values: list[Any], **more: Any) -> list[Record]:
    """A Record of each; the n-th takes n + 1 seconds."""
    return [
        a_record(
            metrics={"time": [n + 1.0] * 3}, params={"x": value}, commit=COMMIT, **more
        )
        for n, value in enumerate(values)
    ]


def read(folder: Path, records: list[Record], declared: dict[str, Any]) -> History:
    for each in records:
        append_record(record_file(folder, each.machine, each.commit), each)
    return read_history(folder, None, declared, {COMMIT: 0}, {}, pytest.fail)


@pytest.mark.parametrize("names", [("x",), ("x", "y")])
def test_points_that_differ_have_different_texts(names: tuple[str, ...]) -> None:
    points = [
        dict(zip(names, values, strict=True))
        for values in itertools.product(LOOK_ALIKE, repeat=len(names))
    ]
    assert len(set(map(format_point, points))) == len(points)


def test_each_has_a_history_of_its_own_with_a_command_that_means_it(tmp_path: Path) -> None:
    history = read(tmp_path, measured(LOOK_ALIKE), as_declared(LOOK_ALIKE))
    metric = history.metrics["toy.track_time"]
    lines = {label: metric.line(label, "m") for label in metric.benchmark.points}
    offered = set(map(format_choice, LOOK_ALIKE))
    for label, value in zip(lines, LOOK_ALIKE, strict=True):
        *_, option = shlex.split(run_command(metric.benchmark, label))
        assert choose(option.removeprefix("x="), offered) == [format_choice(value)]
    shown = [reading.value for line in lines.values() for _, reading in line if reading]
    assert shown == [n + 1.0 for n in range(len(LOOK_ALIKE))]
    assert len(history.current()) == len(LOOK_ALIKE)


@pytest.mark.parametrize("pair", PAIRS)
def test_a_choice_on_the_command_line_means_one_of_them(pair: tuple[Any, Any]) -> None:
    offered = set(map(format_choice, pair))
    assert len(offered) == 2
    for value in pair:
        assert choose(format_choice(value), offered) == [format_choice(value)]
    # without a number of the same text, a text needs no quotes
    assert choose(str(pair[1]), {format_choice(pair[1])}) == [format_choice(pair[1])]


@pytest.mark.parametrize("pair", [pair for pair in PAIRS if str in map(type, pair)])
def test_rows_of_tables_and_charts_differ(pair: tuple[Any, Any]) -> None:
    table = Table.of_records(measured([*pair]), "time")
    cells = [row["x"] for row in csv.DictReader(io.StringIO(as_csv(table)))]
    assert len(set(cells)) == 2, cells
    for written in (as_text(table), as_markdown(table)):
        rows = [line.replace("|", " ").split()[1] for line in written.splitlines()[-2:]]
        assert len(set(rows)) == 2, written
    rows = complete(dot_chart("x", Axis("time", "time", "s")), table)["data"]["values"]
    assert len({str(row["x"]) for row in rows}) == 2
    printed = list(describe_points(measured([*pair]), 80, Roof([])))
    assert len({line.split()[0] for line in printed[-2:]}) == 2, printed


def test_a_text_keeps_its_form_where_nothing_looks_like_it() -> None:
    table = Table.of_records(measured(["1", "2", "fast"]), "time")
    assert "'" not in as_text(table) + as_csv(table)


def test_a_comparison_has_a_row_for_each() -> None:
    values = [1, "1", True, "True"]
    records = [*measured(values, machine="A"), *measured(values, machine="B")]
    sides = Side("machine", "A"), Side("machine", "B")
    found, _ = compare(*sides, KnownRecords.of(records), {COMMIT: 0})
    assert len({each.point for each in found}) == 4
    assert summarise(found).startswith("4 values of 4 points")
    headings = [line for line in as_lines(found, 100) if line.startswith("  x=")]
    assert len(headings) == 4


def test_two_versions_of_a_point_are_not_compared_as_one() -> None:
    records = [
        a_record(
            metrics={"time": [seconds] * 5},
            params={"x": 1},
            machine=machine,
            commit=COMMIT,
            version=version,
            started=float(version),
        )
        for machine in "AB"
        for version, seconds in (("1", 1.0), ("2", 2.0))
    ]
    sides = Side("machine", "A"), Side("machine", "B")
    (found,), _ = compare(*sides, KnownRecords.of(records), {COMMIT: 0})
    assert found.a.value == 2.0


def test_the_order_of_parameters_in_a_record_makes_no_other_point(tmp_path: Path) -> None:
    declared = as_declared([1])
    declared["toy.track_time"] |= {"param_names": ["x", "y"], "params": [["1"], ["2"]]}
    records = [
        a_record(metrics={"time": [1.0]}, params=params, commit=COMMIT)
        for params in ({"x": 1, "y": 2}, {"y": 2, "x": 1})
    ]
    history = read(tmp_path, records, declared)
    assert list(history.metrics["toy.track_time"].benchmark.points) == ["x=1, y=2"]
    assert [list(each.params) for each in history.current()] == [["x", "y"]]


def test_a_plain_asv_suite_keeps_none_and_its_text_apart(tmp_path: Path) -> None:
    texts = ["None", "'None'", "1", "'1'", "(1, 2)", "'(1, 2)'"]
    declared = {"suite.track": {"version": "1", "param_names": ["x"], "params": [texts]}}
    folder = tmp_path / "m"
    folder.mkdir()
    (folder / "machine.json").write_text("{}")
    result = {
        "commit_hash": COMMIT,
        "env_name": "e",
        "params": {"machine": "m"},
        "result_columns": ["result", "params", "version"],
        "results": {"suite.track": [list(range(len(texts))), [texts], "1"]},
        "version": 2,
    }
    (folder / f"{COMMIT[:8]}-e.json").write_text(json.dumps(result))
    history = read_history(tmp_path, None, declared, {COMMIT: 0}, {}, pytest.fail)
    metric = history.metrics["suite.track"]
    shown = {label: metric.line(label, "m") for label in metric.benchmark.points}
    assert [line[0][1].value for line in shown.values() if line[0][1]] == [0, 1, 2, 3, 4, 5]


GRIDS = """
from hpml_plugins import Benchmark, Metric, hookimpl

def measure(bench, *, x):
    return {"m": 10.0 if isinstance(x, int) else 20.0}

@hookimpl
def hpml_benchmarks():
    return [Benchmark("mixed", measure, metrics=[Metric("m", "1", "lower")],
                      grid={"x": [1, "1"]}, rounds=1)]
"""


def test_each_is_measured_by_the_command_that_pages_give(
    write: Callable[[str, str], Path], hpml: Callable[..., subprocess.CompletedProcess[str]]
) -> None:
    write("grids.py", GRIDS)
    write("registry.yaml", "version: 1\nplugins:\n  - {name: grids, path: grids.py}\n")
    for value, shown in ((1, "10"), ("1", "20")):
        ended = hpml("run", "mixed", "-p", f"x={format_choice(value)}")
        assert ended.returncode == 0, ended.stderr
        assert ended.stdout.splitlines()[-2:] == ["m", shown]
