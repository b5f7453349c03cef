"""A site published again, with what was kept of the last publish, equals one published from
nothing."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
from repositories import git
from site_history import A100, FLOP, H200, LAPTOP, TIME, Project, around

from hpml_plugins.model.rounds import retract
from hpml_plugins.model.serialization import decode
from hpml_plugins.store import append_record, record_files

#: What differs between two publishes of the same: file → its keys.
OF_THE_PUBLISH = {
    "info.json": ("timestamp",),
    "manifest.json": ("made_of",),
    "summary.json": ("written",),
}
WRITTEN = re.compile(rb"<updated>[^<]*</updated>")


def measure(
    project: Project, machine: Mapping[str, str], day: int, started: float, seconds: float
) -> None:
    values = {TIME["name"]: [around(seconds * factor) for factor in (1, 2, 300, 400)]}
    project.add(machine, day, values, started=started, code="c")


def a_new_run(project: Project) -> None:
    measure(project, H200, 3, 99.0, 3e-5)


def a_new_machine(project: Project) -> None:
    measure(project, A100, 3, 4.0, 2e-5)


def a_new_commit(project: Project) -> None:
    git(project.folder, "commit", "-q", "--allow-empty", "-m", "new")
    moment = int(git(project.folder, "show", "-s", "--format=%ct"))
    project.commits.append((git(project.folder, "rev-parse", "HEAD"), 1000 * moment))
    measure(project, H200, -1, 200.0, 1e-5)


def a_retracted_record(project: Project) -> None:
    file = record_files(project.results)[0]
    record = decode(file.read_bytes().splitlines()[0])
    append_record(file, retract(record, "the clock was wrong"))


def a_merged_file(project: Project) -> None:
    """Another order of lines, with one more: as of two branches of the results."""
    file = record_files(project.results)[0]
    lines = file.read_bytes().splitlines(keepends=True)
    lines.append(lines[0].replace(b'"started":', b'"started":1'))
    file.write_bytes(b"".join(lines[::-1]))


def a_changed_plugin(project: Project) -> None:
    (project.folder / "registry.yaml").write_text(
        "version: 1\nplugins:\n  - {name: course, module: hpml_plugins.plugins.course}\n"
    )


def a_second_branch(project: Project) -> None:
    """Of commits that were measured when no branch of the site had them."""
    file = project.folder / "asv.conf.json"
    conf = json.loads(file.read_text())
    file.write_text(json.dumps({**conf, "branches": ["main", "topic"]}))


def contents(site: Path) -> dict[str, bytes | dict[str, Any]]:
    found: dict[str, bytes | dict[str, Any]] = {}
    for path in site.rglob("*"):
        if path.is_file():
            name = path.relative_to(site).as_posix()
            # the feed says when it was written
            found[name] = WRITTEN.sub(b"", path.read_bytes(), count=1)
            if keys := OF_THE_PUBLISH.get(name):
                values = json.loads(path.read_bytes())
                found[name] = {key: values[key] for key in values if key not in keys}
    return found


@pytest.mark.slow
@pytest.mark.parametrize(
    "change",
    [
        a_new_run,
        a_new_machine,
        a_new_commit,
        a_retracted_record,
        a_merged_file,
        a_changed_plugin,
        a_second_branch,
    ],
)
def test_a_site_published_after_a_change_is_the_one_published_from_nothing(
    project: Project, change: Callable[[Project], None]
) -> None:
    for day in range(4):
        measure(project, H200, day, float(day), 1e-5)
    project.add(LAPTOP, 0, {FLOP["name"]: [8.2e9]})
    git(project.folder, "checkout", "-q", "-b", "topic", "HEAD^")
    a_new_commit(project)
    git(project.folder, "checkout", "-q", "main")
    del project.commits[-1]
    project.publish()
    before = contents(project.html)
    (flop,) = project.html.glob("workload/resnet50*/0.js")
    made = flop.stat().st_ino
    kept = {each.name for each in (project.folder / ".cache" / "hpml").iterdir()}
    assert {"charts", "evidence", "levels", "readings"} <= kept
    change(project)
    assert "Nothing has changed" not in project.publish()
    again = contents(project.html)
    assert again != before
    if change is a_new_run:  # of another benchmark
        assert flop.stat().st_ino == made
    shutil.rmtree(project.html)
    shutil.rmtree(project.folder / ".cache")
    project.publish()
    anew = contents(project.html)
    assert again.keys() == anew.keys()
    assert [name for name in anew if again[name] != anew[name]] == []
