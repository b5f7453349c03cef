"""`hpml publish` again gives what a publish from scratch gives, whatever changed and however the last one ended."""

from __future__ import annotations

import json
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from hpml_plugins.plugins.harness.made_history import History, make_history
from hpml_plugins.plugins.harness.publish import configure

REMEMBERED = ".asv/published"
#: Both say when they were written.
TIMED = ("gpus.html", "info.json")
HALF = "{ half"
#: A feed of nothing was updated now.
_UPDATED = re.compile(rb"<updated>[^<]*</updated></feed>")


@pytest.fixture
def made(tmp_path: Path) -> Path:
    make_history(tmp_path, History(6, machines=2, benchmarks=2, points=2))
    configure(tmp_path)
    return tmp_path


def started(project: Path, *words: str) -> subprocess.Popen[str]:
    env = {**os.environ, "HOME": str(project), "PYTHONSAFEPATH": "1"}
    env["PYTHONPATH"] = os.pathsep.join(filter(None, sys.path))
    out = subprocess.PIPE
    command = [sys.executable, "-m", *words]
    return subprocess.Popen(
        command, cwd=project, env=env, stdout=out, stderr=subprocess.STDOUT, text=True, start_new_session=True
    )


def published(project: Path, *words: str) -> tuple[dict[str, bytes], str]:
    """The site's files but for those that say when, and what was said."""
    running = started(project, *words)
    said, _ = running.communicate(timeout=120)
    assert running.returncode == 0, said
    html = project / words[-1]
    return {
        str(path.relative_to(html)): _UPDATED.sub(b"", path.read_bytes())
        for path in html.rglob("*")
        if path.is_file() and path.name not in TIMED
    }, said


def scratch(project: Path) -> dict[str, bytes]:
    return published(project, "asv", "publish", "-o", "scratch")[0]


def again(project: Path) -> dict[str, bytes]:
    return published(project, "hpml_plugins", "publish", "-o", "html")[0]


def results(project: Path) -> list[Path]:
    return sorted(project.glob("results/node*/*-node-py3.12.json"))


def change_one(project: Path) -> None:
    """A result whose bytes are others, its parameters in another order, and its time the same."""
    path = results(project)[3]
    facts = json.loads(path.read_text())
    row = facts["results"]["made00.track_time"]
    row[0] = [row[0][0] * 1.5, 7]
    facts["params"] = dict(reversed(facts["params"].items()))
    stamp = path.stat()
    path.write_text(json.dumps(facts))
    os.utime(path, ns=(stamp.st_atime_ns, stamp.st_mtime_ns))


def add_one(project: Path) -> None:
    """The same commit measured in another environment, one point of it not."""
    path = results(project)[2]
    facts = json.loads(path.read_text())
    facts["env_name"] = "node-py3.13"
    facts["results"]["made01.track_bandwidth"][0] = [float("nan"), 3e11]
    path.with_name(path.name.replace("py3.12", "py3.13")).write_text(json.dumps(facts))


def remove_one(project: Path) -> None:
    results(project)[0].unlink()


def damage_one(project: Path) -> None:
    results(project)[1].write_text(HALF)


def add_commit(project: Path) -> None:
    """A commit, and its result on one machine."""
    who = ["-c", "user.name=t", "-c", "user.email=t@example.invalid", "-c", "commit.gpgsign=false"]
    subprocess.run(["git", *who, "commit", "-q", "--allow-empty", "-m", "more"], cwd=project, check=True)
    said = subprocess.run(["git", "log", "-1", "--format=%H %ct"], cwd=project, check=True, capture_output=True)
    commit, seconds = said.stdout.decode().split()
    facts = json.loads(results(project)[-1].read_text())
    facts |= {"commit_hash": commit, "date": 1000 * int(seconds)}
    results(project)[-1].with_name(f"{commit[:8]}-node-py3.12.json").write_text(json.dumps(facts))


