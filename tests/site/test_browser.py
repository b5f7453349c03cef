"""The published site as a reader's browser shows it: complete offline, and its parts do what they promise."""

from __future__ import annotations

import functools
import hashlib
import http.server
import os
import shutil
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from support import unavailable

from hpml_plugins import display

NASTY = "<script>alert(1)</script>"
ARGUMENTS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--no-first-run",
]
HOW_TO = "get one with `apt-get install chromium` (Debian's package) or `playwright install chromium`"
PAINTED = """selector => Array.from(document.querySelectorAll(selector)).some(canvas => {
    const pixels = canvas.getContext('2d').getImageData(0, 0, canvas.width, canvas.height).data;
    return pixels.some((value, i) => i % 4 === 3 && value > 0);
})"""


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    try:
        from playwright.sync_api import Error, sync_playwright
    except ImportError:
        unavailable("no Playwright: pip install 'hpml-plugins[test]'")
    names = ("chromium", "chromium-browser", "google-chrome")
    system = next((path for path in map(shutil.which, names) if path), None)
    with sync_playwright() as playwright:
        try:
            # Without a system's browser Playwright's own is tried.
            started = playwright.chromium.launch(executable_path=system, args=ARGUMENTS)
        except Error as error:
            unavailable(f"no Chromium that starts ({str(error).splitlines()[0]}); {HOW_TO}")
        yield started
        started.close()


class _Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, format: str, *args: object) -> None:
        pass


@dataclass
class Site:
    """A served site, a tab on it, and what went wrong in that tab."""

    address: str
    tab: Any
    troubles: list[str] = field(default_factory=list)

    def open(self, path: str) -> Any:
        self.tab.goto(f"{self.address}/{path}", wait_until="networkidle")
        return self.tab


@pytest.fixture
def site(published: Path, browser: Any) -> Iterator[Site]:
    handler = functools.partial(_Quiet, directory=str(published))
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    address = f"http://127.0.0.1:{server.server_address[1]}"
    context = browser.new_context(viewport={"width": 1280, "height": 800})
    made = Site(address, context.new_page())
    _watch(made)
    yield made
    context.close()
    server.shutdown()
    server.server_close()
    assert not made.troubles


def _watch(site: Site) -> None:
    def route(way: Any) -> None:
        if way.request.url.startswith(site.address + "/"):
            way.continue_()
        else:
            site.troubles.append(f"another host: {way.request.url}")
            way.abort()

    def answered(response: Any) -> None:
        if response.status >= 400:
            site.troubles.append(f"{response.status}: {response.url}")

    def said(message: Any) -> None:
        if message.type == "error":
            site.troubles.append(f"console: {message.text}")

    site.tab.route("**/*", route)
    site.tab.on("response", answered)
    site.tab.on("requestfailed", lambda request: site.troubles.append(f"failed: {request.url}"))
    site.tab.on("pageerror", lambda error: site.troubles.append(f"error: {error}"))
    site.tab.on("console", said)
    site.tab.on("dialog", lambda dialog: (site.troubles.append(f"dialog: {dialog.message}"), dialog.dismiss()))


def cell(tab: Any, group: str, point: str, column: str) -> Any:
    """The cell of gpus.html in the group with this title, the row of this point and the column of this GPU type."""
    labels = [text.split("\n")[0].strip() for text in tab.locator("#matrix thead th").all_inner_texts()]
    title = tab.get_by_role("link", name=group, exact=True)
    body = tab.locator("#matrix tbody").filter(has=title)
    row = body.locator("tr.row").filter(has=tab.get_by_role("rowheader", name=point, exact=True))
    return row.locator("td").nth(labels.index(column) - 1)


def test_asv_s_pages_open_without_another_host_or_a_failed_request(site: Site) -> None:
    asv_s = ("index.html", "index.html#/summarylist", "index.html#/regressions", "error.html")
    for page in (*asv_s, "gpus.html", "plugins.html", "plugin-toy.html"):
        site.tab.goto("about:blank")
        tab = site.open(page)
        assert "Error fetching content" not in tab.locator("body").inner_text()
    assert site.tab.locator("h1").count() == 1


def test_asv_s_navbar_leads_to_the_page_of_gpu_types(site: Site) -> None:
    tab = site.open("index.html")
    tab.get_by_role("link", name="GPU types").click()
    tab.wait_for_url("**/gpus.html")
    assert "benchmarks by GPU type" in tab.locator("h1").inner_text()


def test_a_plugin_s_page_shows_its_charts_and_their_tables(site: Site) -> None:
    tab = site.open("index.html")
    tab.get_by_role("link", name="Plugins", exact=True).click()
    tab.get_by_role("link", name="Time against size").click()
    tab.wait_for_url("**/plugin-toy.html#over_size")
    chart = tab.locator("#over_size img")
    chart.scroll_into_view_if_needed()
    tab.wait_for_function("() => document.querySelector('#over_size img').naturalWidth > 300")
    tab.locator("#over_size summary").click()
    cells = tab.locator("#over_size tbody tr").nth(1).locator("td").all_inner_texts()
    assert cells == [NASTY, "1000", "35.00 µs"]
    assert tab.locator("#numbers img").count() == 0
    assert tab.locator("#numbers details[open] tbody tr").count() == 2
    links = [link.get_attribute("href") for link in tab.locator("#over_size details a").all()]
    assert links == ["figures/toy-over_size.csv", "figures/toy-over_size.svg"]
    assert tab.request.get(f"{site.address}/{links[0]}").text().endswith("1000,3.5e-05\n")


