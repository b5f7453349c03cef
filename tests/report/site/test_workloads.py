"""The page of a workload: its answer, its points by address, the command that repeats one, cards,
history and Records."""

from __future__ import annotations

import gzip
import itertools
import json
import re
import shlex
from collections.abc import Iterator
from functools import partial
from html import unescape
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pytest
from browsing import Site, served
from msgspec.structs import replace
from records import a_record
from site_history import H200, Project
from support import DRAWN, ROOT, TOY, unavailable
from workload_pages import dots, read_point, write_points

from hpml_plugins.cli.run import _tasks, command
from hpml_plugins.model.formatting import format_point
from hpml_plugins.model.record import THROTTLED, MetricSamples, Record
from hpml_plugins.report.reading import read_history
from hpml_plugins.report.site.data_files import published_line
from hpml_plugins.report.site.line_chart import MOST_MARKS, TOP, ChartLine, Dot, draw
from hpml_plugins.report.site.page import fill_text
from hpml_plugins.store import append_record, record_file

AXE = ROOT / ".tools" / "axe.min.js"
PAGE = "workload-toy.html"
POINT = f"{PAGE}#time?size=10"
GPU = {"name": "NVIDIA H200", "uuid": "GPU-aaaaaaaa-1", "power_limit": 700.0}
ELSEWHERE = "f" * 40
TERMS = ["size: how large", "size=10: ten, <b>not many</b>"]


def record(
    commit: str,
    started: float,
    samples: list[float],
    uuid: str = "GPU-aaaaaaaa-1",
    **more: Any,
) -> Record:
    """A Record of the toy on an H200."""
    node = {
        "gpus": [{**GPU, "uuid": uuid}],
        "driver": "580.1",
        "cuda": "13.0",
        "python": "3.12.3",
        "cpu": "EPYC",
    }
    half = len(samples) // 2
    metric = MetricSamples("s", "lower", samples, rounds=[half, len(samples) - half])
    source = {"path": "toy.py", "sha256": "c0de" * 16}
    facts = {
        "metrics": {"time": metric},
        "params": {"size": 10},
        "machine": "node1",
        "commit": commit,
        "started": started,
        "node": node,
        "source": source,
        "packages": {"torch": "2.11.0"},
    }
    return a_record(**{**facts, **more})


