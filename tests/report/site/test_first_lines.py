"""What asv's page of a benchmark shows first, of a grid that was measured in part."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
from browsing import served
from site_history import A100, BANDWIDTH, FOREIGN, H200, NAN, TIME

from hpml_plugins.report.site.asv_page import MOST_LINES, first_lines


@pytest.mark.parametrize(
    ("counts", "chosen"),
    [
        ([3, 3, 3], [[0, 1, 2]]),
        ([0, 0, 1], [[2]]),
        ([[1, 1], [1, 1]], [[0, 1], [0, 1]]),
        ([[0, 0], [0, 1]], [[1], [1]]),
        ([[1, 0], [0, 2]], [[1], [1]]),  # around what was measured most often
        ([[0, 1], [0, 1], [0, 0]], [[0, 1], [1]]),
        ([1] * 20, [list(range(MOST_LINES))]),
        ([0] * 19 + [1], [[19]]),
        ([1] * 19 + [2], [[*range(MOST_LINES - 1), 19]]),
        ([[1] * 5] * 5, [[0, 1, 2, 3, 4], [0]]),  # a second axis of five would be 25 lines
    ],
)
def test_lines_lie_around_the_point_that_was_measured_most_often(counts: list[Any], chosen: list[list[int]]) -> None:
    assert first_lines(np.array(counts)) == chosen


def test_a_graph_opens_with_lines_that_have_numbers(project: Any, browser: Any) -> None:
    for day in range(3):
        project.add(H200, day, {TIME["name"]: [NAN, NAN, NAN, 1.0 + day], FOREIGN["name"]: [1.0, 2.0]})
        project.add(A100, day, {TIME["name"]: [NAN, NAN, NAN, 2.0 + day]})
    project.publish()
    index = json.loads((project.html / "index.json").read_text())["benchmarks"]
    assert index[TIME["name"]]["hpml_selected"] == [[1], [1]]
    assert index[FOREIGN["name"]]["hpml_selected"] == [[0, 1]]
    assert index[TIME["name"]]["hpml_machines"] == ["node2", "node1"]
    assert index[FOREIGN["name"]]["hpml_machines"] == ["node1"]
    assert "hpml_selected" not in index[BANDWIDTH["name"]]
    assert "hpml_selected" not in (project.results / "benchmarks.json").read_text()
    with served(project.html, browser) as site:
        tab = site.open(f"asv.html#/{TIME['name']}")
        tab.wait_for_selector("#main-graph .flot-overlay")
        pressed = tab.locator("#graphdisplay-navigation .btn.active").all_inner_texts()
        assert {"1000000", "fast"} <= set(pressed)
        assert not {"1000", "plain"} & set(pressed)
        # An address that names a value is obeyed.
        site.tab.goto("about:blank")
        tab = site.open(f"asv.html#/{TIME['name']}?p-n=1000")
        tab.wait_for_selector("#main-graph .flot-overlay")
        pressed = tab.locator("#graphdisplay-navigation .btn.active").all_inner_texts()
        assert "1000" in pressed and "1000000" not in pressed
    assert not site.troubles
