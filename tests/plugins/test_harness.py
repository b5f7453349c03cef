from __future__ import annotations

from pathlib import Path

import pytest

from hpml_plugins import Node
from hpml_plugins.model import Benchmark
from hpml_plugins.plugins.harness import hpml_benchmarks
from hpml_plugins.plugins.harness.made_history import History, make_history
from hpml_plugins.plugins.harness.publish import configure, publish
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
        ours / libraries for ours, libraries in zip(found["list"], found["baseline"], strict=True)
    ]
    assert min(found["baseline"]) > 0


@pytest.mark.slow
def test_a_real_asv_run_of_twenty_points_is_timed(node: Node) -> None:
    found = measured(BENCHMARKS["harness_asv"], node, launch="forkserver")
    assert found["per_point"][0] > found["marginal"][0] > 0


def test_what_needs_a_gpu_is_skipped_here_with_the_reason(node: Node) -> None:
    record = measure_point(BENCHMARKS["harness_fidelity"], {"case": "vecadd_10m"}, Context(node))
    assert record.status == "skipped"
    assert "needs 1 GPU" in record.reason


def test_a_made_history_is_published_by_asv_alone_and_with_our_pages(tmp_path: Path) -> None:
    commits = make_history(tmp_path, History(3, machines=2, benchmarks=2, points=2))
    configure(tmp_path)
    alone, whole = publish(tmp_path, "alone.json"), publish(tmp_path, "asv.conf.json")
    assert (alone.pages, whole.pages > 0, whole.pages_cpu > 0) == (0.0, True, True)
    page = (tmp_path / "html" / "gpus.html").read_text()
    assert "3 commits" in page and commits[-1][:8] in page
    assert "made01 · bandwidth" in page
    assert not (tmp_path / "html-alone" / "gpus.html").exists()