@pytest.fixture(scope="module")
def html(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A site of one point: an H200 measured on two cards and once outside the published history,
    and eight others."""
    made = Project(tmp_path_factory.mktemp("points"), 12)
    (made.folder / "registry.yaml").write_text(
        "version: 1\nplugins:\n  - {name: toy, path: toy.py}\n"
    )
    terms = "terms={'size': 'how large', 'size=10': 'ten, <b>not many</b>', 'size=1000': 'many'}, "
    never = '"lower"), Metric("spread", "1", "lower")]'  # a metric that no Record has
    toy = DRAWN.replace("grid={", terms + "grid={").replace('"lower")]', never)
    (made.folder / "toy.py").write_text(toy)
    conf = json.loads((made.folder / "asv.conf.json").read_text())
    conf["show_commit_url"] = "https://git.example/commit/"
    (made.folder / "asv.conf.json").write_text(json.dumps(conf))
    commits = [commit for commit, _ in made.commits]
    stored = [
        record(commit, day, [2e-6, 2e-6, 2.1e-6, 2.1e-6])
        for day, commit in enumerate(commits)
    ]
    stored.append(record(commits[3], 2.5, [2.5e-6, 2.5e-6], "GPU-bbbbbbbb-2"))
    busy = {"other_processes": 2.0}
    stored.append(
        record(commits[11], 99.0, [2.25e-6, 2.376e-6], "GPU-bbbbbbbb-2", conditions=busy)
    )
    stored.append(record(ELSEWHERE, 50.0, [3e-6, 3e-6]))
    stored.append(
        record(
            commits[0],
            0.5,
            [3e-6, 3e-6],
            status="failed",
            metrics={},
            reason="out of memory",
        )
    )
    for number in range(8):
        node = {"gpus": [{"name": f"GPU {number % 4}", "uuid": f"GPU-{number}"}]}
        stored.append(
            record(
                commits[11],
                5.0,
                [4e-6 + number * 1e-7] * 2,
                machine=f"other{number}",
                node=node,
            )
        )
    for each in stored:
        append_record(record_file(made.results, each.machine, each.commit), each)
    facts = {**H200, "gpu": "NVIDIA H200"}
    (made.results / "node1" / "machine.json").write_text(
        json.dumps({**facts, "version": 1})
    )
    for number in range(8):
        named = {
            **H200,
            "machine": f"other{number}",
            "gpu": f"GPU {number % 4}",
            "version": 1,
        }
        (made.results / f"other{number}" / "machine.json").write_text(json.dumps(named))
    made.publish(
        "main"
    )  # of a range alone, in which the commit that the repository lacks is not
    return made.html


@pytest.fixture
def site(html: Path, browser: Any) -> Iterator[Site]:
    with served(html, browser) as made:
        yield made
    assert not made.troubles


def opened(tab: Any, anchor: str = "time?size=10") -> Any:
    """What the page shows below a row."""
    drawer = tab.locator(f'[id="{anchor}"] + tr.drawer')
    drawer.locator(".history").first.wait_for()
    return drawer


def cells(place: Any, about: str) -> list[list[str]]:
    rows = place.get_by_role("group", name=about, exact=True).locator("tbody tr")
    return [row.locator("th, td").all_inner_texts() for row in rows.all()]


@pytest.fixture
def from_disk(html: Path, browser: Any) -> Iterator[Any]:
    """The page, opened by its path; what is below the row of the point in its address."""
    tab = browser.new_page()
    faults: list[str] = []
    tab.on("pageerror", lambda error: faults.append(str(error)))
    tab.goto(f"{(html / PAGE).as_uri()}#time?size=10")
    yield opened(tab)
    tab.close()
    assert not faults


def test_the_command_of_every_point_selects_that_point_alone(
    host_of: Any, tmp_path: Path
) -> None:
    grid = {
        "text": ["a,b", "a", "b", "it's $HOME; x=1", ""],
        "flag": [True, False],
        "rate": [0.1, 1e-07, 3],
    }
    source = TOY.replace('{"size": [10, 1000]}', repr(grid)).replace(
        "*, size", "*, text, flag, rate"
    )
    host = host_of("version: 1\nplugins:\n  - {name: toy, path: toy.py}\n", toy=source)
    points = [
        dict(zip(grid, values, strict=True)) for values in itertools.product(*grid.values())
    ]
    gone = {"text": "gone", "flag": True, "rate": 3}
    for number, params in enumerate([*points, gone]):
        append_record(
            record_file(tmp_path, "node1", "a" * 40),
            record("a" * 40, number, [1.0, 2.0], params=params),
        )
    history = read_history(tmp_path, host, {}, {"a" * 40: 0}, {}, print)
    (tmp_path / "html").mkdir()
    write_points(history, tmp_path / "html")

    def commands(params: Any) -> list[str]:
        shown = read_point(tmp_path / "html", "toy", "time", format_point(params))
        return [
            unescape(each)
            for each in re.findall("<code>((?:hpml|asv) [^<]*)</code>", shown)
        ]

    selected = []
    for params in points:
        run, asv = commands(params)
        words = shlex.split(run)
        assert words[:2] == ["hpml", "run"]
        given = command.make_context("run", words[2:]).params
        ((_, chosen),) = _tasks(
            host.find(given["name"]), given["name"], given["choices"], given["profile"]
        )
        selected.append(chosen)
        assert shlex.split(asv) == ["asv", "run", "--bench", r"^toy\.", "aaaaaaaa^!"]
    assert list(map(dict, selected)) == points
    (asv,) = commands(gone)  # the code has no such point now
    assert asv.startswith("asv run")
    # one commit has no line, and its caption names none
    shown = read_point(tmp_path / "html", "toy", "time", format_point(gone))
    assert "Each mark is a Record" in shown and "level" not in shown


def test_a_point_has_an_address_that_opens_it_and_an_unknown_one_is_named(
    site: Site,
) -> None:
    tab = site.open(POINT)
    assert opened(tab).locator("code").first.inner_text() == "hpml run toy -p size=10"
    row = tab.locator('[id="time?size=10"]')
    row.locator("a").click()
    assert tab.locator("tr.drawer").count() == 0
    row.locator("td").first.click()
    opened(tab)
    assert tab.url.endswith(POINT)
    site.tab.goto("about:blank")
    tab = site.open(f"{PAGE}#time?size=11")
    assert tab.get_by_role("alert").inner_text() == "No point size=11 has results here."


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("history.html#toy.track_time?size%3D10", "workload-toy.html#time?size=10"),
        ("history.html#toy.time?size=10", "workload-toy.html#time?size=10"),
        ("history.html#toy", "workload-toy.html#time"),
        ("history.html", "workloads.html"),
        ("plugin-toy.html", "workload-toy.html"),
        ("plugin-toy.html#over_size", "workload-toy.html#toy.over_size"),
        ("nodes.html#gaps", "evidence.html#gaps"),
        ("regressions.html", "changes.html"),
    ],
)
def test_an_old_address_leads_to_the_new_one(
    html: Path, browser: Any, old: str, new: str
) -> None:
    with served(html, browser) as made:
        made.tab.goto(f"{made.address}/{old}")
        made.tab.wait_for_url(f"{made.address}/{new}")
    tab = browser.new_page()
    page, _, fragment = old.partition("#")
    tab.goto(f"{(html / page).as_uri()}{'#' if fragment else ''}{fragment}")
    tab.wait_for_url(f"**/{new}")
    tab.close()


def test_every_address_within_the_site_has_its_place(html: Path) -> None:
    places = {
        path.name: {
            unescape(name)
            for name in re.findall(r'\bid="([^"]*)"', path.read_text(encoding="utf-8"))
        }
        for path in html.glob("*.html")
        if path.name != "asv.html"  # asv's script reads its addresses
    }
    lost = {
        (page, link)
        for page in places
        for link in re.findall(r'href="([^":]*#[^"]+)"', (html / page).read_text("utf-8"))
        for target, _, name in [unescape(link).partition("#")]
        if (target or page) in places
        and unquote(name) not in places[target or page]
        and not name.startswith("filter=")
    }
    assert "spread" in places[PAGE] and lost == set()


def test_an_old_address_of_nothing_is_named(site: Site) -> None:
    tab = site.open("history.html#no.such.benchmark")
    assert (
        "No benchmark no.such.benchmark has results" in tab.locator("#moved").inner_text()
    )


def test_the_leading_point_stands_in_the_page_without_script(
    html: Path, browser: Any
) -> None:
    with served(html, browser, java_script_enabled=False) as made:
        tab = made.open(PAGE)
        answer = tab.locator(".answers").inner_text()
        assert "toy · time at size=10: " in answer
        assert "NVIDIA H200 ×1 is better than GPU 0 ×1 (at least 1." in answer
        assert tab.locator("#lead .over-commit .history").is_visible()
        assert tab.locator("#lead .over-date").is_hidden()
        assert tab.locator("button:visible").count() == 0
        tab.locator("#lead input[value=date]").check()  # by the style sheet alone
        assert tab.locator("#lead .over-commit").is_hidden()
        assert tab.locator("#lead .over-date .history").is_visible()


def test_the_command_is_copied_and_can_be_selected_where_there_is_no_clipboard(
    site: Site,
) -> None:
    site.tab.context.grant_permissions(["clipboard-read", "clipboard-write"])
    tab = site.open(PAGE)
    lead = tab.locator("#lead")
    lead.get_by_role("button", name="Copy").first.click()
    tab.get_by_text("Copied").wait_for()
    assert tab.evaluate("navigator.clipboard.readText()") == "hpml run toy -p size=10"
    tab.evaluate("Object.defineProperty(navigator, 'clipboard', {value: undefined})")
    lead.get_by_role("button", name="Copy").last.click()
    tab.get_by_text("Selected").wait_for()
    assert tab.evaluate("getSelection().toString()").startswith(
        r"asv run --bench '^toy\.' '"
    )


def test_the_terms_of_a_point_are_explained(site: Site) -> None:
    assert opened(site.open(POINT)).locator(".term").all_inner_texts() == TERMS


def test_the_records_of_a_benchmark_are_downloaded_as_they_are_stored(
    html: Path, from_disk: Any
) -> None:
    from_disk.locator("summary").click()
    links = from_disk.locator(".records a[download]")
    assert links.all_inner_texts()[0] == "node1"
    saved = [
        line
        for link in links.all()
        for line in gzip.decompress(
            (html / link.get_attribute("href")).read_bytes()
        ).splitlines()
    ]
    results = html.parent / "results"
    stored = [path.read_bytes().splitlines() for path in results.glob("*/records/*.jsonl")]
    assert sorted(saved) == sorted(map(published_line, itertools.chain(*stored)))


def test_the_newest_records_tell_where_when_and_under_which_conditions(
    from_disk: Any,
) -> None:
    assert (
        "Not on the chart: 1 value of a commit that is not published"
        in from_disk.locator(".histories").inner_text()
    )
    from_disk.locator("summary").click()
    rows = cells(from_disk, "Newest Records")
    assert len(rows) == 24
    assert ("failed", "out of memory") in [(row[4], row[6]) for row in rows]
    newest, elsewhere = rows[:2]
    assert newest[:3] == ["1970-01-01 00:01", "node1", "bbbbbbbb"]
    assert (newest[4], newest[6]) == (
        "time 2.313 µs ± 2.8 %",
        "processes of others on the GPU: 2",
    )
    assert elsewhere[3] == "ffffffff (not published)"
    link = from_disk.locator(f'.records a[href="https://git.example/commit/{ELSEWHERE}"]')
    assert link.count() == 1


def test_cards_are_dots_of_their_own_and_never_joined(html: Path) -> None:
    shown = read_point(html, "toy", "time", "size=10")
    of_h200 = [each for each in dots(shown) if each.startswith("NVIDIA H200")]
    # of one commit the Record started last counts: card a at day 3, card b at day 11
    assert sum("card bbbbbbbb" in each for each in of_h200) == 2
    assert sum("card aaaaaaaa" in each for each in of_h200) == 12
    chart = shown.partition("over-commit")[2].partition("over-date")[0]
    group = chart.partition('data-line="NVIDIA H200 ×1"')[2].partition("</g>")[0]
    assert group.count('class="other"') == 2
    assert (
        group.count("<polyline") == 1
    )  # one level: two corners, whatever cards measured it
    (corners,) = re.findall('class="line" points="([^"]*)"', group)
    assert len(corners.split()) == 2


def test_lines_are_hidden_by_their_legend(site: Site) -> None:
    tab = site.open(PAGE)
    lead = tab.locator("#lead")
    assert lead.locator(".over-commit [data-line]").count() == 9
    lead.locator(".legend").get_by_label("NVIDIA H200 ×1").uncheck()
    hidden = lead.locator('.over-commit [data-line="NVIDIA H200 ×1"]')
    assert hidden.is_hidden()
    assert lead.locator('.over-commit [data-line="GPU 2 ×1 · other2"]').is_visible()


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_the_page_with_an_open_point_is_accessible_and_fits_each_width(
    site: Site, scheme: str
) -> None:
    site.tab.emulate_media(color_scheme=scheme)
    tab = site.open(POINT)
    opened(tab).locator("summary").click()
    for width in (390, 1024, 1440):
        tab.set_viewport_size({"width": width, "height": 900})
        # charts follow the width a moment later
        tab.wait_for_function(
            "width => document.documentElement.scrollWidth <= width", arg=width
        )
    if not AXE.is_file():
        unavailable(
            f"no axe-core in {AXE.parent}: sh tests/get-tools.sh fetches it from the npm registry"
        )
    tab.evaluate(AXE.read_text(encoding="utf-8"))
    found = tab.evaluate("async () => (await axe.run()).violations")
    assert not [(fault["id"], fault["nodes"][0]["html"]) for fault in found]


def test_values_that_get_no_verdict_against_the_newest_are_told_apart(
    host_of: Any, tmp_path: Path
) -> None:
    host = host_of("version: 1\nplugins:\n  - {name: toy, path: toy.py}\n", toy=TOY)
    commits = [letter * 40 for letter in "abcd"]
    for day, commit in enumerate(commits):
        made = record(commit, float(day), [2e-3, 2.1e-3])
        timed = replace(made.metrics["time"], info={"timer": "cuda events"})
        warnings = [f"{THROTTLED} while this was measured: power cap"] if day < 2 else []
        append_record(
            record_file(tmp_path, "node1", commit),
            replace(made, metrics={"time": timed}, warnings=warnings),
        )
    order = {commit: day for day, commit in enumerate(commits)}
    history = read_history(tmp_path, host, {}, order, {}, print)
    write_points(history, tmp_path)
    shown = read_point(tmp_path, "toy", "time", "size=10")
    assert sum("not judged: one side throttled" in each for each in dots(shown)) == 2
    assert "Pale, of 4 values: 2 not judged: one side throttled." in shown
    assert shown.partition("over-date")[0].count(' class="apart"') == 2


def test_a_wide_interval_does_not_flatten_the_values() -> None:
    dots_of = [
        Dot(float(n), 2.0 + n / 10, 1.9, 90.0 if n else 2.1, lambda: "") for n in range(3)
    ]
    line = ChartLine("H200", "look0", "circle", "", dots_of)
    drawn = str(draw([line], [(0.0, "a", ""), (2.0, "c", "")], "s", "about"))
    heights = [float(y) for y in re.findall(r'<circle cx="[\d.]+" cy="([\d.]+)"', drawn)]
    assert len(heights) == 3
    assert max(heights) - min(heights) > 20
    (whiskers,) = re.findall(r'class="whisker" d="([^"]*)"', drawn)
    ends = [float(y) for y in re.findall(r"V([\d.]+)", whiskers)]
    assert min(ends) >= TOP


def test_of_many_dots_those_that_are_drawn_alone_are_titled() -> None:
    titled: list[int] = []

    def title(number: int) -> str:
        titled.append(number)
        return f"dot {number}."

    count = 2 * MOST_MARKS
    dots_of = [Dot(n, 1.0, None, None, partial(title, n)) for n in range(count)]
    line = ChartLine("H200", "look0", "circle", "", dots_of)
    drawn = str(draw([line], [(0.0, "a", ""), (count, "b", "")], "s", "about"))
    assert titled == [*range(count - 1, 0, -2)]  # the newest is always drawn
    assert re.findall(r"dot (\d+)\.", drawn) == [str(number) for number in titled]


def test_over_dates_a_record_stands_where_it_was_measured(html: Path) -> None:
    shown = read_point(html, "toy", "time", "size=10")
    assert sorted(dots(shown)) == sorted([*dots(shown, "date")])
    labels = re.findall(">(1970-01-01)</text>", shown.partition("over-date")[2])
    assert len(labels) >= 5


def test_what_stands_between_backticks_is_code_and_nothing_else_is_markup() -> None:
    shown = fill_text("{{ text | as_code }}", "x.html", text="Time of `a <b>` & <i>c</i>")
    assert shown == "Time of <code>a &lt;b&gt;</code> &amp; &lt;i&gt;c&lt;/i&gt;"


def test_a_page_names_the_figures_of_its_benchmark_on_other_pages(tmp_path: Path) -> None:
    made = Project(tmp_path, 1)
    (made.folder / "registry.yaml").write_text(
        "version: 1\nplugins:\n  - {name: toy, path: toy.py}\n"
    )
    two = '[TOY, Benchmark("beside", measure, TOY.metrics, grid=TOY.grid)]'
    both = DRAWN.replace("[TOY]", two).replace(
        '("toy",), table, CHART', '("toy", "beside"), table, CHART'
    )
    (made.folder / "toy.py").write_text(both)
    ((commit, _),) = made.commits
    for name in ("toy", "beside"):
        append_record(
            record_file(made.results, "node1", commit),
            record(commit, 1.0, [2e-6] * 4, benchmark=name, plugin="toy"),
        )
    (made.results / "node1" / "machine.json").write_text(json.dumps({**H200, "version": 1}))
    made.publish("main")
    first, second = (
        (made.html / f"workload-{name}.html").read_text() for name in ("toy", "beside")
    )
    link = '<a href="workload-toy.html#toy.over_size">Time against size</a>'
    assert f"This benchmark also appears in {link}.</p>" in second
    assert "also appears in" not in first and 'id="toy.over_size"' in first
