"""Start ranks, wait for them, and report which one failed and how.

Ranks on this node are processes of this one or of mpirun; on several nodes srun starts them. They
write their results to files.
"""

from __future__ import annotations

import json
import multiprocessing.connection
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import cloudpickle
import psutil

from hpml_plugins import clocks
from hpml_plugins.errors import Failure, HpmlError, UsageError, describe
from hpml_plugins.isolation import describe_exit, describe_stack, end_with_parent
from hpml_plugins.measure.ranks import launchers
from hpml_plugins.measure.ranks.group import Backend, Launcher, RankGroup, RankResult
from hpml_plugins.measure.ranks.worker import LAST_WORDS, MakeRank, Order, run_rank
from hpml_plugins.measure.session import Session
from hpml_plugins.model.data_source import available_sources
from hpml_plugins.temporary import temporary_folder

#: s between two checks of the ranks.
LOOK = 0.1
#: s that mpirun or srun has to end its ranks when their time is up; srun ends those of other
#: nodes.
GRACE = 10.0
#: s reserved before the point's time-out, to name the ranks that hang and to stop all of them.
MARGIN = 3.0
#: The same as a share of the time-out.
MARGIN_SHARE = 0.25
#: Where no point's timeout bounds the ranks, s.
LONGEST = 600.0
#: mpirun's message about a rank that died.
_DIED = re.compile(r"rank (\d+) .*?exited on\s+signal (\d+)", re.DOTALL)


class _TimedOut(HpmlError):
    """The ranks exceeded their time limit."""

    failure = Failure.TIMEOUT


def run_ranks(
    session: Session,
    make_rank: MakeRank,
    function: Callable[..., Any],
    count: int,
    args: tuple[Any, ...],
    *,
    backend: Backend | None,
    environment: dict[str, str],
    nodes: int,
    launcher: Launcher,
) -> list[Any]:
    """Run `function(rank, *args)` on `count` ranks; see Bench.ranks. Never leaves a process
    behind."""
    chosen = backend or ("nccl" if session.device.startswith("cuda") else "gloo")
    _check(session, count, chosen, nodes, launcher)
    left = LONGEST if session.deadline is None else session.remaining
    limit = left - min(MARGIN, MARGIN_SHARE * left)
    shared = launchers.shared_folder() if nodes > 1 else None
    with temporary_folder(".hpml-ranks-", shared) as folder:
        group = RankGroup(
            str(folder),
            count,
            chosen,
            session.node,
            session.params,
            session.seed,
            session.plan,
            clocks.wall_clock() + limit,
            environment,
            available_sources(),
            nodes,
            parent=os.getpid() if launcher == "torch" and nodes == 1 else 0,
            telemetry=session.telemetry,
        )
        started = (_Processes if group.parent else _Program)(
            (group, make_rank, function, args)
        )
        try:
            _wait(started, group, session, limit)
        finally:
            output = started.end()
        results = [
            group.result(i) or RankResult(error=_no_result(i, output)) for i in range(count)
        ]
    for result in sorted(results, key=lambda each: each.at):
        if result.error:
            raise result.error
    return _merge(session, results)


def _check(
    session: Session, count: int, backend: Backend, nodes: int, launcher: Launcher
) -> None:
    """Raise UsageError if this launcher cannot start that many ranks, Skipped if the node has no
    such launcher."""
    if count < 1:
        raise UsageError(f"{count} ranks cannot be started; start at least one")
    if launcher == "mpi" and nodes > 1:
        raise UsageError(
            "mpirun starts ranks on one node only; leave out nodes or launcher"
        )
    if launcher == "mpi" and (reason := launchers.why_no_mpi()):
        session.skip(reason)
    if count % nodes:
        raise UsageError(f"{count} ranks cannot be divided evenly among {nodes} nodes")
    if nodes > session.nodes:
        raise UsageError(
            f"{nodes} nodes are needed, this run has {session.nodes};"
            f" cluster.yaml: `nodes: {nodes}`"
        )
    if backend == "nccl" and session.gpus < count // nodes:
        raise UsageError(
            f"{count // nodes} ranks over nccl need {count // nodes} GPUs, the point has"
            f" {session.gpus}; declare Requires(gpus=...)"
        )


class _Processes:
    """Processes of this one, forked if that is safe, else spawned, which imports everything again.

    A fork has only the thread that forked. The pools of OpenMP and the threads of CUDA and gloo are
    gone, and waiting for them would hang. Before torch is imported no such pool exists; NumPy's
    OpenBLAS handles forks itself.
    """

    def __init__(self, order: Order) -> None:
        fresh = "torch" not in sys.modules
        import torch.multiprocessing as mp

        may_fork = fresh or psutil.Process().num_threads() == 1
        context = mp.get_context("fork" if may_fork else "spawn")
        given = order if may_fork else _pickled(order)
        sys.stdout.flush()
        sys.stderr.flush()
        self._group = order[0]
        self._processes = [
            context.Process(target=run_rank, args=(i, i, given))
            for i in range(self._group.count)
        ]
        for process in self._processes:
            process.start()

    def wait(self) -> bool:
        """Wait a moment. Returns whether they are still running: false if all have ended or one
        failed."""
        multiprocessing.connection.wait(
            [each.sentinel for each in self._processes if each.exitcode is None], LOOK
        )
        codes = [process.exitcode for process in self._processes]
        silent = [
            i
            for i, code in enumerate(codes)
            if code is not None and not self._group.file("result", i).exists()
        ]
        for index in silent:
            how = (
                describe_exit(codes[index] or 0)
                or "ended with exit status 0 before its function returned"
            )
            # Failures that its end caused in other ranks are not the first cause.
            self._group.leave(
                index,
                RankResult(
                    error=HpmlError(f"rank {index} {how}"),
                    at=clocks.wall_clock() - LAST_WORDS,
                ),
            )
        return None in codes and not silent and not any(codes)

    def end(self) -> str:
        """End all of them. Their output is that of this process."""
        for process in self._processes:
            process.kill()
            process.join()
        return ""