def test_a_cell_s_link_opens_asv_s_graph_of_that_point_and_it_is_drawn(site: Site) -> None:
    tab = site.open("gpus.html")
    cell(tab, "vector_add · time", "n=1000000, mode=fast", "NVIDIA H200 ×1").get_by_role("link").click()
    tab.wait_for_selector("#main-graph canvas.flot-base")
    assert tab.locator("#title").inner_text() == "vector_add.track_time"
    tab.wait_for_function(PAINTED, arg="#main-graph canvas.flot-base")
    selected = tab.locator("#graphdisplay-navigation .btn.active").all_inner_texts()
    assert {"node1", "1000000", "fast"} <= {text.strip().strip("'") for text in selected}
    assert "node2" not in selected


def test_bars_of_several_series_stand_side_by_side(site: Site) -> None:
    tab = site.open("index.html#vector_add.track_time?x-axis=mode&machine=node1")
    tab.wait_for_function(PAINTED, arg="#main-graph canvas.flot-base")
    drawn = tab.evaluate(
        """() => {
            const bars = {show: true, barWidth: 0.3, align: 'center'};
            const data = [[['a', 1], ['b', 2]], [['a', 3], ['b', 4]], [['a', 5]]];
            const place = $('<div style="width: 400px; height: 300px">').appendTo('body');
            const series = data.map((points, i) => ({data: points, bars: {order: 3 - i}}));
            const plot = $.plot(place, series, {series: {bars: bars}, xaxis: {mode: 'categories'}});
            return plot.getData().map(s => {
                const size = s.datapoints.pointsize;
                return s.datapoints.points.filter((_, i) => i % size === 0).map(x => Math.round(x * 100) / 100);
            });
        }"""
    )
    assert drawn == [[0.3, 1.3], [0, 1], [-0.3]]


def test_a_single_series_of_bars_stays_in_its_place(site: Site) -> None:
    tab = site.open("index.html")
    drawn = tab.evaluate(
        """() => {
            const place = $('<div style="width: 400px; height: 300px">').appendTo('body');
            const series = [{data: [['a', 1], ['b', 2]], bars: {order: 1}}];
            const options = {series: {bars: {show: true, barWidth: 0.6, align: 'center'}}, xaxis: {mode: 'categories'}};
            const data = $.plot(place, series, options).getData()[0].datapoints;
            return data.points.filter((_, i) => i % data.pointsize === 0);
        }"""
    )
    assert drawn == [0, 1]


def test_the_benchmark_list_sorts_when_a_header_is_clicked(site: Site) -> None:
    tab = site.open("index.html#/summarylist")
    table = tab.locator("#summarylist-body table:visible")
    names = table.locator("tbody tr td:first-child")
    table.locator("th.asc", has_text="Benchmark").wait_for()
    ascending = names.all_inner_texts()
    assert len(ascending) == 11
    assert ascending == tab.evaluate("names => names.slice().sort((a, b) => a.localeCompare(b))", ascending)
    table.locator("th", has_text="Benchmark").click()
    table.locator("th.desc", has_text="Benchmark").wait_for()
    assert names.all_inner_texts() == ascending[::-1]
    assert "sort=0&dir=desc" in tab.url
    table.locator("th", has_text="Value").click()
    table.locator("th.asc", has_text="Value").wait_for()
    values = [float(td.get_attribute("data-sort-value")) for td in table.locator("td.value").all()]
    assert values == sorted(values)


def test_a_header_sorts_by_the_caller_s_own_comparison(site: Site) -> None:
    tab = site.open("index.html")
    told = tab.evaluate(
        """() => new Promise(done => {
            const rows = ['1.5x', '10x', '2x'].map(text => '<tr><td>' + text + '</td></tr>').join('');
            const table = $('<table><thead><tr><th data-sort="factor">F</th></tr></thead><tbody>' + rows + '</table>');
            table.stupidtable({factor: (a, b) => parseFloat(a) - parseFloat(b)});
            table.on('aftertablesort', (event, data) =>
                done([data.column, data.direction, table.find('td').get().map(td => td.textContent)]));
            table.find('th').stupidsort('desc');
        })"""
    )
    assert told == [0, "desc", ["10x", "2x", "1.5x"]]


def test_our_md5_is_md5(site: Site) -> None:
    texts = ["", "abc", "é" * 40, *("x" * length for length in (55, 56, 63, 64, 119, 120)), "vector_add,null," * 99]
    hashes = site.open("index.html").evaluate("texts => texts.map(text => md5(text))", texts)
    assert hashes == [hashlib.md5(text.encode()).hexdigest() for text in texts]


