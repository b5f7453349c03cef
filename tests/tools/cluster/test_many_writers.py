"""One results folder on a shared file system, many nodes writing at once, some of them killed."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import writing_nodes
from asv_project import Project

from hpml_plugins.store import lock_machine


def test_sixteen_writers_and_kills_at_random_lose_nothing_that_was_finished(
    tmp_path: Path,
) -> None:
    done = writing_nodes.run(tmp_path, machines=16, rounds=3, kills=24, seed=1)
    assert done.lost == []
    assert done.kills > 0


@pytest.mark.slow
def test_two_hundred_kills_lose_nothing(tmp_path: Path) -> None:
    kills = runs = 0
    while kills < 200:
        done = writing_nodes.run(
            tmp_path / str(runs), machines=16, rounds=6, kills=200 - kills, seed=runs
        )
        assert done.lost == []
        kills, runs = kills + done.kills, runs + 1
    print(f"{kills} kills of writers in {runs} folders of 16 machines; nothing lost")


def test_a_machine_started_twice_is_refused_and_nothing_of_it_is_touched(
    make_project: Callable[[str], Project],
) -> None:
    project = make_project("version: 1\nplugins:\n  - {name: toy, path: toy.py}\n")
    with lock_machine(project.path / "results", "node"):
        done = project.asv("run", "--machine", "node")
        assert done.returncode == 75
        assert "machine 'node' is being measured: held by" in done.stderr
        assert "Traceback" not in done.stdout + done.stderr
        assert not (project.path / "results/node/machine.json").exists()
        assert project.asv("machine", "--machine", "node", "--yes").returncode == 0
    command = [
        sys.executable,
        "-m",
        "hpml_plugins",
        "machine",
        "--name",
        "node",
        "--dry-run",
    ]
    assert (
        subprocess.run(
            command, cwd=project.path, capture_output=True, check=False
        ).returncode
        == 0
    )


@pytest.mark.slow
def test_publishing_grows_no_faster_than_the_nodes(
    make_project: Callable[[str], Project],
) -> None:
    project = make_project("version: 1\nplugins:\n  - {name: toy, path: toy.py}\n")
    assert project.asv("run").returncode == 0
    (source,) = [path.parent for path in project.path.glob("results/*/machine.json")]
    seconds, made = {}, 1
    for nodes in (250, 500, 1000):
        for number in range(made, nodes):
            copy_machine(source, source.with_name(f"n{number}"))
        made = nodes
        started = children_seconds()
        done = project.asv("publish")
        seconds[nodes] = children_seconds() - started
        assert done.returncode == 0, done.stderr
    print(
        "asv publish: "
        + ", ".join(
            f"{nodes} nodes {taken:.1f} s of CPU" for nodes, taken in seconds.items()
        )
    )
    # four times the nodes; were it quadratic, 16 times the time
    assert seconds[1000] < 8 * seconds[250]


def children_seconds() -> float:
    """CPU time of the processes that this one has started and that have ended, s."""
    times = os.times()
    return times.children_user + times.children_system


def copy_machine(source: Path, target: Path) -> None:
    for path in source.rglob("*.json*"):
        copy = target / path.relative_to(source)
        copy.parent.mkdir(parents=True, exist_ok=True)
        copy.write_text(path.read_text().replace(f'"{source.name}"', f'"{target.name}"'))
