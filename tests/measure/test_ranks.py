"""Ranks over gloo: what they return, how they fail, and that none is left."""

from __future__ import annotations

import inspect
import multiprocessing
import os
import re
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from support import PATIENCE, still_running, wait_for

from hpml_plugins import Bench, Benchmark, HpmlError, Metric, Node, Rank, Record, Samples
from hpml_plugins.errors import Failure
from hpml_plugins.measure import Context, SamplingPlan, import_before_fork, measure_point
from hpml_plugins.model.data_source import use_sources

TIME = Metric("time", "s", "lower")
SHORT = SamplingPlan(budget=0.05, warm_up=0.05, fewest=3)


@pytest.fixture(scope="module", autouse=True)
def torch_is_loaded() -> None:
    """As in asv's fork server: points are forked from a process that has imported torch."""
    import_before_fork(["torch", "torch.distributed"])


def point(
    node: Node,
    function: Callable[..., Any],
    count: int = 2,
    timeout: float = PATIENCE,
    **params: Any,
) -> Record:
    """A point whose ranks run the function; each rank's own process number is in its series."""

    def measure(bench: Bench) -> dict[str, Any]:
        bench.ranks(function, count, **params)
        return {"time": 1.0}

    return measure_point(
        Benchmark("toy", measure, [TIME], timeout=timeout), {}, Context(node, plan=SHORT)
    )


def sums(rank: Rank, offset: int) -> dict[str, Any]:
    import torch
    import torch.distributed as dist

    told = torch.tensor([float(rank.index + offset)])
    dist.all_reduce(told)
    rank.bench.check(told.item() == sum(range(offset, offset + rank.count)), "sum differs")
    rank.bench.warn("everywhere")
    if rank.index == 1:
        rank.bench.warn("only here")
    rank.bench.series("own", {"x": [rank.index]})
    rank.bench.work(bytes=8.0 + rank.index)
    rank.bench.progress("summed", 1.0)
    return {
        "index": rank.index,
        "sum": told.item(),
        "samples": Samples.of([rank.index], "s"),
        "gathered": rank.gather(rank.index),
        "shared": rank.share(f"of {rank.index}"),
        "world": (os.environ["RANK"], os.environ["WORLD_SIZE"]),
        "threads": torch.get_num_threads(),
        "group": os.getpgid(0),
    }


