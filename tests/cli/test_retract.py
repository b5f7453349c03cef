"""`hpml retract`: which Records it takes, what it says, and that it only appends."""

from __future__ import annotations

import functools
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from records import a_record
from support import call_hpml

from hpml_plugins.model.record import Record
from hpml_plugins.store import append_record, lock_machine, read_file, record_file

Hpml = Callable[..., subprocess.CompletedProcess[str]]
OLD, NEW = "a" * 40, "b" * 40
REASON = ("--reason", "the timer fell\n back")


def record(size: int, commit: str, run: str, started: float, status: str = "ok") -> Record:
    return a_record(
        params={"size": size, "fast": True},
        status=status,
        metrics={"time": [1.0]} if status == "ok" else {},
        commit=commit,
        environment="env",
        run=run,
        started=started,
    )


@pytest.fixture
def hpml(tmp_path: Path) -> Hpml:
    return functools.partial(call_hpml, tmp_path)


@pytest.fixture
def files(tmp_path: Path) -> dict[str, Path]:
    found = {
        commit: record_file(tmp_path / "results", "m", commit) for commit in (OLD, NEW, "")
    }
    for each in (
        record(1, OLD, "run1", 1.0),
        record(1, NEW, "run2", 2.0),
        record(2, NEW, "run2", 3.0),
        record(2, NEW, "run3", 4.0),
        record(3, NEW, "run3", 5.0, "failed"),
        record(4, "", "", 6.0),
    ):
        append_record(found[each.commit], each)
    return found


def statuses(path: Path) -> list[tuple[int, str, str]]:
    return [(int(each.params["size"]), each.run, each.status) for each in read_file(path)]  # type: ignore[arg-type]


def test_one_record_is_chosen_by_commit_params_and_run_and_a_line_is_appended(
    hpml: Hpml, files: dict[str, Path], tmp_path: Path
) -> None:
    before = files[NEW].read_bytes()
    choice = (
        "toy",
        "--commit",
        NEW[:8],
        "--machine",
        "m",
        "-p",
        "size=2",
        "-p",
        "fast=true",
        "--run",
        "run2",
    )
    tried = hpml("retract", *choice, *REASON, "--dry-run")
    origin = "toy size=2, fast=True (m, commit bbbbbbbb, run run2)\n"
    assert (tried.returncode, tried.stdout) == (0, f"would be retracted: {origin}")
    assert files[NEW].read_bytes() == before
    done = hpml("retract", *choice, *REASON)
    assert (done.returncode, done.stdout, done.stderr) == (0, f"retracted: {origin}", "")
    assert files[NEW].read_bytes().startswith(before)
    assert statuses(files[NEW]) == [
        (1, "run2", "ok"),
        (2, "run2", "retracted"),
        (2, "run3", "ok"),
        (3, "run3", "failed"),
    ]
    assert [
        each.reason for each in read_file(files[NEW]) if each.status == "retracted"
    ] == ["the timer fell back"]
    (projected,) = (tmp_path / "results" / "m").glob("bbbbbbbb-env.json")
    assert projected.stat().st_mtime_ns >= files[NEW].stat().st_mtime_ns
    after = files[NEW].read_bytes()
    again = hpml("retract", *choice, *REASON)
    assert (again.returncode, again.stdout) == (0, f"already retracted: {origin}")
    assert files[NEW].read_bytes() == after


def test_several_are_taken_only_when_that_is_said(
    hpml: Hpml, files: dict[str, Path]
) -> None:
    before = {path: path.read_bytes() for path in files.values()}
    refused = hpml("retract", "toy", "-p", "size=1,2", *REASON)
    assert (refused.returncode, refused.stdout) == (2, "")
    assert refused.stderr.startswith(
        "hpml: 4 Records match; choose one with --commit, --machine, --run and -p"
    )
    assert len(refused.stderr.splitlines()) == 1
    assert (
        hpml("retract", "toy", "-p", "size=1,2", *REASON, "--dry-run").stdout.count(
            "would be retracted: "
        )
        == 4
    )
    assert {path: path.read_bytes() for path in files.values()} == before
    done = hpml("retract", "toy", "-p", "size=1,2", *REASON, "--all")
    assert (done.returncode, done.stdout.count("\nretracted: ") + 1) == (0, 4)
    assert {
        status for path in (files[OLD], files[NEW]) for *_, status in statuses(path)
    } == {
        "retracted",
        "failed",
    }
    assert statuses(files[""]) == [(4, "", "ok")]


def test_a_record_without_commit_and_run_can_be_retracted(
    hpml: Hpml, files: dict[str, Path]
) -> None:
    done = hpml("retract", "toy", "-p", "size=4", *REASON)
    assert (
        done.stdout == "retracted: toy size=4, fast=True (m, commit unknown, run unknown)\n"
    )
    assert statuses(files[""]) == [(4, "", "retracted")]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (
            ("toi", *REASON),
            "no measured Record of 'toi' under results; did you mean 'toy'?",
        ),
        (
            ("toy", "-p", "size=3", *REASON),
            "no measured Record of 'toy' under results matches -p size=3",
        ),
        (
            ("toy", "-p", "rows=3", *REASON),
            "no measured Record of 'toy' under results matches -p rows=3",
        ),
        (
            ("toy", "--commit", "ffff", *REASON),
            "no measured Record of 'toy' under results matches --commit ffff",
        ),
        (("toy", "-p", "size", *REASON), "-p 'size' is not KEY=VALUE"),
        (("toy", "--reason", " "), "--reason is empty; say what is wrong with the Record"),
    ],
)
@pytest.mark.usefixtures("files")
def test_what_cannot_be_meant_is_refused_in_one_line(
    hpml: Hpml, words: tuple[str, ...], message: str
) -> None:
    done = hpml("retract", *words)
    assert (done.returncode, done.stdout, len(done.stderr.splitlines())) == (2, "", 1)
    assert message in done.stderr


def test_a_machine_that_is_being_measured_is_left_alone(
    hpml: Hpml, files: dict[str, Path], tmp_path: Path
) -> None:
    before = files[OLD].read_bytes()
    with lock_machine(tmp_path / "results", "m"):
        done = hpml("retract", "toy", "--commit", "aaaa", *REASON)
    assert (done.returncode, done.stdout) == (2, "")
    assert "machine 'm' is being measured" in done.stderr
    assert files[OLD].read_bytes() == before


@pytest.mark.usefixtures("files")
def test_a_machine_without_records_is_refused_with_the_nearest(hpml: Hpml) -> None:
    done = hpml("retract", "toy", "--machine", "mm", *REASON)
    assert (done.returncode, done.stderr) == (
        2,
        "hpml: no Records of machine 'mm'; did you mean 'm'?\n",
    )
