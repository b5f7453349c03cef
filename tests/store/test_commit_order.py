"""The order of commits, with those of results that the repository lacks."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from records import a_record
from repositories import git, make_repository

from hpml_plugins.store import (
    append_record,
    commit_order,
    current_records,
    project,
    read_records,
    record_file,
)

HOUR = 3600
LOST = "c" * 40


@pytest.fixture
def results(tmp_path: Path) -> Path:
    """Of a repository with commits at 1, 2 and 3 h: Records of the first, and of one of 1.5 h that
    it lacks."""
    results = tmp_path / "results"
    make_repository(tmp_path)
    for hour in (1, 2, 3):
        git(
            tmp_path,
            "commit",
            "-q",
            "--allow-empty",
            "-m",
            "x",
            date=f"@{hour * HOUR} +0000",
        )
    for commit, hour, seconds in ((in_order(tmp_path)[0], 2.5, 1.0), (LOST, 1.5, 2.0)):
        record = a_record(
            started=hour * HOUR,
            duration=1.0,
            metrics={"time": [seconds]},
            commit=commit,
            environment="env",
            run="r",
            node={},
        )
        append_record(record_file(results, "m", commit), record)
    project(results)
    return results


def in_order(repository: Path) -> list[str]:
    command = ["git", "rev-list", "--reverse", "main"]
    return subprocess.run(
        command, cwd=repository, capture_output=True, text=True, check=True
    ).stdout.split()


def test_a_commit_that_the_repository_lacks_is_placed_by_its_date(results: Path) -> None:
    first, second, third = in_order(results.parent)
    assert list(commit_order(results.parent, results)) == [first, LOST, second, third]


def test_without_a_repository_the_dates_of_results_order_all(results: Path) -> None:
    (results.parent / ".git").rename(results.parent / "gone")
    first, second = commit_order(results.parent, results)
    assert (len(first), second) == (40, LOST)


def test_the_record_of_a_commit_that_the_repository_lacks_stands_behind_those_of_the_line(
    results: Path,
) -> None:
    stored, order = list(read_records(results)), commit_order(results.parent, results)
    (current,) = current_records(stored, order)
    assert current.commit == in_order(results.parent)[0]
    (alone,) = current_records([each for each in stored if each.commit == LOST], order)
    assert alone.commit == LOST
