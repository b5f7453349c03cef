"""A process of its own: who is ended together with the run leaves no failure behind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import pytest

from hpml_plugins.isolation.process import NEXT_IN_LINE, Send, run_isolated

#: Runs a process that tells its number and waits; says in a file how that ended.
RUNNER = """
    import os, sys, time
    from pathlib import Path
    from hpml_plugins.isolation.process import run_isolated

    folder = Path(sys.argv[1])

    def wait(send):
        (folder / "partial").write_text(str(os.getpid()))
        (folder / "partial").rename(folder / "pid")
        time.sleep(60)

    outcome = run_isolated(wait, 60, lambda message: None)
    (folder / "outcome").write_text(outcome.fault)
"""


def start(folder: Path) -> tuple[subprocess.Popen[bytes], int]:
    """The runner, and the number of its isolated process."""
    runner = subprocess.Popen([sys.executable, "-c", textwrap.dedent(RUNNER), str(folder)])
    patience = time.monotonic() + 30
    while not (folder / "pid").exists():
        assert time.monotonic() < patience
        time.sleep(0.01)
    return runner, int((folder / "pid").read_text())


def test_who_is_terminated_with_the_whole_run_leaves_no_failure(tmp_path: Path) -> None:
    runner, isolated = start(tmp_path)
    os.kill(isolated, signal.SIGTERM)
    time.sleep(NEXT_IN_LINE / 4)  # as Slurm signals one process after the other
    runner.terminate()
    assert runner.wait(30) == -signal.SIGTERM
    assert not (tmp_path / "outcome").exists()


@pytest.mark.parametrize(
    ("number", "told"),
    [
        (signal.SIGTERM, "died of SIGTERM"),
        (signal.SIGKILL, "died of SIGKILL (killed, perhaps for want of memory)"),
    ],
)
def test_who_is_ended_alone_failed(
    tmp_path: Path, number: signal.Signals, told: str
) -> None:
    runner, isolated = start(tmp_path)
    os.kill(isolated, number)
    assert runner.wait(30) == 0
    assert (tmp_path / "outcome").read_text() == told


def test_what_a_function_sends_arrives_before_its_end() -> None:
    told: list[bytes] = []

    def here(send: Send) -> None:
        send(b"7")
        os.kill(os.getpid(), signal.SIGTERM)

    outcome = run_isolated(here, 30, told.append)
    assert told == [b"7"]
    assert outcome.fault == "died of SIGTERM"
