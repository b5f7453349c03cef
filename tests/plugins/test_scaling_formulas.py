"""The plugin `scaling`: its formulas by hand, intervals against counting, and what it reads in a
trace."""

from __future__ import annotations

import math
import subprocess
import sys
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hpml_plugins import Bench, HpmlError, Node, Samples
from hpml_plugins.plugins.scaling import ddp
from hpml_plugins.plugins.scaling.jobs import (
    CIFAR,
    METRICS,
    PROFILE_UNITS,
    Job,
    collective_share,
    results,
    ring_bandwidth,
    single_metrics,
    warn_if_apart,
)
from hpml_plugins.plugins.scaling.large_batch import learning_rate, statistics_drift
from hpml_plugins.plugins.scaling.profiling import (
    Activity,
    Interval,
    cpu_activity,
    gpu_activities,
    gpu_use,
    host_ranges,
    length,
    mean_activity,
)

#: ResNet18's gradients: 11,173,962 float32.
GRADIENTS = 44_695_848


def test_importing_the_plugin_imports_nothing_heavy() -> None:
    code = (
        "import sys, hpml_plugins.plugins.scaling; print(*{'torch', 'numpy', 'matplotlib'} &"
        " set(sys.modules))"
    )
    assert (
        subprocess.run(
            [sys.executable, "-c", code], capture_output=True, text=True, check=True
        ).stdout
        == "\n"
    )


# not rounded
@pytest.mark.parametrize(("batch", "ranks", "steps"), [(125, 4, 100), (32, 2, 781.25)])
def test_an_epoch_is_the_same_work_for_every_batch(
    batch: int, ranks: int, steps: float
) -> None:
    time = Samples.of([1.0], "s", steps=1)
    assert (
        single_metrics(Job(CIFAR, batch, "float32", ranks), time)["step"].info[
            "epoch_steps"
        ]
        == steps
    )


def test_the_ring_by_hand() -> None:
    assert ring_bandwidth(1000, 1, 2) == 1000  # 2 · 1 / 2
    assert ring_bandwidth(1000, 1, 4) == 1500  # 2 · 3 / 4
    assert ring_bandwidth(1000, 3, 4) == 500
    assert ring_bandwidth(GRADIENTS, 0.001, 2) == pytest.approx(44.695848e9)
    with pytest.raises(HpmlError, match="use two or more"):
        ring_bandwidth(1000, 1, 1)


def test_goyal_s_rate_rises_in_a_line_to_the_scaled_one() -> None:
    # 16,384 images instead of 128: factor 128, 0.1 → 12.8 over two epochs.
    rates = [
        learning_rate(epoch, base=0.1, factor=128, warm_up=2) for epoch in (0, 1, 2, 4.5)
    ]
    assert rates == pytest.approx([0.1, 0.1 + 12.7 / 2, 12.8, 12.8])
    assert learning_rate(0, base=0.1, factor=4, warm_up=0) == pytest.approx(0.4)
    assert learning_rate(1, base=0.1, factor=1, warm_up=2) == pytest.approx(0.1)


def covered(intervals: list[Interval]) -> set[int]:
    """The unit steps that intervals with whole ends cover."""
    return {place for start, end in intervals for place in range(int(start), int(end))}


SOME = st.lists(
    st.tuples(st.integers(0, 40), st.integers(0, 10)).map(
        lambda pair: (pair[0], pair[0] + pair[1])
    )
)


@given(SOME, SOME)
def test_lengths_and_overlaps_are_those_of_sets(
    first: list[Interval], second: list[Interval]
) -> None:
    assert length(first) == len(covered(first))
    assert length(first) + length(second) - length([*first, *second]) == len(
        covered(first) & covered(second)
    )


def test_an_interval_that_ends_before_it_starts_is_refused() -> None:
    with pytest.raises(ValueError, match="ends before it starts"):
        length([(2, 1)])


def event(cat: str, name: str, start: float, end: float, device: int = 0) -> dict[str, Any]:
    return {
        "cat": cat,
        "name": name,
        "ts": start,
        "dur": end - start,
        "args": {"device": device},
    }


#: µs: a forward 0–10, a backward 10–30 beside an all-reduce 25–40, an update 40–45, nothing, the
#: next step's copy.
TRACE = [
    event("kernel", "sm90_xmma_fprop", 0, 10),
    event("kernel", "sm90_xmma_dgrad", 10, 30),
    event(
        "kernel",
        "ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)",
        25,
        40,
    ),
    event(
        "kernel",
        "ncclDevKernel_Broadcast_RING_LL(ncclDevKernelArgsStorage<4096ul>)",
        38,
        42,
    ),
    event("kernel", "multi_tensor_apply_kernel", 40, 45),
    event("gpu_memcpy", "Memcpy HtoD (Pageable -> Device)", 50, 60),
    {
        **event("gpu_memcpy", "Memcpy PtoP (Device -> Device)", 55, 65),
        # as libkineto writes it: no "device"
        "args": {"fromDevice": 0, "inDevice": 1, "toDevice": 1},
    },
    event("gpu_user_annotation", "nccl:all_reduce", 0, 100),
    event("user_annotation", "replicate", 0, 6),
    event("user_annotation", "replicate", 10, 14),
    event("cpu_op", "aten::conv2d", 0, 1000),
]


