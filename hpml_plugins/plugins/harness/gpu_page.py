"""The benchmark `harness_gpu_page`: the page of GPU types over a large history, opened from the disk in Chromium."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path
from typing import Any

from hpml_plugins import Bench, Benchmark, Metric, Requires
from hpml_plugins.plugins.harness.publish import configure, make_history, publish

#: Commits, machines (each another GPU type or count), benchmarks and points of each. The page shows the newest values.
COMMITS, MACHINES, BENCHMARKS, POINTS = 2, 60, 400, 4
#: Run in the page before its own scripts: notes when rows are first there.
_WATCH = """
new MutationObserver(() => {
    if (!window.rowsAt && document.querySelector('#matrix tr.row')) {
        requestAnimationFrame(() => setTimeout(() => { window.rowsAt = window.rowsAt || performance.now(); }));
    }
}).observe(document, {childList: true, subtree: true});
"""
#: Changes a field, and measures until the rows that follow from it are painted, ms. `done`: when they are there.
_CHANGE = """([id, value, type, done]) => new Promise(resolve => {
    const started = performance.now(), field = document.getElementById(id), ready = new Function('return ' + done);
    field.value = value;
    field.dispatchEvent(new Event(type, {bubbles: true}));
    const look = () => ready() ? setTimeout(() => resolve(performance.now() - started)) : requestAnimationFrame(look);
    requestAnimationFrame(look);
})"""
#: Chooses every GPU type, then scrolls down and right in steps; the longest time until a step is painted, ms.
_SCROLL = """async () => {
    const data = await hpml.read('gpus/rows.js'), box = document.getElementById('box');
    const painted = () => new Promise(resolve => requestAnimationFrame(() => setTimeout(resolve)));
    location.hash = new URLSearchParams(data.columns.map(([label]) => ['type', label]));
    while (document.querySelectorAll('#matrix thead th').length <= data.columns.length) { await painted(); }
    const times = [];
    for (let step = 0; step < 20; step++) {
        const started = performance.now();
        box.scrollBy(step % 2 ? 400 : 0, step % 2 ? 0 : 800);
        await painted();
        times.push(performance.now() - started);
    }
    return Math.max(...times);
}"""
_POINTS = "document.getElementById('count').textContent"


def measure(bench: Bench) -> dict[str, float]:
    """Publish 60 GPU types × 400 benchmarks × 4 points and open the page of GPU types."""
    with tempfile.TemporaryDirectory(prefix="hpml-page-") as folder:
        project = Path(folder)
        bench.progress("making the history", 0.05)
        make_history(project, COMMITS, MACHINES, BENCHMARKS, POINTS)
        configure(project)
        bench.progress("publishing", 0.2)
        publish(project, "asv.conf.json")
        bench.progress("opening the page", 0.9)
        return measure_page(project / "html" / "gpus.html")


def measure_page(page: Path) -> dict[str, float]:
    """First paint, first rows, filter, another base and scrolling, s, and bytes read at first, in Chromium."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        system = shutil.which("chromium") or shutil.which("google-chrome")
        browser = playwright.chromium.launch(executable_path=system, args=["--no-sandbox"])
        try:
            tab = browser.new_page(viewport={"width": 1440, "height": 900})
            asked: list[str] = []
            tab.on("request", lambda request: asked.append(request.url))
            tab.add_init_script(_WATCH)
            tab.goto(page.as_uri())
            tab.wait_for_function("() => window.rowsAt")
            files = [Path(url.removeprefix("file://")) for url in asked]  # before more is asked for
            return {**_timed(tab), "bytes": float(sum(file.stat().st_size for file in files if file.is_file()))}
        finally:
            browser.close()


def _timed(tab: Any) -> dict[str, float]:
    first_paint = tab.evaluate("performance.getEntriesByName('first-contentful-paint')[0].startTime")
    rows_at = tab.evaluate("window.rowsAt")
    before = tab.evaluate(_POINTS)
    filtered = tab.evaluate(_CHANGE, ["filter", "made07", "input", f"{_POINTS} !== '{before}'"])
    tab.evaluate(_CHANGE, ["filter", "", "input", f"{_POINTS} === '{before}'"])
    label = tab.evaluate("[...document.querySelectorAll('#base option')].find(each => !each.selected).textContent")
    head = "document.querySelector('#matrix thead th.base')?.textContent"
    shown = f"{head}.startsWith(document.getElementById('base').value)"
    based = tab.evaluate(_CHANGE, ["base", label, "change", f"{shown} && document.querySelector('#matrix .ratio')"])
    found = {"first_paint": first_paint, "interactive": rows_at, "filter": filtered, "other_base": based}
    found["scroll"] = tab.evaluate(_SCROLL)
    return {name: milliseconds / 1000 for name, milliseconds in found.items()}


GPU_PAGE = Benchmark(
    "harness_gpu_page",
    measure,
    [
        Metric("interactive", "s", "lower", "from opening the page until its rows are painted; the target is 2 s"),
        Metric("first_paint", "s", "lower", "from opening the page until text is painted; the target is 0.5 s"),
        Metric("filter", "s", "lower", "from a filter typed until its rows are painted; the target is 0.2 s"),
        Metric("other_base", "s", "lower", "from a base chosen until its ratios are painted; the target is 0.2 s"),
        Metric("scroll", "s", "lower", "longest of 20 scroll steps with every GPU type chosen; the target is 0.2 s"),
        Metric("bytes", "B", "lower", "of all files read until the rows are there; the target is 1 MB"),
    ],
    requires=Requires(modules=("asv", "playwright"), tools=("git",)),
    timeout=1800,
    description="The page of GPU types over 60 GPU types × 400 benchmarks × 4 points, in headless Chromium.",
    rounds=1,
)
