"""The code that runs in a job, on the node: `asv run`, stopped in time, and continued when the job
is restarted.

Imported there by submitit, which unpickles an AsvRun by this module's name.
"""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from hpml_plugins.errors import HpmlError, describe
from hpml_plugins.isolation import end_with_parent
from hpml_plugins.registry import EVERYTHING
from hpml_plugins.run import MEASURED_NOTHING, NOT_WHOLE
from hpml_plugins.store import lock_machine
from hpml_plugins.suite import REFUSAL_VARIABLE
from hpml_plugins.terminal import say
from hpml_plugins.tools.cluster.jobs import COMMITS, JobState, Phase, read_file, write_file

#: `asv run`'s exit status if a benchmark failed.
SOME_FAILED = 2
#: The exit statuses of an `asv run` that ended as planned, from the best to the worst → what the
#: job reports.
PLANNED_ENDS = {
    0: "",
    NOT_WHOLE: "points that did not fit into the limit were left out; hpml submit --skip-existing"
    " measures them",
    SOME_FAILED: "some points failed; their Records say why",
}
#: s to wait while another process measures on the machine, such as an earlier start of this job
#: that is still ending.
PATIENCE = 180.0
#: s to wait for the end that Slurm announces by SIGTERM: a job that ends by itself before that is
#: not requeued.
SIGTERM_WAIT = 600.0


@dataclass(frozen=True)
class RunRequest:
    """The request to every target. project: the folder of asv.conf.json, which the nodes see.

    results: the project's.  keep: do not measure points again that have been measured.
    """

    project: str
    results: str
    profile: str = EVERYTHING
    bench: tuple[str, ...] = ()
    keep: bool = False


@dataclass
class AsvRun:
    """`asv run` over the commits of a job's folder."""

    folder: str
    machine: str
    request: RunRequest
    _running: list[subprocess.Popen[bytes]] = field(default_factory=list, repr=False)

    def __call__(self) -> int:
        """Run it. Returns asv's exit status; ends the process, with the reason in its log, if it
        could not measure."""
        try:
            return self._measure()
        except HpmlError as error:
            say(f"hpml: {error}")
            raise SystemExit(1) from None
        except KeyboardInterrupt:
            raise SystemExit(130) from None

    def _measure(self) -> int:
        attempts = self._report("running")
        try:
            status, reason = self._run(resume=attempts > 1)
        except KeyboardInterrupt:
            self._report("cancelled", "interrupted; measured points are kept")
            raise
        except Exception as error:
            self._report("stopped", describe(error))
            raise
        if status in PLANNED_ENDS and not reason:
            self._report("done", PLANNED_ENDS[status])
            return status
        if not reason:
            more = "" if status < 0 else "; its log says why"
            reason = f"asv run {describe_status(status)}{more}"
        self._report("stopped", reason)
        if status == -signal.SIGTERM and os.environ.get("SUBMITIT_EXECUTOR") == "slurm":
            time.sleep(SIGTERM_WAIT)
        raise HpmlError(reason)

    def checkpoint(self) -> Any:
        """Called by submitit when the time is nearly up, or another job needs the node: stop, and
        continue later."""
        from submitit.helpers import DelayedSubmission

        self._kill()
        self._report(
            "paused",
            "its time is nearly up or the node is wanted for another job; it will continue",
        )
        return DelayedSubmission(type(self)(self.folder, self.machine, self.request))

    def command(self, commits: str = COMMITS, *, resume: bool = False) -> list[str]:
        """The command. commits: a file of the job's folder.  resume: keep what an earlier attempt
        has measured."""
        file = Path(self.folder, commits)
        words = [
            sys.executable,
            "-m",
            "asv",
            "run",
            f"HASHFILE:{file}",
            "--machine",
            self.machine,
        ]
        for pattern in self.request.bench:
            words += ["--bench", pattern]
        return [*words, "--skip-existing"] if resume or self.request.keep else words

    def _run(self, *, resume: bool) -> tuple[int, str]:
        """asv's exit status, and the reason why it did not run, "" if it ran."""
        lock_machine(Path(self.request.results), self.machine, timeout=PATIENCE).release()
        refusal = Path(self.folder, "refusal")
        refusal.unlink(missing_ok=True)
        status = self._start(
            self.command(resume=resume), {REFUSAL_VARIABLE: str(refusal)}
        ).wait()
        return status, refusal.read_text(encoding="utf-8") if refusal.exists() else ""

    def _start(
        self, command: list[str], variables: Mapping[str, str] = {}, **streams: Any
    ) -> subprocess.Popen[bytes]:
        env = {
            **os.environ,
            "PYTHONUNBUFFERED": "1",
            "HPML_PROFILE": self.request.profile,
            **variables,
        }
        process = subprocess.Popen(
            command, cwd=self.request.project, env=env, preexec_fn=_prepare_asv, **streams
        )
        self._running.append(process)
        return process

    def _kill(self) -> None:
        for process in self._running:
            process.kill()  # Records are complete after each point; its own processes end with it

    def _report(self, phase: Phase, reason: str = "") -> int:
        """Write the job's state. Returns how often it was started."""
        before = read_file(Path(self.folder), JobState)
        attempts = (before.attempts if before else 0) + (phase == "running")
        write_file(
            Path(self.folder), JobState(phase, socket.gethostname(), attempts, reason)
        )
        return attempts


def describe_status(status: int) -> str:
    """How `asv run` ended, from its exit status."""
    if status < 0:
        return f"was ended by {signal.Signals(-status).name}"
    if status == MEASURED_NOTHING:
        return "measured nothing"
    return f"ended with status {status}"


def _prepare_asv() -> None:
    """In asv's process, before it starts: end with this process, and ignore the warning before the
    end, which this process handles.

    The warning (SIGUSR2) goes to every process of the job.
    """
    end_with_parent()
    signal.signal(signal.SIGUSR2, signal.SIG_IGN)