def test_cells_show_the_newest_number_with_unit_and_interval(site: Site) -> None:
    tab = site.open("gpus.html")
    newest = cell(tab, "vector_add · time", "n=1000000, mode=plain", "NVIDIA H200 ×1")
    assert "4.500 ms" in newest.inner_text()
    assert "±" in newest.inner_text()
    assert "of 2026-01-03, on node1" in newest.get_attribute("title")
    flop = cell(tab, "resnet50 · flop", "one point", "no GPU (Xeon W)")
    assert flop.inner_text().startswith("8.200 GFLOP")
    skipped = cell(tab, "vector_add · time", "n=1000, mode=fast", "no GPU (Xeon W)")
    assert (skipped.inner_text(), skipped.get_attribute("title")) == ("–", "not measured here")


def test_names_with_markup_are_text_and_a_failure_is_named(site: Site) -> None:
    tab = site.open("gpus.html")
    assert cell(tab, "foreign.track_score", f"path={NASTY}", "no GPU (Xeon W)").inner_text().startswith("failed")


def test_another_base_changes_the_ratios_and_stays_in_the_address(site: Site) -> None:
    tab = site.open("gpus.html")

    def ratio(metric: str, column: str) -> str:
        shown = cell(tab, f"vector_add · {metric}", "n=1000, mode=plain", column)
        return str(shown.locator(".ratio").inner_text())

    # A100: 2 times the time of H200's first commit, H200's last one is 1.5 times it.
    assert (ratio("time", "NVIDIA A100 ×2"), ratio("time", "NVIDIA H200 ×1")) == ("base", "▲ 1.33×")
    assert ratio("bandwidth", "NVIDIA H200 ×1") == "▲ 1.33×"
    tab.get_by_label("Base").select_option("NVIDIA H200 ×1")
    tab.wait_for_url("**#base=*")
    assert (ratio("time", "NVIDIA A100 ×2"), ratio("time", "NVIDIA H200 ×1")) == ("▼ 0.75×", "base")
    assert ratio("bandwidth", "NVIDIA A100 ×2") == "▼ 0.75×"
    tab.reload()
    assert ratio("time", "NVIDIA A100 ×2") == "▼ 0.75×"
    tab.go_back()
    assert ratio("time", "NVIDIA A100 ×2") == "base"


def test_the_page_s_script_computes_the_ratios_that_python_wrote(site: Site) -> None:
    tab = site.open("gpus.html")
    by_script = tab.locator(".ratio").all_inner_texts()
    plain = tab.context.browser.new_context(java_script_enabled=False)
    tab_without_script = plain.new_page()
    tab_without_script.goto(f"{site.address}/gpus.html")
    assert tab_without_script.locator(".ratio").all_inner_texts() == by_script
    assert tab_without_script.locator("#controls").is_hidden()
    plain.close()
    times = [10 ** (i / 7) for i in range(-35, 35)]
    tab.evaluate(
        """times => {
            const row = '<tr class="row"><th></th><td data-value="1"><span class="ratio"></span></td></tr>';
            const body = document.createElement('tbody');
            body.dataset.direction = 'higher';
            body.innerHTML = times.map(() => row).join('');
            body.querySelectorAll('tr').forEach((tr, i) => {
                tr.insertCell().innerHTML = '<span class="ratio probe"></span>';
                tr.lastChild.dataset.value = times[i];
            });
            document.getElementById('matrix').append(body);
            window.dispatchEvent(new Event('hashchange'));
        }""",
        times,
    )
    shown = tab.locator("#matrix tbody").last.locator("td:last-child").all_inner_texts()
    assert shown == [display.ratio(each) for each in times]


def test_the_filter_leaves_the_rows_that_have_every_word(site: Site) -> None:
    tab = site.open("gpus.html")
    rows = tab.locator("tr.row:visible")
    assert (rows.count(), tab.locator("#count").inner_text()) == (11, "11 points")
    tab.get_by_label("Filter").fill("vector fast")
    assert rows.count() == 4
    tab.get_by_label("Filter").fill("VECTOR n=1000000 time")
    assert rows.count() == 2
    assert tab.locator("tr.group:visible").count() == 1
    tab.get_by_label("Filter").fill("no such thing")
    assert (rows.count(), tab.locator("#count").inner_text()) == (0, "0 points")


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [1280, 390])
def test_the_table_scrolls_in_its_own_box_on_every_screen(site: Site, scheme: str, width: int) -> None:
    site.tab.set_viewport_size({"width": width, "height": 800})
    site.tab.emulate_media(color_scheme=scheme)
    tab = site.open("gpus.html")
    assert tab.evaluate("document.documentElement.scrollWidth <= window.innerWidth")
    tab.locator(".scroll").evaluate("box => { box.scrollLeft = 1000 }")
    left = tab.locator("tr.row th.point").first.bounding_box()["x"]
    assert left == pytest.approx(tab.locator(".scroll").bounding_box()["x"], abs=2)
    if folder := os.environ.get("HPML_SCREENSHOTS"):
        tab.locator(".scroll").evaluate("box => { box.scrollLeft = 0 }")
        tab.screenshot(path=str(Path(folder) / f"gpus-{scheme}-{width}.png"))
