"""The state of a job from Slurm's answer, from its own report, and without either."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from hpml_plugins.tools.cluster.jobs import (
    JobOrder,
    JobState,
    _SlurmState,
    ask_slurm,
    describe_job,
    find_jobs,
    read_progress,
    write_file,
)

ORDER = JobOrder("t", "m", "slurm", "login", id="7")
RUNNING = JobState("running", "n1", 1)
DONE = JobState("done", "n1", 2)
FAILED = JobState("stopped", "n1", 1, "asv run ended with status 1; its log says why")

#: (Slurm's word, the job's own) → (state, what the reason says)
CASES = [
    (_SlurmState("PENDING", "Resources"), None, "pending", "Resources"),
    (_SlurmState("PENDING", "BeginTime"), RUNNING, "pending", "BeginTime, after 1 attempt"),
    (_SlurmState("RUNNING", "", "n1"), RUNNING, "running", ""),
    (_SlurmState("RUNNING", "", "n1"), None, "running", "starting or ending"),
    (_SlurmState("COMPLETED"), DONE, "done", ""),
    (
        _SlurmState("FAILED", "NonZeroExitCode"),
        FAILED,
        "failed",
        "asv run ended with status 1",
    ),
    (_SlurmState("FAILED"), None, "failed", "Slurm says FAILED, and it never started asv"),
    (_SlurmState("OUT_OF_MEMORY"), RUNNING, "failed", "Slurm says OUT_OF_MEMORY"),
    (_SlurmState("NODE_FAIL"), RUNNING, "failed", "Slurm says NODE_FAIL"),
    (_SlurmState("TIMEOUT"), RUNNING, "failed", "Slurm says TIMEOUT"),
    (_SlurmState("CANCELLED"), RUNNING, "cancelled", "Slurm says CANCELLED"),
    (None, DONE, "done", ""),
    (_SlurmState("NO_ANSWER"), RUNNING, "unknown", "Slurm does not answer"),
    (_SlurmState("NO_ANSWER"), None, "unknown", "Slurm does not answer"),
    (None, RUNNING, "lost", "it ended on n1 without a report (killed, or the node died)"),
    (None, None, "lost", "Slurm no longer knows it, and it never started asv"),
]


@pytest.mark.parametrize(("word", "told", "state", "reason"), CASES)
def test_a_jobs_state_is_put_together_from_all_that_is_known(
    word: _SlurmState | None, told: JobState | None, state: str, reason: str, tmp_path: Path
) -> None:
    if told:
        write_file(tmp_path, told)
    job = describe_job(tmp_path, ORDER, word)
    assert (job.state, job.reason.startswith(reason)) == (state, True), job.reason


def test_a_local_job_is_lost_when_its_process_is_gone(tmp_path: Path) -> None:
    order = JobOrder("t", "m", "local", socket.gethostname(), id=str(os.getpid()))
    write_file(tmp_path, RUNNING)
    assert (
        describe_job(tmp_path, order, None).state == "lost"
    )  # this process is alive, and no job


@pytest.mark.parametrize(
    ("phase", "state"),
    [
        ("paused", "pending"),
        ("stopped", "failed"),
        ("cancelled", "cancelled"),
        ("done", "done"),
    ],
)
def test_only_a_paused_job_waits_to_be_started_again(
    tmp_path: Path, phase: Any, state: str
) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", "input()", "submitit", str(tmp_path)], stdin=subprocess.PIPE
    ) as alive:
        write_file(tmp_path, JobState(phase, "here", 1, "why"))
        job = describe_job(
            tmp_path,
            JobOrder("t", "m", "local", socket.gethostname(), id=str(alive.pid)),
            None,
        )
        assert (job.state, job.reason) == (state, "why")
        alive.kill()


def test_what_was_never_taken_says_why_and_foreign_folders_do_not_hinder(
    tmp_path: Path,
) -> None:
    write_file(
        tmp_path / "a", JobOrder("t", "m", "slurm", "login", problem="invalid partition")
    )
    (tmp_path / "b").mkdir()
    (tmp_path / "c").write_text("")
    (job,) = find_jobs(tmp_path)
    assert (job.state, job.reason) == ("failed", "invalid partition")


def test_progress_is_the_last_share_in_asvs_log(tmp_path: Path) -> None:
    log = tmp_path / "log"
    assert read_progress(log) is None
    log.write_text(
        "· Discovering\n[ 0.00%] · For p\n[12.50%] ··· a 1s\n[ 62.50%] ··· b\nnot [99.00%]\n"
    )
    assert read_progress(log) == 0.625


def test_jobs_are_unknown_while_slurm_does_not_answer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("sacct", "squeue"):
        command = tmp_path / name
        command.write_text(
            "#!/bin/sh\necho 'Unable to contact slurm controller' >&2\nexit 1\n"
        )
        command.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/bin:/usr/bin")
    assert ask_slurm(["7", "8"]) == dict.fromkeys(["7", "8"], _SlurmState("NO_ANSWER"))
    (tmp_path / "squeue").write_text("#!/bin/sh\necho '7|RUNNING|None|n1'\n")
    assert ask_slurm(["7", "8"]) == {"7": _SlurmState("RUNNING", "", "n1")}
