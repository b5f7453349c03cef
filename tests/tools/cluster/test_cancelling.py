"""`hpml jobs --cancel` signals the process of the job, and no other one that has its number."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from support import PATIENCE

from hpml_plugins.tools.cluster.jobs import (
    JobOrder,
    JobState,
    cancel,
    find_jobs,
    write_file,
)

SLEEP = "import time; time.sleep(600)"


@pytest.fixture
def stranger() -> Iterator[subprocess.Popen[bytes]]:
    """A process of somebody else's job: submitit started it, for another folder."""
    started = subprocess.Popen(
        [sys.executable, "-c", SLEEP, "submitit.local._local", "/somewhere/else"]
    )
    yield started
    started.kill()
    started.wait()


def put(folder: Path, number: object, host: str = "") -> Path:
    job = folder / "20260101-desk"
    job.mkdir()
    write_file(
        job, JobOrder("desk", "m", "local", host or socket.gethostname(), str(number))
    )
    write_file(job, JobState("running", host or socket.gethostname(), 1))
    return job


def test_a_process_that_only_has_the_number_of_a_job_is_left_alone(
    tmp_path: Path, stranger: subprocess.Popen[bytes]
) -> None:
    put(tmp_path, stranger.pid)
    (job,) = find_jobs(tmp_path)
    assert job.state == "lost"
    assert cancel([job]) == []
    time.sleep(0.2)
    assert stranger.poll() is None


def test_a_job_of_another_machine_is_named_and_nothing_here_is_signalled(
    tmp_path: Path, stranger: subprocess.Popen[bytes], capsys: pytest.CaptureFixture[str]
) -> None:
    put(tmp_path, stranger.pid, host="elsewhere")
    (job,) = find_jobs(tmp_path)
    assert job.state == "running"  # only its own machine could tell otherwise
    assert cancel([job]) == []
    assert "runs on elsewhere; cancel it there" in capsys.readouterr().err
    time.sleep(0.2)
    assert stranger.poll() is None


@pytest.mark.parametrize("number", ["0", "1", "1_0", "", "00"])
def test_no_number_means_a_group_or_another_process(tmp_path: Path, number: str) -> None:
    put(tmp_path, number)
    assert cancel(find_jobs(tmp_path)) == []


def test_the_job_s_own_process_is_interrupted(tmp_path: Path) -> None:
    job = tmp_path / "20260101-desk"
    # Tests that run in the background of a shell ignore interrupts, and so would this process.
    heeds = "import signal; signal.signal(signal.SIGINT, signal.default_int_handler)"
    # Python that is still starting may lose an interrupt in what it imports.
    started = f"{heeds}; import time; print(flush=True); {SLEEP}"
    own = subprocess.Popen(
        [sys.executable, "-c", started, "submitit.local._local", str(job)],
        stdout=subprocess.PIPE,
    )
    assert own.stdout is not None
    own.stdout.readline()
    put(tmp_path, own.pid)
    assert [each.target for each in cancel(find_jobs(tmp_path))] == ["desk"]
    assert own.wait(PATIENCE) in (1, -2, 130)
    assert own.pid != os.getpid()
