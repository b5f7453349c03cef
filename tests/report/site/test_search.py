"""The index of the search: everything once, and never too large to be fetched."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest
from site_history import H200, AddResult, ours, read

from hpml_plugins.registry import TaskEntry
from hpml_plugins.report.site import search
from hpml_plugins.report.site.matrix import Costs, build
from hpml_plugins.report.site.tasks import find_rows


def test_metrics_of_one_benchmark_share_their_points(
    add_result: AddResult, tmp_path: Path
) -> None:
    nan = float("nan")
    values = {
        "vector_add.track_time": [1.0, 2.0, 3.0, None],
        "vector_add.track_bandwidth": [1.0, 2.0, 3.0, 4.0],
    }
    add_result(
        H200,
        "a" * 40,
        1000,
        {**values, "resnet50.track_flop": [8e9], "foreign.track_score": [nan, 2.0]},
    )
    history = read(tmp_path / "results", dates={"a" * 40: 1000})
    found = search.index([("page", "Nodes", "", "nodes.html")], history)
    assert found["entries"] == [("page", "Nodes", "", "nodes.html")]
    by_name = {
        name: (title, plugin, list(found["points"][points]))
        for name, title, plugin, points, _ in found["benchmarks"]
    }
    grid = [
        "n=1000, mode=plain",
        "n=1000, mode=fast",
        "n=1000000, mode=plain",
        "n=1000000, mode=fast",
    ]
    assert by_name["workload-vector_add.html#time"] == (
        "vector_add · time",
        "numba_cuda",
        grid,
    )
    assert by_name["workload-vector_add.html#bandwidth"][2] == grid
    assert by_name["workload-resnet50.html#flop"] == ("resnet50 · flop", "fvcore", [])
    assert len(found["points"]) == 3  # of vector_add, of resnet50 (none), of foreign


def test_an_index_that_would_be_too_large_leaves_its_points_out_and_says_so(
    add_result: AddResult, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    many = ours("p", "many", "time", "s", "lower", size=list(range(400)))
    add_result(
        H200, "a" * 40, 1000, {many["name"]: [1.0] * 400}, benchmarks={many["name"]: many}
    )
    history = read(tmp_path / "results", {many["name"]: many}, {"a" * 40: 1000})
    whole = search.index([], history)
    assert len(whole["points"][0]) == 400
    monkeypatch.setattr(search, "LARGEST", len(msgspec.json.encode(whole)) - 1)
    short = search.index([], history)
    assert (short["points"], short["short"], len(short["benchmarks"])) == ([[]], True, 1)


def test_tasks_are_found_by_their_words_and_the_types_that_have_an_answer(
    add_result: AddResult, tmp_path: Path
) -> None:
    add_result(H200, "a" * 40, 1000, {"vector_add.track_time": [1.0, 2.0, 3.0, 4.0]})
    history = read(tmp_path / "results", dates={"a" * 40: 1000})
    matrix = build(history, Costs({}))
    asked = TaskEntry(
        "Add a million numbers", "vector_add.time", {"n": 1000, "mode": "fast"}
    )
    rows, problems = find_rows({"Memory": [asked]}, history, matrix)
    (entry,) = search._tasks(rows, matrix)
    assert problems == []
    address = "workload-vector_add.html#time?n=1000&mode=fast"
    assert (entry[0], entry[1], entry[3]) == ("task", "Add a million numbers", address)
    assert "NVIDIA H200 ×1" in entry[2] and "Memory" in entry[2]
