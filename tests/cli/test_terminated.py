"""A command that is terminated removes its temporary folders and ends its programs."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_command_that_is_terminated_leaves_no_folder_and_no_program(
    number: signal.Signals, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    code = (
        "import pathlib, subprocess, tempfile\nfrom hpml_plugins import cli\ndef work(**_):\n   "
        " with tempfile.TemporaryDirectory() as folder:\n        pathlib.Path(folder,"
        " 'large').write_bytes(bytes(1000))\n        subprocess.run(['sh', '-c', f'sleep 0.5; echo"
        " $$ >{folder}/../pid; exec sleep 600'])\ncli.group.main = work\ncli.main()\n"
    )
    # below nohup the tests ignore SIGHUP, and what they start would too
    command = subprocess.Popen(
        [sys.executable, "-c", code], preexec_fn=lambda: signal.signal(number, signal.SIG_DFL)
    )
    patience = time.monotonic() + 20
    while not (tmp_path / "pid").exists() or not (tmp_path / "pid").read_text():
        assert time.monotonic() < patience
        time.sleep(0.01)
    command.send_signal(number)
    assert command.wait(20) == 128 + number
    assert [path.name for path in tmp_path.iterdir()] == ["pid"]
    assert not Path("/proc", (tmp_path / "pid").read_text().strip()).exists()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_asv_run_that_is_terminated_leaves_no_folder_and_dies_of_the_signal(
    number: signal.Signals, tmp_path: Path
) -> None:
    """Also where it has forked: what ends a fork removes nothing."""
    folder = tmp_path / "hpml-run-x"
    folder.mkdir()
    code = (
        "import os, signal, sys, time\n"
        "from hpml_plugins.asv.run import _remove_when_terminated\n"
        "_remove_when_terminated(sys.argv[1])\n"
        "up, ready = os.pipe()\n"
        "if not (child := os.fork()):\n"
        "    os.write(ready, b'x')\n"  # Python drops the signals that come while it forks
        "    time.sleep(600)\n"
        "os.read(up, 1)\n"
        "os.kill(child, signal.SIGTERM)\n"
        "os.waitpid(child, 0)\n"
        "print(os.path.isdir(sys.argv[1]), flush=True)\n"
        "time.sleep(600)\n"
    )
    command = subprocess.Popen(
        [sys.executable, "-c", code, str(folder)],
        stdout=subprocess.PIPE,
        preexec_fn=lambda: signal.signal(number, signal.SIG_DFL),
    )
    assert command.stdout is not None
    assert command.stdout.readline() == b"True\n"
    command.send_signal(number)
    assert command.wait(20) == -number
    assert list(tmp_path.iterdir()) == []
