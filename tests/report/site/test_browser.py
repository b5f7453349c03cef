"""The published site as a reader's browser shows it: complete offline, and its parts do what they
promise."""

from __future__ import annotations

import ast
import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import xml.etree.ElementTree as ElementTree
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import pytest
from browsing import Site, read_data, served
from site_history import RETRACTED, WARNINGS, WILD, read
from support import ROOT, unavailable

from hpml_plugins.model import formatting as display
from hpml_plugins.plugins.harness.publish import GPU_PAGE, make_history
from hpml_plugins.report.site.asv_page import STATIC
from hpml_plugins.report.site.gpu_types import Costs, build, judge, write_gpu_types

NASTY = "<script>alert(1)</script>"
OURS = (
    "index.html",
    "gpus.html",
    "changes.html",
    "workloads.html",
    "workload-toy.html",
    "workload-vector_add.html",
    "workload-resnet50.html",
    "evidence.html",
    "questions.html",
    "questions-000.html",
    "search.html",
)
AXE = ROOT / ".tools" / "axe.min.js"
PAINTED = """selector => Array.from(document.querySelectorAll(selector)).some(canvas => {
    const pixels = canvas.getContext('2d').getImageData(0, 0, canvas.width, canvas.height).data;
    return pixels.some((value, i) => i % 4 === 3 && value > 0);
})"""


@pytest.fixture
def site(published: Path, browser: Any) -> Iterator[Site]:
    with served(published, browser) as made:
        yield made
    assert not made.troubles


#: The page with all columns, metrics and rows.
EVERYTHING = "gpus.html#" + urlencode(
    [
        ("all", "yes"),
        ("open", "vector_add"),
        ("type", "NVIDIA H200 ×1"),
        ("type", "no GPU (Xeon W)"),
        ("type", "unknown"),
    ]
)


def cell(tab: Any, group: str, point: str, column: str) -> Any:
    """The cell of gpus.html in the group with this title, the row of this point and the column of
    this GPU type."""
    row = tab.locator(f'#matrix tr.row[data-metric="{group}"]')
    row = row.filter(has=tab.get_by_role("rowheader", name=point, exact=True))
    place = heads(tab).index(column) - 1
    row.wait_for()
    return row.locator("td").nth(place)


def test_asv_s_pages_open_without_another_host_or_a_failed_request(site: Site) -> None:
    asv_s = ("asv.html", "asv.html#/summarylist", "error.html")
    for page in (*asv_s, *OURS):
        site.tab.goto("about:blank")
        tab = site.open(page)
        assert "Error fetching content" not in tab.locator("body").inner_text()
    assert site.tab.locator("h1").count() == 1


def test_asv_s_navbar_leads_to_our_pages(site: Site) -> None:
    tab = site.open("asv.html")
    tab.get_by_role("link", name="Workloads").click()
    tab.wait_for_url("**/workloads.html")
    tab.get_by_role("link", name="asv's own pages").click()
    tab.wait_for_url("**/asv.html**")


def test_asv_s_page_of_regressions_is_ours(site: Site) -> None:
    tab = site.open("asv.html")
    tab.get_by_role("link", name="Regressions").click()
    tab.wait_for_url("**/changes.html")
    assert tab.locator("h1").inner_text() == "hpml-plugins: changes"
    site.open("asv.html#/regressions").wait_for_url("**/changes.html")


def test_a_plugin_s_page_draws_its_charts_under_its_policy(site: Site) -> None:
    tab = site.open("asv.html")
    tab.get_by_role("link", name="Workloads", exact=True).click()
    tab.get_by_role("link", name="Time against size", exact=True).click()
    tab.wait_for_url("**/workload-toy.html#toy.over_size")
    policy = tab.locator("meta[http-equiv=Content-Security-Policy]").get_attribute(
        "content"
    )
    assert "script-src 'self';" in policy
    assert "unsafe" not in policy
    texts = tab.locator("#toy-over_size svg text").all_text_contents()
    assert {"size", "time", WILD, "20 µs"} <= set(texts)
    told = tab.locator("#toy-over_size svg title").all_text_contents()
    assert f"machine: {WILD} · size: 1,000 · time: 35 µs" in told
    assert tab.evaluate("typeof vegaEmbed") == "undefined"
    assert tab.locator('[id="toy.over_size"] details[open]').count() == 0
    assert tab.locator('[id="toy.numbers"] .vega, [id="toy.numbers"] img').count() == 0
    assert tab.locator('[id="toy.numbers"] details[open] tbody tr').count() == 2
    tab.locator('[id="toy.freely"] img').scroll_into_view_if_needed()
    tab.wait_for_function(
        "() => document.querySelector('[id=\"toy.freely\"] img').naturalWidth > 300"
    )


def test_a_number_of_an_answer_leads_to_its_record_in_two_clicks(site: Site) -> None:
    def records() -> str:
        """The id of the open point, and its Records."""
        drawer = tab.locator("tr.drawer")
        drawer.locator("summary").click()
        point = drawer.evaluate("each => each.previousElementSibling.id")
        return f"{point}: {drawer.locator('.records tbody').inner_text()}"

    tab = site.open("index.html")
    for text, point in (
        ("35.00 µs", "size=1000"),
        ("17.5", "size=1000"),
        ("[2]", "size=10"),
    ):
        tab.get_by_role("link", name="Course", exact=True).click()
        tab.get_by_role("link", name="How long?", exact=True).click()
        tab.get_by_role("link", name=text, exact=True).click()
        assert records().startswith(f"time?{point}: ")
    for page, table in (
        ("questions-000.html", "article table"),
        ("workload-toy.html", '[id="toy.numbers"] table'),
    ):
        tab = site.open(page)
        for fold in tab.locator("article summary").all():
            fold.click()
        link = tab.locator(f"{table} tbody tr", has_text="35.00 µs").get_by_role("link")
        commit = link.inner_text()
        assert link.get_attribute("title").startswith(
            f"{WILD} at {commit}: toy · time 35.00 µs ± "
        )
        link.click()
        assert commit in records()


