"""Temporary folders: removed with their process, however that ends, and never under one that lives."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from hpml_plugins.isolation import scratch, scratch_folder

HOLDER = """
import os, sys, time
from hpml_plugins.isolation import scratch_folder
with scratch_folder("held") as folder:
    print(folder, os.getpid(), flush=True)
    time.sleep(600)
"""


@pytest.fixture(autouse=True)
def own_place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setenv("TMPDIR", str(tmp_path))


def hold(*before: str) -> tuple[subprocess.Popen[str], Path, int]:
    """A process with a folder of an hour ago; its number, as it sees it."""
    holder = subprocess.Popen([*before, sys.executable, "-c", HOLDER], stdout=subprocess.PIPE, text=True)
    assert holder.stdout is not None
    folder, number = holder.stdout.readline().split()
    os.utime(folder, (time.time() - 3600,) * 2)
    return holder, Path(folder), int(number)


def in_pid_namespace() -> list[str]:
    command = ["unshare", "--pid", "--fork", "--kill-child"]
    if not shutil.which("unshare") or subprocess.run([*command, "true"], capture_output=True).returncode:
        pytest.skip("this machine does not let us make a PID namespace")
    return command


@pytest.mark.parametrize("where", [list, in_pid_namespace])
def test_a_folder_stays_while_its_process_lives_and_goes_when_it_was_killed(where: Callable[[], list[str]]) -> None:
    holder, folder, number = hold(*where())
    try:
        assert where is list or number == 1  # a number that says nothing here
        with scratch_folder("next"):
            assert folder.is_dir()
    finally:
        holder.kill()
        holder.communicate()
    patience = time.monotonic() + 10
    while folder.exists() and time.monotonic() < patience:
        with scratch_folder("next") as own:
            assert own.is_dir()
    assert not folder.exists()
    assert not own.exists()


def test_a_folder_that_is_not_locked_yet_is_left_alone(tmp_path: Path) -> None:
    with scratch_folder("first") as first:
        name = first.name.removesuffix(first.name[-8:]) + "unlocked"
        (tmp_path / name).mkdir()
        with scratch_folder("second"):
            assert (tmp_path / name).is_dir()
        os.utime(tmp_path / name, (time.time() - scratch.FRESH - 1,) * 2)
        with scratch_folder("third"):
            assert not (tmp_path / name).exists()


def test_a_link_in_the_place_of_a_folder_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "file").write_text("keep")
    os.utime(tmp_path / "mine", (0, 0))
    with scratch_folder("first") as first:
        (tmp_path / f"{first.name}link").symlink_to(tmp_path / "mine")
        with scratch_folder("second"):
            assert (tmp_path / "mine" / "file").read_text() == "keep"


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_command_that_is_terminated_leaves_no_folder_and_no_program(number: signal.Signals, tmp_path: Path) -> None:
    code = (
        "import subprocess, sys\n"
        "from hpml_plugins import cli\n"
        "from hpml_plugins.isolation import scratch_folder\n"
        "def work(**_):\n"
        "    with scratch_folder('bundle') as folder:\n"
        "        (folder / 'large').write_bytes(bytes(1000))\n"
        "        subprocess.run(['sh', '-c', f'sleep 0.5; echo $$ >{folder}/../pid; exec sleep 600'])\n"
        "cli.group.main = work\n"
        "cli.main()\n"
    )
    command = subprocess.Popen([sys.executable, "-c", code])
    patience = time.monotonic() + 20
    while not (tmp_path / "pid").exists() or not (tmp_path / "pid").read_text():
        assert time.monotonic() < patience
        time.sleep(0.01)
    command.send_signal(number)
    assert command.wait(20) == 128 + number
    assert [path.name for path in tmp_path.iterdir()] == ["pid"]
    assert not Path("/proc", (tmp_path / "pid").read_text().strip()).exists()
