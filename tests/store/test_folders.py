"""Whole folders merged through the command, with what real nodes leave behind."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner
from support import ROOT

from hpml_plugins.cli.results import merge as command
from hpml_plugins.errors import UsageError
from hpml_plugins.store import Locked, lock_machine, merge_results

pytestmark = pytest.mark.usefixtures("no_wait_for_the_disk")


def tree(folder: Path) -> dict[str, bytes]:
    """Every file by its place; Records in one order: a retraction is appended, a merge sorts by
    time."""
    files = (
        path
        for path in folder.rglob("*")
        if path.is_file() and not path.name.startswith(".")
    )
    found = {path.relative_to(folder).as_posix(): path.read_bytes() for path in files}
    lines = {
        place: sorted(content.splitlines())
        for place, content in found.items()
        if place.endswith(".jsonl")
    }
    return found | {place: b"\n".join(each) for place, each in lines.items()}


def torn(source: Path, to: Path) -> list[Path]:
    """A results folder torn into three clones that overlap: no clone has all."""
    clones = [to / f"clone{number}" for number in range(3)]
    for number, clone in enumerate(clones):
        shutil.copytree(source, clone, ignore=shutil.ignore_patterns(".*"))
        for place, path in enumerate(sorted(clone.glob("*/*-node-*.json"))):
            if place % 3 == number:
                path.unlink()
        for path in clone.glob("*/records/*.jsonl"):
            lines = path.read_bytes().splitlines(keepends=True)
            kept = [line for place, line in enumerate(lines) if place % 3 != number]
            path.write_bytes(b"".join(kept))
            if not kept:  # no clone has a file without a Record
                path.unlink()
        declared = json.loads((clone / "benchmarks.json").read_text())
        for place, name in enumerate(sorted(set(declared) - {"version"})):
            if place % 3 == number:
                del declared[name]
        (clone / "benchmarks.json").write_text(json.dumps(declared))
    return clones


#: With one GPU, with several, and with none.
MACHINES = ("h200-x1", "h200-x2", "cpu-intel-xeon-x2")


@pytest.fixture
def some(tmp_path: Path) -> Path:
    """Three commits of three machines of the project's own results."""
    results = ROOT / "results"
    commits = {
        name: {
            path.stem for path in sorted((results / name / "records").glob("*.jsonl"))[:3]
        }
        for name in MACHINES
    }

    def others(folder: str, names: list[str]) -> set[str]:
        machine = Path(folder).relative_to(results).parts[:1]
        if not machine:
            return {name for name in names if (results / name).is_dir()} - set(MACHINES)
        known = commits[machine[0]]
        return {name for name in names if name[:8] not in (*known, "machine.", "records")}

    return Path(shutil.copytree(results, tmp_path / "some", ignore=others))


@pytest.fixture
def parts(some: Path, tmp_path: Path) -> list[Path]:
    """The same, torn."""
    return torn(some, tmp_path)


@pytest.mark.parametrize("whole", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_clones_come_together_to_the_whole_in_any_order_and_twice(
    some: Path, tmp_path: Path, whole: bool
) -> None:
    source = ROOT / "results" if whole else some
    parts = torn(source, tmp_path)
    order, into = [parts[2], parts[0], parts[1], parts[0]], tmp_path / "into"
    assert merge_results(order, into).skipped == []
    assert tree(into) == tree(source)
    assert merge_results(order, into).files == []


def test_a_dry_run_writes_nothing_and_the_command_says_what_came(
    parts: list[Path], tmp_path: Path
) -> None:
    into = tmp_path / "into"
    done = CliRunner().invoke(
        command, [str(parts[0]), "--into", str(into), "--dry-run"], standalone_mode=False
    )
    assert (done.return_value, into.exists()) == (0, False)
    assert "files would be written" in done.output
    done = CliRunner().invoke(
        command, [str(parts[0]), "--into", str(into)], standalone_mode=False
    )
    assert "new records" in done.output


def test_damaged_and_foreign_files_are_named_and_the_rest_is_merged(
    parts: list[Path], tmp_path: Path
) -> None:
    source, into = parts[0], tmp_path / "into"
    machine = source / "h200-x1"
    (machine / "0bad0bad-env.json").write_text('{"results": ')
    (machine / "notes.txt").write_text("mine")
    (source / "elsewhere").mkdir()
    (source / "elsewhere" / "readme").write_text("")
    records = next(machine.glob("records/*.jsonl"))
    with records.open("ab") as file:
        file.write(b'{"benchmark": "half')
    report = merge_results([source], into)
    said = "\n".join(report.skipped)
    assert "0bad0bad-env.json: cannot be read" in said
    assert "notes.txt: not a result" in said
    assert "elsewhere/readme: not a result" in said
    assert f"{records}:" in said and "no line break at its end" in said
    assert len(report.skipped) == 4
    assert len(list(into.glob("*/records/*.jsonl"))) == len(
        list(source.glob("*/records/*.jsonl"))
    )


def test_a_damaged_file_in_the_way_is_put_aside_and_replaced(
    parts: list[Path], tmp_path: Path
) -> None:
    into = tmp_path / "into"
    merge_results([parts[0]], into)
    before = tree(into)
    (into / "benchmarks.json").write_text("{")
    victim = into / next(parts[0].glob("*/*-node-*.json")).relative_to(parts[0])
    victim.write_text("[]")
    report = merge_results([parts[0]], into)
    assert len(report.skipped) == 2 and all("renamed to" in said for said in report.skipped)
    after = tree(into)
    assert {
        name: data for name, data in after.items() if not name.endswith(".damaged")
    } == before
    assert after["benchmarks.json.damaged"] == b"{"


def test_another_machines_files_in_a_folder_are_not_taken_for_this_ones(
    parts: list[Path], tmp_path: Path
) -> None:
    machine = parts[0] / "h200-x1"
    machine.rename(parts[0] / "other")
    report = merge_results([parts[0]], tmp_path / "into")
    assert not list((tmp_path / "into" / "other").glob("**/*.json*"))
    assert any("it is of machine 'h200-x1'" in said for said in report.skipped)
    assert any("Records of another machine" in said for said in report.skipped)


def test_a_machine_that_is_being_measured_is_not_merged_into(
    parts: list[Path], tmp_path: Path
) -> None:
    into = tmp_path / "into"
    with (
        lock_machine(into, "h200-x1"),
        pytest.raises(
            Locked, match=r"machine 'h200-x1' is being measured: held by .*process"
        ),
    ):
        merge_results([parts[0]], into)


def test_a_folder_without_results_is_said(
    tmp_path: Path, write: Callable[[str, str], Path]
) -> None:
    write("notes/a.txt", "")
    with pytest.raises(UsageError, match="no results here"):
        merge_results([tmp_path / "notes"], tmp_path / "into")


def test_of_a_published_project_only_its_results_are_merged(tmp_path: Path) -> None:
    machine, project = "h100-80gb-hbm3-x1", tmp_path / "project"
    shutil.copytree(ROOT / "results" / machine, project / "results" / machine)
    records = next((ROOT / "results" / machine / "records").glob("*.jsonl"))
    (project / "html" / "records").mkdir(parents=True)
    shutil.copy(
        records, project / "html" / "records" / "0.jsonl"
    )  # the site has such files too
    report = merge_results([project], tmp_path / "into")
    assert (list(report.records), report.skipped) == ([machine], [])
    assert [path.name for path in (tmp_path / "into").iterdir() if path.is_dir()] == [
        machine
    ]
