"""`.ci/gpu-run`: the arguments of `asv run`. Scripts replace the bundle's `asv` and
`pack-results`."""

from __future__ import annotations

import os
import signal
import subprocess
from contextlib import suppress
from pathlib import Path

import psutil
import pytest
from support import wait_for

SCRIPT = Path(__file__).parents[3] / ".ci" / "gpu-run"


@pytest.mark.parametrize(
    ("file", "found"),
    [("lists/commits.txt", "{here}/lists/commits.txt"), ("/lists/c.txt", "/lists/c.txt")],
)
def test_a_list_of_commits_is_relative_to_the_folder_of_the_caller(
    tmp_path: Path, file: str, found: str
) -> None:
    node = tmp_path / "node"
    (node / "hpml-plugins").mkdir(parents=True)
    for name, text in (
        ("asv", 'echo "$PWD: asv $* as $HPML_PROFILE"'),
        ("pack-results", 'touch "$1"'),
    ):
        (node / name).write_text(f"#!/bin/sh\n{text}\n")
        (node / name).chmod(0o755)
    place = {**os.environ, "HPML_FOLDER": str(node), "HPML_PROFILE": "core"}
    words = [
        "bash",
        str(SCRIPT),
        "bundle",
        "results.tgz",
        f"--skip-existing HASHFILE:{file}",
        "HEAD^!",
    ]
    done = subprocess.run(
        words, cwd=tmp_path, env=place, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    called = [line for line in done.stdout.splitlines() if not line.startswith("#")]
    project = node / "hpml-plugins"
    assert called == [
        f"{project}: asv run --skip-existing HASHFILE:{found.format(here=tmp_path)} as core",
        f"{project}: asv run HEAD^! as core",
    ]
    assert (tmp_path / "results.tgz").exists()


def stand_in(tmp_path: Path, asv: str) -> dict[str, str]:
    """The environment of a node whose `asv` is a script, and whose `pack-results` packs a
    counter."""
    node = tmp_path / "node"
    (node / "hpml-plugins").mkdir(parents=True)
    pack = 'echo packed >>"$(dirname "$0")/count"; cp "$(dirname "$0")/count" "$1"'
    for name, text in (("asv", asv), ("pack-results", pack)):
        (node / name).write_text(f"#!/bin/sh\n{text}\n")
        (node / name).chmod(0o755)
    plain = {
        key: value
        for key, value in os.environ.items()
        if key not in ("HPML_LIMIT", "GPU_SECONDS")
    }
    return {**plain, "HPML_FOLDER": str(node)}


def test_the_run_gets_a_limit_that_ends_before_the_time_is_over(tmp_path: Path) -> None:
    place = stand_in(tmp_path, 'echo "limit ${HPML_LIMIT:-none}"')
    words = ["bash", str(SCRIPT), "bundle", "results.tgz", "HEAD^!"]

    def said(**more: str) -> str:
        done = subprocess.run(
            words,
            cwd=tmp_path,
            env={**place, **more},
            capture_output=True,
            text=True,
            check=True,
        )
        return done.stdout.splitlines()[0]

    assert said() == "limit none"
    assert said(GPU_SECONDS="560") == "limit 540s"
    assert said(GPU_SECONDS="560", HPML_LIMIT="2min") == "limit 2min"


def test_a_script_that_is_killed_leaves_what_was_measured_until_then(
    tmp_path: Path,
) -> None:
    place = {**stand_in(tmp_path, "sleep 600"), "PACK_EVERY": "0.2"}
    words = ["bash", str(SCRIPT), "bundle", "results.tgz", "HEAD^!"]
    running = subprocess.Popen(words, cwd=tmp_path, env=place, start_new_session=True)
    wait_for((tmp_path / "results.tgz").exists, "the first pack")
    started = psutil.Process(running.pid).children(recursive=True)
    os.killpg(running.pid, signal.SIGKILL)
    running.wait()
    for process in started:  # what timeout runs has a group of its own
        with suppress(psutil.NoSuchProcess):
            process.kill()
    assert "packed" in (tmp_path / "results.tgz").read_text()