def test_computing_and_communicating_are_told_apart_by_hand() -> None:
    found = gpu_activities(TRACE, steps=1)
    assert set(found) == {0, 1}
    one = found[0]
    us = pytest.approx
    assert one["span"] * 1e6 == us(60)  # 0–60
    assert one["computation"] * 1e6 == us(45)  # 0–30, 40–45, 50–60
    assert one["communication"] * 1e6 == us(17)  # 25–42
    assert one["overlapped"] * 1e6 == us(7)  # 25–30, 40–42
    assert one["exposed"] * 1e6 == us(10)  # 30–40
    assert one["idle"] * 1e6 == us(5)  # 45–50
    assert one["reduction"] * 1e6 == us(15)  # 25–40
    assert collective_share(one) == us(19 / 54)  # (15 + 4) / (10 + 20 + 15 + 4 + 5)
    assert found[1]["communication"] * 1e6 == us(10)
    assert gpu_activities(TRACE, steps=5)[0]["computation"] * 1e6 == us(9)


def test_how_far_kernels_fill_a_gpu_by_hand() -> None:
    def kernel(start: float, dur: float, blocks: float, occupancy: float) -> dict[str, Any]:
        args = {
            "device": 0,
            "blocks per SM": blocks,
            "est. achieved occupancy %": occupancy,
        }
        return {"cat": "kernel", "name": "k", "ts": start, "dur": dur, "args": args}

    copy = {
        "cat": "gpu_memcpy",
        "name": "Memcpy HtoD",
        "ts": 90.0,
        "dur": 10.0,
        "args": {"device": 0},
    }
    # 0 to 100 µs: 40 µs that fill every multiprocessor, 20 µs that fill a quarter, 10 µs of a copy.
    use = gpu_use([kernel(0.0, 40.0, 7.5, 60.0), kernel(50.0, 20.0, 0.25, 30.0), copy])
    assert use == pytest.approx(
        {"utilisation": 0.7, "sm_efficiency": 0.45, "occupancy": (40 * 0.6 + 20 * 0.3) / 60}
    )


def test_ranges_of_the_host_are_added_up_by_name() -> None:
    found = host_ranges(TRACE, ("replicate", "gather"), steps=2)
    assert found == {"replicate": pytest.approx(5e-6), "gather": 0.0}  # (6 + 4) / 2


def test_over_gloo_operators_and_collectives_are_told_apart() -> None:
    events = [
        event("cpu_op", "aten::conv2d", 0, 10),
        # waits; the collective itself is another thread's
        event("cpu_op", "c10d::allreduce_", 10, 30),
        event("user_annotation", "gloo:all_reduce", 5, 20),
        event("user_annotation", "DistributedDataParallel.forward", 0, 12),
    ]
    found = cpu_activity(events, steps=1)
    assert (found["computation"] * 1e6, found["reduction"] * 1e6) == (
        pytest.approx(10),
        pytest.approx(15),
    )
    assert found["overlapped"] * 1e6 == pytest.approx(5)


def activity(**times: float) -> Activity:
    names = (
        "computation",
        "communication",
        "exposed",
        "idle",
        "reduction",
        "collectives",
        "kernels",
    )
    return {name: times.get(name, 0.0) for name in names}


def test_the_mean_over_gpus_is_field_by_field() -> None:
    one, other = (
        activity(communication=1.0, kernels=4.0),
        activity(communication=3.0, kernels=4.0),
    )
    assert mean_activity([one, other])["communication"] == 2.0
    assert collective_share(activity()) == 0.0


def profile_of(bench: Bench) -> dict[str, Any]:
    return {
        name: column[0]
        for name, column in bench.collected.series["profile"].columns.items()
    }


