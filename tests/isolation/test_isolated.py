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
from support import PATIENCE, wait_for

from hpml_plugins.isolation.process import NEXT_IN_LINE, Send, run_isolated

#: Runs a process that tells its number and waits; says in a file how that ended. Its arguments: the
#: folder, and how long it waits for its own signal after that process got one, s.
RUNNER = """
    import os, sys, time
    from pathlib import Path
    from hpml_plugins.isolation import process
    from hpml_plugins.isolation.process import run_isolated

    process.NEXT_IN_LINE = float(sys.argv[2])
    folder = Path(sys.argv[1])

    def wait(send):
        (folder / "partial").write_text(str(os.getpid()))
        (folder / "partial").rename(folder / "pid")
        time.sleep(600)

    outcome = run_isolated(wait, 600, lambda message: None)
    (folder / "outcome").write_text(outcome.fault)
"""


def start(folder: Path, waits: float) -> tuple[subprocess.Popen[bytes], int]:
    """The runner, and the number of its isolated process."""
    runner = subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(RUNNER), str(folder), str(waits)]
    )
    wait_for((folder / "pid").exists, "the isolated process")
    return runner, int((folder / "pid").read_text())


def test_who_is_terminated_with_the_whole_run_leaves_no_failure(tmp_path: Path) -> None:
    runner, isolated = start(tmp_path, 600)
    os.kill(isolated, signal.SIGTERM)
    time.sleep(0.25)  # as Slurm signals one process after the other
    runner.terminate()
    assert runner.wait(PATIENCE) == -signal.SIGTERM
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
    runner, isolated = start(tmp_path, NEXT_IN_LINE)
    os.kill(isolated, number)
    assert runner.wait(PATIENCE) == 0
    assert (tmp_path / "outcome").read_text() == told


def test_what_a_function_sends_arrives_before_its_end() -> None:
    told: list[bytes] = []

    def here(send: Send) -> None:
        send(b"7")
        os.kill(os.getpid(), signal.SIGTERM)

    outcome = run_isolated(here, 30, told.append)
    assert told == [b"7"]
    assert outcome.fault == "died of SIGTERM"
