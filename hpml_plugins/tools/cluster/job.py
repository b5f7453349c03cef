"""What runs in a job, on the node: `asv run`, stopped in time, and continued when the job is started again.

Imported there by submitit, which unpickles an AsvRun by this module's name.
"""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from hpml_plugins.errors import HpmlError, one_line
from hpml_plugins.isolation import end_with_parent
from hpml_plugins.tools.cluster.jobs import COMMITS, JobState, read_file, write_file

#: `asv run`'s exit status when a benchmark failed, and when another process has the machine.
SOME_FAILED, TAKEN = 2, 75
#: s to go on asking for a machine that is locked, and s between two attempts.
PATIENCE, PAUSE = 180.0, 5.0
#: s to wait for the end that a SIGTERM announces: a job that ends by itself meanwhile is not queued again.
SIGTERM_WAIT = 600.0


@dataclass
class AsvRun:
    """`asv run` over the commits of a job's folder.

    project: where asv.conf.json is.  visible: CUDA_VISIBLE_DEVICES to restore, which submitit's local executor removes;
    None leaves it as it is.  keep: what is measured already is not measured again.
    """

    folder: str
    project: str
    machine: str
    profile: str = ""
    bench: tuple[str, ...] = ()
    visible: str | None = None
    keep: bool = False
    _process: subprocess.Popen[bytes] | None = field(default=None, repr=False)
    _stopped: bool = field(default=False, repr=False)

    def __call__(self) -> int:
        """Run it. Returns asv's exit status; raises HpmlError with the reason when it could not measure."""
        before = read_file(Path(self.folder), JobState)
        attempts = before.attempts + 1 if before else 1
        state = JobState("running", socket.gethostname(), attempts, time.time())
        write_file(Path(self.folder), state)
        try:
            status, refusal = self._run(resume=attempts > 1)
        except BaseException as error:
            if not self._stopped:
                self._end(state, "interrupted", one_line(str(error)) or type(error).__name__)
            raise
        if status in (0, SOME_FAILED) and not refusal:
            self._end(state, "done", "some points failed; their Records say why" if status else "")
            return status
        reason = refusal or _ending(status)
        self._end(state, "interrupted" if status < 0 else "failed", reason)
        if status == -signal.SIGTERM:
            time.sleep(SIGTERM_WAIT)
        raise HpmlError(reason)

    def checkpoint(self) -> Any:
        """Called by submitit when the time is nearly up, or the node is wanted by others: stop, and go on later."""
        from submitit.helpers import DelayedSubmission

        self._stopped = True
        self._stop()
        before = read_file(Path(self.folder), JobState)
        if before:
            self._end(
                before, "interrupted", "stopped because its time is nearly up or the node is wanted; it will continue"
            )
        return DelayedSubmission(self)

    def _stop(self) -> None:
        if self._process:
            self._process.kill()  # Records are whole after each point; its own processes end with it

    def _run(self, *, resume: bool) -> tuple[int, str]:
        """asv's exit status, and the line that says why it did not run, "" when it ran."""
        deadline = time.monotonic() + PATIENCE
        while True:
            status, refusal = self._run_once(resume)
            if status != TAKEN or time.monotonic() > deadline:
                return status, refusal
            print(f"hpml-job: {self.machine} is locked by another process; trying again", flush=True)
            time.sleep(PAUSE)

    def _run_once(self, resume: bool) -> tuple[int, str]:
        refusal = ""
        command = self.command(resume=resume)
        with subprocess.Popen(
            command, cwd=self.project, env=self.environment(), stderr=subprocess.PIPE, preexec_fn=prepare_asv
        ) as process:
            self._process = process
            for line in process.stderr or ():
                sys.stderr.buffer.write(line)
                sys.stderr.buffer.flush()
                if line.startswith(b"hpml: "):
                    refusal = line.decode(errors="replace").removeprefix("hpml: ").strip()
        return process.returncode, refusal

    def command(self, commits: str = COMMITS, *, resume: bool = False) -> list[str]:
        """The command. commits: a file of the job's folder.  resume: keep what an earlier attempt has measured."""
        file = Path(self.folder, commits)
        words = [sys.executable, "-m", "asv", "run", f"HASHFILE:{file}", "--machine", self.machine]
        for pattern in self.bench:
            words += ["--bench", pattern]
        return [*words, "--skip-existing"] if resume or self.keep else words

    def environment(self) -> dict[str, str]:
        """The variables that asv gets."""
        env = {**os.environ, "PYTHONUNBUFFERED": "1"}
        if self.profile:
            env["HPML_PROFILE"] = self.profile
        if self.visible is not None:
            env.pop("CUDA_VISIBLE_DEVICES", None)
            if self.visible:
                env["CUDA_VISIBLE_DEVICES"] = self.visible
        return env

    def _end(self, state: JobState, phase: Any, reason: str) -> None:
        ended = JobState(phase, state.host, state.attempts, state.started, time.time(), reason)
        write_file(Path(self.folder), ended)

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_process": None, "_stopped": False}


def prepare_asv() -> None:
    """In asv's process, before it starts: it ends with this one, and leaves the warning before the end to it.

    The warning (SIGUSR2) goes to every process of the job.
    """
    end_with_parent()
    signal.signal(signal.SIGUSR2, signal.SIG_IGN)


def _ending(status: int) -> str:
    if status < 0:
        return f"asv run was ended by {signal.Signals(-status).name}"
    return f"asv run ended with status {status}; its log says why"
