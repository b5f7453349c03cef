"""Starting ranks, as a rule with torch's launcher, waiting for them, and saying which one failed and how."""

from __future__ import annotations

import multiprocessing
import os
import pickle
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import suppress
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from hpml_plugins.errors import CheckFailed, HpmlError, RankFailed, Skipped, UsageError, describe
from hpml_plugins.isolation.process import describe_exit
from hpml_plugins.measure.bench import Bench
from hpml_plugins.measure.ranks.group import Backend, Launcher, Report, Team
from hpml_plugins.measure.ranks.stacks import where
from hpml_plugins.measure.ranks.worker import live

#: s between two looks at the ranks.
LOOK = 0.1
#: s that the others have to end by themselves when one has failed, and again before they are killed.
GRACE = 0.2
#: What is left of the point's own time to say who hangs and to end all: s, and as a share.
MARGIN, MARGIN_SHARE = 3.0, 0.25
#: Where no point's timeout bounds the ranks, s.
LONGEST = 600.0


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
    _check(bench, count // nodes, chosen)
    limit = _limit(bench, timeout)
    if launcher == "mpi" or nodes > 1:
        found = _start_elsewhere(
            bench, function, count, args, backend=chosen, limit=limit, environment=environment or {}, nodes=nodes,
            launcher=launcher,
        )  # fmt: skip
        if failed := [(report.at, index) for index, report in enumerate(found) if report.kind != "ok"]:
            index = min(failed, key=lambda pair: (pair[0] == 0, pair))[1]  # 0: it left no report
            raise _error(index, found[index])
        return _merge(bench, found)
    method = _start_method()
    with tempfile.TemporaryDirectory(prefix="hpml-ranks-") as folder:
        team = Team(
            folder, count, chosen, os.getpid(), bench.node, bench.params, bench.seed, bench.plan, limit,
            environment or {},
        )  # fmt: skip
        receiver, sender = multiprocessing.Pipe(duplex=False)
        context = _start(team, function, args, sender, method)
        try:
            _wait(context, team, receiver, bench, limit)
        finally:
            for process in context.processes:
                process.kill()
                process.join()
            for left in context.error_files:  # torch's own; it does not take them away
                Path(left).unlink(missing_ok=True)
            sender.close()
            receiver.close()
        reports = [team.read(index) for index in range(count)]
    return _merge(bench, [report for report in reports if report])


def _start_elsewhere(
    bench: Bench,
    function: Callable[..., Any],
    count: int,
    args: tuple[Any, ...],
    *,
    nodes: int,
    launcher: Launcher,
    **told: Any,
) -> list[Report]:
    """By another program than torch's launcher in this process: srun on several nodes, or mpirun."""
    if launcher == "torch":
        from hpml_plugins.measure.ranks.slurm import run_on_nodes

        return run_on_nodes(bench, function, count, nodes, args, **told)
    if nodes > 1:
        raise UsageError("ranks that mpirun starts are on one node; leave nodes out, or launcher")
    from hpml_plugins.measure.ranks.mpi import run_by_mpirun

    return run_by_mpirun(bench, function, count, args, **told)


def _check(bench: Bench, count: int, backend: Backend) -> None:
    if count < 1:
        raise UsageError(f"{count} ranks cannot be started; at least one")
    if backend == "nccl" and bench.gpus < count:
        raise UsageError(
            f"{count} ranks over nccl need {count} GPUs, the point has {bench.gpus}; declare Requires(gpus=...)"
        )


def _limit(bench: Bench, timeout: float | None) -> float:
    """How long the ranks may take, s: what was asked for, but less than what is left of the point's time."""
    if bench.deadline is None:
        return timeout or LONGEST
    left = bench.deadline - time.monotonic()
    return min(timeout or left, left - min(MARGIN, MARGIN_SHARE * left))


def _start_method() -> str:
    """ "fork" where that is safe, else "spawn", which imports everything again.

    A fork has only the thread that forked: the pools of OpenMP, CUDA's and gloo's threads are gone, and whoever waits
    for them hangs. Before torch is imported no such pool exists; NumPy's OpenBLAS minds its own forks.
    """
    fresh = "torch" not in sys.modules
    import torch  # noqa: F401

    return "fork" if fresh or len(list(Path("/proc/self/task").iterdir())) == 1 else "spawn"


def _start(team: Team, function: Callable[..., Any], args: tuple[Any, ...], sender: Connection, method: str) -> Any:
    from torch.multiprocessing.spawn import start_processes

    sys.stdout.flush()
    sys.stderr.flush()
    try:
        return start_processes(
            live, args=(team, function, args, sender), nprocs=team.count, join=False, start_method=method
        )
    except (pickle.PicklingError, AttributeError, TypeError) as error:
        raise UsageError(
            f"ranks must be spawned, because this process has started threads (torch, CUDA), and cannot be: "
            f"{describe(error)}; call bench.ranks before anything else, or with a function of a module"
        ) from error


def _wait(context: Any, team: Team, receiver: Connection, bench: Bench, limit: float) -> None:
    """Until all ranks have ended well. Raises for the first that did not."""
    from torch.multiprocessing.spawn import ProcessException

    deadline = time.monotonic() + limit
    while True:
        try:
            done = context.join(timeout=LOOK, grace_period=GRACE)
        except ProcessException as fault:
            _raise_first(context, team, int(fault.error_index))
            return  # all had reported before one died in taking itself down
        with suppress(EOFError, OSError):
            while receiver.poll():
                bench.progress(*receiver.recv())
        for index, process in enumerate(context.processes):
            if process.exitcode == 0 and not team.report_of(index).exists():
                raise RankFailed(f"rank {index} ended with exit status 0 before its function returned")
        if done:
            return
        if time.monotonic() >= deadline:
            raise RankFailed(f"ranks timed out after {limit:.3g} s: {_where(context, team)}")


def _raise_first(context: Any, team: Team, noticed: int) -> None:
    """Raise for the rank that failed first; nothing where every function had returned."""
    reports = {index: report for index in range(team.count) if (report := team.read(index))}
    silent = [index for index in range(team.count) if index not in reports]
    # Without a report: the one that was noticed, or one that exited; signals may be ours, sent to the others.
    for index in silent:
        code = context.processes[index].exitcode
        if index == noticed or (code is not None and code >= 0):
            said = describe_exit(code) or "ended with exit status 0 before it reported"
            raise RankFailed(f"rank {index} {said}")
    failed = [(report.at, index) for index, report in reports.items() if report.kind != "ok"]
    if failed:
        index = min(failed)[1]
        raise _error(index, reports[index])


def _error(index: int, report: Report) -> HpmlError:
    if report.kind == "skipped":
        return Skipped(report.text)
    if report.kind == "wrong":
        return CheckFailed(f"rank {index}: {report.text}")
    return RankFailed(f"rank {index}: {report.text}")


def _where(context: Any, team: Team) -> str:
    return where(team, {i: process.pid for i, process in enumerate(context.processes) if process.is_alive()})


def _merge(bench: Bench, reports: list[Report]) -> list[Any]:
    """Put what the ranks checked, warned of and attached into the bench: once what all say, else by rank."""
    for index, report in enumerate(reports):
        bench.checks += [check for check in dict.fromkeys(report.checks) if check not in bench.checks]
        for text in report.warnings:
            everywhere = all(text in other.warnings for other in reports)
            said = text if everywhere or index == 0 else f"rank {index}: {text}"
            bench.warnings += [said] * (said not in bench.warnings)
        bench.attached |= {name if index == 0 else f"{name}_rank{index}": s for name, s in report.attached.items()}
    return [report.value for report in reports]
