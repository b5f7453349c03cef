"""One Record that is not to be believed costs itself alone: merge, pull, publish and retract go on
and name it."""

from __future__ import annotations

import ast
import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import hostile
import pytest
from click.testing import CliRunner
from hostile import COMMIT, GOOD, MACHINE
from repositories import make_repository
from support import ROOT

from hpml_plugins.asv.publisher import MOST_PROBLEMS
from hpml_plugins.cli import group
from hpml_plugins.errors import HpmlError
from hpml_plugins.store import merge_results, project, read_records
from hpml_plugins.store.files import atomic_write, path_in
from hpml_plugins.store.projection import result_file

pytestmark = pytest.mark.usefixtures("no_wait_for_the_disk")

VARIANTS = list(hostile.variants())
#: Points that are measured right, before and after what is refused.
RIGHT = [{**GOOD, "params": {"n": number}} for number in (101, 102)]
FACTS = {"machine": MACHINE, "version": 1}
CONFIGURATION = {
    "version": 1,
    "project": "made",
    "repo": ".",
    "branches": ["main"],
    "environment_type": "node",
    "plugins": [".hpml_plugins.asv"],
    "project_url": "#",
    "show_commit_url": "#",
}
DECLARED = {
    "name": "toy.track_time",
    "benchmark": "toy",
    "metric": "time",
    "plugin": "toy",
    "version": "1",
    "unit": "seconds",
    "si_unit": "s",
    "direction": "lower",
    "param_names": ["n"],
    "params": [["101", "102"]],
    "code": "",
    "type": "track",
    "timeout": 60.0,
}


def put(results: Path, *records: dict[str, Any]) -> Path:
    """These Records between two right ones, in the file of the good Record."""
    file = results / MACHINE / "records" / f"{COMMIT[:8]}.jsonl"
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(b"".join(map(hostile.line_of, (RIGHT[0], *records, RIGHT[1]))))
    (results / MACHINE / "machine.json").write_text(json.dumps(FACTS))
    return file


def project_of_ours(folder: Path) -> Path:
    """A project with a registry and results of another machine, which nothing may touch."""
    ours = folder / "results" / "ours"
    ours.mkdir(parents=True)
    (ours / "machine.json").write_text('{"machine": "ours", "version": 1}')
    (folder / "registry.json").write_text("{}")
    (folder / "registry.yaml").write_text("version: 1\nplugins: []\n")
    (folder / "asv.conf.json").write_text(json.dumps(CONFIGURATION))
    (folder / "results" / "benchmarks.json").write_text(
        json.dumps({"toy.track_time": DECLARED, "version": 2})
    )
    make_repository(folder, "results")
    return folder


def outside(folder: Path, *inside: str) -> dict[str, bytes]:
    """Every file of a folder by its place, but for those in these places."""
    files = {
        path.relative_to(folder).as_posix(): path
        for path in folder.rglob("*")
        if path.is_file()
    }
    return {
        place: path.read_bytes()
        for place, path in files.items()
        if not place.startswith(inside)
    }


def right_ones(results: Path) -> list[object]:
    return [
        record.params["n"]
        for record in read_records(results)
        if record.params.get("n") in (101, 102)
    ]


def test_each_of_them_is_named_by_a_merge_and_nothing_else_is_lost_or_touched(
    tmp_path: Path,
) -> None:
    mine = project_of_ours(tmp_path / "mine")
    before = outside(tmp_path, "theirs")
    for number, (what, record) in enumerate(VARIANTS):
        file = put(tmp_path / "theirs" / "results", record)
        into = mine / "results" / f"into{number}"
        report = merge_results([tmp_path / "theirs"], into)
        assert [f"{file}:2: " in line for line in report.skipped] == [True], (
            what,
            report.skipped,
        )
        assert right_ones(into) == [101, 102], what
        names = {path.name for path in into.rglob("*") if path.is_file()}
        assert names == {
            ".lock",
            "machine.json",
            f"{COMMIT[:8]}.jsonl",
            f"{COMMIT[:8]}-existing-py3.11.json",
        }, what
    assert outside(tmp_path, "theirs", "mine/results/into") == before
    print(f"merge: {len(VARIANTS)} hostile Records, each named, none taken")


