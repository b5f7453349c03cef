"""Ranks that mpirun starts: they talk over MPI and torch.distributed, they fail by name, and none
is left."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from support import PATIENCE, still_running, unavailable, wait_for

from hpml_plugins import Bench, Benchmark, Metric, Node, Rank, Record
from hpml_plugins.measure import Context, measure_point, why_no_mpi
from hpml_plugins.measure.ranks import launchers
from hpml_plugins.measure.ranks.launch import _no_result


def needs_mpi() -> None:
    if reason := why_no_mpi():
        unavailable(reason)


def point(
    node: Node,
    function: Callable[..., Any],
    *args: Any,
    timeout: float = PATIENCE,
    count: int = 2,
) -> Record:
    def measure(bench: Bench) -> dict[str, Any]:
        found = bench.ranks(function, count, *args, launcher="mpi")
        bench.series("found", {"value": [float(value) for value in found]})
        return {"time": 1.0}

    benchmark = Benchmark("toy", measure, [Metric("time", "s", "lower")], timeout=timeout)
    return measure_point(benchmark, {}, Context(node))


def both_sums(rank: Rank, folder: str) -> float:
    import torch
    import torch.distributed as dist
    from mpi4py import MPI

    Path(folder, str(os.getpid())).touch()
    world = MPI.COMM_WORLD
    numbered = (world.Get_rank(), world.Get_size()) == (rank.index, rank.count)
    rank.bench.check(numbered, "MPI and torch number ranks alike")
    rank.bench.check(
        os.getpgid(0) != os.getpid() or os.getsid(0) != os.getpid(),
        "a rank leads no session",
    )
    rank.bench.progress("summing", 0.5)
    over_torch = torch.tensor([2.0 ** (rank.index + 4)])
    dist.all_reduce(over_torch)
    return float(world.allreduce(2.0**rank.index) + over_torch.item())


def one_raises(rank: Rank, folder: str) -> None:
    from mpi4py import MPI

    Path(folder, str(os.getpid())).touch()
    rank.barrier()
    if rank.index == 1:
        raise ValueError("no such layer")
    MPI.COMM_WORLD.Barrier()


def one_dies(rank: Rank, folder: str) -> None:
    from mpi4py import MPI

    Path(folder, str(os.getpid())).touch()
    rank.barrier()
    if rank.index == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    MPI.COMM_WORLD.Barrier()


def one_hangs(rank: Rank, folder: str) -> None:
    Path(folder, str(os.getpid())).touch()
    rank.barrier()
    if rank.index == 1:
        time.sleep(3600)
    rank.barrier()


def test_ranks_of_mpirun_sum_over_mpi_and_over_torch(node: Node, tmp_path: Path) -> None:
    needs_mpi()
    record = point(node, both_sums, str(tmp_path))
    assert (record.status, record.reason) == ("ok", "")
    # 2⁰ + 2¹ over MPI, 2⁴ + 2⁵ over gloo.
    assert record.series["found"].columns["value"] == [3 + 48, 3 + 48]
    assert "MPI and torch number ranks alike" in record.checks
    assert still_running(tmp_path, 2) == []


@pytest.mark.parametrize(
    ("function", "reason"),
    [
        (
            one_raises,
            (
                'rank 1: ValueError: no such layer (test_ranks_mpi.py:{line}: raise ValueError("no'
                ' such layer"))'
            ),
        ),
        (one_dies, "rank 1 died of SIGKILL (killed, perhaps for want of memory)"),
    ],
)
def test_a_rank_of_mpirun_that_fails_is_named_and_none_is_left(
    function: Callable[..., Any], reason: str, node: Node, tmp_path: Path
) -> None:
    needs_mpi()
    record = point(node, function, str(tmp_path))
    line = one_raises.__code__.co_firstlineno + 6
    assert (record.status, record.reason) == ("failed", reason.format(line=line))
    assert still_running(tmp_path, 2) == []


@pytest.mark.slow
def test_ranks_of_mpirun_that_hang_are_asked_where_and_ended(
    node: Node, tmp_path: Path
) -> None:
    needs_mpi()
    record = point(node, one_hangs, str(tmp_path), timeout=60)
    assert record.status == "failed"
    assert record.reason.startswith("ranks timed out after ")
    assert "rank 1 in one_hangs (test_ranks_mpi.py:" in record.reason
    assert still_running(tmp_path, 2) == []


@pytest.mark.slow
def test_ranks_end_with_who_started_them(tmp_path: Path) -> None:
    needs_mpi()
    script = tmp_path / "start.py"
    folder = tmp_path / "ranks"
    folder.mkdir()
    script.write_text(
        "from hpml_plugins import Bench, Node\nfrom test_ranks_mpi import one_hangs\n"
        "node = Node(os='Linux 6', arch='x86_64', cpu='C', num_cpu=2, ram=2.0**34, python='3.11')\n"
        f"Bench(node, {{}}).ranks(one_hangs, 2, {str(folder)!r}, launcher='mpi')\n"
    )
    env = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(
            [str(Path(__file__).parent), str(Path(__file__).parents[1])]
        ),
    }
    starter = subprocess.Popen([sys.executable, str(script)], env=env)
    try:
        wait_for(lambda: len(list(folder.iterdir())) == 2, "two ranks")
    finally:
        starter.kill()
        starter.wait()
    wait_for(lambda: not still_running(folder, 2), "the end of the ranks")


def test_without_mpirun_the_point_is_skipped_and_says_how_to_mend(
    node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", "")
    record = point(node, one_hangs, "")
    assert (record.status, record.reason) == (
        "skipped",
        "needs mpirun, which is not on this node (on Debian: apt-get install openmpi-bin)",
    )


def test_without_mpi4py_the_point_is_skipped(
    node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    needs_mpi()
    monkeypatch.setattr(launchers.importlib.util, "find_spec", lambda name: None)
    record = point(node, one_hangs, "")
    assert (record.status, record.reason) == (
        "skipped",
        "needs module mpi4py, which is not installed (pip install mpi4py)",
    )


def test_a_function_that_no_module_has_is_sent_and_one_that_cannot_be_is_refused(
    node: Node,
) -> None:
    needs_mpi()
    lock = threading.Lock()
    assert point(node, lambda rank: rank.index + 5).series["found"].columns["value"] == [
        5,
        6,
    ]
    record = point(node, lambda rank: lock.locked())
    assert record.status == "failed"
    assert (
        "the ranks' function cannot be sent to new processes: TypeError: cannot pickle"
        in record.reason
    )


def test_what_mpirun_says_of_a_rank_that_died_is_read() -> None:
    told = (
        "mpirun noticed that process rank 3 with PID 4711 on node\n  n1 exited on signal 11"
        " (Segmentation fault).\n"
    )
    assert _no_result(0, told).what == "rank 3 died of SIGSEGV (segmentation fault)"
    assert (
        _no_result(1, "-----\nno slots\n-----\n").what
        == "rank 1 ended without a report: no slots"
    )
