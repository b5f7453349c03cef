"""A disk that is full, and results that may not be written: one line, exit status 2, and what was
finished is kept."""

from __future__ import annotations

import json
import os
import resource
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import killing
import pytest
from asv_project import Project
from msgspec.structs import replace
from records import a_record
from small_disk import READ_ONLY, SMALL, run_on
from support import ROOT, assert_nothing_lost

from hpml_plugins.errors import Unwritable
from hpml_plugins.plugins.harness.publish import configure, make_history
from hpml_plugins.store import append_record, read_file

REGISTRY = "version: 1\nplugins:\n  - {name: large, path: large.py}\n"
#: Each Record is of 60 kB.
PLUGIN = """
    from hpml_plugins import Benchmark, Metric, hookimpl

    def measure(bench, *, number):
        print("measured", number)
        bench.series("much", {"value": [number + 1 / 3] * 3000}, {"value": "1"})
        return {"square": number ** 2}

    @hookimpl
    def hpml_benchmarks():
        return [Benchmark("large", measure, [Metric("square", "1", "lower")], grid={"number": list(range(1, 13))})]
"""  # noqa: E501


@pytest.fixture(scope="module")
def project(make_project: Callable[[str], Project]) -> Project:
    project = make_project(REGISTRY)
    project.write("large.py", PLUGIN)
    project.commit("large")
    return project


def one_line(done: subprocess.CompletedProcess[str], said: str) -> None:
    assert "Traceback" not in done.stdout + done.stderr, done.stdout + done.stderr
    lines = [
        line
        for line in done.stderr.splitlines()
        if line.startswith("hpml: ") and "hpml: load" not in line
    ]
    assert len(lines) == 1 and said in lines[0], done.stdout + done.stderr
    assert done.returncode == 2


@pytest.mark.slow
def test_asv_run_on_a_full_disk_keeps_what_is_finished_and_goes_on_later(
    project: Project, tmp_path: Path
) -> None:
    results, kept = project.path / "results", tmp_path / "kept"
    shutil.rmtree(results, ignore_errors=True)
    done = run_on(
        SMALL, results, project.path, project.home, "asv", "run", size=256 << 10, kept=kept
    )
    one_line(
        done,
        "cannot write the Record: No space left on device; free space or fix permissions;"
        " measured points are kept",
    )
    killing.whole_files(kept)
    finished = killing.records_below(kept)
    # three rounds of twelve points
    assert 0 < sum(record.measured_rounds for record in finished) < 36
    assert not list(
        kept.glob("*/*-node-*.json")
    )  # else asv would take the commit for measured

    shutil.copytree(kept, results, dirs_exist_ok=True)
    again = project.asv("run", "--skip-existing")
    assert again.returncode == 0, again.stdout + again.stderr
    records = killing.records_below(results)
    assert_nothing_lost(finished, records)
    assert sorted(int(record.params["number"]) for record in records) == list(range(1, 13))
    print(
        f"asv run on a full disk: {sum(record.measured_rounds for record in finished)} of 36 rounds"
        " kept"
    )


def test_asv_run_with_read_only_results_measures_nothing(project: Project) -> None:
    results = project.path / "results"
    results.mkdir(exist_ok=True)
    before = {path: path.read_bytes() for path in results.rglob("*") if path.is_file()}
    done = run_on(READ_ONLY, results, project.path, project.home, "asv", "run")
    one_line(done, "Read-only file system")
    assert "[" not in done.stdout  # no point was begun
    assert {
        path: path.read_bytes() for path in results.rglob("*") if path.is_file()
    } == before


def test_hpml_run_record_keeps_what_is_finished(project: Project, tmp_path: Path) -> None:
    target, kept = project.path / "elsewhere", tmp_path / "kept"
    words = ("hpml_plugins", "run", "large", "--record", str(target / "r.jsonl"))
    one_line(
        run_on(
            SMALL, target, project.path, project.home, *words, size=256 << 10, kept=kept
        ),
        "cannot write the Record: No space left on device",
    )
    finished = list(read_file(kept / "r.jsonl"))
    assert 0 < sum(record.measured_rounds for record in finished) < 36
    assert {record.status for record in finished} == {"ok"}
    refused = run_on(READ_ONLY, target, project.path, project.home, *words, "--json")
    one_line(refused, "cannot be written: Read-only file system")
    assert refused.stdout == ""  # nothing was measured for nothing


