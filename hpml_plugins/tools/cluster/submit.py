"""Submits a job for each target, with the commits that its machine needs, to Slurm or to this
machine."""

from __future__ import annotations

import os
import shlex
import shutil
import signal
import socket
import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from datetime import datetime
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from hpml_plugins.errors import UsageError, needs_extra
from hpml_plugins.git import tell_git
from hpml_plugins.model import counted
from hpml_plugins.terminal import one_line, say
from hpml_plugins.tools.cluster.config import Target
from hpml_plugins.tools.cluster.job import AsvRun, RunRequest
from hpml_plugins.tools.cluster.jobs import (
    COMMITS,
    JobOrder,
    describe_job,
    read_file,
    write_commits,
    write_file,
)

with needs_extra("cluster"):
    from submitit import LocalExecutor, SlurmExecutor
    from submitit.core.utils import FailedJobError, FailedSubmissionError

NEW = "NEW"
ALL = "ALL"
#: s within which a local job that was interrupted ends; submitit kills its processes after 1 s.
CANCEL_WAIT = 10.0


def commits_to_measure(
    root: Path, branches: Sequence[str], spec: str, measured: Iterable[str]
) -> list[str]:
    """The commits, the newest of each branch first.

    branches: as asv.conf.json names them; "" is the one checked out.  spec: "" for the heads of the
    branches, "ALL", "NEW" (commits after the newest that the machine has measured), or revisions of
    `git rev-list`, such as main~5..main.  measured: as `measured_commits` gives them. Raises
    UsageError for revisions that git does not know.
    """
    if spec not in ("", NEW, ALL):
        return _rev_list(root, spec, f"--commits {spec!r}: git knows no such commits")
    known = set(measured)
    found: dict[str, None] = {}
    for branch in branches or ("",):
        fault = (
            f"git knows no branch {branch or 'HEAD'!r} (asv.conf.json, branches); fetch it, or name"
            " commits: --commits"
        )
        for commit in _rev_list(root, branch or "HEAD", fault):
            if spec == NEW and commit[:8] in known:
                break
            found[commit] = None
            if not spec:
                break
    return list(found)


def _rev_list(root: Path, spec: str, fault: str) -> list[str]:
    words = ("rev-list", "--first-parent", "--end-of-options", spec, "--")
    return tell_git(root, *words, fault=fault).split()


def measured_commits(results: Path, machine: str) -> set[str]:
    """The first eight characters of the commits for which this machine has Records or asv's own
    results."""
    folder = results / machine
    return {
        path.name[:8]
        for path in (*folder.glob("records/*.jsonl"), *folder.glob("*-*.json"))
    }


def describe_plan(target: Target, commits: int, request: RunRequest) -> str:
    """The measurements of a job, in one line."""
    title = f"{target.name}  machine {target.machine_name}, {counted(commits, 'commit')}"
    if not commits:
        return f"{title}: nothing to do; a commit with any Record counts as measured"
    benchmarks = (
        f"benchmarks {', '.join(request.bench)}" if request.bench else "all benchmarks"
    )
    if target.executor == "local":
        where = "in this terminal, until it is done"
    else:
        where = "a Slurm job"
    return f"{title}, {benchmarks}, profile {request.profile}: {where}"


def submit(
    target: Target, commits: Sequence[str], request: RunRequest, jobs: Path
) -> tuple[Path, Any]:
    """Submit one job. Returns its folder and submitit's job. Slurm's refusal is kept in the folder
    and raised."""
    local = target.executor == "local"
    if not local and (shutil.which("sbatch") is None or shutil.which("srun") is None):
        raise UsageError(
            f"target {target.name!r} needs Slurm, and there is no sbatch and srun here; run this on"
            " a login node, or give the target `executor: local`"
        )
    folder = new_folder(jobs, target.name)
    write_commits(folder / COMMITS, commits)
    if local:
        # A job started in the background of a shell would inherit that SIGINT is ignored, and could
        # not be cancelled.
        signal.signal(signal.SIGINT, signal.default_int_handler)
    executor = (_local_executor if local else _slurm_executor)(target, request, folder)
    order = JobOrder(
        target.name, target.machine_name, target.executor, socket.gethostname()
    )
    try:
        with _errors_into(folder / "controller.log") if local else nullcontext():
            job = executor.submit(_asv_run(target, request, folder))
    except (FailedJobError, FailedSubmissionError, OSError) as error:
        problem = one_line(str(error))
        write_file(folder, replace(order, problem=problem))
        raise UsageError(f"target {target.name!r} was refused: {problem}") from None
    write_file(folder, replace(order, id=job.job_id))
    return folder, job


@contextmanager
def _errors_into(path: Path) -> Iterator[None]:
    """Have processes that are started meanwhile write their errors to that file: submitit's
    controller of a local job ends with a traceback when the terminal interrupts it."""
    try:
        kept = os.dup(2)
    except OSError:  # it is closed
        yield
        return
    try:
        with path.open("ab") as file:
            os.dup2(file.fileno(), 2)
        yield
    finally:
        os.dup2(kept, 2)
        os.close(kept)


def new_folder(jobs: Path, target: str) -> Path:
    """The name of a folder that does not exist yet: time, to the microsecond, and target."""
    return jobs / f"{datetime.now():%Y%m%d-%H%M%S-%f}-{target}"