def test_the_metrics_of_a_point_by_hand(node: Node) -> None:
    bench = Bench(node, {})
    found = results(
        bench,
        Job(CIFAR, 125, "float32", 4),
        time=Samples.of([0.012] * 5, "s", steps=10, batch=1),
        turns={
            "apart": Samples.of([0.0105] * 5, "s"),
            "together": Samples.of([0.012] * 5, "s"),
            "single": Samples.of([0.010] * 5, "s"),
        },
        activity=activity(
            computation=0.009,
            communication=0.003,
            exposed=0.001,
            idle=0.003,
            reduction=0.002,
        ),
        parameters=1_000_000,
        reduction=Samples.of([0.0001], "s"),
        scatter=0.001,
    )
    columns = profile_of(bench)
    medians = {
        name: value.median if isinstance(value, Samples) else value
        for name, value in found.items()
    }
    assert set(medians) == {metric.name for metric in METRICS}
    assert medians["epoch"] == pytest.approx(1.2)  # 50,000 / (4 · 125) = 100 steps
    # 4 GPUs take 12 ms for four times the images that one does in 10 ms: 4 · 10 / 12.
    assert medians["speedup"] == pytest.approx(3.3333, abs=1e-4)
    assert medians["exposed"] == pytest.approx(0.001)
    assert medians["bus_bandwidth"] == pytest.approx(3e9)  # 1.5 · 4 MB in 2 ms
    assert medians["ceiling"] == pytest.approx(60e9)  # 1.5 · 4 MB in 0.1 ms
    step, efficiencies = found["step"], found["efficiency"]
    assert isinstance(step, Samples)
    assert (step.info["measured_steps"], step.info["epoch"]) == (
        50,
        "from a part of its steps",
    )
    assert isinstance(efficiencies, Samples)
    assert len(efficiencies) == 5
    assert efficiencies.median == pytest.approx(0.8333, abs=1e-4)
    assert (
        set(columns)
        == set(bench.collected.series["profile"].units)
        == {*PROFILE_UNITS, "scatter"}
    )
    assert columns["single"] == 0.010
    assert (columns["together"], columns["apart"]) == (0.012, 0.0105)
    assert columns["subtracted"] == pytest.approx(0.002)
    assert not bench.collected.warnings
    assert columns["idle"] == pytest.approx(0.003)
    assert columns["utilization"] == pytest.approx(0.05)


def test_what_is_lost_in_strong_scaling_is_against_a_shared_out_step(node: Node) -> None:
    bench = Bench(node, {})
    one = Samples.of([0.010], "s")
    time = Samples.of([0.004], "s", steps=1000)
    together = Samples.of([0.0036, 0.0044, 0.004], "s")
    turns = {"single": Samples.of([0.009, 0.011, 0.010], "s"), "together": together}
    found = results(
        bench, Job(CIFAR, 500, "float32", 4, "strong"), time, turns, activity(), 1, one
    )
    assert profile_of(bench)["subtracted"] == pytest.approx(0.0015)  # 4 − 10 / 4 ms
    assert found["bus_bandwidth"] == 0.0
    # The same images in 4 ms instead of 10: 2.5 times, of 4.
    assert found["speedup"].median == pytest.approx(2.5)
    assert found["efficiency"].median == pytest.approx(0.625)


def test_an_epoch_that_is_not_the_sum_of_its_parts_is_warned_of(node: Node) -> None:
    bench = Bench(node, {})
    time, turn = Samples.of([0.010], "s"), Samples.of([0.0107], "s")
    warn_if_apart(bench, time, Samples.of([0.0104], "s"))
    assert not bench.collected.warnings
    warn_if_apart(bench, time, turn)
    assert bench.collected.warnings == [
        "steps in turns with one GPU's take +7% of those timed for themselves"
    ]


def test_an_epoch_measured_whole_is_called_so() -> None:
    found = single_metrics(
        Job(CIFAR, 12_500, "float32"), Samples.of([0.5, 0.5], "s", steps=2)
    )
    assert found["epoch"].median == pytest.approx(2.0)  # 4 steps
    assert found["epoch"].info["epoch"] == "measured whole"


def test_drift_is_in_standard_deviations_and_relative() -> None:
    import torch

    mean, variance = torch.tensor([1.0, 3.0]), torch.tensor([4.0, 1.5])
    centre, width = torch.tensor([3.0, 3.0]), torch.tensor([4.0, 1.0])
    found = statistics_drift(mean, variance, centre, width)
    # Means: −2 in deviations of 2, and 0. Variances: 1 and 1.5 times.
    assert found == pytest.approx({"mean_drift": 0.5**0.5, "variance_drift": 0.125**0.5})


def test_an_efficiency_above_2_is_impossible_on_gpus_and_noise_on_busy_cpus() -> None:
    bounds = {
        benchmark.name: metric.bounds
        for benchmark in (ddp.DDP, ddp.DDP_NODES_NCCL, ddp.DDP_CPU, ddp.DDP_NODES_GLOO)
        for metric in benchmark.metrics
        if metric.name == "efficiency"
    }
    assert bounds["scaling_ddp"] == bounds["scaling_ddp_nodes_nccl"] == (0, 2)
    assert bounds["scaling_ddp_cpu"] == bounds["scaling_ddp_nodes_gloo"] == (0, math.inf)