@pytest.mark.slow
def test_hpml_publish_leaves_the_results_alone_and_works_when_there_is_room(
    tmp_path: Path,
) -> None:
    project, home = tmp_path / "project", tmp_path / "home"
    project.mkdir()
    make_history(project, 4, machines=1, benchmarks=2, points=2)
    configure(project)
    words = ("hpml_plugins", "publish", "-o", "out/html")
    # what asv reads is not there yet, and cannot be written: our pages are of the Records
    done = run_on(READ_ONLY, project / "results", project, home, *words)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "asv's own pages and commands may lack the newest results" in done.stdout
    killing.finish(killing.start(project, home, *words), home)
    before = {path: path.read_bytes() for path in (project / "results").rglob("*.json")}
    (project / "news.md").write_text("a reason to publish again")
    one_line(
        run_on(SMALL, project / "out", project, home, *words, size=64 << 10),
        "No space left on device",
    )
    one_line(
        run_on(READ_ONLY, project / "out", project, home, *words), "Read-only file system"
    )
    plain = run_on(
        SMALL,
        project / "out",
        project,
        home,
        "asv",
        "publish",
        "-o",
        "out/html",
        size=64 << 10,
    )
    one_line(plain, "No space left on device")
    assert {
        path: path.read_bytes() for path in (project / "results").rglob("*.json")
    } == before
    killing.finish(killing.start(project, home, *words), home)
    (project / "news.md").write_text("another reason")
    # results may be read-only for who publishes: nothing of it is written
    done = run_on(READ_ONLY, project / "results", project, home, *words)
    assert done.returncode == 0, done.stdout + done.stderr


def test_hpml_merge_keeps_what_it_wrote_and_is_done_again(tmp_path: Path) -> None:
    into, kept, home = tmp_path / "into", tmp_path / "kept", tmp_path / "home"
    source = tmp_path / "source"
    for machine in ("h100-80gb-hbm3-x2", "h200-x2", "h200-x4"):
        shutil.copytree(ROOT / "results" / machine, source / machine)
    words = ("hpml_plugins", "merge", str(source), "--into", str(into))
    one_line(
        run_on(SMALL, into, tmp_path, home, *words, size=2 << 20, kept=kept),
        "cannot be written: No space left on device; free space or fix permissions",
    )
    files = killing.whole_files(kept)
    damage: list[str] = []
    records = [
        record
        for path in kept.glob("*/records/*.jsonl")
        for record in read_file(path, damage.append)
    ]
    assert files and damage == [] and not list(kept.rglob("*.partial"))
    one_line(run_on(READ_ONLY, into, tmp_path, home, *words), "Read-only file system")
    shutil.copytree(kept, into, dirs_exist_ok=True)
    killing.finish(killing.start(tmp_path, home, *words), home)
    whole = {
        line
        for path in source.glob("*/records/*.jsonl")
        for line in path.read_bytes().splitlines()
    }
    found = {
        line
        for path in into.glob("*/records/*.jsonl")
        for line in path.read_bytes().splitlines()
    }
    assert found == whole
    print(
        f"hpml merge on a full disk: {files} whole files and {len(records)} Records kept; all later"
    )


def test_a_quota_in_the_middle_of_a_record_costs_that_record(tmp_path: Path) -> None:
    path = tmp_path / "records.jsonl"
    record = a_record(params={"size": 1}, reason="x" * 300)
    append_record(path, record)
    whole = path.stat().st_size
    child = os.fork()
    if not child:
        resource.setrlimit(resource.RLIMIT_FSIZE, (whole + whole // 2, whole + whole // 2))
        try:
            append_record(path, record)
        except Unwritable as error:
            os._exit(7 if "cannot write the Record" in str(error) else 8)
        os._exit(9)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
    assert path.stat().st_size == whole + whole // 2
    again = replace(record, started=1.0)
    append_record(path, again)
    damage: list[str] = []
    assert list(read_file(path, damage.append)) == [record, again]
    assert len(damage) == 1
    assert json.loads(path.read_bytes().splitlines()[0])["reason"] == "x" * 300