def add_benchmark(project: Path) -> None:
    """One without parameters and with whole numbers, too large for 64 bits; measured once."""
    declared = project / "results/benchmarks.json"
    facts = json.loads(declared.read_text())
    name = "more.track_count"
    facts[name] = {**facts["made00.track_time"], "name": name, "params": [], "param_names": [], "unit": "count"}
    declared.write_text(json.dumps(facts))
    path = results(project)[-1]
    facts = json.loads(path.read_text())
    facts["results"][name] = [[10**30], [], "1", 0, 1.0]
    path.write_text(json.dumps(facts))


def add_failing(project: Path) -> None:
    """One that never gave a number: a graph of nothing."""
    declared = project / "results/benchmarks.json"
    facts = json.loads(declared.read_text())
    name = "more.track_failing"
    facts[name] = {**facts["made00.track_time"], "name": name}
    declared.write_text(json.dumps(facts))
    path = results(project)[-1]
    facts = json.loads(path.read_text())
    facts["results"][name] = [None, *facts["results"]["made00.track_time"][1:]]
    path.write_text(json.dumps(facts))


def change_grid(project: Path) -> None:
    declared = project / "results/benchmarks.json"
    facts = json.loads(declared.read_text())
    facts["made00.track_time"]["params"] = [["2", "1"]]
    facts["made01.track_bandwidth"]["version"] = "2"
    declared.write_text(json.dumps(facts))


def add_machine(project: Path) -> None:
    """One with a fact that the others do not have: all graphs are called otherwise."""
    old, new = project / "results/node0", project / "results/other"
    shutil.copytree(old, new)
    for path in new.glob("*.json"):
        if path.read_text() == HALF:
            continue
        facts = json.loads(path.read_text())
        for part in (facts, facts.get("params", {})):
            part |= {"machine": "other", "colour": "<b>"} if "machine" in part else {}
        path.write_text(json.dumps(facts))


def change_settings(project: Path) -> None:
    """Another name, threshold, and a second branch, which has a part of the commits."""
    subprocess.run(["git", "branch", "half", "main~3"], cwd=project, check=True)
    path = project / "asv.conf.json"
    facts = json.loads(path.read_text())
    facts |= {"project": "other", "branches": ["main", "half"], "regressions_thresholds": {".*": 0.2}}
    path.write_text(json.dumps(facts))


CHANGES = (
    add_one, change_one, remove_one, add_commit, add_benchmark, add_failing, damage_one, add_machine, change_grid,
    change_settings,
)  # fmt: skip


def test_after_a_new_commit_and_a_change_of_a_result_it_is_as_from_scratch(made: Path) -> None:
    again(made)
    add_commit(made)
    change_one(made)
    add_failing(made)
    assert again(made) == scratch(made)
    assert again(made) == scratch(made)


@pytest.mark.slow
@pytest.mark.parametrize("changes", [CHANGES, CHANGES[::-1]], ids=["forth", "back"])
def test_after_each_change_it_is_as_from_scratch(made: Path, changes: Sequence[Callable[[Path], None]]) -> None:
    assert again(made) == scratch(made)
    for change in changes:
        change(made)
        assert again(made) == scratch(made), change.__name__
    assert again(made) == scratch(made)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(2))
def test_after_random_additions_removals_and_changes_it_is_as_from_scratch(made: Path, seed: int) -> None:
    dice = random.Random(seed)
    aside: dict[Path, bytes] = {}
    assert again(made) == scratch(made)
    for _ in range(4):
        for path in dice.sample(results(made), 2):
            aside[path] = path.read_bytes()
            path.unlink()
        if len(aside) > 2:
            back = dice.choice(list(aside))
            back.write_bytes(aside.pop(back))
        changed = dice.choice(results(made))
        facts = json.loads(changed.read_text())
        row = facts["results"]["made00.track_time"]
        row[0] = [row[0][0] * 1.5, dice.choice((None, float("nan"), float("inf"), 7.0))]
        stamp = changed.stat()
        changed.write_text(json.dumps(facts))
        os.utime(changed, ns=(stamp.st_atime_ns, stamp.st_mtime_ns))  # the time of a file says nothing
        assert again(made) == scratch(made)


