"""asv's grid of all benchmarks on a site where some have no number."""

from __future__ import annotations

import json
from typing import Any

from browsing import served
from site_history import H200, TIME


def test_a_benchmark_without_any_number_has_an_empty_box_and_no_failed_request(
    project: Any, browser: Any
) -> None:
    for day in range(3):
        project.add(H200, day, {TIME["name"]: [1e-3, 1e-2, 1e-1, 1.0]})
    project.publish()
    names = json.loads((project.html / "index.json").read_text())["benchmarks"]
    summaries = [path.stem for path in (project.html / "graphs" / "summary").iterdir()]
    assert summaries == [TIME["name"]] != list(names)
    with served(project.html, browser) as site:
        tab = site.open("asv.html")
        tab.locator(".benchmark-container").last.scroll_into_view_if_needed()
        tab.wait_for_load_state("networkidle")
        assert tab.locator(".benchmark-container").count() == len(names)
    assert not site.troubles


def test_a_benchmark_of_one_commit_is_a_dot(project: Any, browser: Any) -> None:
    project.add(H200, 0, {TIME["name"]: [1e-3, 1e-2, 1e-1, 1.0]})
    project.publish()
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