def test_all_of_them_are_named_by_a_pull_of_a_folder_and_of_a_repository(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mine, theirs = project_of_ours(tmp_path / "mine"), tmp_path / "theirs"
    put(theirs / "results", *(record for _, record in VARIANTS))
    make_repository(theirs, "results")
    monkeypatch.chdir(mine)
    before = outside(tmp_path, "mine/results/lab")
    for number, address in enumerate((str(theirs), f"file://{theirs}")):
        done = CliRunner().invoke(
            group, ["pull", address, "--as", f"lab{number}"], standalone_mode=False
        )
        assert (done.exception, done.return_value) == (None, 1), done.output
        named = set(
            re.findall(rf"{COMMIT[:8]}\.jsonl:(\d+): not a complete Record", done.stderr)
        )
        assert named == {str(line) for line in range(2, len(VARIANTS) + 2)}
        assert [record.params["n"] for record in read_records(mine / "results")] == [
            101,
            102,
        ] * (number + 1)
    after = outside(tmp_path, "mine/results/lab")
    assert {place for place in after if before.get(place) != after[place]} <= {
        "mine/results/benchmarks.json",
        "mine/results/.benchmarks.lock",
    }
    print(
        f"pull: {len(VARIANTS)} hostile Records of a folder and of a git repository, each named,"
        " none taken"
    )


def test_those_that_are_already_here_stop_no_command_and_stay_in_their_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mine = project_of_ours(tmp_path / "mine")
    file = put(mine / "results", *(record for _, record in VARIANTS))
    lines = file.read_bytes().splitlines(keepends=True)
    before = outside(tmp_path, "mine/results", "mine/html")
    assert project(mine / "results", force=True) != []

    done = _hpml(mine, "publish")
    assert (done.returncode, "Traceback" in done.stderr) == (0, False), (
        done.stderr + done.stdout
    )[-2000:]
    said = done.stdout + done.stderr
    named = set(re.findall(rf"{COMMIT[:8]}\.jsonl:(\d+): not a complete Record", said))
    assert named == {str(line) for line in range(2, 2 + MOST_PROBLEMS)}
    assert f"{len(VARIANTS) - MOST_PROBLEMS} further problems" in said
    assert (mine / "html" / "index.html").exists()

    theirs = tmp_path / "theirs" / "results"
    put(theirs)
    other = {**GOOD, "params": {"n": 103}}
    (theirs / MACHINE / "records" / file.name).write_bytes(hostile.line_of(other))
    done = _hpml(mine, "merge", theirs)
    assert (done.returncode, "Traceback" in done.stderr) == (1, False), done.stderr[-2000:]
    kept = file.read_bytes().splitlines(keepends=True)
    assert set(kept) == {*lines, hostile.line_of(other)}
    assert len(kept) == len(lines) + 1

    done = _hpml(mine, "retract", "toy", "-p", "n=101", "--reason", "bad")
    assert (done.returncode, "retracted: toy n=101" in done.stdout) == (0, True), (
        done.stderr[-2000:]
    )
    statuses = {
        record.params["n"]: record.status for record in read_records(mine / "results")
    }
    assert statuses == {101: "retracted", 102: "ok", 103: "ok"}
    written = (
        "mine/results",
        "mine/html",
        "mine/.asv",
        "mine/.cache",
        "mine/env",
        "theirs",
    )
    assert outside(tmp_path, *written) == before
    print(
        f"publish, merge, retract: {len(VARIANTS)} hostile Records in the way, none in the way of"
        " the rest"
    )


def _hpml(folder: Path, *words: object) -> subprocess.CompletedProcess[str]:
    env = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("HPML_", "ASV_"))
    }
    command = [sys.executable, "-m", "hpml_plugins", *map(str, words)]
    env["HOME"] = str(folder)
    return subprocess.run(
        command,
        cwd=folder,
        env=env,
        capture_output=True,
        text=True,
        errors="replace",
        stdin=subprocess.DEVNULL,
    )


def test_records_that_cannot_be_written_together_are_named_and_the_rest_is_written(
    tmp_path: Path,
) -> None:
    """Of one benchmark and version, with other parameters, and with a grid that no table holds."""
    wide = [
        {**GOOD, "benchmark": "wide", "params": {f"p{axis}": n for axis in range(8)}}
        for n in range(6)
    ]
    odd = [{**GOOD, "params": {"other": number}} for number in range(1)]
    put(tmp_path, *wide, *odd)
    said: list[str] = []
    (written,) = project(tmp_path, on_damage=said.append)
    assert json.loads(written.read_text())["results"]["toy.track_time"][1] == [
        ["101", "102"]
    ]
    assert any(
        "1 Record of toy with other parameters than the rest; left out" in line
        for line in said
    )
    assert any("the grid of wide has 1.68e+06 points" in line for line in said)