def wait_here(folder: Path, job: Any) -> str:
    """Wait for a local job and show its log. Any signal that ends this process, except SIGKILL,
    ends the job first.

    Returns why something was not measured, "" if everything was.
    """
    shown = 0
    try:
        while True:
            done = job.done()
            text = job.paths.stdout.read_bytes() if job.paths.stdout.exists() else b""
            whole = len(text) if done else text.rfind(b"\n") + 1
            if whole > shown:
                say(*text[shown:whole].decode(errors="replace").splitlines())
                shown = whole
            if done:
                break
            time.sleep(0.1)
    except BaseException:
        job.cancel(check=False)
        deadline = time.monotonic() + CANCEL_WAIT
        while not job.done() and time.monotonic() < deadline:
            time.sleep(0.1)
        raise
    order = read_file(folder, JobOrder)
    return describe_job(folder, order, None).reason if order else ""


class _ScriptWriter(SlurmExecutor):  # type: ignore[misc]
    """Writes scripts without Slurm."""

    @classmethod
    def affinity(cls) -> int:
        return 2


def _slurm_executor(target: Target, request: RunRequest, folder: Path) -> Any:
    """submitit's Slurm executor for a target.

    Jobs of one machine run one after the other (`singleton` of the job's name): two would write the
    same files.
    """
    executor = _ScriptWriter(
        folder,
        max_num_timeout=target.restarts,
        python=_python_command(target, request, folder),
    )
    executor.update_parameters(
        job_name=f"hpml-{target.machine_name}",
        partition=target.partition,
        constraint=target.constraint,
        account=target.account,
        qos=target.qos,
        gpus_per_node=target.gpus,
        cpus_per_task=target.cpus,
        time=max(1, round(60 * target.hours)),
        nodes=target.nodes,
        signal_delay_s=target.warning,
        dependency="singleton",
        wckey="hpml",
        stderr_to_stdout=True,
        # asv runs once, on the first node; the programs that it starts there can use all nodes of
        # the job
        srun_args=["--nodes=1", "--ntasks=1", "--overlap"],
        setup=_setup_lines(target),
        additional_parameters={"requeue": True, "chdir": request.project, **target.options},
    )
    return executor


def _local_executor(target: Target, request: RunRequest, folder: Path) -> Any:
    """submitit's executor for this machine."""
    python = _python_command(target, request, folder)
    if target.gpus is None:  # submitit hides every GPU that was not requested
        seen = os.environ.get("CUDA_VISIBLE_DEVICES")
        if seen is None:
            words = ["-u", "CUDA_VISIBLE_DEVICES"]
        else:
            words = [f"CUDA_VISIBLE_DEVICES={seen}"]
        python = f"env {shlex.join(words)} {python}"
    if lines := _setup_lines(target):
        python = shlex.join(
            ["bash", "-c", "\n".join([*lines, f'exec {python} "$@"']), "bash"]
        )
    executor = LocalExecutor(folder, max_num_timeout=target.restarts, python=python)
    # the warning always comes before the end, however short the time
    warning = min(target.warning, int(1800 * target.hours))
    executor.update_parameters(
        timeout_min=60 * target.hours,
        signal_delay_s=warning,
        gpus_per_node=target.gpus or 0,
        stderr_to_stdout=True,
    )
    return executor


def _asv_run(target: Target, request: RunRequest, folder: Path) -> AsvRun:
    """The job's command."""
    if target.side_by_side:
        from hpml_plugins.tools.cluster.side_by_side import SideBySide

        return SideBySide(str(folder), target.machine_name, request)
    return AsvRun(str(folder), target.machine_name, request)


def script(target: Target, request: RunRequest, folder: Path) -> str:
    """The script for sbatch, or to run here."""
    if target.executor == "slurm":
        executor = _slurm_executor(target, request, folder)
        return str(executor._make_submission_file_text(executor._submitit_command_str, ""))
    words = [
        "env",
        f"HPML_PROFILE={request.profile}",
        *_asv_run(target, request, folder).command(),
    ]
    lines = ["# here, one after the other, by submitit's local executor"]
    if target.side_by_side:
        lines.append(
            "# one such process for each GPU, side by side, each with a part of the work"
        )
    return "\n".join([*lines, *_setup_lines(target), shlex.join(words), ""])


def _setup_lines(target: Target) -> list[str]:
    """The lines of bash before the Python: each must succeed, or the job ends with its message."""
    lines = [
        f"module load {shlex.quote(name)}" for name in target.python.modules
    ] + target.python.setup
    return [
        f"{line} || {{ echo {shlex.quote('hpml: failed: ' + line)} >&2; exit 1; }}"
        for line in lines
    ]


def _python_command(target: Target, request: RunRequest, folder: Path) -> str:
    """The command of the node's Python, as words of a shell."""
    project = Path(request.project)
    python = target.python
    if python.container:
        words = ["apptainer", "exec", *(["--nv"] if target.gpus else [])]
        words += [
            word
            for path in dict.fromkeys([project, folder.parent])
            for word in ("--bind", str(path))
        ]
        words += [
            "--pwd",
            str(project),
            str(Path(project, python.container)),
            python.command or "python3",
        ]
        return shlex.join(words)
    if python.venv:
        return shlex.quote(str(Path(project, python.venv, "bin", "python")))
    if python.command:
        return shlex.join(shlex.split(python.command))
    return shlex.quote(sys.executable)
