"""The benchmarks `harness_publish` and `harness_page`: a history published by asv, and its pages in
Chromium."""

from __future__ import annotations

import itertools
import json
import math
import operator
import random
import re
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec

import hpml_plugins
from hpml_plugins import Bench, Benchmark, Metric, Record, Requires, Samples
from hpml_plugins.model import MetricSamples
from hpml_plugins.plugins.harness import processes

#: Of the history: its machines, its benchmarks, and the points of each.
MACHINES, BENCHMARKS, POINTS = 8, 40, 8
CARDS = (
    "NVIDIA H200",
    "NVIDIA H100 80GB HBM3",
    "NVIDIA A100-SXM4-80GB",
    "NVIDIA L40S",
    "NVIDIA L4",
    "Tesla T4",
)
#: Samples of each point, as shares of its value.
SHARES = (-0.01, -0.006, -0.002, 0.0, 0.002, 0.006, 0.01)
#: Commits, machines (each another GPU type or count), benchmarks and points of the site whose pages
#: are opened.
LARGE_SITE = 1, 60, 400, 4
#: Page → the element that exists once a reader can use it.
PAGES = {
    "index.html": "#switches:not([hidden])",
    "index.html#filter=made07": "#all tr.row",
    "changes.html": "main",
    "workloads.html": "#controls:not([hidden])",
    "workload-made00.html": "tr.row th a[aria-expanded]",
    "evidence.html": "main",
}
#: How often each page is opened, and the slow-down of the simulated reader's machine.
OPENED, SLOWER = 5, 4
#: Run in the page before its own scripts: records when it is loaded, its element exists, and the
#: requested content is painted.
_WATCH = """
window.addEventListener('load', () => {
    const look = () => requestAnimationFrame(() => setTimeout(() => {
        if (document.querySelector(SELECTOR)) window.usableAt = performance.now();
        else look();
    }));
    look();
});
"""


def measure(bench: Bench, *, commits: int) -> dict[str, float]:
    """Publish a history of commits × 8 machines × 40 benchmarks × 8 points, with only asv and with
    this package."""
    from hpml_plugins.store import project as project_results  # not when the plugin is loaded

    with tempfile.TemporaryDirectory(prefix="hpml-publish-") as folder:
        project = Path(folder)
        bench.progress(f"making {commits * MACHINES * BENCHMARKS * POINTS} values", 0.05)
        make_history(project, commits, MACHINES, BENCHMARKS, POINTS)
        configure(project)
        project_results(project / "results")
        bench.progress("asv alone", 0.2)
        alone = publish(project, "alone.json")
        bench.progress("with our pages", 0.6)
        whole = publish(project, "asv.conf.json")
        pages = len(list((project / "html" / "workload").rglob("*.js")))
        bench.check(pages == BENCHMARKS * POINTS, "a point's history was not written")
    return {
        "alone": alone["seconds"],
        "alone_cpu": alone["cpu"],
        "whole": whole["seconds"],
        "whole_cpu": whole["cpu"],
        "pages": whole["pages"],
        "pages_cpu": whole["pages_cpu"],
        "share": whole["seconds"] / alone["seconds"],
    }


def configure(project: Path) -> None:
    """Two configurations of a synthetic history: `alone.json` and, with this package,
    `asv.conf.json`."""
    (project / "hpml_plugins").symlink_to(Path(hpml_plugins.__file__).parent)
    links = {"project_url": "#", "show_commit_url": "#"}
    processes.write_registry(project)
    processes.write_configuration(project, "alone.json", html_dir="html-alone", **links)
    processes.write_configuration(project, plugins=[".hpml_plugins.asv"], **links)


def publish(project: Path, configuration: str) -> dict[str, float]:
    """Run `asv publish`: its wall time, CPU time, and the parts of both that it reports for our
    pages, s."""
    # Python caches the compiled modules, as for a user; compiling them each time would take half a
    # second.
    env = {"HOME": str(project), "PYTHONPYCACHEPREFIX": str(project / ".pycache")}
    done = processes.run_python(
        project, "-m", "asv", "publish", "-v", "--config", configuration, **env
    )
    pages = re.search(r"our pages took ([\d.]+) s \(([\d.]+) s", done.output)
    wall, cpu = map(float, pages.groups()) if pages else (0.0, 0.0)
    return {"seconds": done.seconds, "cpu": done.cpu, "pages": wall, "pages_cpu": cpu}


