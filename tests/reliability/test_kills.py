"""SIGKILL at random moments of each command that writes: nothing finished is lost, and the next one
works."""

from __future__ import annotations

import json
import os
import random
import re
import shutil
import signal
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import killing
import pytest
from asv_project import SQUARES, Project, of_eight_points
from support import ROOT

from hpml_plugins.model.record import Record
from hpml_plugins.plugins.harness.publish import configure, make_history
from hpml_plugins.store import read_file

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def project(make_project: Callable[[str], Project]) -> Project:
    """A project of eight points, its commit built, without results."""
    return of_eight_points(make_project)


def hold_complete(project: Project) -> None:
    """Every point is there once, in asv's results and as a Record, with the right numbers."""
    (file,) = project.path.glob("results/*/*-node-*.json")
    assert json.loads(file.read_text())["results"]["slow.track_square"][0] == SQUARES
    (path,) = project.path.glob("results/*/records/*.jsonl")
    damage: list[str] = []
    records = list(read_file(path, damage.append))
    assert damage == []
    assert sorted(int(record.params["number"]) for record in records) == list(range(1, 9))


def kill_until_done(
    project: Project,
    words: tuple[str, ...],
    seconds: float,
    dice: random.Random,
    kill: Callable[[int], object] | None,
) -> list[int]:
    """Start it, kill it, start it again, until one ends by itself. The Records that each kill
    found."""
    results, home = project.path / "results", project.home
    shutil.rmtree(results, ignore_errors=True)
    kept: list[Record] = []
    found: list[int] = []
    while True:
        running = killing.start(project.path, home, *words)
        # Most of the time goes into starting: half of the moments lie behind the next Record.
        moment = dice.uniform(0, seconds)
        if dice.random() < 0.5:
            while running.poll() is None and len(killing.rounds_below(results)) == len(
                kept
            ):
                time.sleep(0.02)
            moment = dice.uniform(0, 1)
        # at most ten in a row, so that a busy machine completes some too
        if len(found) == 10 or not killing.kill_after(running, moment, kill):
            killing.finish(running, home, 0, 1, 2)
            break
        if kill is None:
            killing.wait_until_gone(project.path)
        killing.whole_files(results)
        before, kept = kept, killing.rounds_below(results)
        assert kept[: len(before)] == before
        found.append(len(killing.records_below(results)))
    return found


def test_kills_of_asv_run_lose_no_finished_point(project: Project) -> None:
    dice, home = killing.dice(1), project.home
    words = ("asv", "run", "--skip-existing")
    # one point fails by design
    seconds = killing.finish(killing.start(project.path, home, *words), home, 2)
    found: list[int] = []
    rounds = 0
    while len(found) < killing.kills_of("run"):
        found += kill_until_done(project, words, seconds, dice, None)
        hold_complete(project)
        rounds += 1
    spread = ", ".join(
        f"{count}: {times}" for count, times in sorted(Counter(found).items())
    )
    print(
        f"asv run: {len(found)} kills over {seconds:.1f} s, {rounds} runs completed; points of 8"
        f" kept at them: {spread}"
    )
    assert any(0 < count < 8 for count in found)


def test_kills_of_hpml_submit_lose_no_finished_point(project: Project) -> None:
    dice, home = killing.dice(2), project.home
    (project.path / "cluster.yaml").write_text(
        "version: 1\ntargets:\n  - {name: desk, executor: local}\n"
    )
    words = ("hpml_plugins", "submit", "--yes", "--skip-existing")
    shutil.rmtree(project.path / "results", ignore_errors=True)
    seconds = killing.finish(killing.start(project.path, home, *words), home, 0, 1)
    whom: Counter[str] = Counter()

    def kill(pid: int) -> None:
        """The whole session; or what it started alone, and it ends by itself; or it alone, and the
        job goes on."""
        of_asv = [
            number
            for number, line in killing.command_lines(project.path).items()
            if "-m asv run" in line
        ]
        way = dice.choice(["all", "all", "asv" if of_asv else "all", "submit"])
        whom[way] += 1
        if way == "asv":
            os.kill(of_asv[0], signal.SIGKILL)
        elif way == "submit":
            os.kill(pid, signal.SIGKILL)
        else:
            os.killpg(pid, signal.SIGKILL)

    found: list[int] = []
    rounds = 0
    while len(found) < killing.kills_of("submit"):
        found += kill_until_done(project, words, seconds, dice, kill)
        # a job whose submitter alone was killed goes on
        killing.wait_until_gone(project.path)
        killing.finish(killing.start(project.path, home, *words), home, 0, 1)
        hold_complete(project)
        rounds += 1
        for folder in (project.path / "cluster-jobs").iterdir():
            killing.whole_files(folder)
    shown = killing.start(project.path, home, "hpml_plugins", "jobs")
    killing.finish(shown, home, 0, 1)
    assert "Traceback" not in (home / "said").read_text()
    spread = ", ".join(f"{way} {times}" for way, times in sorted(whom.items()))
    print(
        f"hpml submit: {len(found)} kills over {seconds:.1f} s (of {spread}), {rounds} submissions"
        " completed"
    )


