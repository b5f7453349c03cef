"""asv's grid of all benchmarks on a site where some have no number."""

from __future__ import annotations

import json
import time
from typing import Any

import browsing
import pytest
from browsing import served
from site_history import A100, H200, TIME
from workload_pages import asv_graphs


def test_a_benchmark_without_any_number_has_an_empty_box_and_no_failed_request(
    project: Any, browser: Any
) -> None:
    for day in range(3):
        project.add(H200, day, {TIME["name"]: [1e-3, 1e-2, 1e-1, 1.0]})
    project.publish()
    names = json.loads((project.html / "index.json").read_text())["benchmarks"]
    summaries = [path.stem for path in (project.html / "graphs").glob("*.deflate")]
    assert summaries == [TIME["name"]] != list(names)
    with served(project.html, browser) as site:
        tab = site.open("asv.html")
        tab.locator(".benchmark-container").last.scroll_into_view_if_needed()
        tab.wait_for_load_state("networkidle")
        assert tab.locator(".benchmark-container").count() == len(names)
    assert not site.troubles


def test_a_benchmark_of_one_commit_is_a_dot_also_if_a_stylesheet_is_late(
    project: Any, browser: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    project.add(H200, 0, {TIME["name"]: [1e-3, 1e-2, 1e-1, 1.0]})
    project.publish()
    answer = browsing.QuietHandler.do_GET

    def late(handler: browsing.QuietHandler) -> None:
        if handler.path.endswith("asv.css"):
            time.sleep(0.5)
        answer(handler)

    monkeypatch.setattr(browsing.QuietHandler, "do_GET", late)
    with served(project.html, browser) as site:
        tab = site.open("asv.html")
        box = tab.locator(f"[id='summarygrid-{TIME['name']}']")
        box.scroll_into_view_if_needed()
        box.locator("canvas.flot-base").wait_for()
        blue = """canvas => {
            const pixels = canvas.getContext('2d').getImageData(0, 0, canvas.width, canvas.height).data;
            return pixels.some((value, i) => i % 4 === 2 && value > 100 && pixels[i - 2] < 100 && pixels[i + 1] > 0);
        }"""  # noqa: E501
        assert box.locator("canvas.flot-base").evaluate(blue)
    assert not site.troubles


def test_the_graphs_of_a_benchmark_are_one_file_and_asv_draws_those_that_it_has(
    project: Any, browser: Any
) -> None:
    for machine in (H200, A100):
        for day in range(3):
            project.add(machine, day, {TIME["name"]: [1e-3, 1e-2, 1e-1, 1.0]})
    for _ in range(2):  # the second finds nothing changed
        project.publish()
        files = [path for path in (project.html / "graphs").rglob("*") if path.is_file()]
        merged = [path for path in files if path.name != "summary.deflate"]
        assert merged == [project.html / "graphs" / f"{TIME['name']}.deflate"]
        assert len(asv_graphs(project.html, TIME["name"])[1]) == 2
    with served(project.html, browser) as site:
        tab = site.open(f"asv.html#{TIME['name']}")
        tab.locator("#main-graph canvas.flot-base").wait_for()
        tab.wait_for_load_state("networkidle")
        assert tab.evaluate("$.plot && $('#main-graph').data('plot').getData().length") >= 2
    assert not site.troubles
