"""A merge says what it does to points that are stored here, and asks before it does it."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from msgspec.structs import replace
from records import a_record

from hpml_plugins.cli import group
from hpml_plugins.errors import HpmlError, UsageError
from hpml_plugins.model.record import Record
from hpml_plugins.model.rounds import DISPUTED, retract
from hpml_plugins.store import append_record, merge_results, read_records, record_file

COMMIT = "a" * 40


def record(
    size: int, seconds: float = 1.0, started: float = 1.7e9, run: str = "r1", **more: object
) -> Record:
    found = a_record(
        params={"size": size},
        started=started,
        metrics={"time": [seconds]},
        commit=COMMIT,
        environment="env",
        run=run,
        planned_rounds=3,
    )
    return replace(found, **more)


def put(results: Path, *records: Record) -> Path:
    for each in records:
        append_record(record_file(results, each.machine, each.commit), each)
    return results


@pytest.fixture
def ours(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Four points of one run."""
    monkeypatch.chdir(tmp_path)
    return put(tmp_path / "results", *(record(size) for size in range(4)))


def merge(*words: str, answer: str = "") -> Result:
    return CliRunner().invoke(group, ["merge", *words], standalone_mode=False, input=answer)


def test_a_file_that_this_user_may_not_read_is_left_alone(
    ours: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    theirs = put(tmp_path / "theirs", record(9, started=1.71e9, run="r2"))
    stored = record_file(ours, record(0).machine, COMMIT)
    before = stored.read_bytes()
    may = os.access
    monkeypatch.setattr(
        os, "access", lambda path, mode: Path(path) != stored and may(path, mode)
    )
    with pytest.raises(
        HpmlError, match="nothing was merged; fix its permissions"
    ) as caught:
        merge_results([theirs], ours)
    # a job of several queues removes a folder whose merge is a UsageError: it has no results
    assert not isinstance(caught.value, UsageError)
    assert stored.read_bytes() == before
    assert not list(ours.rglob("*.damaged"))


def medians(results: Path) -> dict[object, float | None]:
    return {each.params["size"]: each.value("time") for each in read_records(results)}


#: What a clone brings of point 0, and what is said of it.
CHANGES = {
    "its retraction": (
        retract(record(0), "theirs"),
        "1 retraction, 0 points changed, 0 conflicts",
        None,
    ),
    "a later round": (
        record(0, 3.0, 1.7e9 + 5),
        "0 retractions, 1 point changed, 0 conflicts",
        2.0,
    ),
    "a failed round": (
        record(0, started=1.7e9 + 5, status="failed", reason="broke", metrics={}),
        "0 retractions, 1 point changed, 0 conflicts",
        None,
    ),
    "an edited copy": (record(0, 9.0), "0 retractions, 0 points changed, 1 conflict", None),
}


@pytest.mark.parametrize("what", CHANGES)
def test_what_changes_our_points_is_counted_and_not_done_without_consent(
    ours: Path, what: str
) -> None:
    theirs, said, median = CHANGES[what]
    put(Path("theirs/results"), theirs, record(7))
    before = {path: path.read_bytes() for path in ours.rglob("*.json*")}
    done = merge("theirs")
    assert isinstance(done.exception, UsageError)
    assert f"the merge would cause {said}; nothing was merged; use --yes" in str(
        done.exception
    )
    assert "of m, run r1" in done.output
    assert {path: path.read_bytes() for path in ours.rglob("*.json*")} == before
    done = merge("theirs", "--yes")
    assert done.exception is None
    assert "m  2 new records" in done.output and said in done.output
    assert medians(ours) == {0: median, 1: 1.0, 2: 1.0, 3: 1.0, 7: 1.0}
    assert "0 files written" in merge("theirs").output  # nothing is left to ask


def test_new_records_need_no_consent(ours: Path) -> None:
    """Of other points, of another run of a point, of another commit, of another machine."""
    others = [
        record(8),
        record(0, 2.0, 1.7e9 + 100, run="r2"),
        record(0, 2.0, commit="b" * 40),
        record(0, machine="n"),
    ]
    put(Path("theirs/results"), *others, record(1))
    done = merge("theirs")
    assert (done.exception, done.return_value) == (None, 0)
    assert "m  3 new records" in done.output and "changed" not in done.output
    assert len(list(read_records(ours))) == 8


def test_of_two_records_of_one_round_neither_counts_wherever_they_come_from(
    ours: Path,
) -> None:
    put(Path("one/results"), record(9, 1.0))
    put(Path("other/results"), record(9, 5.0))
    report = merge_results([Path("one"), Path("other")], ours)
    assert report.consequences == "0 retractions, 0 points changed, 1 conflict"
    (disputed,) = [each for each in read_records(ours) if each.params["size"] == 9]
    assert (disputed.status, disputed.reason, disputed.metrics) == (
        "retracted",
        DISPUTED,
        {},
    )
    lines = record_file(ours, "m", COMMIT).read_bytes().splitlines()
    assert len(lines) == 6  # both are kept
    assert merge_results([Path("other"), Path("one")], ours).files == []


def test_a_dry_run_says_the_same_and_asks_nothing(ours: Path) -> None:
    put(Path("theirs/results"), retract(record(2), "theirs"))
    done = merge("theirs", "--dry-run")
    assert (done.exception, done.return_value) == (None, 0)
    assert "retracted: toy size=2 of m, run r1: theirs" in done.output
    assert medians(ours)[2] == 1.0