def explored(site: Site) -> Any:
    """The page of a plugin, whose chart is drawn by Vega."""
    tab = site.open("workload-toy.html")
    tab.locator("#toy-over_size button[data-explore]").click()
    tab.locator("#toy-over_size[data-explored] svg").wait_for()
    return tab


def test_an_explored_chart_tells_its_values_where_the_reader_points(site: Site) -> None:
    tab = explored(site)
    tab.locator("#toy-over_size svg [aria-roledescription=point]").last.hover(force=True)
    assert "35 µs" in tab.locator("#vg-tooltip-element.visible").inner_text()


def test_a_chart_is_explored_from_the_disk(published: Path, browser: Any) -> None:
    tab = browser.new_page()
    tab.goto((published / "workload-toy.html").as_uri())
    tab.locator("#toy-over_size button[data-explore]").click()
    tab.locator("#toy-over_size[data-explored] svg").wait_for()
    tab.close()


def test_a_chart_is_zoomed_with_ctrl_and_the_wheel(site: Site) -> None:
    tab = explored(site)
    chart = tab.locator("#toy-over_size svg")
    labels = chart.locator(".role-axis-label text")
    before = labels.all_text_contents()
    box = chart.bounding_box()
    tab.mouse.move(box["x"] + box["width"] / 2, box["y"] + 100)
    tab.keyboard.down("Control")
    tab.mouse.wheel(0, -400)
    tab.keyboard.up("Control")
    tab.wait_for_function(
        "texts => [...document.querySelectorAll('#toy-over_size .role-axis-label text')]"
        ".map(each => each.textContent).join() !== texts.join()",
        arg=before,
    )


def test_a_chart_s_numbers_and_picture_can_be_downloaded(site: Site) -> None:
    tab = site.open("workload-toy.html")
    tab.locator('[id="toy.over_size"] summary').click()
    cells = (
        tab.locator('[id="toy.over_size"] tbody tr').nth(1).locator("td").all_inner_texts()
    )
    assert cells[:-1] == [WILD, "1000", "35.00 µs"]
    link = (
        tab.locator('[id="toy.over_size"] details')
        .get_by_role("link", name="CSV")
        .get_attribute("href")
    )
    assert link == "figures/toy-over_size.csv"
    assert tab.request.get(f"{site.address}/{link}").text().endswith("1000,3.5e-05\n")
    with tab.expect_download() as download:
        tab.locator('[id="toy.over_size"] button[data-save]').click()
    assert download.value.suggested_filename == "toy-over_size.svg"
    assert ElementTree.parse(download.value.path()).getroot().tag.endswith("}svg")


def test_without_script_a_plugin_s_page_has_its_charts_and_tables(
    published: Path, browser: Any
) -> None:
    with served(published, browser, java_script_enabled=False) as made:
        tab = made.open("workload-toy.html")
        tab.locator('[id="toy.over_size"] summary').click()
        assert (
            tab.locator('[id="toy.over_size"] details[open] tbody tr:visible').count() == 2
        )
        assert tab.locator("#toy-over_size svg text:visible").count() > 2
        assert tab.locator(".vega button:visible").count() == 0


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_charts_are_drawn_in_the_ink_of_the_page(
    published: Path, browser: Any, scheme: str
) -> None:
    with served(published, browser, color_scheme=scheme) as made:
        tab = made.open("workload-toy.html")
        ink = tab.evaluate("() => getComputedStyle(document.body).color")
        title = tab.locator("#toy-over_size svg text", has_text="size").first
        assert title.evaluate("each => getComputedStyle(each).fill") == ink


def test_a_cell_leads_to_its_point_and_on_to_asv_s_graph_of_it(site: Site) -> None:
    tab = site.open("gpus.html#open=vector_add")
    cell(tab, "vector_add · time", "n=1000000, mode=fast", "NVIDIA H200 ×1").get_by_role(
        "link"
    ).click()
    tab.wait_for_url("**/workload-vector_add.html#time?n=1000000&mode=fast")
    drawer = tab.locator("tr.drawer")
    drawer.locator(".history .marker").first.wait_for()
    newest = drawer.get_by_role("group", name="Newest value of each machine")
    rows = [
        row.locator("th, td").all_inner_texts() for row in newest.locator("tbody tr").all()
    ]
    assert [row[:3] for row in rows] == [
        ["node2", "8.000 ms ± 4.1 %", "± 2 %"],
        ["node1", "6.000 ms ± 4.1 %", "± 2 %"],
    ]
    assert rows[0][6] == "3"
    drawer.get_by_role("link", name="asv's graph").click()
    tab.wait_for_function(PAINTED, arg="#main-graph canvas.flot-base")
    assert tab.locator("#title").inner_text() == "vector_add.track_time"
    selected = tab.locator("#graphdisplay-navigation .btn.active").all_inner_texts()
    assert {"1000000", "fast"} <= {text.strip().strip("'") for text in selected}


