"""The plugin `allreduce`: formulas by hand, its check against spoilt collectives, NCCL's log, and
gloo on the CPU."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from hpml_plugins import Benchmark, HpmlError, Node, Record
from hpml_plugins.measure import SamplingPlan
from hpml_plugins.model import Gpu
from hpml_plugins.plugins.allreduce import hpml_benchmarks
from hpml_plugins.plugins.allreduce.collectives import COLLECTIVES, size_in_bytes
from hpml_plugins.plugins.allreduce.nccl_log import logging_to, read_choice
from hpml_plugins.testing import Context, import_before_fork, measure_point

SHORT = SamplingPlan(budget=0.05, warm_up=0.05, fewest=3)
BENCHMARKS = {benchmark.name: benchmark for benchmark in hpml_benchmarks()}

#: rank 0 of two H200, NCCL 2.28: a 4-byte line-up before and after the call that counts.
LOG = """node:71:71 [0] NCCL INFO AllReduce: 4 Bytes -> Algo RING proto LL channel{Lo..Hi}={0..0}
node:71:71 [0] NCCL INFO AllReduce: 1048576 Bytes -> Algo TREE proto LL channel{Lo..Hi}={0..3}
node:71:71 [0] NCCL INFO AllGather: 8388608 Bytes -> Algo RING proto SIMPLE channel{Lo..Hi}={0..23}
node:71:71 [0] NCCL INFO AllReduce: 1048576 Bytes -> Algo RING proto LL128 channel{Lo..Hi}={0..15} cgaClusterSize 0
node:71:71 [0] NCCL INFO AllReduce: 4 Bytes -> Algo RING proto LL channel{Lo..Hi}={0..0}
"""  # noqa: E501


@pytest.fixture(scope="module", autouse=True)
def torch_is_loaded() -> None:
    import_before_fork(["torch"])


def test_importing_the_plugin_imports_nothing_heavy() -> None:
    code = (
        "import sys, hpml_plugins.plugins.allreduce; print(*{'torch', 'numpy', 'numba'} &"
        " set(sys.modules))"
    )
    assert (
        subprocess.run(
            [sys.executable, "-c", code], capture_output=True, text=True, check=True
        ).stdout
        == "\n"
    )


@pytest.mark.parametrize(
    ("size", "nbytes"),
    [
        ("4B", 4),
        ("1KiB", 1024),
        ("32KiB", 32768),
        ("16MiB", 16777216),
        ("8GiB", 8589934592),
    ],
)
def test_sizes_by_hand(size: str, nbytes: int) -> None:
    assert size_in_bytes(size) == nbytes


@pytest.mark.parametrize("size", ["", "16", "16MB", "0KiB", "-1KiB", "1.5GiB"])
def test_what_is_no_size_is_refused(size: str) -> None:
    with pytest.raises(HpmlError, match="such as '16MiB'"):
        size_in_bytes(size)


def buffers(
    collective: str, index: int = 0, count: int = 2, elements: int = 6, *, in_place: bool
) -> Any:
    from hpml_plugins.plugins.allreduce.buffers import Buffers

    rank: Any = SimpleNamespace(index=index, count=count, device="cpu")
    return Buffers(rank, collective, 4 * elements, in_place=in_place)


@pytest.mark.parametrize(
    ("collective", "in_place"),
    [
        *((collective, False) for collective in COLLECTIVES),
        ("all_reduce", True),
        ("broadcast", True),
    ],
)
def test_a_collective_that_does_nothing_is_seen_in_every_element_that_should_change(
    collective: str, in_place: bool
) -> None:
    made = buffers(collective, index=1, in_place=in_place)
    made.fill()
    # In place, a sum is wrong wherever rank 0 adds something: not at place 0, where it sends 0.
    assert made.wrong() == made.receive.numel() - (
        (collective, in_place) == ("all_reduce", True)
    )


def test_the_expected_results_by_hand() -> None:
    import torch

    from hpml_plugins.plugins.allreduce.buffers import value

    # Rank 0 sends place i: i. Rank 1 sends 3 i + 1.
    assert [value(0, i) for i in range(6)] == [0, 1, 2, 3, 4, 5]
    assert [value(1, i) for i in range(6)] == [1, 4, 7, 10, 13, 16]
    expected = {
        "all_reduce": [1, 5, 9, 13, 17, 21],
        "reduce_scatter": [13, 17, 21],  # rank 1's half of the sum
        "all_gather": [0, 1, 2, 1, 4, 7],  # three of each
        "broadcast": [0, 1, 2, 3, 4, 5],
    }
    for collective, numbers in expected.items():
        made = buffers(collective, index=1, in_place=False)
        made.receive.copy_(torch.tensor(numbers, dtype=torch.float32))
        assert made.wrong() == 0, collective
        made.receive[-1] += 1
        assert made.wrong() == 1, collective


def test_a_result_shifted_by_a_power_of_two_is_seen() -> None:
    from hpml_plugins.plugins.allreduce.buffers import PERIOD, value

    made = buffers("broadcast", elements=4096, in_place=True)
    made.fill()
    assert made.wrong() == 0
    assert value(0, PERIOD) == 0
    made.receive.copy_(made.receive.roll(1024))
    assert made.wrong() == 4096


def test_a_size_that_ranks_cannot_share_is_refused() -> None:
    with pytest.raises(
        HpmlError, match="20 B of float32 cannot be shared out evenly over 2 ranks"
    ):
        buffers("all_reduce", elements=5, in_place=True)


def test_nccls_choice_is_that_of_the_last_of_the_largest_calls(tmp_path: Path) -> None:
    (tmp_path / "nccl.71").write_text(LOG)
    folder = str(tmp_path)
    assert read_choice(folder, "all_reduce") == {
        "algorithm": "RING",
        "protocol": "LL128",
        "channels": 16,
    }
    assert read_choice(folder, "all_gather") == {
        "algorithm": "RING",
        "protocol": "SIMPLE",
        "channels": 24,
    }
    assert read_choice(folder, "broadcast") == {}


def test_the_numbers_that_older_nccl_logs_are_named(tmp_path: Path) -> None:
    (tmp_path / "nccl.71").write_text(
        "node:71:71 [0] NCCL INFO AllReduce: 1048576 Bytes -> Algo 1 proto 2 time 41.2"
    )
    assert read_choice(str(tmp_path), "all_reduce") == {
        "algorithm": "RING",
        "protocol": "SIMPLE",
    }


def test_the_log_is_asked_for_only_where_the_node_asks_for_none(tmp_path: Path) -> None:
    (tmp_path / "nccl.71").write_text(LOG)
    assert read_choice(str(tmp_path), "all_reduce")["protocol"] == "LL128"
    assert logging_to(str(tmp_path), {})["NCCL_DEBUG_SUBSYS"] == "TUNING"
    assert logging_to(str(tmp_path), {"NCCL_DEBUG": "WARN"}) == {}


def test_no_variable_that_changes_what_nccl_does_is_set(tmp_path: Path) -> None:
    assert {name.startswith("NCCL_DEBUG") for name in logging_to(str(tmp_path), {})} == {
        True
    }


def measured(name: str, node: Node, **params: Any) -> Record:
    return measure_point(BENCHMARKS[name], params, Context(node, plan=SHORT))


@pytest.mark.parametrize("ranks", [2, 4])
def test_an_all_reduce_over_gloo_is_checked_and_timed(ranks: int, node: Node) -> None:
    record = measured("allreduce_gloo", node, size="1MiB", ranks=ranks)
    assert (record.status, record.reason) == ("ok", "")
    assert record.checks == ["all_reduce differs from its float64 reference"]
    times = record.metrics["time"].samples
    assert min(times) > 0
    assert record.metrics["algorithm_bandwidth"].samples == pytest.approx(
        [2**20 / time for time in times]
    )
    factor = {2: 1.0, 4: 1.5}[ranks]
    assert record.metrics["bus_bandwidth"].samples == pytest.approx(
        [factor * 2**20 / time for time in times]
    )
    info = record.metrics["time"].info
    assert (info["backend"], info["ranks"], info["over_ranks"], info["place"]) == (
        "gloo",
        ranks,
        "mean",
        "in",
    )


@pytest.mark.parametrize("collective", ["all_gather", "reduce_scatter", "broadcast"])
def test_the_other_collectives_over_gloo_are_checked_and_timed(
    collective: str, node: Node
) -> None:
    record = measured("collectives_gloo", node, collective=collective, size="1MiB", ranks=2)
    assert (record.status, record.reason) == ("ok", "")
    assert record.checks == [f"{collective} differs from its float64 reference"]


def test_a_spoilt_all_reduce_gives_no_number(
    node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    from hpml_plugins.plugins.allreduce import buffers

    whole = buffers.step_of

    def all_but_the_last_element(rank: Any, made: buffers.Buffers) -> Any:
        do = whole(rank, made)

        def step() -> None:
            last = made.receive[-1].item()
            do()
            made.receive[-1] = last

        return step

    # the ranks are forked: they see it
    monkeypatch.setattr(buffers, "step_of", all_but_the_last_element)
    record = measured("allreduce_gloo", node, size="1KiB", ranks=2)
    assert record.status == "failed"
    assert record.reason.endswith(
        "check failed: all_reduce differs from its float64 reference in 1 elements"
    )
    assert record.metrics == {}


def test_nccl_points_are_skipped_without_their_gpus(node: Node, gpu_node: Node) -> None:
    params = {"size": "1MiB", "place": "in"}
    assert (
        measured("allreduce_nccl", node, ranks=2, **params).reason
        == "needs 2 GPUs, this node has no GPU"
    )
    assert (
        measured("allreduce_nccl", gpu_node, ranks=4, **params).reason
        == "needs 4 GPUs, this node has 2"
    )


def test_a_card_too_small_for_the_buffers_skips_the_point(gpu_node: Node) -> None:
    import msgspec

    small = Gpu(name="NVIDIA A10", memory=24 * 2.0**30)
    node = msgspec.structs.replace(gpu_node, gpus=(small, small))
    params = {"size": "16GiB", "ranks": 2, "place": "out"}
    record = measure_point(BENCHMARKS["allreduce_nccl"], params, Context(node, watch=False))
    # two buffers of 16 GiB and 4 beside them
    assert (record.status, record.reason) == (
        "skipped",
        "needs 36.0 GiB of GPU memory, the card has 24.0",
    )


def test_a_wrong_place_or_collective_names_the_right_ones(
    gpu_node: Node, node: Node
) -> None:
    record = measured("allreduce_nccl", gpu_node, size="1KiB", ranks=2, place="beside")
    assert record.reason == "all_reduce has no place 'beside'; use one of in, out"
    record = measured(
        "collectives_gloo", node, collective="all_to_all", size="1KiB", ranks=2
    )
    assert "use one of all_reduce, all_gather, reduce_scatter, broadcast" in record.reason


def test_backends_are_benchmarks_of_their_own() -> None:
    def backend(benchmark: Benchmark) -> str:
        return "nccl" if benchmark.requires.gpus else "gloo"

    assert all(name.endswith(backend(benchmark)) for name, benchmark in BENCHMARKS.items())
