"""Links, FIFOs, sockets, devices and huge files among results: named once, left out, never read or
waited for."""

from __future__ import annotations

import json
import os
import signal
import socket
import stat
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from asv import util
from click.testing import CliRunner
from records import a_record

from hpml_plugins.asv import patches
from hpml_plugins.cli.results import export, merge
from hpml_plugins.errors import HpmlError, Unwritable, UsageError
from hpml_plugins.report.reading import read_history
from hpml_plugins.store import (
    append_record,
    lock_machine,
    merge_results,
    project,
    read_object,
    read_records,
    record_file,
    record_files,
)
from hpml_plugins.store.history import result_files, stored_dates
from hpml_plugins.tools.cluster.job import RunRequest
from hpml_plugins.tools.cluster.jobs import JobOrder, find_jobs, write_file
from hpml_plugins.tools.cluster.side_by_side import SideBySide, _Queue

COMMIT = "0123456789abcdef" * 2 + "01234567"
RECORD = a_record(commit=COMMIT)
FACTS = {"machine": "m", "version": 1}


def device(path: Path) -> None:
    os.mknod(path, 0o600 | stat.S_IFCHR, os.makedev(1, 5))  # /dev/zero


def bound_socket(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(os.path.relpath(path))


def sparse(path: Path) -> None:
    with path.open("wb") as file:
        file.truncate(1 << 40)


#: what lies there → how it is made
KINDS: dict[str, Callable[[Path], None]] = {
    "a FIFO": os.mkfifo,
    "a symbolic link": lambda path: path.symlink_to("/dev/zero"),
    "a socket": bound_socket,
    "and the limit is": sparse,
} | ({"a device": device} if os.geteuid() == 0 else {})


@pytest.fixture(autouse=True)
def in_time(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[None]:
    """Whoever waits for a FIFO or reads /dev/zero is ended."""
    monkeypatch.chdir(tmp_path)  # a socket's path is at most 108 bytes long

    def fail(*_: object) -> None:
        raise AssertionError("still reading after 20 s")

    before = signal.signal(signal.SIGALRM, fail)
    signal.alarm(20)
    yield
    signal.alarm(0)
    signal.signal(signal.SIGALRM, before)


@pytest.fixture
def results(tmp_path: Path) -> Path:
    """A machine with one Record; every kind of file in the place of Records, of a result file and
    of a machine."""
    folder = tmp_path / "results"
    append_record(record_file(folder, "m", COMMIT), RECORD)
    (folder / "m" / "machine.json").write_text(json.dumps(FACTS))
    for number, make in enumerate(KINDS.values()):
        make(folder / "m" / "records" / f"{number:08}.jsonl")
        make(folder / "m" / f"{number:08}-env.json")
        (folder / f"other{number}").mkdir()
        make(folder / f"other{number}" / "machine.json")
    (folder / "linked").symlink_to(folder / "m")
    (folder / "benchmarks.json").symlink_to("/dev/zero")
    return folder


def test_records_are_read_without_them_and_each_is_named_once(results: Path) -> None:
    said: list[str] = []
    assert [record.benchmark for record in read_records(results, said.append)] == ["toy"]
    for number, kind in enumerate(KINDS):
        (line,) = [line for line in said if f"records/{number:08}.jsonl" in line]
        assert kind in line
    assert sum("results/linked: a symbolic link" in line for line in said) == 1
    assert len(said) == len(KINDS) + 1
    published: list[str] = []
    read_history(results, None, {}, {}, {}, published.append)
    assert published == said


def test_export_ends_and_leaves_them_out(results: Path) -> None:
    done = CliRunner().invoke(
        export, ["records.parquet", "--results", str(results)], standalone_mode=False
    )
    assert done.exception is None, done.output
    assert "records.parquet: 1 row\n" in done.output
    assert sum("ignored" in line for line in done.output.splitlines()) == len(KINDS) + 1


def test_merge_names_them_and_merges_the_rest(results: Path) -> None:
    done = CliRunner().invoke(
        merge, [str(results), "--into", "into"], standalone_mode=False
    )
    said = done.output.splitlines()
    assert "m  1 new record" in said
    for number, kind in enumerate(KINDS):
        for place in (
            f"m/records/{number:08}.jsonl",
            f"m/{number:08}-env.json",
            f"other{number}/machine.json",
        ):
            (line,) = [line for line in said if place in line]
            assert kind in line
    assert {path.name for path in Path("into").rglob("*.json*")} >= {
        "machine.json",
        "01234567.jsonl",
    }


def nest(folder: Path, levels: int) -> None:
    """Folders in each other, deeper than a path can name."""
    folder.mkdir()
    held = os.open(folder, os.O_RDONLY)
    for _ in range(levels):
        os.mkdir("d" * 200, dir_fd=held)
        inner = os.open("d" * 200, os.O_RDONLY, dir_fd=held)
        os.close(held)
        held = inner
    os.close(held)


@pytest.mark.parametrize("place", [".", "m", "m/records", "m/records/deep"])
def test_folders_nested_beyond_what_a_path_names_are_named_and_the_rest_is_merged(
    place: str, tmp_path: Path
) -> None:
    theirs = tmp_path / "theirs"
    append_record(record_file(theirs, "m", COMMIT), RECORD)
    (theirs / "m" / "records" / "deep").mkdir()
    nest(theirs / place / "nested", 40)
    (theirs / place / "nested" / "note").write_text("")
    report = merge_results([theirs], tmp_path / "into")
    assert report.records == {"m": 1}
    too_deep = [each for each in report.skipped if "deeper than results are" in each]
    assert too_deep and max(map(len, report.skipped)) < 1000


def test_what_lies_in_the_way_of_a_merge_is_put_aside_not_replaced(results: Path) -> None:
    into = results.parent / "into"
    (into / "m" / "records").mkdir(parents=True)
    sparse(into / "m" / "records" / "01234567.jsonl")  # stands for a real one of that size
    os.mkfifo(into / "m" / "machine.json")
    done = CliRunner().invoke(
        merge, [str(results), "--into", str(into)], standalone_mode=False
    )
    assert "m  1 new record" in done.output
    assert (into / "m" / "records" / "01234567.jsonl.damaged").stat().st_size == 1 << 40
    assert (into / "m" / "machine.json.damaged").is_fifo()
    assert read_object(into / "m" / "machine.json")["machine"] == "m"


def test_publishing_leaves_them_out_and_asv_names_them(results: Path) -> None:
    assert project(results) != []
    assert stored_dates(result_files(results)).keys() == {COMMIT}
    original = patches.load_json
    for number, kind in enumerate(KINDS):
        with pytest.raises(util.UserError) as caught:
            original(util.load_json, str(results / "m" / f"{number:08}-env.json"))
        assert kind in str(caught.value)
    with pytest.raises(util.UserError, match="a symbolic link"):
        original(util.load_json, str(results / "benchmarks.json"), api_version=2)


def test_jobs_leaves_them_out_and_names_them(tmp_path: Path) -> None:
    (tmp_path / "good").mkdir()
    write_file(tmp_path / "good", JobOrder("desk", "desk", "local", "elsewhere", id="1"))
    os.mkfifo(tmp_path / "good" / "1_0_log.out")
    for number, make in enumerate(KINDS.values()):
        (tmp_path / f"bad{number}").mkdir()
        make(tmp_path / f"bad{number}" / "order.json")
    said: list[str] = []
    assert [job.target for job in find_jobs(tmp_path, said.append)] == ["desk"]
    assert len(said) == len(KINDS)


def test_a_queue_of_a_job_gets_a_copy_without_them(results: Path, tmp_path: Path) -> None:
    large = [*KINDS.values()].index(sparse)
    (
        results / "m" / "records" / f"{large:08}.jsonl"
    ).unlink()  # a regular file, which is copied
    (results / "m" / f"{large:08}-env.json").unlink()
    job = SideBySide(str(tmp_path / "job"), "m", RunRequest(str(tmp_path), str(results)))
    (tmp_path / "job").mkdir()
    queue = _Queue(0, "", (COMMIT,))
    job._prepare(queue)
    copied = [
        path for path in (tmp_path / "job" / queue.name).rglob("*") if not path.is_dir()
    ]
    assert {path.name for path in copied} == {"machine.json", "01234567.jsonl"}


def test_no_record_is_written_into_a_fifo_and_no_lock_waits_for_one(tmp_path: Path) -> None:
    (tmp_path / "m" / "records").mkdir(parents=True)
    os.mkfifo(record_file(tmp_path, "m", COMMIT))
    with pytest.raises(Unwritable):
        append_record(record_file(tmp_path, "m", COMMIT), RECORD)
    os.mkfifo(tmp_path / "m" / ".lock")
    with pytest.raises(HpmlError, match=r"\.lock: a FIFO"):
        lock_machine(tmp_path, "m")


@pytest.mark.parametrize(
    "name", ["../../x", "..", ".", "", "a/b", "/etc", ".hidden", "a\n", "a\0b"]
)
def test_a_machine_is_a_name_of_a_folder_in_results(name: str, tmp_path: Path) -> None:
    results = tmp_path / "deep" / "results"
    for use in (
        lambda: lock_machine(results, name),
        lambda: record_file(results, name, COMMIT),
    ):
        with pytest.raises(UsageError, match="machine name"):
            use()
    assert not list(tmp_path.iterdir())
    assert record_files(results) == []