def test_a_value_s_warnings_and_a_point_s_retracted_records_are_shown_where_the_value_is(
    site: Site,
) -> None:
    tab = site.open("workload-toy.html#time?size=1000")
    drawer = tab.locator("tr.drawer")
    newest = drawer.get_by_role("group", name="Newest value of each machine")
    (row,) = [
        row.locator("th, td").all_inner_texts() for row in newest.locator("tbody tr").all()
    ]
    assert (row[1], row[7]) == ("35.00 µs ± 6.3 %", "; ".join(WARNINGS))
    retracted = drawer.get_by_role("group", name="Retracted", exact=True).locator(
        "tbody tr"
    )
    (row,) = [row.locator("th, td").all_inner_texts() for row in retracted.all()]
    assert row[1:] == [WILD, RETRACTED]
    site.tab.goto("about:blank")
    site.open("workload-toy.html#time?size=10")
    drawer.locator(".history").first.wait_for()
    assert drawer.get_by_text("Retracted").count() == 0


def test_the_page_of_nodes_says_what_a_node_lacks_and_why(site: Site) -> None:
    tab = site.open("evidence.html")
    laptop = tab.locator("section").filter(has=tab.get_by_role("heading", name="laptop"))
    row = laptop.locator("tr").filter(has=tab.get_by_role("rowheader", name="vector_add"))
    assert "needs 1 GPU, this node has no GPU" in row.inner_text()
    # 1 point of FLOP and 1 of FOREIGN; 4 of vector_add skipped; 1 of FOREIGN failed; 2 of toy never
    # run
    total = (
        tab.get_by_role("region", name="Nodes", exact=True)
        .locator("tr")
        .filter(has=tab.get_by_role("rowheader", name="laptop"))
    )
    assert total.locator("td.number").all_inner_texts() == ["1", "2", "4", "1", "2"]


def test_columns_and_rows_can_be_filtered_and_sorted_and_the_address_remembers(
    site: Site,
) -> None:
    tab = site.open("gpus.html")
    tab.get_by_label("Plugin").select_option("fvcore")
    assert tab.locator("tr.row").count() == 1
    tab.locator("#picker summary").click()
    tab.locator("#picker").get_by_label("NVIDIA H200 ×1").uncheck()
    assert heads(tab)[1:] == ["NVIDIA A100 ×2", "per USD"]
    tab.reload()
    tab.locator("tr.row").wait_for()
    assert (tab.locator("tr.row").count(), heads(tab)[1:]) == (
        1,
        ["NVIDIA A100 ×2", "per USD"],
    )
    site.open("gpus.html#group=vector_add")
    tab.get_by_role("button", name="NVIDIA H200 ×1", exact=True).click()
    assert "sort=NVIDIA" in tab.url
    assert tab.locator("th[aria-sort=descending]").inner_text().startswith("NVIDIA H200")
    assert tab.locator("#matrix .mean", has_text="1.33×").count() == 1


def test_first_only_the_rows_that_both_types_share_and_one_metric_a_benchmark(
    site: Site,
) -> None:
    tab = site.open("gpus.html")
    assert heads(tab)[1:] == [
        "NVIDIA A100 ×2",
        "per USD",
        "NVIDIA H200 ×1",
        "per USD",
        "per watt",
    ]
    titles = tab.locator("#matrix tr.group th > a")
    assert titles.all_inner_texts() == [
        "foreign.track_score",
        "resnet50 · flop",
        "vector_add · bandwidth",
    ]
    assert tab.locator("#count").inner_text() == "7 of 13 points"
    button = tab.get_by_role(
        "button", name="4 more rows: other metrics and points of vector_add"
    )
    button.focus()
    tab.keyboard.press("Enter")
    tab.wait_for_url("**#open=vector_add")
    heads(tab)
    assert titles.all_inner_texts()[2:] == ["vector_add · bandwidth", "vector_add · time"]
    assert tab.evaluate("document.activeElement.getAttribute('aria-expanded')") == "true"
    tab.keyboard.press("Enter")
    heads(tab)
    assert len(titles.all_inner_texts()) == 3
    # What only one machine has
    tab.get_by_label("all rows").check()
    assert "toy · time" not in titles.all_inner_texts()  # none of the two has it
    tab.locator("#picker summary").click()
    tab.locator("#picker").get_by_label("unknown").check()
    tab.locator("#matrix tr.group", has_text="toy · time").wait_for()
    tab.get_by_label("all rows").uncheck()
    assert "share none that match" in tab.locator("#count").inner_text()


def test_an_address_of_one_gpu_type_shows_it_beside_that_with_most_in_common(
    site: Site,
) -> None:
    tab = site.open(f"gpus.html#{urlencode({'base': 'no GPU (Xeon W)'})}")
    assert tab.locator("#matrix th.base").inner_text().startswith("no GPU (Xeon W)")
    assert "NVIDIA A100 ×2" in heads(tab)
    assert (
        tab.locator("#matrix tr.group").count() == 2
    )  # flop, and a score that is no failure


def heads(tab: Any) -> list[str]:
    tab.locator(
        "#box:not([aria-busy])"
    ).wait_for()  # what was chosen last is loaded and shown
    return [
        text.split("\n")[0].strip()
        for text in tab.locator("#matrix thead th:visible").all_inner_texts()
    ]