def test_other_benchmarks_a_damaged_result_and_other_settings_are_seen(made: Path) -> None:
    again(made)
    declared = made / "results/benchmarks.json"
    facts = json.loads(declared.read_text())
    facts["made00.track_time"]["params"] = [["2", "1"]]
    declared.write_text(json.dumps(facts))
    results(made)[0].write_text("{ half")
    settings = made / "asv.conf.json"
    settings.write_text(json.dumps({**json.loads(settings.read_text()), "project": "other"}))
    found, said = published(made, "hpml_plugins", "publish", "-o", "html")
    assert results(made)[0].name in said
    assert found == scratch(made)


@pytest.mark.parametrize("damage", ["other code", "cut", "bit", "foreign"])
def test_what_was_remembered_by_other_code_or_is_damaged_is_forgotten(made: Path, damage: str) -> None:
    first = again(made)
    spoiled = {}
    for file in (made / REMEMBERED).iterdir():
        whole = bytearray(file.read_bytes())
        if damage == "cut":
            del whole[len(whole) // 2 :]
        elif damage == "foreign":
            whole = bytearray(b"{}")
        else:
            whole[0 if damage == "other code" else len(whole) // 2] ^= 1
        file.write_bytes(whole)
        spoiled[file] = bytes(whole)
    (made / REMEMBERED / "stranger").write_text("of an earlier version")
    assert again(made) == first
    assert sorted(made.glob(f"{REMEMBERED}/*")) == sorted(spoiled)
    assert all(file.read_bytes() != whole for file, whole in spoiled.items())


def test_the_one_file_of_an_earlier_version_gives_way_to_a_folder(made: Path) -> None:
    (made / REMEMBERED).parent.mkdir()
    (made / REMEMBERED).write_bytes(b"as it was")
    first = again(made)
    assert (made / REMEMBERED).is_dir()
    assert again(made) == first


def test_a_graph_and_a_file_that_were_known_are_not_worked_out_again(made: Path) -> None:
    """What is remembered is believed: a level and a number put into it by hand, under their digests, are shown."""
    from hpml_plugins.asv.graph_memory import _Pack
    from hpml_plugins.records.packs import SIZE, Packs

    again(made)
    folder = made / REMEMBERED
    # 2 machines; of each its files, its graphs, its numbers for our pages; and the means of summaries
    names = sorted(path.name.partition("-")[0] for path in folder.iterdir())
    assert names == ["files", "files", "graphs", "graphs", "numbers", "numbers", "summaries"]
    packs = Packs(folder, (folder / "summaries").read_bytes()[:SIZE])
    for path in folder.glob("graphs-*"):
        pack = packs.load(path.name, _Pack)
        assert pack is not None
        assert len(pack.graphs) == 2
        for known in pack.graphs.values():
            known.steps = [[(*steps[0][:2], 123456.5, *steps[0][3:])] for steps in known.steps]
            known.text = b"[[1, [1.0, 654321.5]]]"
        packs.save(path.name, pack)
    kept = {path: path.stat().st_mtime_ns for path in folder.iterdir()}
    site = again(made)
    assert any(b"123456.5" in text for name, text in site.items() if name.endswith("summary.json"))
    assert sum(b"654321.5" in text for text in site.values()) == 4
    # What did not change is not written again.
    assert {path for path, when in kept.items() if path.stat().st_mtime_ns != when} <= {folder / "summaries"}


@pytest.mark.slow
def test_one_that_was_killed_leaves_nothing_wrong(made: Path) -> None:
    dice = random.Random(1)
    again(made)
    for _ in range(5):
        results(made)[dice.randrange(5)].unlink()
        killed = started(made, "hpml_plugins", "publish", "-o", "html")
        time.sleep(dice.uniform(0.3, 4))
        os.killpg(killed.pid, signal.SIGKILL)
        killed.communicate()
        assert again(made) == scratch(made)
