"""Text stays text: a corpus of script-bearing texts in all that others can set, walked page by page
in Chromium."""

from __future__ import annotations

import csv
import io
import re
import xml.etree.ElementTree as ElementTree
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
from browsing import Site, served
from hostile_site import Hostile
from hostile_texts import SCRIPTS, TEXTS, in_address

from hpml_plugins.report.site.asv_page import ASVS, policy_tag
from hpml_plugins.report.site.page import OURS

#: What no text may have made: handlers, scripts of no file of ours, frames, addresses that run
#: something.
MADE_BY_TEXT = """() => {
    const found = [];
    for (const element of document.querySelectorAll('*')) {
        for (const {name, value} of element.attributes) {
            const runs = /^(javascript|data|vbscript):/i.test(value.replace(/[\\0-\\x20]/g, ''));
            const followed = /^(href|xlink:href|src|srcdoc|action|formaction|data|to)$/.test(name);
            const outward = followed && /^(https?:)?\\/\\/evil/i.test(value.trim());
            if (name.startsWith('on') || outward || (runs && followed && element.id !== 'project-name')) {
                found.push(element.outerHTML.slice(0, 200));
            }
        }
        if (element.matches('script:not([src]), iframe, object, embed, base, marquee, math, audio, video, [src="x"]')) {
            found.push(element.outerHTML.slice(0, 200));
        }
    }
    return found;
}"""  # noqa: E501

pytestmark = pytest.mark.slow


def pages(hostile: Hostile) -> Iterator[str]:
    """Every page of the site, and a graph and a history of each benchmark's first point."""
    yield from sorted(path.name for path in hostile.html.glob("*.html"))
    yield from (f"asv.html#/{page}" for page in ("", "summarylist"))
    for name in hostile.benchmarks[::5]:
        yield f"asv.html#{in_address(name)}"
        yield f"history.html#{in_address(name)}"
    for each in TEXTS[::6]:
        yield f"search.html#q={in_address(each)}"
        yield f"gpus.html#filter={in_address(each)}&base={in_address(each)}&sort={in_address(each)}"
        yield f"history.html#{in_address(each)}?{in_address(each)}"
        yield f"index.html#base={in_address(each)}&by={in_address(each)}&count={in_address(each)}"
        yield f"changes.html#filter={in_address(each)}"


def walk(site: Site, hostile: Hostile) -> tuple[int, int]:
    """Open every page, point at what has a tooltip; returns how many pages and tooltips it were."""
    opened = tips = 0
    for page in pages(hostile):
        site.tab.goto("about:blank")
        site.tab.goto(f"{site.address}/{page}", wait_until="load")
        if "#" in page:
            site.tab.wait_for_timeout(150)  # what asv's pages fetch by themselves
        # a point's Records, read when they are opened
        for details in site.tab.locator("#runs:visible").all():
            details.evaluate("details => { details.open = true; }")
            site.tab.wait_for_timeout(100)
        tips += point_at_everything(site.tab) if page.startswith("asv.html") else 0
        assert site.tab.evaluate(MADE_BY_TEXT) == [], page
        opened += 1
    return opened, tips


def faults(site: Site) -> list[str]:
    """What ran, was refused by the policy or broke a script.

    Not: icons not yet loaded when the next page was opened, and graphs whose file asv's page does
    not find under the address that it makes of these names.
    """
    return [
        line
        for line in site.troubles
        if not line.startswith(("failed: ", "console: Failed to load resource"))
        and "/graphs/" not in line
    ]


def point_at_everything(tab: Any) -> int:
    """What a pointer over each of asv's buttons, names and graphs brings up, without moving one."""
    return int(
        tab.evaluate("""() => {
                const all = Array.from(document.querySelectorAll('*')).filter(e => $(e).data('bs.tooltip'));
                all.forEach(e => { $(e).tooltip('show'); });
                return all.length;
            }""")  # noqa: E501
    )