def test_columns_per_price_stand_beside_their_gpu_type_and_are_of_times_and_rates_alone(
    site: Site,
) -> None:
    tab = site.open(EVERYTHING)
    # Nobody publishes the power of a card called "NVIDIA A100", and no GPU has no price.
    assert heads(tab)[1:] == [
        "NVIDIA A100 ×2",
        "per USD",
        "NVIDIA H200 ×1",
        "per USD",
        "per watt",
        "no GPU (Xeon W)",
        "unknown",
    ]
    row = cell(tab, "vector_add · time", "n=1000, mode=plain", "NVIDIA H200 ×1").locator(
        ".."
    )
    # H200: 15 µs at 4 USD/h; A100 ×2, the base: 20 µs at 2 × 1 USD/h. 1.33 times as fast at twice
    # the price.
    price = row.locator("td.price")
    assert price.nth(0).inner_text().split("\n") == ["11.11 nUSD", "base"]
    assert price.nth(1).inner_text().split("\n") == ["16.67 nUSD", "0.67×"]
    # 15 µs × 700 W, which the vendor published; the base has no watts, so there is no ratio
    assert row.locator("td.watts").inner_text() == "10.50 mJ published"
    rate = cell(
        tab, "vector_add · bandwidth", "n=1000, mode=plain", "NVIDIA H200 ×1"
    ).locator("..")
    # 1.2e10 / 1.5e-5 B/s × 3600 s/h / 4 USD/h
    assert rate.locator("td.price").nth(1).inner_text().split("\n") == [
        "720.0 PB/USD",
        "0.67×",
    ]
    flop = cell(tab, "resnet50 · flop", "one point", "NVIDIA H200 ×1").locator("..")
    assert flop.locator("td.price").all_inner_texts() == ["", ""]


def test_a_metric_without_a_direction_is_ranked_nowhere(site: Site) -> None:
    tab = site.open("gpus.html")
    shown = cell(tab, "resnet50 · flop", "one point", "NVIDIA H200 ×1")
    group = tab.locator("#matrix tr.group").filter(has_text="resnet50 · flop")
    assert "8.200 GFLOP" in shown.inner_text()
    assert "not ranked" in group.inner_text()
    assert not re.search(
        r"better|worse|same|told|×", group.inner_text() + shown.inner_text()
    )
    tab = site.open("workload-resnet50.html")
    assert "not ranked" in tab.locator("#flop h3").inner_text()
    assert not re.search(r"[▲▼]|[\d]×|is better", tab.locator("main").inner_text())
    tab = site.open("asv.html#/summarylist")
    tab.locator("#summarylist-body table:visible").wait_for()
    classes = tab.evaluate("""() => new Promise(done => {
            const rows = ['resnet50.track_flop', 'vector_add.track_time'].map(name => '<tr><td><a href="#' + name +
                '">b</a></td><td class="change positive-change">+9%</td></tr>').join('');
            const table = $('<table><tbody>' + rows + '</tbody></table>');
            $('#summarylist-body').append(table);
            setTimeout(() => done(table.find('.change').get().map(td => td.className)), 0);
        })""")  # noqa: E501
    assert classes == ["change", "change positive-change"]


def test_columns_per_price_and_per_watt_can_be_hidden_and_sorted_by(site: Site) -> None:
    tab = site.open("gpus.html")
    tab.get_by_label("per watt", exact=True).uncheck()
    tab.wait_for_url("**#watts=no")
    assert "per watt" not in heads(tab)
    tab.reload()
    assert "per watt" not in heads(tab)
    tab.get_by_label("per USD", exact=True).uncheck()
    assert heads(tab)[1:] == ["NVIDIA A100 ×2", "NVIDIA H200 ×1"]
    site.open("gpus.html#group=vector_add")
    tab.get_by_role("button", name="NVIDIA H200 ×1 per USD").click()
    assert tab.locator("th[aria-sort=descending]").inner_text() == "per USD"
    assert "sort=NVIDIA" in tab.url


def test_the_search_finds_everything_on_the_site_and_is_fetched_when_it_is_used(
    site: Site,
) -> None:
    asked: list[str] = []
    site.tab.on("request", lambda request: asked.append(request.url.rsplit("/", 1)[1]))
    tab = site.open("gpus.html")
    assert "search-index.js" not in asked
    field = tab.get_by_label("Search")

    def found(words: str) -> list[str]:
        field.fill(words)
        tab.locator("#search-message", has_text="found").or_(
            tab.locator("#search-message", has_text="No results")
        ).wait_for()
        return [
            " ".join(text.split())
            for text in tab.locator("#search-list a").all_inner_texts()
        ]

    tab.keyboard.press("s")
    tab.wait_for_function(
        "() => performance.getEntriesByName(new URL('search-index.js', location).href).length === 1"
    )
    assert found("xeon laptop") == ["no GPU (Xeon W) GPU type", "laptop machine"]
    assert found("toy against") == [
        "Time against size chart · toy",
        "Time against size, drawn freely chart · toy",
    ]
    assert found("toy size=10") == [
        "toy · time: size=10 point",
        "toy · time: size=1000 point",
    ]
    assert found("h200 gpu type") == ["NVIDIA H200 ×1 GPU type"]
    assert found("how long toys") == ["How long? question"]
    assert found("zzzzzzzzzzzz") == []
    # a benchmark by the GPU that has measured it, a synonym, a task, and a word with a wrong letter
    assert found("bandwidth h200")[0] == "vector_add · bandwidth benchmark · numba_cuda"
    assert "vector_add · time benchmark · numba_cuda" in found("latency vector_add")
    assert found("bandwitdh benchmark")[0].startswith("vector_add · bandwidth")
    near = tab.locator("#search-message").inner_text()
    assert (
        near
        == "No results for “bandwitdh benchmark”. Near it: “bandwidth benchmark”, 1 found."
    )
    assert f"foreign.track_score: path={NASTY} point" in found("<script>")
    assert found("BANDWIDTH n=1000,") == [
        "vector_add · bandwidth: n=1000, mode=plain point",
        "vector_add · bandwidth: n=1000, mode=fast point",
    ]
    assert asked.count("search-index.js") == 1