def test_a_record_that_fails_to_be_projected_costs_itself_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever the fault is: here one that nobody has foreseen."""
    from hpml_plugins.store import projection

    rows = projection._rows_of_benchmark

    def fragile(benchmark: str, records: Any, *more: Any) -> Any:
        if any(record.params.get("n") == 7 for record in records):
            raise OverflowError("seven")
        return rows(benchmark, records, *more)

    monkeypatch.setattr(projection, "_rows_of_benchmark", fragile)
    put(tmp_path, {**GOOD, "params": {"n": 7}})
    said: list[str] = []
    (written,) = project(tmp_path, on_damage=said.append)
    assert json.loads(written.read_text())["results"]["toy.track_time"][1] == [
        ["101", "102"]
    ]
    assert [line.partition("json: ")[2] for line in said] == [
        "the Record of toy {'n': 7} is left out: OverflowError: seven"
    ]


@pytest.mark.parametrize(
    "name", [*hostile.PATHS, *hostile.TEXTS, "", "a" * 256, "é" * 128, "\ud800"]
)
def test_no_name_leads_out_of_its_folder(tmp_path: Path, name: str) -> None:
    with pytest.raises(HpmlError, match="cannot name a file or folder below"):
        path_in(tmp_path, name)
    with pytest.raises(HpmlError):
        path_in(tmp_path, "m1", name)
    assert path_in(tmp_path, "m1", "a b", "ü" * 100).parent.parent.parent == tmp_path


def test_a_result_file_is_where_asv_looks_for_it(tmp_path: Path) -> None:
    from asv.results import get_filename

    for environment in ("existing-py3.11", "a" * 127, "a" * 128, "a" * 200, "é" * 100, ""):
        assert str(result_file(tmp_path / "m", COMMIT, environment)) == get_filename(
            str(tmp_path / "m"), COMMIT, environment
        )
    # with a longer name while it is written
    atomic_write(result_file(tmp_path, COMMIT, "é" * 100), b"{}")


def _joined_paths(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """Places where a path is made of what is not a constant: `folder / name`, `joinpath`,
    `with_name`, `Path(a, b)`."""
    for node in ast.walk(tree):
        parts: list[ast.expr] = []
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Div):
            parts = [node.right]
        elif isinstance(node, ast.Call):
            name = (
                node.func.attr
                if isinstance(node.func, ast.Attribute)
                else getattr(node.func, "id", "")
            )
            if name in ("joinpath", "with_name", "with_suffix", "with_stem"):
                parts = list(node.args)
            elif name == "Path":
                parts = list(node.args[1:])
        for part in parts:
            text = ast.unparse(part)
            constant = isinstance(part, ast.Constant) or text.isupper()
            if not constant:
                yield part.lineno, ast.unparse(node)


#: Of these the name is this project's own or was found in a folder; all others are built by
#: `path_in`.
OWN = {
    "store/files.py": {
        "folder.joinpath(*names)",  # path_in itself
        "path.with_name(f'.{name}{ending}')",
        "project / place",  # of the project's own asv.conf.json
        "place / entry.name",  # what is found there, by walk_results
        "folder / place",
        "folder / inner",
    },
    "tools/pull/command.py": {"source / place"},
    "store/merge.py": {
        "source / place",  # a file that was found there
        "target.with_name(f'{target.name}.damaged')",
    },
}


def test_only_one_function_makes_paths_of_what_others_wrote() -> None:
    modules = [
        *(ROOT / "hpml_plugins" / "store").glob("*.py"),
        *(ROOT / "hpml_plugins/tools/pull").glob("*.py"),
    ]
    assert len(modules) > 8
    found = []
    for module in modules:
        place = module.relative_to(ROOT / "hpml_plugins").as_posix()
        for line, text in _joined_paths(ast.parse(module.read_text(encoding="utf-8"))):
            if text not in OWN.get(place, set()) and not _is_number(text):
                found.append(f"{place}:{line}: {text}")
    assert found == []


def _is_number(text: str) -> bool:
    """A quotient, not a path: sizes and times are divided too."""
    return bool(
        re.search(r"\b(size|limit|total|MAX_\w+|MOST_\w+|seconds|1e\d|1000)\b", text)
    )
