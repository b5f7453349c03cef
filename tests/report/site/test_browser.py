"""The published site as a reader's browser shows it: complete offline, and its parts do what they
promise."""

from __future__ import annotations

import hashlib
import re
import shutil
import subprocess
import sys
import textwrap
import xml.etree.ElementTree as ElementTree
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import pytest
from browsing import Site, served
from site_history import RETRACTED, WARNINGS, WILD
from support import ROOT, unavailable

from hpml_plugins.model.serialization import decode

NASTY = "<script>alert(1)</script>"
OURS = (
    "index.html",
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


#: The first page with all points.
EVERYTHING = "index.html#filter=&count=all"


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


def picture(tab: Any) -> Any:
    """The embedded chart of a plugin's page, which is loaded once the page is laid out."""
    for _ in range(100):
        found = [each for each in tab.frames if each.url.endswith("/toy-over_size.svg")]
        if found:
            break
        tab.wait_for_timeout(50)
    found[0].wait_for_load_state()
    return found[0]


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
    chart = picture(tab)
    assert {"size", "time", WILD, "20 µs"} <= set(chart.locator("text").all_text_contents())
    told = chart.locator("title").all_text_contents()
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
        commit = link.text_content()
        assert link.get_attribute("title").startswith(
            f"one Record, {WILD} at {commit}: toy · time 35.00 µs ± "
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
        tab.locator('[id="toy.over_size"]').get_by_role("link", name="SVG").click()
    assert download.value.suggested_filename == "toy-over_size.svg"
    assert ElementTree.parse(download.value.path()).getroot().tag.endswith("}svg")


def test_a_page_is_printed_with_its_charts_as_images(site: Site) -> None:
    tab = site.open("workload-toy.html")
    chart, image = (
        tab.locator(f"#toy-over_size {each}") for each in ("object", ".printed")
    )
    assert (chart.is_visible(), image.is_visible()) == (True, False)
    tab.emulate_media(media="print")
    assert (chart.is_visible(), image.is_visible()) == (False, True)
    assert image.get_attribute("src") == chart.get_attribute("data")
    image.scroll_into_view_if_needed()
    tab.wait_for_function("() => document.querySelector('.printed').naturalWidth > 300")
    tab.emulate_media(media="screen")


def test_without_script_a_plugin_s_page_has_its_charts_and_tables(
    published: Path, browser: Any
) -> None:
    with served(published, browser, java_script_enabled=False) as made:
        tab = made.open("workload-toy.html")
        tab.locator('[id="toy.over_size"] summary').click()
        assert (
            tab.locator('[id="toy.over_size"] details[open] tbody tr:visible').count() == 2
        )
        assert picture(tab).locator("text:visible").count() > 2
        assert tab.locator(".vega button:visible").count() == 0


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_charts_are_drawn_in_the_ink_of_the_page(
    published: Path, browser: Any, scheme: str
) -> None:
    with served(published, browser, color_scheme=scheme) as made:
        tab = made.open("workload-toy.html")
        ink = tab.evaluate("() => getComputedStyle(document.body).color")
        title = picture(tab).locator("text", has_text="size").first
        assert title.evaluate("each => getComputedStyle(each).fill") == ink


def test_numbers_of_a_figure_s_table_are_aligned_right_without_a_class_on_each_cell(
    site: Site,
) -> None:
    tab = site.open("workload-toy.html")
    aligned = tab.locator('[id="toy.numbers"] table').evaluate(
        "table => [...table.rows].map(row => [...row.cells].map("
        "cell => [cell.className, getComputedStyle(cell).textAlign]))"
    )
    text, number = ["", "left"], ["", "right"]
    assert len(aligned) > 2
    assert all(row[:3] == [text, number, number] for row in aligned)


def test_a_cell_leads_to_its_point_and_on_to_asv_s_graph_of_it(site: Site) -> None:
    tab = site.open("index.html#filter=vector_add+time+n%3D1000000+fast")
    tab.locator('#all tr.row td[data-label="NVIDIA H200 ×1"] a').click()
    tab.wait_for_url("**/workload-vector_add.html#time?n=1000000&mode=fast")
    drawer = tab.locator("tr.drawer")
    drawer.locator(".history [data-line]").first.wait_for()
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
        tab.get_by_role("group", name="Nodes", exact=True)
        .locator("tr")
        .filter(has=tab.get_by_role("rowheader", name="laptop"))
    )
    numbers = total.locator("td").evaluate_all(
        "cells => cells.filter(cell => getComputedStyle(cell).textAlign === 'right')"
        ".map(cell => cell.innerText.trim())"
    )
    assert numbers == ["1", "2", "4", "1", "2"]


def points(tab: Any) -> list[str]:
    """The rows of all points that the first page shows."""
    tab.locator("#all:not([hidden])").wait_for(state="attached")
    found = tab.locator("#all tr.row").all_inner_texts()
    return [" ".join(each.split()) for each in found]


def test_a_filter_knows_other_spellings_and_stays_in_the_address(site: Site) -> None:
    tab = site.open("index.html#filter=latency+1000000")
    assert tab.locator("#filter").input_value() == "latency 1000000"
    assert tab.locator("#count").inner_text() == "2 of 13 points"
    fast, plain = sorted(points(tab))
    assert fast.startswith("vector_add · time n=1000000, mode=fast · less is better")
    assert "6.000 ms" in fast and "4.500 ms" in plain
    tab.get_by_label("Filter").fill("xeon")
    tab.locator("#count", has_text="2 of 13").wait_for()
    assert tab.url.endswith("#count=all&filter=xeon")
    assert any("no GPU (Xeon W): 8.200 GFLOP" in each for each in points(tab))
    tab.get_by_label("Filter").fill("")
    tab.wait_for_url("**/index.html#count=all")
    assert not tab.locator("#all").is_visible()
    tab.get_by_role("link", name="Show all 13 points").click()
    assert len(points(tab)) == 13


def test_float16_is_no_bfloat16(site: Site) -> None:
    tab = site.open("workloads.html")
    found = tab.evaluate(
        """names => {
            const synonyms = {fp16: 'float16', half: 'float16', bf16: 'bfloat16'};
            const words = ['fp16', 'bf16', 'half', 'bfloat16'];
            return names.map(name => words.filter(word => hpml.matcher(word, synonyms)(name)));
        }""",
        ["dtype=bfloat16", "dtype=float16", "dtype=bf16"],
    )
    assert found == [["bf16", "bfloat16"], ["fp16", "half"], ["bf16", "bfloat16"]]


def test_an_address_of_the_page_of_gpu_types_leads_to_the_first_page(site: Site) -> None:
    chosen = {"base": "NVIDIA H200 ×1", "filter": "fast", "plugin": "numba_cuda"}
    tab = site.open(f"gpus.html#{urlencode(chosen)}")
    tab.wait_for_url("**/index.html#**")
    assert tab.locator("#tasks th.base").inner_text().startswith("NVIDIA H200 ×1")
    assert len(points(tab)) == 4
    assert all("mode=fast" in each for each in points(tab))
    site.tab.goto("about:blank")
    tab = site.open(f"gpus.html#{urlencode({'base': 'no GPU (Xeon W)'})}")
    assert tab.locator("#filter").input_value() == "no GPU (Xeon W)"
    assert len(points(tab)) == 2


def test_all_points_have_ratios_failures_and_names_as_text(site: Site) -> None:
    tab = site.open("index.html#filter=vector_add+n%3D1000,+plain&count=all")
    tab.locator("#all .verdict", has_text="faster").first.wait_for()
    rows = points(tab)
    assert len(rows) == 2
    # the A100 takes 2 times as long as the H200 at its first commit, which is now 1.5 times slower
    assert all("1.33× (+33 %) ▲ faster at least 1." in each for each in rows)
    tab.get_by_label("Compared with").select_option("NVIDIA H200 ×1")
    tab.locator("#all .verdict", has_text="slower").first.wait_for()
    assert all("0.75× (−25 %) ▼ slower at most 0." in each for each in points(tab))
    tab.get_by_label("Per joule").check()
    assert all("no power measured" in each for each in points(tab))
    tab.get_by_label("Per USD").check()
    assert "720.0 PB per USD" in " ".join(points(tab))
    tab.get_by_label("Speed").check()
    tab.get_by_label("Filter").fill("foreign")
    tab.locator("#count", has_text="2 of 13").wait_for()
    assert any(f"path={NASTY}" in each for each in points(tab))


def test_all_points_that_cannot_be_loaded_are_named(
    published: Path, browser: Any, tmp_path: Path
) -> None:
    html = tmp_path / "html"
    shutil.copytree(published, html)
    (html / "compare" / "points.js").unlink()
    tab = browser.new_page()
    tab.goto(f"{(html / 'index.html').as_uri()}#filter=time")
    tab.get_by_role("alert").wait_for()
    assert tab.get_by_role("alert").inner_text() == "compare/points.js could not be loaded."
    tab.close()


def test_many_points_are_made_some_at_a_time(published: Path, browser: Any) -> None:
    tab = browser.new_page()
    tab.goto((published / "index.html").as_uri())
    tab.evaluate(
        """async () => {
            const rows = await hpml.read('compare/points.js');
            rows.push(...Array.from({length: 240}, () => rows[0]));
        }"""
    )
    tab.get_by_role("link", name="Show all 13 points").click()
    tab.locator("#all tr.row").first.wait_for()
    rows, more = tab.locator("#all tr.row"), tab.get_by_role("button", name="Show more")
    assert (rows.count(), more.is_visible()) == (100, True)
    more.click()
    more.click()
    assert (rows.count(), more.is_visible()) == (253, False)
    tab.close()


def test_the_harness_opens_a_page(published: Path) -> None:
    code = f"""
        import dataclasses, pathlib
        from hpml_plugins import Node
        from hpml_plugins.model.serialization import encode
        from hpml_plugins.plugins.harness.publish import PAGE, open_page
        from hpml_plugins.testing import Context, measure_point

        def measure(bench, *, page):
            return open_page(pathlib.Path({str(published)!r}), page)

        node = Node(os="", arch="", cpu="", num_cpu=2, ram=2.0**34, python="3.11")
        benchmark = dataclasses.replace(PAGE, measure=measure)
        print(encode(measure_point(benchmark, {{"page": "index.html"}}, Context(node))).decode())
    """
    command = [sys.executable, "-c", textwrap.dedent(code)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    record = decode(done.stdout.encode())
    assert record.status == "ok", record.reason
    found = {name: metric.samples for name, metric in record.metrics.items()}
    assert found["requests"] == [4]
    assert 10_000 < found["bytes"][0] < 60_000
    assert len(found["usable"]) == 5 and all(0 < each < 60 for each in found["usable"])


def test_a_metric_without_a_direction_is_ranked_nowhere(site: Site) -> None:
    tab = site.open("index.html#filter=resnet50&count=all")
    (row,) = points(tab)
    assert "8.200 GFLOP" in row
    assert not re.search(r"better|faster|slower|same|not decided|\d×", row)
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


def test_the_search_finds_everything_on_the_site_and_is_fetched_when_it_is_used(
    site: Site,
) -> None:
    asked: list[str] = []
    site.tab.on("request", lambda request: asked.append(request.url.rsplit("/", 1)[1]))
    tab = site.open("changes.html")
    assert {"search.js", "search-index.js"} & set(asked) == set()
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


def test_the_slash_key_goes_to_the_filter(site: Site) -> None:
    for page in ("index.html", "workloads.html"):
        tab = site.open(page)
        tab.keyboard.press("/")
        assert tab.evaluate("document.activeElement.id") == "filter"


def test_axe_finds_no_serious_fault(site: Site) -> None:
    if not AXE.is_file():
        unavailable(
            f"no axe-core in {AXE.parent}: sh tests/get-tools.sh fetches it from the npm registry"
        )
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
        for scheme in ("light", "dark"):
            tab.emulate_media(color_scheme=scheme)
            found = tab.evaluate("async () => (await axe.run()).violations")
            serious = [
                (
                    page,
                    scheme,
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
@pytest.mark.parametrize("width", [1000, 420])
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
