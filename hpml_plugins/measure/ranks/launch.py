"""Starting ranks, waiting for them, and saying which one failed and how.

Ranks on this node are processes of this one, or mpirun's; on several nodes srun starts them. They answer in files.
"""

from __future__ import annotations

import json
import multiprocessing.connection
import os
import pickle
import re
import signal
import subprocess
import sys
import tempfile
import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from types import ModuleType
from typing import Any

import psutil

from hpml_plugins.errors import RankFailed, Skipped, UsageError, describe
from hpml_plugins.isolation import describe_exit, end_with_parent
from hpml_plugins.measure.bench import Bench
from hpml_plugins.measure.ranks import mpi, slurm
from hpml_plugins.measure.ranks.group import Backend, Group, Launcher, RankResult
from hpml_plugins.measure.ranks.worker import run_rank

#: s between two looks at the ranks.
LOOK = 0.1
#: s that the others have to end by themselves when one has failed; and that ranks have to say where they are.
GRACE = 0.2
#: What is left of the point's own time to say who hangs and to end all: s, and as a share.
MARGIN, MARGIN_SHARE = 3.0, 0.25
#: Where no point's timeout bounds the ranks, s.
LONGEST = 600.0
_MEASURE = Path(__file__).parents[1]


def run_ranks(
    bench: Bench,
    function: Callable[..., Any],
    count: int,
    args: tuple[Any, ...],
    *,
    backend: Backend | None = None,
    timeout: float | None = None,
    environment: dict[str, str] | None = None,
    nodes: int = 1,
    launcher: Launcher = "torch",
) -> list[Any]:
    """Run `function(rank, *args)` on so many ranks; see Bench.ranks. No process is left, whatever happens."""
    chosen = backend or ("nccl" if bench.device.startswith("cuda") else "gloo")
    _check(bench, count, chosen, nodes, launcher)
    limit = _limit(bench, timeout)
    shared = slurm.shared_folder() if nodes > 1 else None
    with tempfile.TemporaryDirectory(prefix=".hpml-ranks-", dir=shared) as folder:
        group = Group(
            folder, count, chosen, bench.node, bench.params, bench.seed, bench.plan, limit, environment or {}, nodes,
            parent=os.getpid() if launcher == "torch" and nodes == 1 else 0,
        )  # fmt: skip
        started = (_Processes if group.parent else _Program)(group, function, args)
        try:
            _wait(started, group, bench, limit)
        finally:
            started.end()
        results = _results(started, group)
    return _merge(bench, results)


def _check(bench: Bench, count: int, backend: Backend, nodes: int, launcher: Launcher) -> None:
    if count < 1:
        raise UsageError(f"{count} ranks cannot be started; at least one")
    if backend == "nccl" and bench.gpus < count // nodes:
        raise UsageError(
            f"{count // nodes} ranks over nccl need {count // nodes} GPUs, the point has {bench.gpus}; "
            "declare Requires(gpus=...)"
        )
    if launcher == "mpi" and nodes > 1:
        raise UsageError("ranks that mpirun starts are on one node; leave nodes out, or launcher")
    if launcher == "mpi" and (reason := mpi.why_no_mpi()):
        raise Skipped(reason)
    if nodes > 1:
        slurm.check(count, nodes)


def _limit(bench: Bench, timeout: float | None) -> float:
    """How long the ranks may take, s: what was asked for, but less than what is left of the point's time."""
    if bench.deadline is None:
        return timeout or LONGEST
    left = bench.deadline - time.monotonic()
    return min(timeout or left, left - min(MARGIN, MARGIN_SHARE * left))


class _Started(ABC):
    """Ranks that run."""

    @abstractmethod
    def wait(self) -> bool:
        """Wait a moment. Whether they run on: not once all have ended, or one failed and the others had their time."""

    @abstractmethod
    def failure(self, index: int, *, first: bool) -> str:
        """How a rank without a result ended; empty where that is not known.  first: before the others' results."""

    @abstractmethod
    def end(self) -> None:
        """End all of them."""


class _Processes(_Started):
    """Processes of this one, forked where that is safe, else spawned, which imports everything again.

    A fork has only the thread that forked: the pools of OpenMP, CUDA's and gloo's threads are gone, and whoever waits
    for them hangs. Before torch is imported no such pool exists; NumPy's OpenBLAS minds its own forks.
    """

    def __init__(self, group: Group, function: Callable[..., Any], args: tuple[Any, ...]) -> None:
        fresh = "torch" not in sys.modules
        import torch.multiprocessing as mp

        context = mp.get_context("fork" if fresh or psutil.Process().num_threads() == 1 else "spawn")
        sys.stdout.flush()
        sys.stderr.flush()
        self._group = group
        self._processes = [
            context.Process(target=run_rank, args=(index, index, group, function, args)) for index in range(group.count)
        ]
        self._codes: list[int | None] = []
        try:
            for process in self._processes:
                process.start()
        except (pickle.PicklingError, AttributeError, TypeError) as error:
            self.end()
            raise UsageError(
                f"ranks must be spawned, because this process has started threads (torch, CUDA), and cannot be: "
                f"{describe(error)}; call bench.ranks before anything else, or with a function of a module"
            ) from error

    def wait(self) -> bool:
        multiprocessing.connection.wait([p.sentinel for p in self._processes if p.exitcode is None], LOOK)
        self._codes = [process.exitcode for process in self._processes]
        if any(code or self._ended_silently(index) for index, code in enumerate(self._codes)):
            patience = time.monotonic() + GRACE
            for process in self._processes:
                process.join(max(0.0, patience - time.monotonic()))
            return False
        return None in self._codes

    def _ended_silently(self, index: int) -> bool:
        return self._codes[index] is not None and not self._group.result_file(index).exists()

    def failure(self, index: int, *, first: bool) -> str:
        # Who left a result had not failed before a result was seen; signals later on are ours, or the others' end.
        if first and not self._ended_silently(index):
            return ""
        code = self._codes[index]
        if code == 0:
            return f"rank {index} ended with exit status 0 before its function returned"
        return f"rank {index} {describe_exit(code) if code else 'was ended with the others'}"

    def end(self) -> None:
        for process in self._processes:
            if process.pid is not None:
                process.kill()
                process.join()


