"""From Records of the plugin `vecadd` to rows, and the repeated runs that give their phases."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import pytest
from records import a_record

from hpml_plugins import Bench, Node, Record
from hpml_plugins.measure import SamplingPlan
from hpml_plugins.plugins.vecadd.charts import programs
from hpml_plugins.plugins.vecadd.cuda_programs import repeat, time_laps


def record(
    benchmark: str, params: dict[str, str | int], *, machine: str = "h200-x1", **facts: Any
) -> Record:
    units = {"bandwidth": "B/s"}
    return a_record(benchmark, units=units, params=params, machine=machine, **facts)


CPP = record(
    "vecadd_cpu",
    {"millions": 10, "implementation": "cpp"},
    metrics={"time": [0.01, 0.008, 0.009], "bandwidth": [13e9]},
)
GRID = record(
    "vecadd_cuda",
    {"millions": 10, "launch": "grid", "memory": "pinned"},
    version="2",
    metrics={"time": [4e-5], "bandwidth": [3e12], "total": [0.0045]},
)


def test_speed_up_is_of_whole_runs_over_the_cpp_program_of_the_same_machine_and_size() -> (
    None
):
    elsewhere = record(
        "vecadd_cpu",
        {"millions": 10, "implementation": "cpp"},
        machine="other",
        metrics={"time": [1.0], "bandwidth": [1e8]},
    )
    on_cpu, on_gpu, other = programs([GRID, elsewhere, CPP]).rows()
    assert tuple(on_cpu.values()) == (
        "h200-x1",
        "CPU",
        "cpp",
        "host memory",
        10,
        0.009,
        0.009,
        13e9,
        1.0,
        "C++",
    )
    # 9 ms of the CPU over 4.5 ms of the whole run, not over 40 µs of the kernel
    assert tuple(on_gpu.values()) == (
        "h200-x1",
        "explicit",
        "grid",
        "pinned",
        10,
        0.0045,
        4e-5,
        3e12,
        2.0,
        "C++",
    )
    assert (other["machine"], other["speedup"]) == ("other", 1.0)


def test_without_a_cpp_program_numbas_loop_is_the_baseline_and_without_either_there_is_none() -> (
    None
):
    loop = record(
        "vecadd_cpu",
        {"millions": 10, "implementation": "loop"},
        metrics={"time": [0.009], "bandwidth": [2e10]},
    )
    assert programs([GRID, loop]).columns["speedup"] == [1.0, 2.0]
    assert programs([GRID]).columns["speedup"] == [None]


def test_laps_follow_one_another_and_hold_what_was_waited_for() -> None:
    def run() -> Iterator[str]:
        yield "first"
        time.sleep(0.02)
        yield "second"

    laps = time_laps(run(), wait=lambda: time.sleep(0.01))
    assert list(laps) == ["first", "second"]
    assert laps["first"] >= 0.01
    assert laps["second"] >= 0.03


def test_the_total_adds_up_the_laps_named_and_no_other(node: Node) -> None:
    runs = iter([{"copy": 1e-3, "kernel": 2e-3, "write": 9e-3}] * 50)
    samples = repeat(Bench(node, {}), lambda: next(runs), ("copy", "kernel"))
    assert samples["total"].median == pytest.approx(
        3e-3
    )  # 1 ms + 2 ms; the writing is not of it
    assert samples["write"].median == 9e-3
    assert len(samples["total"]) == 10  # the fewest: equal runs are known at once
    assert samples["total"].info["stopped"] == "converged"


def test_runs_of_seconds_repeat_three_times_and_say_so(node: Node) -> None:
    told: list[str] = []
    bench = Bench(
        node,
        {},
        plan=SamplingPlan(budget=0.0),
        report=lambda text, share: told.append(text),
    )
    taken = iter([5.0, 6.0, 7.0, 8.0])
    samples = repeat(bench, lambda: {"kernel": next(taken)}, ("kernel",))
    assert samples["total"].values == (5.0, 6.0, 7.0)
    assert samples["total"].info["stopped"] == "budget"
    # three values: the interval is the smallest and the largest, ±1 s of 6 s
    assert bench.collected.noise == [
        "total: noisy: ± 17 % after 3 samples; time limit reached",
        "total: unstable: CV 17 %",
    ]
    assert told == ["run 1 of at least 3", "run 2 of at least 3", "run 3 of at least 3"]