class _Program:
    """Ranks started by mpirun or srun: `python -m …worker FOLDER`."""

    def __init__(self, order: Order) -> None:
        self._group = group = order[0]
        on_nodes = group.nodes > 1
        group.file("order").write_bytes(_pickled(order))
        self._log = tempfile.TemporaryFile()  # noqa: SIM115  (closed by end)
        parent = os.getpid()
        self._process = subprocess.Popen(
            [
                *launchers.command(group),
                "-m",
                "hpml_plugins.measure.ranks.worker",
                group.folder,
            ],
            env=launchers.environment(group),
            stdin=subprocess.DEVNULL,  # it would read input meant for others
            stdout=self._log,
            stderr=subprocess.STDOUT,
            # srun must survive to end its ranks on other nodes
            preexec_fn=None if on_nodes else lambda: end_with_parent(parent),
        )

    def wait(self) -> bool:
        """Wait a moment. Returns whether the program is still running: it ends all ranks once one
        has failed."""
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(LOOK)
        return self._process.returncode is None

    def end(self) -> str:
        """End the program, which ends its ranks, and any ranks it leaves on this node. Returns all
        output."""
        if self._process.poll() is None:
            self._process.terminate()
            try:
                self._process.wait(GRACE)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()
        for process in psutil.process_iter(["cmdline"]):
            if self._group.folder in (process.info["cmdline"] or ()):
                with suppress(psutil.Error):
                    process.kill()
        with self._log:
            self._log.seek(0)
            output = self._log.read().decode(errors="replace")
        sys.stderr.write(output)
        return output


def _pickled(order: Order) -> bytes:
    """The pickled order for ranks in new processes. Raises UsageError if it cannot be pickled."""
    try:
        group, *rest = order
        return cloudpickle.dumps((replace(group, telemetry=None), *rest))  # type: ignore[no-any-return]
    except Exception as error:
        raise UsageError(
            f"the ranks' function cannot be sent to new processes: {describe(error)}; "
            "start ranks before anything computes with torch: they are then forked"
        ) from error


def _wait(
    started: _Processes | _Program, group: RankGroup, session: Session, limit: float
) -> None:
    """Wait until the ranks have ended or one failed. Raises _TimedOut when the time is up."""
    shown = b""
    running = True
    while running:
        running = started.wait()
        with suppress(OSError):
            if (progress := group.file("progress").read_bytes()) != shown:
                session.progress(*json.loads(progress))
                shown = progress
        if running and clocks.wall_clock() >= group.end:
            raise _TimedOut(f"ranks timed out after {limit:.3g} s: {_where(group)}")


def _no_result(index: int, output: str) -> HpmlError:
    """The error for a rank without a result: mpirun's message about the rank that caused it, or the
    last output."""
    if died := _DIED.search(output):
        return HpmlError(f"rank {died[1]} {describe_exit(-int(died[2]))}")
    lines = [line.strip() for line in output.splitlines() if line.strip(" -=")]
    return HpmlError(
        f"rank {index} ended without a report" + (f": {lines[-1]}" if lines else "")
    )


def _merge(session: Session, results: list[RankResult]) -> list[Any]:
    """Merge the checks, warnings and series of the ranks into the bench: once if all have the same,
    else by rank."""
    point = session.collected
    for index, rank in enumerate(result.collected for result in results):
        point.checks += [
            check for check in dict.fromkeys(rank.checks) if check not in point.checks
        ]
        _merge_texts(point.warnings, index, [each.collected.warnings for each in results])
        _merge_texts(point.noise, index, [each.collected.noise for each in results])
        point.data |= rank.data
        point.work = rank.work | point.work  # of several ranks, the first one's
        point.series |= {
            name if index == 0 else f"{name}_rank{index}": s
            for name, s in rank.series.items()
        }
    return [result.value for result in results]


def _merge_texts(merged: list[str], index: int, by_rank: list[list[str]]) -> None:
    """Add the texts of this rank: unchanged if they come from the first rank or from all."""
    for text in by_rank[index]:
        on_all = all(text in texts for texts in by_rank)
        said = text if on_all or index == 0 else f"rank {index}: {text}"
        merged += [said] * (said not in merged)


def _where(group: RankGroup) -> str:
    """`rank 0 in all_reduce (distributed_c10d.py:3061) of step (a.py:9)`: where the ranks hang that
    have not returned."""
    hanging = [
        index for index in range(group.count) if not group.file("result", index).exists()
    ]
    return ", ".join(
        f"rank {index} {_stack(group.file('stack', index))}" for index in hanging
    )


def _stack(path: Path) -> str:
    try:
        return describe_stack(path.read_text()) or "silent"
    except OSError:
        return "still starting"
