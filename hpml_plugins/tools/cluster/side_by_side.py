"""A job that measures on every GPU of its node at once: one `asv run` (a queue) per GPU, merged at
the end."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from hpml_plugins.errors import HpmlError, UsageError
from hpml_plugins.model import counted
from hpml_plugins.node import read_gpus, usable
from hpml_plugins.run import MEASURED_NOTHING
from hpml_plugins.store import Lock, lock_machine, merge_results
from hpml_plugins.suite import (
    ASV_ENVIRONMENTS_VARIABLE,
    ASV_RESULTS_VARIABLE,
    SHARD_VARIABLE,
)
from hpml_plugins.terminal import say
from hpml_plugins.tools.cluster.job import PATIENCE, PLANNED_ENDS, AsvRun, describe_status
from hpml_plugins.tools.cluster.jobs import COMMITS, read_progress, tail, write_commits

#: The devices of queues without a GPU, separated by commas: for trials.
QUEUES_VARIABLE = "HPML_QUEUES"
#: Interval at which the queues are polled, s.
INTERVAL = 0.2


@dataclass(frozen=True)
class _Queue:
    """One `asv run` beside others. gpu: its CUDA_VISIBLE_DEVICES.  shard: of the benchmarks, of
    `shards`."""

    index: int
    gpu: str
    commits: tuple[str, ...]
    shard: int = 0
    shards: int = 1

    @property
    def name(self) -> str:
        """The name of its folder and its log."""
        return f"queue-{self.index}"

    def describe(self) -> str:
        """A description of what it measures."""
        commits = counted(len(self.commits), "commit")
        if self.shards == 1:
            return commits
        return f"part {self.shard + 1} of {self.shards} of the benchmarks of {commits}"


def share_queues(commits: Sequence[str], gpus: Sequence[str]) -> list[_Queue]:
    """A queue for each GPU: whole commits in turn if there are enough for all, else all commits and
    a part of the benchmarks each."""
    count = len(gpus)
    if len(commits) >= count:
        return [
            _Queue(index, gpu, tuple(commits[index::count]))
            for index, gpu in enumerate(gpus)
        ]
    return [
        _Queue(index, gpu, tuple(commits), index, count) for index, gpu in enumerate(gpus)
    ]


def gpus_side_by_side(environ: Mapping[str, str]) -> list[str]:
    """CUDA_VISIBLE_DEVICES of each queue: a GPU or MIG device of those visible in `environ`, by its
    UUID, or by its index if NVML gives none.

    Raises HpmlError if there is none, or if they are of several types: they share one machine's
    name.
    """
    found = read_gpus()
    gpus = usable(found.gpus, environ.get("CUDA_VISIBLE_DEVICES"), found.slices)
    types = sorted({gpu.name for gpu in gpus})
    if len(types) > 1:
        raise HpmlError(
            f"side_by_side: this node has GPUs of {len(types)} types ({', '.join(types)}); choose"
            " one type"
        )
    if not gpus and QUEUES_VARIABLE in environ:
        return environ[QUEUES_VARIABLE].split(",")
    if not gpus:
        because = f" ({found.problem})" if found.problem else ""
        raise HpmlError(f"side_by_side: this node has no GPU{because}")
    return [gpu.uuid or str(found.gpus.index(gpu)) for gpu in gpus]


def _irregular(folder: str, names: list[str]) -> list[str]:
    """The links, FIFOs and the like of a folder, which are not copied."""
    paths = [Path(folder, name) for name in names]
    return [
        path.name
        for path in paths
        if path.is_symlink() or not (path.is_file() or path.is_dir())
    ]


@dataclass
class SideBySide(AsvRun):
    """`asv run` in a queue for each GPU.

    Each queue has its own results in the job's folder, because one process writes a machine's
    results at a time. The results of a queue that died are merged too.
    """

    def _run(self, *, resume: bool) -> tuple[int, str]:
        queues = share_queues(
            Path(self.folder, COMMITS).read_text().split(), gpus_side_by_side(os.environ)
        )
        with lock_machine(
            Path(self.request.results), self.machine, timeout=PATIENCE
        ) as lock:
            self._merge(lock)  # of an attempt that was killed
            for queue in queues:
                self._prepare(queue)
            try:
                statuses = self._run_queues(queues, resume)
            finally:
                self._kill()
                for process in self._running:
                    process.wait()
                self._merge(lock)
        return self._outcome(queues, statuses)

    def _run_queues(self, queues: list[_Queue], resume: bool) -> list[int]:
        """Their exit statuses; prints their progress as asv does, for `hpml jobs`."""
        for queue in queues:
            self._start_queue(queue, resume)
            say(
                f"{queue.name}: GPU {queue.gpu or 'none'}, {queue.describe()}, {self._log(queue)}"
            )
        shown: list[float] = []
        alive = [True]
        while any(alive):
            time.sleep(INTERVAL)
            alive = [process.poll() is None for process in self._running]
            shares = [
                (read_progress(self._log(queue)) or 0.0) if alive[queue.index] else 1.0
                for queue in queues
            ]
            if shares != shown:
                shown = shares
                say(
                    f"[{sum(shares) / len(shares):7.2%}] "
                    + " ".join(f"{each:.0%}" for each in shares)
                )
        return [process.returncode for process in self._running]

    def _start_queue(self, queue: _Queue, resume: bool) -> None:
        variables = {
            "CUDA_VISIBLE_DEVICES": queue.gpu,
            SHARD_VARIABLE: f"{queue.shard}/{queue.shards}",
            ASV_RESULTS_VARIABLE: str(self._folder(queue)),
            ASV_ENVIRONMENTS_VARIABLE: queue.name,
        }
        command = self.command(f"{queue.name}-{COMMITS}", resume=resume)
        with self._log(queue).open("wb") as log:
            self._start(command, variables, stdout=log, stderr=subprocess.STDOUT)

    def _folder(self, queue: _Queue) -> Path:
        return Path(self.folder, queue.name)

    def _log(self, queue: _Queue) -> Path:
        return Path(self.folder, f"{queue.name}.log")

    def _prepare(self, queue: _Queue) -> None:
        """Copy the machine's results, for `--skip-existing`."""
        write_commits(Path(self.folder, f"{queue.name}-{COMMITS}"), queue.commits)
        source = Path(self.request.results, self.machine)
        shutil.copytree(
            source,
            self._folder(queue) / self.machine,
            dirs_exist_ok=True,
            ignore=_irregular,
        )

    def _merge(self, lock: Lock) -> None:
        """Merge the results of the queues into the project's, and remove the merged folders."""
        for folder in sorted(Path(self.folder).glob("queue-*/")):
            try:
                report = merge_results([folder], Path(self.request.results), locked=lock)
            except UsageError:
                report = None  # it ended before it wrote anything
            for line in [*report.conflicts, *report.skipped] if report else []:
                say(f"hpml-job: {line}", error=True)
            if report is None or not report.skipped:
                shutil.rmtree(folder, ignore_errors=True)

    def _outcome(self, queues: list[_Queue], statuses: list[int]) -> tuple[int, str]:
        measured = [status for status in statuses if status in PLANNED_ENDS]
        # of some queues' benchmarks no point may run on this node
        nothing = statuses.count(MEASURED_NOTHING)
        if measured and len(measured) + nothing == len(statuses):
            return max(measured, key=list(PLANNED_ENDS).index), ""
        if all(status == -signal.SIGTERM for status in statuses):
            return -signal.SIGTERM, ""
        reasons = []
        for queue, status in zip(queues, statuses, strict=True):
            if status not in PLANNED_ENDS:
                name = f"{queue.name} (GPU {queue.gpu or 'none'}, {queue.describe()})"
                reasons.append(f"{name} {describe_status(status)}: {self._why(queue)}")
        others = len(queues) - len(reasons)
        reasons.append(f"its results and those of the other queues ({others}) are kept")
        return 1, "; ".join(reasons)

    def _why(self, queue: _Queue) -> str:
        """The last error that a queue printed, or where to look."""
        log = self._log(queue)
        errors = [line for line in tail(log, 50) if line.startswith("hpml: ")]
        return errors[-1].removeprefix("hpml: ") if errors else f"its log: {log.name}"
