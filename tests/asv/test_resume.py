"""An `asv run` that is killed outright and resumed gives what one that was left alone gives."""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import killing
import pytest
from asv_project import SQUARES, Project, of_eight_points
from msgspec.structs import replace
from records import a_record
from support import assert_nothing_lost, wait_for

from hpml_plugins import Node
from hpml_plugins.asv.driver import _PointResult, measure_commit
from hpml_plugins.asv.run import AsvTask, Prepared
from hpml_plugins.host import make_host
from hpml_plugins.model.rounds import retract
from hpml_plugins.node import unmet
from hpml_plugins.registry import read_registry
from hpml_plugins.report.progress import RunReport
from hpml_plugins.store import append_record, read_file
from hpml_plugins.suite.points import _standing, leave_record, make_suite, record_of

#: Points that lack a file by a requirement, or find that out themselves.
LACKING = """
from pathlib import Path
from hpml_plugins import Benchmark, Metric, Requires, hookimpl

FILE = Path(__file__).with_name("file")

def why_no_file(node, params):
    return "" if FILE.exists() or not params["declared"] else "needs the file"

def measure(bench, *, declared):
    if not FILE.exists():
        bench.skip("there is no file")
    return {"time": 1.0}

@hookimpl
def hpml_benchmarks():
    return [
        Benchmark("lacking", measure, [Metric("time", "s", "lower")],
                  grid={"declared": [True, False]}, requires=Requires(also=[why_no_file]), rounds=1)
    ]
"""


@pytest.fixture(scope="module")
def project(make_project: Callable[[str], Project]) -> Project:
    """A project whose commit is built, without results."""
    return of_eight_points(make_project)


def outcome(project: Project) -> dict[str, Any]:
    (file,) = project.path.glob("results/*/*-node-*.json")
    stored = json.loads(file.read_text())
    return {name: row[0] for name, row in stored["results"].items()}


def kill_and_resume(
    project: Project, wait: Callable[[], object], expected: dict[str, object]
) -> int:
    """Kill a run once `wait` returns, resume it, and hold it against the expected. Returns the
    Records kept."""
    results = project.path / "results"
    shutil.rmtree(results, ignore_errors=True)
    running = killing.start(project.path, project.home, "asv", "run")
    wait()
    running.kill()  # asv alone: what it started ends with it
    running.wait()
    killing.wait_until_gone(project.path)
    killing.whole_files(results)
    kept = killing.records_below(results)

    done = project.asv("run", "--skip-existing")
    assert done.returncode in (0, 2), done.stdout + done.stderr
    assert outcome(project) == expected
    (path,) = results.glob("*/records/*.jsonl")
    damage: list[str] = []
    records = list(read_file(path, damage.append))
    assert damage == []
    assert sorted(int(record.params["number"]) for record in records) == list(range(1, 9))
    assert all(record.is_complete for record in records)
    assert_nothing_lost(kept, records)
    return len(kept)


def wait_for_records(project: Project, count: int) -> None:
    """Wait until a run has stored so many Records. The clock would not do: a busy machine takes its
    time."""
    results = project.path / "results"
    wait_for(lambda: len(killing.records_below(results)) >= count, f"{count} records")


def expected_of(project: Project) -> dict[str, object]:
    shutil.rmtree(project.path / "results", ignore_errors=True)
    assert project.asv("run").returncode == 2  # one point fails by design
    expected = outcome(project)
    assert expected["slow.track_square"] == SQUARES
    return expected


def test_a_run_killed_in_its_middle_resumes_to_the_same_results(project: Project) -> None:
    expected = expected_of(project)
    for count in (1, 4):
        kept = kill_and_resume(project, lambda: wait_for_records(project, count), expected)  # noqa: B023
        assert count <= kept < 8


def test_a_retracted_point_has_no_value_and_is_measured_again(project: Project) -> None:
    expected = expected_of(project)
    (path,) = project.path.glob("results/*/records/*.jsonl")
    before = path.read_bytes()
    retracted = project.run(
        sys.executable,
        "-m",
        "hpml_plugins",
        "retract",
        "slow",
        "-p",
        "number=4",
        "--reason",
        "a fault of the timer",
    )
    assert retracted.returncode == 0, retracted.stderr
    missing = [
        number
        for number, value in enumerate(outcome(project)["slow.track_square"], 1)
        if value != value
    ]
    assert missing == [4]
    assert project.asv("run", "--skip-existing").returncode in (0, 2)
    assert outcome(project) == expected
    assert path.read_bytes().startswith(before)
    of_four = [record for record in read_file(path) if record.params["number"] == 4]
    assert [(record.status, record.reason) for record in of_four] == [
        ("retracted", "a fault of the timer"),
        ("ok", ""),
    ]
    assert of_four[0].run != of_four[1].run
    assert len(list(read_file(path))) == 9


def test_behind_a_retracted_record_the_one_of_an_earlier_run_stands(tmp_path: Path) -> None:
    right = a_record("b", run="first", started=1.0)
    wrong = replace(right, run="second", started=2.0)
    for record in (right, wrong, retract(wrong, "a fault of the timer")):
        append_record(tmp_path / "records.jsonl", record)
    suite: Any = SimpleNamespace(run="third", reuse=["ok"])
    stored = list(read_file(tmp_path / "records.jsonl"))
    assert _standing(suite, stored, "") == right


def test_a_skipped_point_is_measured_by_the_next_run_whose_node_meets_its_requirement(
    tmp_path: Path, node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "lacking.py").write_text(LACKING)
    registry = tmp_path / "registry.yaml"
    registry.write_text("version: 1\nplugins:\n  - {name: lacking, path: lacking.py}\n")
    commit = "a" * 40
    monkeypatch.setenv("ASV_COMMIT", commit)
    monkeypatch.setenv("HPML_RESULTS", str(tmp_path / "results"))

    def run(name: str, reuse: list[str]) -> tuple[list[bool], list[tuple[object, str]]]:
        """The points that were started anew, and all that is stored."""
        host = make_host(
            read_registry(registry), unmet=lambda *point: unmet(*point, node=node)
        )
        assert not host.broken, host.broken
        suite = make_suite(host, node, "m", tmp_path / name, reuse=reuse)
        (declared,) = suite.benchmarks
        tasks = [
            AsvTask(
                {"name": "lacking.track_time", "params": [[]]}, number, declared, params
            )
            for number, params in enumerate(declared.points())
        ]
        started: list[bool] = []

        def measure(task: AsvTask, _: float) -> _PointResult:
            record = record_of(suite, task.declared, task.params)
            leave_record(suite, record)
            if record.run == suite.run:
                started.append(bool(task.params["declared"]))
            return _PointResult()

        prepared = Prepared(tmp_path / name, host, suite, RunReport(), tasks)
        measured = measure_commit(prepared, measure, commit, "")
        assert len(measured) == len(tasks)
        (file,) = tmp_path.glob("results/m/records/*.jsonl")
        stored = [(record.params["declared"], record.status) for record in read_file(file)]
        return started, sorted(stored)

    everything = ["ok", "failed"]
    skipped = [(False, "skipped"), (True, "skipped")]
    assert run("first", []) == ([False], skipped)
    assert run("still lacking", everything) == ([], skipped)
    (tmp_path / "file").touch()
    met = sorted([*skipped, (True, "ok")])
    assert run("met", everything) == ([True], met)
    assert run("complete", everything) == ([], met)
    # what only the point itself finds out is not known without starting it
    assert sorted(run("without --skip-existing", [])[0]) == [False, True]
