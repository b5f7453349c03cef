"""What a newcomer asks, each answered within three clicks from the first page, on phones and desks,
light and dark."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import pytest
from browsing import served

#: The others are slow tests.
ALWAYS = ((390, "dark"), (1440, "light"))
CASES = [
    pytest.param(*each, marks=() if each in ALWAYS else pytest.mark.slow)
    for each in itertools.product((390, 1024, 1440), ("light", "dark"))
]


@pytest.mark.parametrize(("width", "scheme"), CASES)
def test_five_questions_are_answered_within_three_clicks(
    published: Path, browser: Any, width: int, scheme: str
) -> None:
    with served(published, browser, color_scheme=scheme) as site:
        tab = site.tab
        tab.set_viewport_size({"width": width, "height": 900})
        # Which is faster, and how sure?
        site.open("index.html")
        answer = tab.locator(".answers section").first.inner_text()
        assert "is faster in" in answer and "at least" in answer
        # Did anything get slower?
        tab.locator(".answers a", has_text="Changes").click()
        tab.wait_for_url("**/changes.html")
        # What does a run cost? By the search, as for any metric.
        site.open("index.html")
        tab.get_by_label("Search").fill("vector_add bandwidth")
        tab.locator("#search-list a").first.click()
        # visible, and with its unit: right after the click nothing of it may be laid out
        tab.locator("#bandwidth tbody tr").first.wait_for()
        tab.locator("#bandwidth", has_text="B/s").wait_for()
        # How is that repeated?
        assert (
            tab.get_by_text("hpml run vector_add")
            .or_(tab.get_by_text("asv run --bench"))
            .first.is_visible()
        )
        # Is this node normal?
        site.open("index.html")
        tab.locator("nav").get_by_role("link", name="Evidence").click()
        tab.get_by_role("link", name="node1", exact=True).first.click()
        assert "#" in tab.url
        assert tab.get_by_role("heading", name="node1").is_visible()
        # Nothing runs out of the page sideways.
        for page in (
            "index.html",
            "changes.html",
            "workload-toy.html",
            "workloads.html",
            "evidence.html",
        ):
            site.open(page)
            assert tab.evaluate("document.documentElement.scrollWidth <= innerWidth"), page
        # an icon that a click interrupted
        assert [each for each in site.troubles if "swallow.ico" not in each] == []