def test_nothing_runs_on_any_page_and_no_policy_is_violated(
    hostile: Hostile, browser: Any
) -> None:
    with served(hostile.html, browser) as site:
        opened, tips = walk(site, hostile)
    assert faults(site) == []
    assert opened > 60
    assert tips > 500
    print(f"{len(TEXTS)} texts, {opened} pages, {tips} tooltips: nothing ran, no violation")


def test_nothing_runs_where_a_browser_ignores_the_policy(
    hostile: Hostile, browser: Any
) -> None:
    with served(hostile.html, browser, bypass_csp=True) as site:
        walk(site, hostile)
    assert faults(site) == []


def test_the_policies_alone_stop_every_script(tmp_path: Path, browser: Any) -> None:
    """As if nothing were escaped: each text raw in a page of its own. Without a policy most of them
    run."""
    ran: dict[str, set[int]] = {}
    for name, policy in {"none": "", "ours": OURS, "asvs": ASVS}.items():
        folder = tmp_path / name
        folder.mkdir()
        for number, each in enumerate(SCRIPTS):
            head = (
                "<!doctype html><html><head><meta"
                f" charset=utf-8>{policy_tag(policy) if policy else ''}</head>"
            )
            (folder / f"{number}.html").write_text(
                f"{head}<body><p title='{each}'>{each}</p></body>"
            )
        ran[name] = set()
        with served(folder, browser) as site:
            for number in range(len(SCRIPTS)):
                site.troubles.clear()
                site.tab.goto(f"{site.address}/{number}.html", wait_until="load")
                site.tab.evaluate(
                    "document.querySelectorAll('a, button').forEach(e => e.click && e.click())"
                )
                site.tab.wait_for_timeout(20)
                if any(
                    line.startswith(("dialog", "another host")) for line in site.troubles
                ):
                    ran[name].add(number)
    assert len(ran["none"]) > 25
    assert ran["ours"] == ran["asvs"] == set()


def test_every_page_has_a_policy_before_anything_that_it_rules(
    hostile: Hostile, published: Path
) -> None:
    for folder in (hostile.html, published):
        for page in folder.rglob("*.html"):
            text = page.read_text()
            assert text.count('http-equiv="Content-Security-Policy"') == 1, page
            before = text[: text.index('http-equiv="Content-Security-Policy"')]
            assert not re.search(r"<(script|link|style|img|title)\b", before), page
            assert (
                "'unsafe-inline'"
                not in text[len(before) :].partition("script-src")[2].partition(";")[0]
            )


def test_charts_and_the_feed_hold_no_script(hostile: Hostile) -> None:
    files = [*hostile.html.rglob("*.svg"), hostile.html / "regressions.xml"]
    assert hostile.html / "figures" / "toy-drawn.svg" in files
    for path in files:
        if "vendor" in path.parts:
            continue
        for element in ElementTree.parse(path).iter():
            assert element.tag.rpartition("}")[2] not in (
                "script",
                "foreignObject",
                "animate",
                "set",
                "iframe",
            )
            for name, value in element.attrib.items():
                assert not name.startswith("on"), path
                if name.endswith("href"):
                    assert not value.lower().startswith("javascript"), path


def test_no_cell_of_a_csv_is_a_formula(hostile: Hostile) -> None:
    found = list(
        csv.reader(io.StringIO((hostile.html / "figures" / "toy-drawn.csv").read_text()))
    )
    assert len(found) == len(TEXTS) + 1
    cells = [cell for row in found for cell in row]
    assert not [cell for cell in cells if cell.startswith(("=", "+", "-", "@", "\t", "\r"))]
    assert "'@SUM(1+1)*cmd|' /C calc'!A0" in cells
    assert "0" in cells


class _Texts(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.cells: list[str] = []

    def handle_data(self, data: str) -> None:
        self.cells.append(data)


def test_the_texts_are_shown_as_they_are(hostile: Hostile) -> None:
    reader = _Texts()
    reader.feed((hostile.html / "workload-toy0.html").read_text())
    reader.close()
    shown = "".join(reader.cells)
    for each in TEXTS:
        if each.isprintable():
            assert each in shown