@pytest.mark.parametrize("count", [1, 2, 4])
def test_ranks_compute_together_and_return_what_they_found(count: int, node: Node) -> None:
    found: list[Any] = []

    def measure(bench: Bench) -> dict[str, Any]:
        given = bench.ranks(sums, count, 10)
        # 10 + 11 = 21, 10 + 11 + 12 + 13 = 46
        bench.check(
            [one["sum"] for one in given] == [{1: 10, 2: 21, 4: 46}[count]] * count,
            f"sums {given}",
        )
        bench.check(
            [one["index"] for one in given] == list(range(count)), "ranks out of order"
        )
        bench.check(
            bench.collected.work["time"].bytes == 8, "the work is not the first rank's"
        )
        bench.check(
            all(one["gathered"] == list(range(count)) for one in given), "not gathered"
        )
        bench.check(all(one["shared"] == "of 0" for one in given), "not shared")
        bench.check(
            [one["world"] for one in given] == [(str(i), str(count)) for i in range(count)],
            "environment",
        )
        bench.check(given[-1]["samples"].values == (count - 1,), "samples do not travel")
        bench.check(
            {one["group"] for one in given} == {os.getpgid(0)},
            "a rank left the point's process group",
        )
        cores = len(os.sched_getaffinity(0))
        bench.check(
            all(one["threads"] == max(1, cores // count) for one in given), "threads"
        )
        return {"time": 1.0}

    record = measure_point(
        Benchmark("toy", measure, [TIME]),
        {},
        Context(node),
        progress=lambda *said: found.append(said),
    )
    assert (record.status, record.reason) == ("ok", "")
    assert record.checks[0] == "sum differs"
    assert "everywhere" in record.warnings
    assert record.warnings.count("everywhere") == 1
    if count > 1:
        assert "rank 1: only here" in record.warnings
        assert record.series["own_rank1"].columns == {"x": [1.0]}
    assert record.series["own"].columns == {"x": [0.0]}
    assert found == [("summed", 1.0)]


def raises(rank: Rank) -> None:
    if rank.index == 1:
        raise ValueError("no\nsuch thing")
    rank.barrier()


def exits(rank: Rank) -> None:
    if rank.index == 1:
        os._exit(3)
    rank.barrier()


def exits_with_success(rank: Rank) -> None:
    if rank.index == 1:
        os._exit(0)
    rank.barrier()


def exits_politely(rank: Rank) -> None:
    if rank.index == 0:
        sys.exit("enough")
    rank.barrier()


def kills_itself(rank: Rank) -> None:
    if rank.index == 0:
        os.kill(os.getpid(), signal.SIGKILL)
    rank.barrier()


def is_wrong(rank: Rank) -> None:
    rank.bench.check(rank.index != 1, "sum differs from float64")
    rank.barrier()


def returns_what_does_not_pickle(rank: Rank) -> Any:
    return (lambda: None) if rank.index == 1 else None


#: What torch says where a GPU has too little memory.
TOO_LARGE = "CUDA out of memory. Tried to allocate 200.00 GiB. GPU 1 ..."


def raises_out_of_memory(rank: Rank) -> None:
    import torch

    if rank.index == 1:
        raise torch.OutOfMemoryError(TOO_LARGE)
    rank.barrier()


def starts_ranks(rank: Rank) -> None:
    if rank.index == 0:
        rank.bench.ranks(raises, 2)
    rank.barrier()


@pytest.mark.parametrize(
    ("function", "reason"),
    [
        (
            raises,
            (
                "rank 1: ValueError: no such thing (test_ranks.py:{line}: raise"
                ' ValueError("no\\nsuch thing"))'
            ),
        ),
        (exits, "rank 1 ended with exit status 3 before it reported"),
        (
            exits_with_success,
            "rank 1 ended with exit status 0 before its function returned",
        ),
        (
            exits_politely,
            'rank 0: exited: enough (test_ranks.py:{line}: sys.exit("enough"))',
        ),
        (kills_itself, "rank 0 died of SIGKILL (killed, perhaps for want of memory)"),
        (is_wrong, "rank 1: check failed: sum differs from float64"),
        (
            raises_out_of_memory,
            (
                f"rank 1: OutOfMemoryError: {TOO_LARGE}"
                " (test_ranks.py:{line}: raise torch.OutOfMemoryError(TOO_LARGE))"
            ),
        ),
        (
            starts_ranks,
            (
                "rank 0: a rank cannot start ranks; call `ranks` in `measure` itself "
                "(test_ranks.py:{line}: rank.bench.ranks(raises, 2))"
            ),
        ),
    ],
)
def test_a_rank_that_fails_takes_the_point_down_with_its_reason(
    function: Callable[..., Any], reason: str, node: Node, tmp_path: Path
) -> None:
    def noted(rank: Rank) -> None:
        (tmp_path / str(os.getpid())).touch()
        function(rank)

    record = point(node, noted)
    source, first = inspect.getsourcelines(function)
    line = first + next(
        (i for i, text in enumerate(source) if text.startswith("        ")), 0
    )
    assert (record.status, record.reason) == ("failed", reason.format(line=line))
    assert still_running(tmp_path) == []


def test_a_value_that_does_not_pickle_is_said(node: Node) -> None:
    record = point(node, returns_what_does_not_pickle)
    assert record.reason.startswith(
        "rank 1: the return value of the ranks' function cannot be pickled: "
    )


def skips(rank: Rank) -> None:
    rank.bench.skip("no such collective")


def test_a_rank_may_skip_the_point(node: Node) -> None:
    record = point(node, skips)
    assert (record.status, record.reason) == ("skipped", "no such collective")


def test_what_a_rank_prints_is_in_the_failed_record(node: Node) -> None:
    def prints(rank: Rank) -> None:
        print(f"from rank {rank.index}")
        raise RuntimeError("over")

    output = point(node, prints).output
    assert "from rank 0" in output
    assert "RuntimeError: over" in output


def hangs(rank: Rank, folder: str) -> None:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    Path(folder, str(os.getpid())).touch()
    if rank.index == 1:
        time.sleep(600)
    rank.barrier()


def test_ranks_that_hang_are_ended_in_time_and_it_is_said_where_each_was(
    node: Node, tmp_path: Path
) -> None:
    def measure(bench: Bench) -> None:
        bench.ranks(hangs, 2, str(tmp_path))

    for timeout in (4, 60):
        record = measure_point(
            Benchmark("toy", measure, [TIME], timeout=timeout), {}, Context(node)
        )
        if len(list(tmp_path.iterdir())) == 2:
            break  # on a busy machine 4 s may not be enough for both to start
    assert (record.status, record.failure) == ("failed", Failure.TIMEOUT)
    assert record.reason.startswith("ranks timed out after ")
    where = (
        r"rank 0 in all_reduce \(distributed_c10d.py:\d+\) of hangs \(test_ranks.py:\d+\), "
        r"rank 1 in hangs \(test_ranks.py:\d+\)"
    )
    assert re.search(where, record.reason), record.reason
    assert still_running(tmp_path) == []


def test_ranks_end_with_the_one_who_started_them_even_if_that_is_killed_outright(
    node: Node, tmp_path: Path
) -> None:
    starter = multiprocessing.get_context("fork").Process(
        target=lambda: Bench(node, {}).ranks(hangs, 2, str(tmp_path)), daemon=False
    )
    starter.start()
    wait_for(lambda: len(list(tmp_path.iterdir())) == 2, "two ranks")
    assert len(still_running(tmp_path)) == 2
    starter.kill()
    starter.join()
    wait_for(lambda: not still_running(tmp_path), "the end of the ranks")


def test_ranks_over_nccl_need_gpus_of_the_point(gpu_node: Node) -> None:
    with pytest.raises(
        HpmlError, match=r"2 ranks over nccl need 2 GPUs, the point has 1; declare Requires"
    ):
        Bench(gpu_node, {}, gpus=1).ranks(sums, 2, 10)


def has_counted(rank: Rank, folder: str) -> list[int]:
    """Steps with a collective, timed under plans that would have every rank stop at another
    time."""
    import torch
    import torch.distributed as dist

    told = torch.zeros(1000)
    calls = 0

    def step() -> None:
        nonlocal calls
        calls += 1
        dist.all_reduce(told)
        time.sleep(1e-4 * rank.index)

    fewest = 2 + 3 * rank.index
    rank.bench.plan = SamplingPlan(
        precision=1e-9, budget=0.05 * (1 + rank.index), warm_up=0.02, fewest=fewest
    )
    first = rank.time(step)
    slowest = rank.time(step, over="max", budget=0.01)
    assert first.info["ranks"] == rank.count
    assert slowest.info["over_ranks"] == "max"
    assert first.values == rank.share(first.values)
    assert first.median >= 1e-4 * (rank.count - 1) / 2
    return [calls, len(first)]


@pytest.mark.parametrize("count", [2, 4])
def test_ranks_that_would_stop_at_different_times_still_take_as_many_steps(
    count: int, node: Node
) -> None:
    def measure(bench: Bench) -> dict[str, Any]:
        given = bench.ranks(has_counted, count, "")
        bench.check(len({tuple(one) for one in given}) == 1, f"ranks counted {given}")
        bench.check(given[0][0] > given[0][1] >= 2, f"{given} steps and samples")
        return {"time": 1.0}

    record = measure_point(
        Benchmark("toy", measure, [TIME], timeout=PATIENCE), {}, Context(node)
    )
    assert (record.status, record.reason) == ("ok", "")


class Toy:
    name = "toy"

    def why_missing(self) -> str:
        return ""

    def load(self, progress: Callable[[str], None]) -> Any:
        return self

    def facts(self) -> dict[str, str | float]:
        return {"fingerprint": "f"}


def has_data(rank: Rank) -> str:
    return str(rank.bench.data("toy").name)


def test_the_record_says_which_data_the_ranks_used(node: Node) -> None:
    with use_sources({"toy": Toy()}):
        assert point(node, has_data).data == {"toy": {"fingerprint": "f"}}


@pytest.mark.slow
def test_ranks_of_a_process_with_threads_are_spawned_whatever_their_function(
    node: Node,
) -> None:
    def measure(bench: Bench) -> dict[str, Any]:
        import threading

        threading.Thread(target=time.sleep, args=(60,), daemon=True).start()
        bench.check([one["sum"] for one in bench.ranks(sums, 2, 10)] == [21, 21], "sums")
        bench.check(
            bench.ranks(lambda rank: rank.index, 2) == [0, 1], "a function of no module"
        )
        bench.check(bench.ranks(has_data, 2) == ["toy", "toy"], "data sets")
        return {"time": 1.0}

    with use_sources({"toy": Toy()}):
        record = measure_point(
            Benchmark("toy", measure, [TIME], timeout=PATIENCE), {}, Context(node)
        )
    assert (record.status, record.reason) == ("ok", "")