def test_the_search_is_used_by_keyboard_and_leads_where_it_says(site: Site) -> None:
    tab = site.open("evidence.html")
    tab.keyboard.press("s")
    tab.keyboard.type("n=1000000 time")
    tab.locator("#search-list a").first.wait_for()
    tab.keyboard.press("ArrowDown")
    tab.keyboard.press("ArrowDown")
    assert tab.evaluate("document.activeElement.textContent").startswith(
        "vector_add · time: n=1000000, mode=fast"
    )
    tab.keyboard.press("Escape")
    assert tab.evaluate("document.activeElement.id") == "search"
    assert tab.locator("#found").is_hidden()
    tab.keyboard.press("ArrowDown")
    tab.locator("#search-list a").first.wait_for()
    tab.keyboard.press("Enter")
    tab.wait_for_url("**/workload-vector_add.html#time?n=1000000&mode=plain")
    tab.locator("tr.drawer .history").first.wait_for()
    # From one point to another of the same page
    tab.get_by_label("Search", exact=False).first.fill("flop")
    tab.locator("#search-list a").first.click()
    tab.locator("h1", has_text="resnet50").wait_for()
    # A search has an address.
    site.open("asv.html").get_by_role("link", name="Search", exact=True).click()
    tab.get_by_label("Search").fill("laptop")
    tab.wait_for_url("**/search.html#q=laptop")
    tab.locator("#search-list a", has_text="laptop").first.wait_for()
    tab.reload()
    tab.locator("#search-list a", has_text="laptop").first.wait_for()


def test_the_slash_key_goes_to_the_search(site: Site) -> None:
    for page, name in (("gpus.html", "filter"), ("workloads.html", "filter")):
        tab = site.open(page)
        tab.keyboard.press("/")
        assert tab.evaluate("document.activeElement.id") == name


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_axe_finds_no_serious_fault(site: Site, scheme: str) -> None:
    if not AXE.is_file():
        unavailable(
            f"no axe-core in {AXE.parent}: sh tests/get-tools.sh fetches it from the npm registry"
        )
    site.tab.emulate_media(color_scheme=scheme)
    asv_s = (f"asv.html#{page}" for page in ("", "/summarylist", "vector_add.track_time"))
    for page in (
        *OURS,
        "workload-vector_add.html#time?n=1000&mode=fast",
        EVERYTHING,
        *asv_s,
        "error.html",
    ):
        site.tab.goto("about:blank")  # another fragment alone would load nothing
        tab = site.open(page)
        tab.evaluate(AXE.read_text(encoding="utf-8"))
        found = tab.evaluate("async () => (await axe.run()).violations")
        serious = [
            (
                page,
                fault["id"],
                fault["nodes"][0]["html"],
                fault["nodes"][0]["failureSummary"],
            )
            for fault in found
            if fault["impact"] in ("serious", "critical")
        ]
        assert not serious


def test_a_machine_s_facts_are_text_in_asv_s_tooltips(site: Site) -> None:
    tab = site.open("asv.html#/summarylist")
    # asv's script has sorted the table; it builds the buttons again then
    tab.wait_for_url("**sort=**")
    tip = tab.locator(".tooltip-inner")
    for _ in range(100):
        # a tooltip comes when the pointer enters: not of a button that was built beneath it
        tab.mouse.move(0, 0)
        tab.locator("#summarylist-navigation .btn", has_text="laptop").hover()
        tab.wait_for_timeout(300)
        if tip.is_visible():
            break
    assert "ram: <img src=x onerror=alert(1)>" in tip.inner_text()
    assert tip.locator("img").count() == 0


def test_bars_of_several_series_stand_side_by_side(site: Site) -> None:
    tab = site.open("asv.html#vector_add.track_time?x-axis=mode&machine=node1")
    tab.wait_for_function(PAINTED, arg="#main-graph canvas.flot-base")
    drawn = tab.evaluate("""() => {
            const bars = {show: true, barWidth: 0.3, align: 'center'};
            const data = [[['a', 1], ['b', 2]], [['a', 3], ['b', 4]], [['a', 5]]];
            const place = $('<div style="width: 400px; height: 300px">').appendTo('body');
            const series = data.map((points, i) => ({data: points, bars: {order: 3 - i}}));
            const plot = $.plot(place, series, {series: {bars: bars}, xaxis: {mode: 'categories'}});
            return plot.getData().map(s => {
                const size = s.datapoints.pointsize;
                return s.datapoints.points.filter((_, i) => i % size === 0).map(x => Math.round(x * 100) / 100);
            });
        }""")  # noqa: E501
    assert drawn == [[0.3, 1.3], [0, 1], [-0.3]]


