"""The page of a point: the command that repeats it, its runs by card, its Records and samples, and
the chart."""

from __future__ import annotations

import itertools
import json
import random
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from browsing import Site, read_data, served
from hpml_plugins.report.site.history import write_history
from msgspec.structs import replace
from records import a_record
from site_history import H200, Project
from support import DRAWN, ROOT, TOY, unavailable

from hpml_plugins.cli.run import _tasks, command
from hpml_plugins.model import formatting
from hpml_plugins.model.record import THROTTLED, MetricSamples, Record
from hpml_plugins.report.reading import read_history
from hpml_plugins.store import append_record, record_file

AXE = ROOT / ".tools" / "axe.min.js"
POINT = "history.html#toy.track_time?size%3D10"
GPU = {"name": "NVIDIA H200", "uuid": "GPU-aaaaaaaa-1", "power_limit": 700.0}
ELSEWHERE = "f" * 40
TERMS = ["size: how large", "size=10: ten, <b>not many</b>"]


def record(
    commit: str, started: float, samples: list[float], uuid: str = "GPU-aaaaaaaa-1", **more: Any
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
    (made.folder / "toy.py").write_text(DRAWN.replace("grid={", terms + "grid={"))
    conf = json.loads((made.folder / "asv.conf.json").read_text())
    conf["show_commit_url"] = "https://git.example/commit/"
    (made.folder / "asv.conf.json").write_text(json.dumps(conf))
    commits = [commit for commit, _ in made.commits]
    stored = [
        record(commit, day, [2e-6, 2e-6, 2.1e-6, 2.1e-6]) for day, commit in enumerate(commits)
    ]
    stored.append(record(commits[3], 2.5, [2.5e-6, 2.5e-6], "GPU-bbbbbbbb-2"))
    busy = {"other_processes": 2.0}
    stored.append(record(commits[11], 99.0, [2.25e-6, 2.376e-6], "GPU-bbbbbbbb-2", conditions=busy))
    stored.append(record(ELSEWHERE, 50.0, [3e-6, 3e-6]))
    stored.append(
        record(commits[0], 0.5, [3e-6, 3e-6], status="failed", metrics={}, reason="out of memory")
    )
    for number in range(8):
        node = {"gpus": [{"name": f"GPU {number % 4}", "uuid": f"GPU-{number}"}]}
        stored.append(
            record(
                commits[11], 5.0, [4e-6 + number * 1e-7] * 2, machine=f"other{number}", node=node
            )
        )
    for each in stored:
        append_record(record_file(made.results, each.machine, each.commit), each)
    facts = {**H200, "gpu": "NVIDIA H200"}
    (made.results / "node1" / "machine.json").write_text(json.dumps({**facts, "version": 1}))
    for number in range(8):
        named = {**H200, "machine": f"other{number}", "gpu": f"GPU {number % 4}", "version": 1}
        (made.results / f"other{number}" / "machine.json").write_text(json.dumps(named))
    made.publish("main")  # of a range alone, in which the commit that the repository lacks is not
    return made.html


@pytest.fixture
def site(html: Path, browser: Any) -> Iterator[Site]:
    with served(html, browser) as made:
        yield made
    assert not made.troubles


@pytest.fixture
def from_disk(html: Path, browser: Any) -> Iterator[Any]:
    """The page, opened by its path."""
    tab = browser.new_page()
    faults: list[str] = []
    tab.on("pageerror", lambda error: faults.append(str(error)))
    tab.goto(f"{(html / 'history.html').as_uri()}#toy.track_time?size%3D10")
    tab.locator("#chart svg .line").first.wait_for(state="attached")
    yield tab
    tab.close()
    assert not faults


def cells(tab: Any, table: str) -> list[list[str]]:
    return [
        row.locator("th, td").all_inner_texts() for row in tab.locator(f"#{table} tbody tr").all()
    ]


def test_the_command_of_every_point_selects_that_point_alone(host_of: Any, tmp_path: Path) -> None:
    grid = {
        "text": ["a,b", "a", "b", "it's $HOME; x=1", ""],
        "flag": [True, False],
        "rate": [0.1, 1e-07, 3],
    }
    source = TOY.replace('{"size": [10, 1000]}', repr(grid)).replace(
        "*, size", "*, text, flag, rate"
    )
    host = host_of("version: 1\nplugins:\n  - {name: toy, path: toy.py}\n", toy=source)
    points = [dict(zip(grid, values, strict=True)) for values in itertools.product(*grid.values())]
    for number, params in enumerate(points):
        append_record(
            record_file(tmp_path, "node1", "a" * 40),
            record("a" * 40, number, [1.0, 2.0], params=params),
        )
    gone = {"text": "gone", "flag": True, "rate": 3}
    append_record(
        record_file(tmp_path, "node1", "a" * 40), record("a" * 40, 99.0, [1.0, 2.0], params=gone)
    )
    history = read_history(tmp_path, host, {}, {"a" * 40: 0}, {}, print)
    (tmp_path / "html").mkdir()
    write_history(history, [], tmp_path / "html", "p")
    selected = []
    for number in range(len(points)):
        run, asv = read_data(tmp_path / "html", f"history/0/{number}.js")["commands"]
        words = shlex.split(run)
        context = command.make_context("run", words[2:])
        assert words[:2] == ["hpml", "run"]
        given = context.params
        ((_, params),) = _tasks(
            host.find(given["name"]), given["name"], given["choices"], given["profile"]
        )
        selected.append(params)
        assert shlex.split(asv) == ["asv", "run", "--bench", r"^toy\.", "aaaaaaaa^!"]
    assert list(map(dict, selected)) == points
    # the code has no such point now
    (asv,) = read_data(tmp_path / "html", f"history/0/{len(points)}.js")["commands"]
    assert asv.startswith("asv run")


def test_the_command_is_copied_and_can_be_selected_where_there_is_no_clipboard(site: Site) -> None:
    site.tab.context.grant_permissions(["clipboard-read", "clipboard-write"])
    tab = site.open(POINT)
    assert tab.locator("#commands code").first.inner_text() == "hpml run toy -p size=10"
    tab.get_by_role("button", name="Copy: hpml run").click()
    tab.get_by_text("Copied").wait_for()
    assert tab.evaluate("navigator.clipboard.readText()") == "hpml run toy -p size=10"
    tab.evaluate("Object.defineProperty(navigator, 'clipboard', {value: undefined})")
    tab.get_by_role("button", name="Copy: asv run").click()
    assert tab.evaluate("getSelection().toString()").startswith(r"asv run --bench '^toy\.' '")
    assert (
        "plugin toy, version 1, path toy.py, SHA-256 c0dec0dec0de"
        in tab.locator("#source").inner_text()
    )
    assert tab.get_by_role("link", name="plugin toy").get_attribute("href") == "plugin-toy.html"


def test_the_range_of_a_chart_is_found_among_any_number_of_values(site: Site) -> None:
    """Chromium refuses a call with 130,000 arguments: 10,000 commits on 5 machines, with their
    intervals."""
    found = site.open(POINT).evaluate("hpml_chart.extent(new Array(600000).fill(2).concat(1, 3))")
    assert found == [1, 3]


def test_the_terms_of_a_point_are_explained_beside_its_name(site: Site) -> None:
    terms = site.open(POINT).locator("#terms .term")
    assert terms.all_inner_texts() == TERMS
    tab = site.open("gpus.html")
    assert tab.locator("#matrix .term:visible").count() == 0
    tab.get_by_text("Names explained").click()
    assert tab.locator("#matrix .term:visible").all_inner_texts() == TERMS


def test_a_raw_sample_is_two_clicks_from_the_page_also_when_it_is_opened_from_the_disk(
    from_disk: Any,
) -> None:
    from_disk.get_by_text("Runs, cards and raw samples").click()
    row = from_disk.locator("#records tbody tr").filter(has_text="1970-01-01 00:01").first
    row.get_by_text("2 samples").click()
    row.locator("pre", has_text="round 2").wait_for()
    assert row.locator("pre").inner_text() == "round 1 [s]: 0.00000225\nround 2 [s]: 0.000002376"


def test_the_newest_records_of_a_point_are_saved_as_they_are_stored(
    html: Path, from_disk: Any
) -> None:
    from_disk.get_by_text("Runs, cards and raw samples").click()
    save = from_disk.get_by_role("button", name="Save 24 Records as JSON lines")
    with from_disk.expect_download() as download:
        save.click()
    assert download.value.suggested_filename == "toy.track_time_size=10.jsonl"
    saved = Path(download.value.path()).read_text().splitlines()
    results = html.parent / "results"
    assert sorted(saved) == sorted(
        line for path in results.glob("*/records/*.jsonl") for line in path.read_text().splitlines()
    )


def test_the_newest_records_tell_where_when_and_under_which_conditions(from_disk: Any) -> None:
    assert (
        "Not on the chart: 1 value of a commit that is not published"
        in from_disk.locator("#facts").inner_text()
    )
    from_disk.get_by_text("Runs, cards and raw samples").click()
    from_disk.locator("#records tbody tr").first.wait_for()
    rows = cells(from_disk, "records")
    assert len(rows) == 24
    assert ("failed", "out of memory") in [(row[4], row[7]) for row in rows]
    newest, elsewhere = rows[:2]
    assert newest[:3] == ["1970-01-01 00:01", "NVIDIA H200 ×1", "bbbbbbbb"]
    assert (newest[4], newest[7]) == ("2.313 µs ± 2.8 %", "processes of others on the GPU: 2")
    assert elsewhere[3] == "ffffffff (not published)"
    link = from_disk.locator("#records tbody a").nth(1)
    assert link.get_attribute("href") == f"https://git.example/commit/{ELSEWHERE}"
    assert from_disk.locator("#nodes h3").all_inner_texts()[-1] == "NVIDIA H200 ×1: node1"
    facts = from_disk.locator("#nodes dl").last
    told = dict(
        zip(
            facts.locator("dt").all_inner_texts(),
            facts.locator("dd").all_inner_texts(),
            strict=True,
        )
    )
    assert told["GPU 0"] == "NVIDIA H200, 700.0 W limit"
    assert (told["driver"], told["CUDA"], told["Python"], told["CPU"], told["torch"]) == (
        "580.1",
        "13.0",
        "3.12.3",
        "EPYC",
        "2.11.0",
    )


def test_runs_are_drawn_by_card_of_the_newest_code_or_commit(from_disk: Any) -> None:
    from_disk.get_by_text("Runs, cards and raw samples").click()
    names = from_disk.locator("#strip svg > text:not(.tick):not(.unit)")
    names.first.wait_for()
    of_h200 = [name for name in names.all_text_contents() if "H200" in name]
    assert of_h200 == ["NVIDIA H200 ×1 · bbbbbbbb", "NVIDIA H200 ×1 · aaaaaaaa"]
    titles = from_disk.locator("#strip svg title")
    # two Records of two rounds
    assert sum("bbbbbbbb" in each for each in titles.all_text_contents()) == 4
    # 11 older commits, another one, card b at day 3
    assert from_disk.locator("#strip .hollow").count() == 2 * 12 + 2
    from_disk.locator("#which").select_option("commit")
    assert from_disk.locator("#strip .hollow").count() == 0
    assert sum("H200" in name for name in names.all_text_contents()) == 2
    before = titles.count()
    from_disk.locator("#dots").select_option("samples")
    assert titles.count() == before + 2  # four samples of card a in two rounds


def test_other_cards_of_a_commit_are_points_of_their_own(site: Site, html: Path) -> None:
    tab = site.open(POINT)
    found = tab.locator("#chart .card title").all_text_contents()
    day = read_data(html, "history/index.js")["commits"][3][0][:8]
    # Of one commit the Record started last counts: card a at day 3, card b at day 11.
    assert f"NVIDIA H200 ×1, card bbbbbbbb: 2.500 µs at {day}" in found
    tab.locator("#chart svg").focus()
    tab.keyboard.press("End")
    assert (
        "NVIDIA H200 ×1 2.313 µs (card aaaaaaaa 2.050 µs)" in tab.locator("#reading").inner_text()
    )


def test_commits_are_zoomed_by_dragging_and_by_keyboard(site: Site) -> None:
    tab = site.open(POINT)
    chart = tab.locator("#chart svg")
    labels = chart.locator("text.quiet")
    box = chart.bounding_box()
    tab.mouse.move(box["x"] + box["width"] * 0.3, box["y"] + 200)
    tab.mouse.down()
    tab.mouse.move(box["x"] + box["width"] * 0.6, box["y"] + 200, steps=4)
    tab.mouse.up()
    assert tab.locator("#zoomed").inner_text() == "5 of 12 commits."
    assert labels.first.text_content() > "2026-01-02"
    tab.get_by_role("button", name="Show all commits").click()
    assert (labels.first.text_content(), tab.locator("#zoom:visible").count()) == ("2026-01-01", 0)
    chart.focus()
    tab.keyboard.press("+")
    assert tab.locator("#zoomed").inner_text() == "4 of 12 commits."
    tab.keyboard.press("Home")  # the chart has kept the focus
    assert "of 2026-01-09" in tab.locator("#reading").inner_text()
    tab.keyboard.press("Escape")
    assert tab.locator("#zoom:visible").count() == 0


def test_many_lines_are_chosen_by_gpu_type_and_all_at_once(site: Site) -> None:
    tab = site.open(POINT)
    lines = tab.locator("#chart .line")
    assert lines.count() == 9
    tab.locator("#type").select_option("GPU 2 ×1")
    assert tab.locator("#legend button").all_inner_texts() == [
        "GPU 2 ×1 · other2",
        "GPU 2 ×1 · other6",
    ]
    assert lines.count() == 2
    tab.get_by_role("button", name="Hide all").click()
    assert lines.count() == 0
    tab.locator("#type").select_option("all")
    assert lines.count() == 7
    # Machines of a type share its colour and marker, and differ in their dashes.
    tab.get_by_role("button", name="Show all", exact=True).click()
    markers = tab.locator("#legend .marker").evaluate_all(
        "all => all.map(each => each.getAttribute('d'))"
    )
    dashes = tab.locator("#legend line").evaluate_all(
        "all => all.map(each => each.getAttribute('stroke-dasharray'))"
    )
    colours = tab.locator("#legend line").evaluate_all("all => all.map(each => each.style.stroke)")
    looks = list(zip(colours, markers, strict=True))
    assert len(set(looks)) == 5
    assert len(set(zip(looks, dashes, strict=True))) == 9


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_the_page_with_its_runs_is_accessible_and_fits_each_width(site: Site, scheme: str) -> None:
    site.tab.emulate_media(color_scheme=scheme)
    tab = site.open(POINT)
    tab.get_by_text("Runs, cards and raw samples").click()
    tab.locator("#strip svg").wait_for()
    for width in (390, 1024, 1440):
        tab.set_viewport_size({"width": width, "height": 900})
        tab.wait_for_timeout(100)
        assert tab.evaluate("document.documentElement.scrollWidth") <= width
        for label in tab.locator("svg text.tick").all():
            assert len(label.text_content()) <= 5
        assert (
            tab.locator("#chart text.tick").evaluate_all(
                "all => Math.min(...all.map(each => each.getBBox().x))"
            )
            >= 0
        )
    if not AXE.is_file():
        unavailable(
            f"no axe-core in {AXE.parent}: sh tests/get-tools.sh fetches it from the npm registry"
        )
    tab.evaluate(AXE.read_text(encoding="utf-8"))
    found = tab.evaluate("async () => (await axe.run()).violations")
    assert not [
        (fault["id"], fault["nodes"][0]["html"])
        for fault in found
        if fault["impact"] in ("serious", "critical")
    ]


def test_the_page_s_script_spells_numbers_as_python_does(site: Site) -> None:
    chance = random.Random(1)
    units = ["s", "B/s", "FLOP", "1", "B", "points"]
    numbers = [chance.choice([1, -1]) * 10 ** chance.uniform(-14, 16) for _ in range(300)]
    asked = [
        (value, unit)
        for value in [0.0, 7.0, 1234.0, 99999.0, 999.96e-6, *numbers]
        for unit in units
    ]
    shown = [formatting.shown_unit(unit) for _, unit in asked]
    told = site.open(POINT).evaluate(
        "asked => asked.map(each => hpml_chart.quantity(...each))",
        [
            (
                value,
                {
                    "label": unit.label,
                    "lowest": unit.lowest,
                    "highest": unit.highest,
                    "count": unit.count,
                },
            )
            for (value, _), unit in zip(asked, shown, strict=True)
        ],
    )
    assert told == [formatting.quantity(*each) for each in asked]


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
    history = read_history(
        tmp_path, host, {}, {commit: day for day, commit in enumerate(commits)}, {}, print
    )
    write_history(history, [], tmp_path, "p")
    (line,) = read_data(tmp_path, "history/0/0.js")["lines"]
    assert line["apart"] == [[day, "not judged: one side throttled"] for day in (0, 1)]


def test_no_line_joins_values_that_are_not_compared_and_wide_intervals_end_at_the_edge(
    site: Site,
) -> None:
    tab = site.open(POINT)
    line = {
        "name": "H200",
        "colour": "red",
        "marker": "circle",
        "dash": "",
        "at": [0, 1, 2, 3],
        "values": [2.0, 2.1, 3.0, 3.1],
        "low": [1.9, 2.0, 2.9, 0.1],
        "high": [2.1, 2.2, 3.1, 90.0],
        "apart": [[0, "one side throttled"], [1, "one side throttled"]],
        "failed": [],
        "skipped": [],
        "changes": [],
        "cards": [],
    }
    draw = """line => {
        const box = document.createElement('div');
        const unit = {label: 's', lowest: -9, highest: 3, count: false};
        const on = {point: () => 0, zoom: () => 0};
        const columns = [['a', ''], ['b', ''], ['c', ''], ['d', '']];
        const svg = hpml_chart.draw(box, [line], columns, unit, {logarithmic: false, from_zero: false, label: ''}, on);
        return {
            lines: [...svg.querySelectorAll('.line')].map(each => each.getAttribute('class')),
            markers: svg.querySelectorAll('.marker.value.apart').length,
            ticks: [...svg.querySelectorAll('.tick')].map(each => Number(each.textContent)),
            bottom: [...svg.querySelectorAll('.band')].map(each => each.getAttribute('points')).join(' '),
            cut: svg.dataset.cut || '',
        };
    }"""  # noqa: E501
    drawn = tab.evaluate(draw, line)
    assert (drawn["lines"], drawn["markers"]) == (["line apart", "line"], 2)
    assert max(drawn["ticks"]) < 6 and drawn["cut"] == "true"
    heights = [float(place.split(",")[1]) for place in drawn["bottom"].split()]
    assert min(heights) >= 28 and max(heights) <= 400  # within the axes
    whole = tab.evaluate(
        draw, {**line, "low": [1.9, 2.0, 2.9, 2.8], "high": [2.1, 2.2, 3.1, 3.3], "apart": []}
    )
    assert (whole["lines"], whole["cut"]) == (["line"], "")


def test_a_benchmark_without_a_metric_is_an_address(site: Site) -> None:
    assert "toy" in site.open("history.html#toy").locator("#title").inner_text()
