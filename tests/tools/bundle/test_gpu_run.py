"""`.ci/gpu-run`: what `asv run` is called with. Scripts stand in for the bundle's `asv` and `pack-results`."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[3] / ".ci" / "gpu-run"


@pytest.mark.parametrize(
    ("file", "found"), [("lists/commits.txt", "{here}/lists/commits.txt"), ("/lists/c.txt", "/lists/c.txt")]
)
def test_a_list_of_commits_is_found_from_the_folder_of_the_caller(tmp_path: Path, file: str, found: str) -> None:
    node = tmp_path / "node"
    (node / "hpml-plugins").mkdir(parents=True)
    for name, text in (("asv", 'echo "$PWD: asv $* as $HPML_PROFILE"'), ("pack-results", 'touch "$1"')):
        (node / name).write_text(f"#!/bin/sh\n{text}\n")
        (node / name).chmod(0o755)
    place = {**os.environ, "HPML_FOLDER": str(node), "HPML_PROFILE": "core"}
    words = ["bash", str(SCRIPT), "bundle", "results.tgz", f"--skip-existing HASHFILE:{file}", "HEAD^!"]
    done = subprocess.run(words, cwd=tmp_path, env=place, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    called = [line for line in done.stdout.splitlines() if not line.startswith("#")]
    project = node / "hpml-plugins"
    assert called == [
        f"{project}: asv run --skip-existing HASHFILE:{found.format(here=tmp_path)} as core",
        f"{project}: asv run HEAD^! as core",
    ]
    assert (tmp_path / "results.tgz").exists()
