"""`hpml publish` again gives what a publish from scratch gives, whatever changed and however the last one ended."""

from __future__ import annotations

import json
import os
import random
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from hpml_plugins.plugins.harness.made_history import History, make_history
from hpml_plugins.plugins.harness.publish import configure

REMEMBERED = ".asv/published"
#: Both say when they were written.
TIMED = ("gpus.html", "info.json")
#: A feed of nothing was updated now.
_UPDATED = re.compile(rb"<updated>[^<]*</updated></feed>")


@pytest.fixture
def made(tmp_path: Path) -> Path:
    make_history(tmp_path, History(6, machines=2, benchmarks=2, points=2))
    configure(tmp_path)
    return tmp_path


def started(project: Path, *words: str) -> subprocess.Popen[str]:
    env = {**os.environ, "HOME": str(project), "PYTHONSAFEPATH": "1", "PYTHONHASHSEED": "0"}
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


@pytest.mark.parametrize("damage", ["other code", "cut", "bit"])
def test_what_was_remembered_by_other_code_or_is_damaged_is_forgotten(made: Path, damage: str) -> None:
    first = again(made)
    file = made / REMEMBERED
    whole = bytearray(file.read_bytes())
    if damage == "cut":
        del whole[len(whole) // 2 :]
    else:
        whole[0 if damage == "other code" else len(whole) // 2] ^= 1
    file.write_bytes(whole)
    assert again(made) == first
    assert file.read_bytes() != bytes(whole)


def test_a_series_and_a_file_that_were_known_are_not_worked_out_again(made: Path) -> None:
    """What is remembered is believed: a level put into the file by hand, with its digest, is what is shown."""
    import msgspec

    from hpml_plugins.asv.remembered import Content, _load, _save

    again(made)
    file = made / REMEMBERED
    made_by = file.read_bytes()[:16]
    content = _load(file, made_by)
    # 2 machines × 6 commits; 2 machines × 2 benchmarks × 2 points
    assert (len(content.files), len(content.steps)) == (12, 8)
    moved = {digest: [(*steps[0][:2], 123456.5, *steps[0][3:])] for digest, steps in content.steps.items()}
    _save(
        file,
        Content(content.files, msgspec.convert(moved, type=dict[bytes, list[tuple[int, int, float, float, float]]])),
        made_by,
    )
    site = again(made)
    assert any(b"123456.5" in text for name, text in site.items() if name.endswith("summary.json"))


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
