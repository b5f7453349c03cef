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

from hpml_plugins.model.rounds import retract
from hpml_plugins.store import append_record, read_file
from hpml_plugins.suite.points import _standing


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
