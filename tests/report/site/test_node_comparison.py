"""Whether a node is normal: its values against those of the other machines of its GPU type."""

from __future__ import annotations

from pathlib import Path

from site_history import BENCHMARKS, H200, TIME, AddResult, around, read

from hpml_plugins.report.site.nodes import compare_nodes, find_nodes

COMMITS = {f"{number}" * 40: 1000.0 * number for number in range(1, 9)}


def test_a_node_is_compared_with_the_median_of_the_others_of_its_type(
    add_result: AddResult, tmp_path: Path
) -> None:
    usual = [1e-5, 2e-5, 3e-3, 4e-3]
    for day, commit in enumerate(COMMITS):
        for name, factor in (("a", 1.0), ("b", 1.001), ("c", 1.002), ("slow", 1.0)):
            times = [time * factor * (1 + day * 1e-4) for time in usual]
            times[2] *= 1.5 if name == "slow" else 1.0
            values = {TIME["name"]: [around(time, 1e-3) for time in times]}
            add_result(
                {**H200, "machine": name},
                commit,
                1000,
                values,
                started=float(day),
                code="same",
            )
    add_result(
        {**H200, "machine": "alone", "gpu": "NVIDIA A100"},
        "1" * 40,
        1000,
        {TIME["name"]: [around(1.0)] * 4},
    )
    history = read(tmp_path / "results", BENCHMARKS, COMMITS)
    found = compare_nodes(history)
    (slow,) = found["slow"].deviations
    assert (slow.metric.title, slow.point) == ("vector_add · time", "n=1000000, mode=plain")
    assert (slow.verdict, f"{slow.times:.2f}", slow.machine) == ("WORSE", "0.67", "b")
    assert [
        (found[name].others, found[name].verdicts["SAME"], found[name].deviations)
        for name in "abc"
    ] == [(3, 4, [])] * 3
    assert (found["alone"].others, found["alone"].verdicts.total()) == (0, 0)


def test_a_node_lists_its_cards_and_its_newest_records(
    add_result: AddResult, tmp_path: Path
) -> None:
    for day, commit in enumerate(COMMITS):
        add_result(
            H200,
            commit,
            1000,
            {TIME["name"]: [[1.0, 2.0], None, float("nan"), 1.0]},
            started=60.0 * day,
        )
    add_result(
        H200,
        "1" * 40,
        1000,
        {TIME["name"]: [[1.0, 2.0], *[float("nan")] * 3]},
        started=500.0,
    )
    (node,) = find_nodes(read(tmp_path / "results", BENCHMARKS, COMMITS))
    assert node.hardware == "NVIDIA H200 ×1"
    assert len(node.runs) == 5
    assert {run[0] for run in node.runs} == {
        "1970-01-01 00:07",
        "1970-01-01 00:06",
        "1970-01-01 00:08",
    }
    assert {run[3] for run in node.runs} == {"ok", "failed"}