def test_a_single_series_of_bars_stays_in_its_place(site: Site) -> None:
    tab = site.open("asv.html")
    drawn = tab.evaluate("""() => {
            const place = $('<div style="width: 400px; height: 300px">').appendTo('body');
            const series = [{data: [['a', 1], ['b', 2]], bars: {order: 1}}];
            const options = {series: {bars: {show: true, barWidth: 0.6, align: 'center'}}, xaxis: {mode: 'categories'}};
            const data = $.plot(place, series, options).getData()[0].datapoints;
            return data.points.filter((_, i) => i % data.pointsize === 0);
        }""")  # noqa: E501
    assert drawn == [0, 1]


def test_the_benchmark_list_sorts_when_a_header_is_clicked(site: Site) -> None:
    tab = site.open("asv.html#/summarylist")
    table = tab.locator("#summarylist-body table:visible")
    names = table.locator("tbody tr td:first-child")
    table.locator("th.asc", has_text="Benchmark").wait_for()
    ascending = names.all_inner_texts()
    assert len(ascending) == 11
    assert ascending == tab.evaluate(
        "names => names.slice().sort((a, b) => a.localeCompare(b))", ascending
    )
    table.locator("th", has_text="Benchmark").click()
    table.locator("th.desc", has_text="Benchmark").wait_for()
    assert names.all_inner_texts() == ascending[::-1]
    assert "sort=0&dir=desc" in tab.url
    table.locator("th", has_text="Value").click()
    table.locator("th.asc", has_text="Value").wait_for()
    values = [
        float(td.get_attribute("data-sort-value")) for td in table.locator("td.value").all()
    ]
    assert values == sorted(values)


@pytest.mark.parametrize("page", ["summarylist", "vector_add.track_time", ""])
@pytest.mark.parametrize("width", [1600, 1000, 420])
def test_asv_s_navbar_of_several_lines_covers_nothing(
    site: Site, page: str, width: int
) -> None:
    site.tab.set_viewport_size({"width": width, "height": 800})
    tab = site.open(f"asv.html#{'/' * (page != 'vector_add.track_time')}{page}")
    tab.wait_for_function("""() => {
            const bottom = document.getElementById('nav').getBoundingClientRect().bottom;
            const panes = [...document.querySelectorAll('body > div, body > div > div')].filter(
                pane => getComputedStyle(pane).position === 'absolute' && pane.getClientRects().length
            );
            return panes.length && panes.every(pane => pane.getBoundingClientRect().top >= bottom - 1);
        }""")  # noqa: E501


def test_a_header_sorts_by_the_caller_s_own_comparison(site: Site) -> None:
    tab = site.open("asv.html")
    told = tab.evaluate("""() => new Promise(done => {
            const rows = ['1.5x', '10x', '2x'].map(text => '<tr><td>' + text + '</td></tr>').join('');
            const table = $('<table><thead><tr><th data-sort="factor">F</th></tr></thead><tbody>' + rows + '</table>');
            table.stupidtable({factor: (a, b) => parseFloat(a) - parseFloat(b)});
            table.on('aftertablesort', (event, data) =>
                done([data.column, data.direction, table.find('td').get().map(td => td.textContent)]));
            table.find('th').stupidsort('desc');
        })""")  # noqa: E501
    assert told == [0, "desc", ["10x", "2x", "1.5x"]]


def test_our_md5_is_md5(site: Site) -> None:
    texts = [
        "",
        "abc",
        "é" * 40,
        *("x" * length for length in (55, 56, 63, 64, 119, 120)),
        "vector_add,null," * 99,
    ]
    hashes = site.open("asv.html").evaluate("texts => texts.map(text => md5(text))", texts)
    assert hashes == [hashlib.md5(text.encode()).hexdigest() for text in texts]


def test_cells_show_the_newest_number_with_unit_and_interval(site: Site) -> None:
    tab = site.open(EVERYTHING)
    newest = cell(tab, "vector_add · time", "n=1000000, mode=plain", "NVIDIA H200 ×1")
    assert "4.500 ms" in newest.inner_text()
    assert "±" in newest.inner_text()
    assert newest.get_attribute("title") is None  # it is of the column's newest commit
    flop = cell(tab, "resnet50 · flop", "one point", "no GPU (Xeon W)")
    assert flop.inner_text().startswith("8.200 GFLOP")
    skipped = cell(tab, "vector_add · time", "n=1000, mode=fast", "no GPU (Xeon W)")
    assert (skipped.inner_text(), skipped.get_attribute("class")) == ("–", "skipped")


def test_names_with_markup_are_text_and_a_failure_is_named(site: Site) -> None:
    tab = site.open(EVERYTHING)
    assert (
        cell(tab, "foreign.track_score", f"path={NASTY}", "no GPU (Xeon W)")
        .inner_text()
        .startswith("failed")
    )


