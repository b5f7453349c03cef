"""`.ci/gpu-sides`: the GPUs and lists of each side. A script replaces the node's `gpu-run`,
which is called for each line."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[3] / ".ci" / "gpu-sides"
STANDS_IN = """#!/bin/sh
echo "# asv run $3: on $CUDA_VISIBLE_DEVICES in $HPML_FOLDER as $HPML_PROFILE"
case $3 in *fails*) exit 3 ;; esac
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    shutil.copy(SCRIPT, tmp_path)
    (tmp_path / "gpu-run").write_text(STANDS_IN)
    (tmp_path / "gpu-run").chmod(0o755)
    (tmp_path / "bundle").touch()
    (tmp_path / "a.txt").write_text("full --bench ^a.* HEAD^!\nquick --bench ^b HEAD^!\n")
    (tmp_path / "c.txt").write_text("full --bench ^c HEAD^!\n")
    return tmp_path


def sides(folder: Path, *lists: str) -> tuple[int, dict[str, list[str]], str]:
    """Exit status, the lines of each side's log, what was said on standard error."""
    place = {**os.environ, "HPML_FOLDER": "/node/hpml"}
    done = subprocess.run(
        ["bash", "gpu-sides", "bundle", ".", *lists],
        cwd=folder,
        env=place,
        capture_output=True,
        text=True,
        check=False,
    )
    return (
        done.returncode,
        {log.stem: log.read_text().splitlines() for log in folder.glob("*.log")},
        done.stderr,
    )


def test_each_list_has_the_next_gpu_or_those_that_it_names(folder: Path) -> None:
    status, logs, _ = sides(folder, "a.txt", "2,3:c.txt")
    assert status == 0
    assert logs == {
        "side-0": [
            "# asv run --bench ^a.* HEAD^!: on 0 in /node/hpml-side-0 as full",
            "# asv run --bench ^b HEAD^!: on 0 in /node/hpml-side-0 as quick",
        ],
        "side-2-3": ["# asv run --bench ^c HEAD^!: on 2,3 in /node/hpml-side-2-3 as full"],
    }


def test_after_a_pair_comes_the_gpu_behind_it(folder: Path) -> None:
    _, logs, _ = sides(folder, "0,1:a.txt", "c.txt")
    assert set(logs) == {"side-0-1", "side-2"}
    assert logs["side-2"] == [
        "# asv run --bench ^c HEAD^!: on 2 in /node/hpml-side-2 as full"
    ]


def test_a_missing_list_is_one_line_and_nothing_runs(folder: Path) -> None:
    status, logs, said = sides(folder, "a.txt", "nothing.txt")
    assert (status, logs) == (2, {})
    assert said.splitlines() == ["gpu-sides: no list nothing.txt"]


def test_the_status_is_that_of_a_line_that_failed(folder: Path) -> None:
    (folder / "b.txt").write_text("full --bench ^fails HEAD^!\nfull --bench ^b HEAD^!\n")
    status, logs, _ = sides(folder, "b.txt", "c.txt")
    assert status == 3
    assert [len(log) for log in logs.values()].count(2) == 1


def test_a_missing_bundle_is_one_line_and_nothing_runs(folder: Path) -> None:
    (folder / "bundle").unlink()
    status, logs, said = sides(folder, "a.txt")
    assert (status, logs) == (2, {})
    [line] = said.splitlines()
    assert line.startswith("gpu-sides: no bundle ")
    assert line.endswith("nothing is installed in /node/hpml-side-0")