class _Program(_Started):
    """Ranks that mpirun or srun starts: `python -m …worker FOLDER`."""

    def __init__(self, group: Group, function: Callable[..., Any], args: tuple[Any, ...]) -> None:
        self._group = group
        self._by: ModuleType = mpi if group.nodes == 1 else slurm
        name, command = ("mpirun", mpi.command(group.count)) if group.nodes == 1 else (
            "srun", slurm.command(group.count, group.nodes)
        )  # fmt: skip
        try:
            group.order_file.write_bytes(pickle.dumps((group, function, args)))
        except (pickle.PicklingError, AttributeError, TypeError) as error:
            raise UsageError(f"ranks that {name} starts need a function of a module: {describe(error)}") from error
        self._log = tempfile.TemporaryFile()  # noqa: SIM115  (closed by end)
        self._output = ""
        parent = os.getpid()
        self._process = subprocess.Popen(
            [*command, "-m", "hpml_plugins.measure.ranks.worker", group.folder],
            env={**self._by.environment(), "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
            stdin=subprocess.DEVNULL,  # it would read what is meant for others
            stdout=self._log,
            stderr=subprocess.STDOUT,
            # srun must live to end its ranks on other nodes
            preexec_fn=(lambda: end_with_parent(parent)) if group.nodes == 1 else None,
        )

    def wait(self) -> bool:
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(LOOK)
        return self._process.returncode is None

    def failure(self, index: int, *, first: bool) -> str:
        return "" if first else self._by.how_it_ended(index, self._output)

    def end(self) -> None:
        """End the program, which ends its ranks, and those on this node that it leaves behind."""
        if self._process.poll() is None:
            self._process.terminate()
            try:
                self._process.wait(self._by.GRACE)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()
        for process in self._group.living().values():
            with suppress(psutil.Error):
                process.kill()
        with self._log:
            self._log.seek(0)
            self._output = self._log.read().decode(errors="replace")
        sys.stderr.write(self._output)


def _wait(started: _Started, group: Group, bench: Bench, limit: float) -> None:
    """Until the ranks have ended, or one failed. Raises RankFailed when the time is up."""
    deadline = time.monotonic() + limit
    shown = b""
    running = True
    while running:
        running = started.wait()
        with suppress(OSError):
            if (said := group.progress_file.read_bytes()) != shown:
                bench.progress(*json.loads(said))
                shown = said
        if running and time.monotonic() >= deadline:
            raise RankFailed(f"ranks timed out after {limit:.3g} s: {_where(group)}")


def _results(started: _Started, group: Group) -> list[RankResult]:
    """All of them. Raises for the rank that failed first."""
    found = [group.result(index) for index in range(group.count)]
    silent = [index for index, result in enumerate(found) if result is None]
    for index in silent:
        if failure := started.failure(index, first=True):
            raise RankFailed(failure)
    results = [result for result in found if result]
    for result in sorted(results, key=lambda each: each.at):
        if result.error:
            raise result.error
    if silent:
        raise RankFailed(started.failure(silent[0], first=False))
    return results


def _merge(bench: Bench, results: list[RankResult]) -> list[Any]:
    """Put what the ranks checked, warned of and attached into the bench: once what all say, else by rank."""
    for index, result in enumerate(results):
        bench.checks += [check for check in dict.fromkeys(result.checks) if check not in bench.checks]
        for text in result.warnings:
            everywhere = all(text in other.warnings for other in results)
            warning = text if everywhere or index == 0 else f"rank {index}: {text}"
            bench.warnings += [warning] * (warning not in bench.warnings)
        bench.attached |= {name if index == 0 else f"{name}_rank{index}": s for name, s in result.attached.items()}
    return [result.value for result in results]


def _where(group: Group) -> str:
    """`rank 0 in all_reduce (distributed_c10d.py:3061) of step (a.py:9)`: each writes its stack when signalled."""
    if group.nodes > 1:
        return f"on {group.nodes} nodes"
    living = group.living()
    for process in living.values():
        with suppress(psutil.Error):
            process.send_signal(signal.SIGUSR1)
    time.sleep(GRACE)
    places = [
        f"rank {index} {_frame(group.stack_file(index)) if index in living else 'still starting'}"
        for index in range(group.count)
        if index in living or not group.pid_file(index).exists()
    ]
    return ", ".join(places) or "none is left"


def _frame(path: Path) -> str:
    """The innermost frame of a stack, and the function of the plugin that called it."""
    frames = re.findall(r'File "(.*)", line (\d+) in (\S+)', path.read_text())
    if not frames:
        return "silent"
    own = [frame for frame in frames if "/torch/" not in frame[0] and _MEASURE not in Path(frame[0]).parents]
    shown = [frames[0], *[frame for frame in own[:1] if frame != frames[0]]]
    return "in " + " of ".join(f"{function} ({Path(file).name}:{line})" for file, line, function in shown)