def test_another_base_changes_the_ratios_and_stays_in_the_address(site: Site) -> None:
    tab = site.open("gpus.html#open=vector_add")

    def ratio(metric: str, column: str) -> str:
        shown = cell(tab, f"vector_add · {metric}", "n=1000, mode=plain", column)
        return str(shown.locator(".ratio").inner_text())

    # A100: 2 times the time of H200's first commit, H200's last one is 1.5 times it.
    assert (ratio("time", "NVIDIA A100 ×2"), ratio("time", "NVIDIA H200 ×1")) == (
        "base",
        "▲ 1.33×, better",
    )
    assert ratio("bandwidth", "NVIDIA H200 ×1") == "▲ 1.33×, better"
    # The mean is geometric, over the points that both have.
    group = tab.locator("#matrix tr.group").filter(has_text="vector_add · time")
    assert group.locator("td:not(.per)").all_inner_texts() == ["", "1.33× mean of 4 points"]
    tab.get_by_label("Base").select_option("NVIDIA H200 ×1")
    tab.wait_for_url("**#base=*")
    assert (ratio("time", "NVIDIA A100 ×2"), ratio("time", "NVIDIA H200 ×1")) == (
        "▼ 0.75×, worse",
        "base",
    )
    assert ratio("bandwidth", "NVIDIA A100 ×2") == "▼ 0.75×, worse"
    tab.reload()
    assert ratio("time", "NVIDIA A100 ×2") == "▼ 0.75×, worse"
    tab.go_back()
    assert ratio("time", "NVIDIA A100 ×2") == "base"


def test_the_page_s_script_spells_ratios_as_the_commands_do(site: Site) -> None:
    tab = site.open("gpus.html#group=vector_add")
    times = [10 ** (i / 7) for i in range(-35, 35)]
    words = {
        "b": "▲ {}×, better",
        "w": "▼ {}×, worse",
        "s": "= {}×, same",
        "r": "? {}×, undecided",
        "a": "? {}×, no verdict",
    }
    letters = [list(words)[place % 5] for place in range(len(times))]
    # The page's data, with other values of the first row: 1 for the base, and each of these for the
    # other.
    shown = tab.evaluate(
        """async ([times, letters]) => {
            const [a, b, verdicts] = await Promise.all(
                ['gpus/column-0.js', 'gpus/column-1.js', 'gpus/verdicts-0.js'].map(hpml.read));
            const found = [];
            for (let i = 0; i <= times.length; i++) {
                a.values.fill(1);
                b.values.fill(times[i] ?? 1);
                verdicts[1] = (letters[i] ?? 'd').repeat(verdicts[1].length);
                window.dispatchEvent(new Event('hashchange'));
                await new Promise(done => setTimeout(done));
                const cell = document.querySelectorAll('#matrix tr.row td:not(.per)')[1];
                found.push(cell.querySelector('.ratio').textContent);
            }
            return found;
        }""",
        [times, letters],
    )
    expected = [
        words[letter].format(display.times(each))
        for each, letter in zip(times, letters, strict=True)
    ]
    assert shown == [*expected, "? different problems"]


def test_the_filter_leaves_the_rows_that_have_every_word(site: Site) -> None:
    tab = site.open(EVERYTHING)
    rows = tab.locator("tr.row")
    assert (rows.count(), tab.locator("#count").inner_text()) == (13, "13 of 13 points")
    tab.get_by_label("Filter", exact=True).fill("vector fast")
    assert rows.count() == 4
    tab.get_by_label("Filter", exact=True).fill("VECTOR n=1000000 time")
    assert rows.count() == 2
    assert tab.locator("tr.group").count() == 1
    tab.get_by_label("Filter", exact=True).fill("no such thing")
    assert (rows.count(), tab.locator("#count").inner_text()) == (0, "0 of 13 points")


def test_a_large_table_opens_from_the_disk_and_only_rows_in_view_are_made(
    large_page: Path, browser: Any
) -> None:
    tab = browser.new_page(viewport={"width": 1280, "height": 800})
    troubles: list[str] = []
    tab.on("pageerror", lambda error: troubles.append(str(error)))
    asked: list[str] = []
    tab.on("requestfailed", lambda request: troubles.append(request.url.rsplit("/", 1)[1]))
    tab.on("request", lambda request: asked.append(request.url.rsplit("/", 1)[1]))
    tab.goto(large_page.as_uri())
    table, box, rows = (
        tab.locator("#matrix"),
        tab.locator("#box"),
        tab.locator("#matrix tr[aria-rowindex]"),
    )
    tab.locator("tr.row").first.wait_for()
    # the third is not shown
    assert {"column-0.js", "column-1.js", "column-2.js"} - set(asked) == {"column-2.js"}
    # 50 benchmarks, their 200 points, and the head
    assert table.get_attribute("aria-rowcount") == "251"
    assert 10 < rows.count() < 60
    # By keyboard to the end; every row is seen on the way.
    box.focus()
    seen: set[str] = set()
    for _ in range(40):
        seen |= set(
            rows.evaluate_all("rows => rows.map(row => row.getAttribute('aria-rowindex'))")
        )
        tab.keyboard.press("PageDown")
        tab.wait_for_timeout(60)
    assert seen == {str(place + 1) for place in range(251)}
    assert tab.locator("#matrix tr.row th.point", has_text="size=8").last.is_visible()
    # A link that has the focus keeps it while other rows come and go.
    link = tab.locator("#matrix tr.row a").last
    link.focus()
    name = tab.evaluate("document.activeElement.href")
    box.evaluate("box => { box.scrollTop -= 500 }")
    tab.wait_for_timeout(100)
    assert tab.evaluate("document.activeElement.href") == name
    box.evaluate("box => { box.scrollTop = 0 }")
    tab.wait_for_timeout(100)
    assert tab.evaluate("document.activeElement.id") == "box"
    tab.get_by_label("Filter", exact=True).fill("made49 size=4")
    assert tab.locator("#matrix tr.row th.point").all_inner_texts() == ["size=4"]
    assert set(troubles) <= {"swallow.ico"}  # asv's
    tab.close()