def make_history(
    project: Path, commits: int, machines: int, benchmarks: int, points: int
) -> list[str]:
    """Write a git repository and `results/` into a folder that exists; returns the commits, oldest
    first.

    Half of the metrics are times and half throughputs. Each series has noise of 1 % with intervals
    of that width, and three changes of level, up or down by 3 to 30 %. The same arguments give the
    same files.
    """
    from hpml_plugins.store import record_file

    made = processes.make_commits(project, commits)
    declared = [_benchmark(number, points) for number in range(benchmarks)]
    results = project / "results"
    results.mkdir()
    (results / "benchmarks.json").write_text(
        json.dumps({each["name"]: each for each in declared} | {"version": 2})
    )
    for number in range(machines):
        machine = {
            "machine": f"node{number}",
            "os": "Linux",
            "arch": "x86_64",
            "cpu": "EPYC",
            "num_cpu": "64",
            "ram": "512 GiB",
            "gpu": CARDS[number % len(CARDS)],
            "num_gpu": str(1 + number // len(CARDS)),
        }
        folder = results / machine["machine"]
        (folder / "records").mkdir(parents=True)
        (folder / "machine.json").write_text(json.dumps({**machine, "version": 1}))
        levels = [_levels(number, each, points, commits) for each in declared]
        for place, commit in enumerate(made):
            lines = (
                msgspec.json.encode(record) + b"\n"
                for each, found in zip(declared, levels, strict=True)
                for record in _records(
                    each, [line[place] for line in found], place, commit, machine
                )
            )
            record_file(results, machine["machine"], commit).write_bytes(b"".join(lines))
    return made


def _benchmark(number: int, points: int) -> dict[str, Any]:
    """An entry of asv's benchmarks.json."""
    metric, unit, direction = (
        ("bandwidth", "B/s", "higher") if number % 2 else ("time", "s", "lower")
    )
    return {
        "name": f"made{number:02}.track_{metric}",
        "benchmark_name": f"made{number:02}.track_{metric}",
        "pretty_name": f"made{number:02} · {metric}",
        "type": "track",
        "unit": "seconds" if unit == "s" else unit,
        "si_unit": unit,
        "direction": direction,
        "plugin": f"group{number // 10}",
        "benchmark": f"made{number:02}",
        "metric": metric,
        "version": "1",
        "code": "",
        "timeout": 60.0,
        "param_names": ["size"],
        "params": [[str(2**place) for place in range(points)]],
    }


def _levels(number: int, benchmark: dict[str, Any], points: int, commits: int) -> list[list[float]]:
    """Point → commit → the true level."""
    dice = random.Random(f"{number} {benchmark['name']}")
    found = []
    for point in range(points):
        level = (
            1e-4 * 2**point * (1 + number) if benchmark["si_unit"] == "s" else 1e12 / (1 + number)
        )
        factors = [1.0] * commits
        for place in sorted(
            {dice.randrange(1, max(2, commits)) for _ in range(3)} & set(range(commits))
        ):
            factors[place] += dice.choice((-1, 1)) * dice.uniform(0.03, 0.3)
        factors[0] *= level
        found.append(list(itertools.accumulate(factors, operator.mul)))
    return found


def _records(
    benchmark: dict[str, Any], levels: list[float], place: int, commit: str, machine: dict[str, str]
) -> Iterator[Record]:
    dice = random.Random(f"{levels[0]} {place}")
    for size, level in enumerate(levels):
        value = level * math.exp(dice.gauss(0, 0.01))
        samples = [value * (1 + share) for share in SHARES]
        yield Record(
            benchmark=benchmark["benchmark"],
            plugin=benchmark["plugin"],
            version="1",
            params={"size": 2**size},
            status="ok",
            metrics={
                benchmark["metric"]: MetricSamples(
                    benchmark["si_unit"], benchmark["direction"], samples
                )
            },
            started=float(processes.STARTED + place * processes.DAY + 3600 + size),
            duration=1.0,
            machine=machine["machine"],
            commit=commit,
            environment="node-py3.12",
            node={
                "cpu": machine["cpu"],
                "gpus": [{"name": machine["gpu"]}] * int(machine["num_gpu"]),
            },
        )


def measure_pages(bench: Bench, *, page: str) -> dict[str, Any]:
    """Publish 60 GPU types × 400 benchmarks × 4 points and open a page of them."""
    with tempfile.TemporaryDirectory(prefix="hpml-page-") as folder:
        project = Path(folder)
        bench.progress("making the history", 0.05)
        make_history(project, *LARGE_SITE)
        configure(project)
        bench.progress("publishing", 0.2)
        publish(project, "asv.conf.json")
        bench.progress("opening the page", 0.9)
        return open_page(project / "html", page)


def open_page(html_dir: Path, page: str) -> dict[str, Any]:
    """Time until a page is usable, s, of each of OPENED times; bytes and requests until then, its
    icon included."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        system = shutil.which("chromium") or shutil.which("google-chrome")
        browser = playwright.chromium.launch(executable_path=system, args=["--no-sandbox"])
        try:
            opened = [_open(browser, html_dir, page) for _ in range(OPENED)]
        finally:
            browser.close()
    return {
        "usable": Samples.of([seconds for seconds, _ in opened], "s"),
        "bytes": float(sum(file.stat().st_size for file in opened[0][1])),
        "requests": float(len(opened[0][1])),
    }


def _open(browser: Any, html_dir: Path, page: str) -> tuple[float, set[Path]]:
    """Time until it is usable, s, and the files that it requested."""
    path, _, fragment = page.partition("#")
    address = (html_dir / path).as_uri() + (f"#{fragment}" if fragment else "")
    with browser.new_context(viewport={"width": 1440, "height": 900}) as context:
        tab = context.new_page()
        asked: list[str] = []
        tab.on("request", lambda request: asked.append(request.url))
        context.new_cdp_session(tab).send("Emulation.setCPUThrottlingRate", {"rate": SLOWER})
        tab.add_init_script(_WATCH.replace("SELECTOR", json.dumps(PAGES[page])))
        tab.goto(address)
        seconds = tab.wait_for_function("() => window.usableAt").json_value() / 1000
        files = {Path(url.partition("#")[0].removeprefix("file://")) for url in asked}
        icon = html_dir / "swallow.ico"
        return seconds, {file for file in files | {icon} if file.is_file()}


PUBLISH = Benchmark(
    "harness_publish",
    measure,
    [
        Metric("alone", "s", "lower", "asv without us"),
        Metric("alone_cpu", "s", "lower", "CPU time of all its processes"),
        Metric("whole", "s", "lower", "with our pages"),
        Metric("whole_cpu", "s", "lower", "CPU time of all its processes"),
        Metric("pages", "s", "lower", "our pages' part of it"),
        Metric("pages_cpu", "s", "lower", "CPU time of that part"),
        Metric("share", "1", "lower", "with our pages / asv alone"),
    ],
    grid={"commits": [25, 400]},
    requires=Requires(modules=("asv",), tools=("git",)),
    timeout=1800,
    # 3: the history was of asv's result files; 2: also timed a second publish from a cache
    version="4",
    description=(
        "Time of `asv publish` over a history of 2560 values a commit: 400 commits are 1.02"
        " million."
    ),
    rounds=1,
)
PAGE = Benchmark(
    "harness_page",
    measure_pages,
    [
        Metric(
            "usable",
            "s",
            "lower",
            "from opening the page until a reader can use it, on a CPU 4 times as slow",
        ),
        Metric("bytes", "B", "lower", "of all files read until then, from the disk"),
        Metric("requests", "1", "lower", "how many files these are"),
    ],
    grid={"page": list(PAGES)},
    requires=Requires(modules=("asv", "playwright"), tools=("git",)),
    timeout=1800,
    description=(
        "Pages of a site of 60 GPU types × 400 benchmarks × 4 points, in headless Chromium."
    ),
    rounds=1,
)
