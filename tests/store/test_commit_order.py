"""The order of commits, with those of results that the repository lacks."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest
from records import a_record
from repositories import git, make_repository

from hpml_plugins.asv.stored_history import commit_dates
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


def test_a_commit_is_dated_by_its_author_as_by_asv_without_asking_git_again(
    results: Path,
) -> None:
    repository = results.parent
    rebased = {"GIT_AUTHOR_DATE": "@60 +0000", "GIT_COMMITTER_DATE": f"@{9 * HOUR} +0000"}
    command = ["git", "commit", "-q", "--amend", "--no-edit", "--allow-empty"]
    identity = {
        f"GIT_COMMITTER_{each}": "test@example.invalid" for each in ("NAME", "EMAIL")
    }
    env = {**os.environ, **identity, **rebased}
    subprocess.run([*command, "--date", "@60 +0000"], cwd=repository, env=env, check=True)
    order = commit_order(repository, results)
    asked: list[str] = []

    class Repository:
        def get_date(self, commit: str) -> int:
            asked.append(commit)
            return 5

    first, second, third = in_order(repository)
    ms = 1000.0
    assert commit_dates(Repository(), order) == {
        first: HOUR * ms,
        LOST: 5.0,
        second: 2 * HOUR * ms,
        third: 60 * ms,
    }
    assert asked == [LOST]


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


def commit(repository: Path, name: str) -> str:
    git(repository, "commit", "-q", "--allow-empty", "-m", name)
    return git(repository, "rev-parse", "HEAD")


@pytest.fixture
def pulled(tmp_path: Path) -> dict[str, str]:
    """Hashes by name, of a main that moved to the merge of itself into a branch: there the merge's
    first parent is the branch's commit."""
    make_repository(tmp_path)
    hashes = {"base": commit(tmp_path, "base")}
    git(tmp_path, "checkout", "-q", "-b", "topic")
    hashes["topic"] = commit(tmp_path, "topic")
    git(tmp_path, "checkout", "-q", "main")
    hashes["main"] = commit(tmp_path, "main")
    git(tmp_path, "checkout", "-q", "topic")
    return hashes


@pytest.mark.parametrize("source", ["main", "origin/main"])
def test_a_branch_that_moved_to_its_merge_into_another_was_at_the_second_parent(
    source: str, pulled: dict[str, str], tmp_path: Path
) -> None:
    if source != "main":
        git(tmp_path, "update-ref", "refs/remotes/origin/main", "main")
    git(tmp_path, "merge", "-q", "--no-edit", source)
    git(tmp_path, "checkout", "-q", "main")
    git(tmp_path, "merge", "-q", "--ff-only", "topic")
    last = git(tmp_path, "rev-parse", "main")
    line = [pulled["base"], pulled["main"], last]
    assert list(commit_order(tmp_path, tmp_path / "results", ["main"])) == line
    assert list(commit_order(tmp_path, tmp_path / "results")) == line  # what is checked out
    of_topic = commit_order(tmp_path, tmp_path / "results", ["topic"])
    assert list(of_topic) == [pulled["base"], pulled["topic"], last]


@pytest.mark.parametrize(
    "message",
    [
        "Merge branch 'main' of https://host.example/other into topic",
        "Merge branch 'mains' into topic",
        "Merge what main has",
    ],
)
def test_any_other_merge_goes_on_from_its_first_parent(
    message: str, pulled: dict[str, str], tmp_path: Path
) -> None:
    git(tmp_path, "merge", "-q", "-m", message, "main")
    git(tmp_path, "checkout", "-q", "main")
    git(tmp_path, "merge", "-q", "--ff-only", "topic")
    order = commit_order(tmp_path, tmp_path / "results", ["main"])
    assert list(order) == [
        pulled["base"],
        pulled["topic"],
        git(tmp_path, "rev-parse", "main"),
    ]