TIMED = ("info.json",)  # says when it was written
#: When a site was written, and a digest of all that is in its project, other sites too. A feed of
#: nothing was updated now.
UPDATED = re.compile(
    rb'<updated>[^<]*</updated></feed>|"written": "[^"]*"|"made_of":"[^"]*"'
)


def site(folder: Path) -> dict[str, bytes]:
    return {
        path.relative_to(folder).as_posix(): UPDATED.sub(b"", path.read_bytes())
        for path in folder.rglob("*")
        if path.is_file() and path.name not in TIMED
    }


def test_kills_of_hpml_publish_leave_nothing_wrong(tmp_path: Path) -> None:
    dice = killing.dice(3)
    project, home = tmp_path / "project", tmp_path / "home"
    project.mkdir()
    home.mkdir()
    make_history(project, 6, machines=2, benchmarks=2, points=2)
    configure(project)
    words = ("hpml_plugins", "publish", "-o", "html")
    seconds = killing.finish(killing.start(project, home, *words), home)
    results = sorted(project.glob("results/node*/*-node-py3.12.json"))
    killed = rounds = files = 0
    while killed < killing.kills_of("publish"):
        for _ in range(4):
            # that there is something new to work out and to remember
            changed = dice.choice(results)
            facts = json.loads(changed.read_text())
            row = facts["results"]["made00.track_time"]
            row[0] = [row[0][0] * dice.uniform(0.5, 2), 7]
            changed.write_text(json.dumps(facts))
            before = {
                path: path.read_bytes() for path in (project / "results").rglob("*.json")
            }
            killed += killing.kill_after(
                killing.start(project, home, *words), dice.uniform(0, seconds)
            )
            assert {
                path: path.read_bytes() for path in (project / "results").rglob("*.json")
            } == before
            if (project / "html").exists():
                files += killing.whole_files(project / "html")
        killing.finish(killing.start(project, home, *words), home)
        killing.finish(
            killing.start(project, home, "asv", "publish", "-o", "scratch"), home
        )
        assert site(project / "html") == site(project / "scratch")
        rounds += 1
    print(
        f"hpml publish: {killed} kills over {seconds:.1f} s; {files} JSON files held to be whole; "
        f"{rounds} sites afterwards, each the same as from scratch"
    )


def test_kills_of_hpml_merge_leave_nothing_wrong(tmp_path: Path) -> None:
    dice = killing.dice(4)
    source, into, home = tmp_path / "clone", tmp_path / "into", tmp_path / "home"
    home.mkdir()
    shutil.copytree(ROOT / "results", source, ignore=shutil.ignore_patterns(".*"))
    words = ("hpml_plugins", "merge", str(source), "--into", str(into))
    seconds = killing.finish(killing.start(tmp_path, home, *words), home)
    whole = tree(into)
    found: list[int] = []
    rounds = 0
    while len(found) < killing.kills_of("merge"):
        shutil.rmtree(into)
        known: set[bytes] = set()
        while True:
            # most of the time goes into imports: half of the moments lie behind the first file
            # written
            running = killing.start(tmp_path, home, *words)
            if dice.random() < 0.5:
                while running.poll() is None and not any(into.glob("*/machine.json")):
                    pass
            enough = len(found) >= (rounds + 1) * 10
            if enough or not killing.kill_after(
                running, dice.uniform(0, seconds / (1 + dice.random() * 9))
            ):
                killing.finish(running, home)
                break
            killing.whole_files(into)
            lines = {
                line
                for path in into.glob("*/records/*.jsonl")
                for line in path.read_bytes().splitlines(True)
            }
            assert known <= lines and all(line.endswith(b"\n") for line in lines)
            known = lines
            found.append(
                sum(1 for path in into.rglob("*.json*") if not path.name.startswith("."))
            )
        assert tree(into) == whole
        assert not list(into.rglob("*.partial"))
        rounds += 1
    between = sum(0 < count < len(whole) for count in found)
    print(
        f"hpml merge: {len(found)} kills over {seconds:.1f} s, {between} of them between the first"
        f" of {len(whole)} files and the last; {rounds} merges completed, each the whole"
    )
    assert between


def tree(folder: Path) -> dict[str, bytes]:
    files = (
        path
        for path in folder.rglob("*")
        if path.is_file() and not path.name.startswith(".")
    )
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in files}
