"""A command that is terminated removes its temporary folders and ends its programs."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from support import PATIENCE, wait_for


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
        [sys.executable, "-c", code],
        preexec_fn=lambda: signal.signal(number, signal.SIG_DFL),
    )
    pid = tmp_path / "pid"
    wait_for(lambda: pid.exists() and pid.read_text(), "the program")
    command.send_signal(number)
    assert command.wait(PATIENCE) == 128 + number
    assert [path.name for path in tmp_path.iterdir()] == ["pid"]
    assert not Path("/proc", (tmp_path / "pid").read_text().strip()).exists()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_process_that_is_terminated_leaves_no_folder_and_dies_of_the_signal(
    number: signal.Signals, tmp_path: Path
) -> None:
    """As `asv run`, pytest and ranks are. Also where it has forked: what ends a fork removes
    nothing."""
    code = (
        "import os, signal, sys, time\n"
        "from hpml_plugins.temporary import temporary_folder\n"
        "with temporary_folder('hpml-x-', sys.argv[1]) as folder:\n"
        "    (folder / 'large').write_bytes(bytes(1000))\n"
        "    up, ready = os.pipe()\n"
        "    if not (child := os.fork()):\n"
        "        os.write(ready, b'x')\n"  # Python drops the signals that come while it forks
        "        time.sleep(600)\n"
        "    os.read(up, 1)\n"
        "    os.kill(child, signal.SIGTERM)\n"
        "    os.waitpid(child, 0)\n"
        "    print(folder.is_dir(), flush=True)\n"
        "    time.sleep(600)\n"
    )
    command = subprocess.Popen(
        [sys.executable, "-c", code, str(tmp_path)],
        stdout=subprocess.PIPE,
        preexec_fn=lambda: signal.signal(number, signal.SIG_DFL),
    )
    assert command.stdout is not None
    assert command.stdout.readline() == b"True\n"
    command.send_signal(number)
    assert command.wait(PATIENCE) == -number
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP, signal.SIGKILL])
@pytest.mark.parametrize(
    "work",
    [
        "time.sleep(600)",
        "signal.signal(signal.SIGTERM, signal.SIG_IGN); time.sleep(600)",
        "ctypes.PyDLL(None).sleep(600)",  # holds Python's lock: no handler runs
        "os.kill(os.getpid(), signal.SIGKILL)",
    ],
)
def test_a_point_leaves_no_temporary_file_whatever_ends_it(
    work: str, number: signal.Signals, tmp_path: Path
) -> None:
    """Neither what this package makes there, as for ranks, nor what a plugin does."""
    code = f"""
import ctypes, os, pathlib, signal, sys, tempfile, time
from hpml_plugins.isolation import run_isolated
from hpml_plugins.temporary import temporary_folder

def point(send):
    with temporary_folder("hpml-ranks-") as folder, tempfile.TemporaryDirectory() as other:
        tempfile.mkdtemp()
        tempfile.NamedTemporaryFile(delete=False).write(b"x")
        send(b"")
        {work}

with temporary_folder("hpml-run-"):
    run_isolated(point, 600, lambda message: print("measuring", flush=True))
    time.sleep(600)
"""
    command = subprocess.Popen(
        [sys.executable, "-c", code],
        stdout=subprocess.PIPE,
        env={**os.environ, "TMPDIR": str(tmp_path)},
        preexec_fn=lambda: signal.signal(signal.SIGHUP, signal.SIG_DFL),
    )
    assert command.stdout is not None
    assert command.stdout.readline() == b"measuring\n"
    command.send_signal(number)
    command.wait(PATIENCE)

    def left() -> list[str]:
        names = [path.name for path in tmp_path.iterdir()]
        return [name for name in names if not name.startswith("hpml-run")]

    wait_for(lambda: not left(), "the folder to be empty", lambda: str(left()))
    assert number == signal.SIGKILL or list(tmp_path.iterdir()) == []
