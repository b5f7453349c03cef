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
        "import pathlib, subprocess, tempfile\n"
        "from hpml_plugins import cli\n"
        "def work(**_):\n"
        "    with tempfile.TemporaryDirectory() as folder:\n"
        "        pathlib.Path(folder, 'large').write_bytes(bytes(1000))\n"
        "        subprocess.run(['sh', '-c', f'sleep 0.5; echo $$ >{folder}/../pid; exec sleep 600'])\n"
        "cli.group.main = work\n"
        "cli.main()\n"
    )
    # below nohup the tests ignore SIGHUP, and what they start would too
    command = subprocess.Popen([sys.executable, "-c", code], preexec_fn=lambda: signal.signal(number, signal.SIG_DFL))
    patience = time.monotonic() + 20
    while not (tmp_path / "pid").exists() or not (tmp_path / "pid").read_text():
        assert time.monotonic() < patience
        time.sleep(0.01)
    command.send_signal(number)
    assert command.wait(20) == 128 + number
    assert [path.name for path in tmp_path.iterdir()] == ["pid"]
    assert not Path("/proc", (tmp_path / "pid").read_text().strip()).exists()