def test_only_the_cells_of_the_columns_in_view_are_in_the_document(
    tmp_path: Path, browser: Any
) -> None:
    page = make_page(tmp_path, 16, 5)
    data = read_data(page.parent, "gpus/rows.js")
    labels = [label for label, *_ in data["columns"]]
    tab = browser.new_page(viewport={"width": 800, "height": 700})
    tab.goto(
        f"{page.as_uri()}#{urlencode([('base', labels[0]), ('watts', 'no'), *(('type', label) for label in labels)])}"  # noqa: E501
    )
    row = tab.locator("#matrix tr.row").first
    row.wait_for()
    assert (
        tab.locator("#matrix thead th").count()
        == 1 + 16
        == int(tab.locator("#matrix").get_attribute("aria-colcount"))
    )
    assert row.locator("td:not(.gap)").count() < 10
    row.locator("td a").first.focus()
    box = tab.locator("#box")
    box.evaluate("box => { box.scrollLeft = 120 }")
    tab.wait_for_timeout(100)
    assert tab.evaluate("document.activeElement.closest('td').ariaColIndex") == "2"
    box.evaluate("box => { box.scrollLeft = box.scrollWidth }")
    last = row.locator("td[aria-colindex='17']")
    last.wait_for()
    found = read_data(page.parent, "gpus/column-15.js")
    assert last.locator("a").inner_text() == found["texts"][found["rows"].index(0)]
    head, cell = (
        each.bounding_box() for each in (tab.locator("#matrix thead th").last, last)
    )
    assert (cell["x"], cell["width"]) == (
        head["x"],
        head["width"],
    )  # it stands below its head
    assert row.locator("td:not(.gap)").count() < 10
    tab.close()


@pytest.fixture
def large_page(tmp_path: Path) -> Path:
    return make_page(tmp_path, 3, 50)


def make_page(tmp_path: Path, machines: int, benchmarks: int) -> Path:
    """gpus.html of these many machines and benchmarks of 4 points, with its files and no server."""
    commits = make_history(tmp_path, 1, machines=machines, benchmarks=benchmarks, points=4)
    declared = json.loads((tmp_path / "results" / "benchmarks.json").read_text())
    del declared["version"]
    html = tmp_path / "html"
    html.mkdir()
    matrix = build(read(tmp_path / "results", declared, {commits[0]: 0.0}), Costs({}))
    write_gpu_types(matrix, judge(matrix), html, "large")
    for file in STATIC.iterdir():
        if file.is_file():
            shutil.copy(file, html)
    return html / "gpus.html"


def test_the_harness_measures_the_page(large_page: Path, browser: Any) -> None:
    code = (
        "import sys, pathlib; "
        "from hpml_plugins.plugins.harness.publish import measure_page as m; "
    )
    command = [
        sys.executable,
        "-c",
        f"{code}print(m(pathlib.Path(sys.argv[1])))",
        str(large_page),
    ]
    found = ast.literal_eval(
        subprocess.run(command, capture_output=True, text=True, check=True).stdout
    )
    assert set(found) == {metric.name for metric in GPU_PAGE.metrics}
    assert 0 < found["first_paint"] <= found["interactive"]
    assert (
        sum(path.stat().st_size for path in large_page.parent.glob("gpus/*-1.js"))
        < found["bytes"]
        < 250_000
    )


def test_data_that_cannot_be_loaded_are_named(large_page: Path, browser: Any) -> None:
    (large_page.parent / "gpus" / "column-1.js").unlink()
    tab = browser.new_page()
    tab.goto(large_page.as_uri())
    tab.get_by_role("alert").wait_for()
    assert tab.get_by_role("alert").inner_text() == "gpus/column-1.js could not be loaded."
    tab.close()


def test_without_script_the_page_has_a_plain_table_of_shared_headlines(
    published: Path, browser: Any
) -> None:
    with served(published, browser, java_script_enabled=False) as made:
        tab = made.open("gpus.html")
        assert tab.locator("tr.row:visible").count() == 7
        assert tab.locator("tr.group:visible a").all_inner_texts()[1:] == [
            "resnet50 · flop",
            "vector_add · bandwidth",
        ]
        assert tab.locator("#matrix:visible, #controls:visible").count() == 0


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [1280, 390])
def test_the_table_scrolls_in_its_own_box_on_every_screen(
    site: Site, scheme: str, width: int
) -> None:
    site.tab.set_viewport_size({"width": width, "height": 800})
    site.tab.emulate_media(color_scheme=scheme)
    tab = site.open("gpus.html")
    assert tab.evaluate("document.documentElement.scrollWidth <= window.innerWidth")
    tab.locator("#box").evaluate("box => { box.scrollLeft = 1000 }")
    left = tab.locator("tr.row th.point").first.bounding_box()["x"]
    assert left == pytest.approx(tab.locator("#box").bounding_box()["x"], abs=2)
    if folder := os.environ.get("HPML_SCREENSHOTS"):
        tab.locator("#box").evaluate("box => { box.scrollLeft = 0 }")
        tab.screenshot(path=str(Path(folder) / f"gpus-{scheme}-{width}.png"))
