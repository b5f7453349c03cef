from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from workload_pages import read_points

from hpml_plugins import Node
from hpml_plugins.host import make_host
from hpml_plugins.model import Benchmark
from hpml_plugins.plugins.harness import hpml_benchmarks, kernels
from hpml_plugins.plugins.harness.publish import configure, make_history, publish
from hpml_plugins.registry import read_registry
from hpml_plugins.testing import Context, measure_point

BENCHMARKS = {benchmark.name: benchmark for benchmark in hpml_benchmarks()}


def measured(benchmark: Benchmark, node: Node, **params: str) -> dict[str, list[float]]:
    record = measure_point(benchmark, params, Context(node))
    assert record.status == "ok", record.reason
    return {name: metric.samples for name, metric in record.metrics.items()}


def test_the_clock_and_the_timers_own_cost_are_below_a_microsecond(node: Node) -> None:
    found = measured(BENCHMARKS["harness_timer"], node)
    assert 0 < found["resolution"][0] < 1e-6
    assert 0 < min(found["empty"]) < 1e-6


def test_an_empty_point_costs_more_than_nothing(node: Node) -> None:
    assert min(measured(BENCHMARKS["harness_point"], node)["overhead"]) > 0


def test_the_start_of_a_command_is_held_against_its_libraries(node: Node) -> None:
    found = measured(BENCHMARKS["harness_startup"], node)
    assert found["ratio"] == [
        ours / libraries
        for ours, libraries in zip(found["list"], found["baseline"], strict=True)
    ]
    assert min(found["baseline"]) > 0


@pytest.mark.slow
def test_a_real_asv_run_of_twenty_points_is_timed(node: Node) -> None:
    found = measured(BENCHMARKS["harness_asv"], node, launch="forkserver")
    assert found["per_point"][0] > found["marginal"][0] > 0


def test_what_needs_a_gpu_is_skipped_here_with_the_reason(node: Node) -> None:
    record = measure_point(
        BENCHMARKS["harness_fidelity"], {"case": "vecadd_10m"}, Context(node)
    )
    assert record.status == "skipped"
    assert "needs 1 GPU" in record.reason


def test_a_made_history_is_published_by_asv_alone_and_with_our_pages(
    tmp_path: Path,
) -> None:
    make_history(tmp_path, 3, machines=2, benchmarks=2, points=2)
    configure(tmp_path)
    alone, whole = publish(tmp_path, "alone.json"), publish(tmp_path, "asv.conf.json")
    assert (alone["pages"], whole["pages"] > 0, whole["pages_cpu"] > 0) == (0.0, True, True)
    html = tmp_path / "html"
    assert "3 commits" in (html / "index.html").read_text()
    assert "made01 · bandwidth" in read_points(html)
    assert not (tmp_path / "html-alone" / "evidence.html").exists()


SLOWED_IN_THE_SIMULATOR = """
import warnings

warnings.simplefilter("ignore")
import numpy as np
from hpml_plugins.plugins.harness import kernels

for iterations in (100, 102):
    step = kernels.slowed_registers(1, iterations)
    step.run()
    found = step.result()
    print(iterations, step.error(found) <= step.tolerance, step.error(found - 1) <= step.tolerance)
values, sums = np.random.default_rng(0).random((51, 8), dtype=np.float32), np.zeros(8, np.float32)
kernels.sum_columns[1, 8](values.ravel(), sums, np.uint64(8), 50)
print(np.allclose(sums, values[:50].sum(0), rtol=1e-6), np.allclose(sums, values.sum(0), rtol=1e-6))
"""


def test_a_longer_loop_gives_another_result_which_its_check_knows() -> None:
    command = [sys.executable, "-c", SLOWED_IN_THE_SIMULATOR]
    done = subprocess.run(
        command,
        capture_output=True,
        text=True,
        env={**os.environ, "NUMBA_ENABLE_CUDASIM": "1"},
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == ["100 True False", "102 True False", "True False"]


def test_every_slow_down_is_a_whole_number_of_iterations() -> None:
    slowdowns = BENCHMARKS["harness_slowdown"].grid["slowdown"]
    for iterations in (kernels.MULTIPLY_ADDS, kernels.READS, kernels.PRODUCTS):
        for percent in slowdowns:
            assert kernels.lengthened(iterations, int(percent)) * 100 == iterations * (
                100 + int(percent)
            )
    with pytest.raises(ValueError, match="2 % of 10 iterations is not a whole number"):
        kernels.lengthened(10, 2)


def test_the_quick_profile_leaves_the_slow_downs_out() -> None:
    host = make_host(read_registry(), profile="quick")
    assert [
        each.chosen_points()
        for each in host.benchmarks()
        if each.name == "harness_slowdown"
    ] == [{}]
