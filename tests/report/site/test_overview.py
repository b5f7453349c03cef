"""The first page: which types are compared in which points, what changed, what is missing; and its
script."""

from __future__ import annotations

import math
import random
import xml.etree.ElementTree as ET
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from browsing import Site, read_data, served
from msgspec.structs import replace
from site_history import (
    A100,
    BANDWIDTH,
    BENCHMARKS,
    FLOP,
    H200,
    LAPTOP,
    SKIPPED,
    TIME,
    around,
    ours,
    read,
    records_of,
)

from hpml_plugins.analysis.verdicts import compare_values
from hpml_plugins.model import formatting
from hpml_plugins.model.serialization import decode
from hpml_plugins.report.reading import History
from hpml_plugins.report.site import overview
from hpml_plugins.report.site.gpu_types import Costs, Matrix, build, judge
from hpml_plugins.report.site.history import write_history
from hpml_plugins.report.site.nodes import find_gaps, find_nodes
from hpml_plugins.report.site.overview import MOST_ROWS, describe_verdicts, headline_rows
from hpml_plugins.report.site.regressions import find_suspected, write_feed
from hpml_plugins.store import append_record, record_file

PAIR_OF_H200 = {**H200, "machine": "node3", "num_gpu": "2"}
DATES = {f"{day:040x}": day * 86_400_000.0 for day in range(40)}
COMMITS = list(DATES)


class Results:
    """A folder of Records, without asv."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def add(
        self,
        machine: Mapping[str, str],
        day: int,
        values: Mapping[str, Sequence[Any]],
        benchmarks: Any = BENCHMARKS,
        code: str = "old",
    ) -> None:
        for record in records_of(
            machine["machine"], COMMITS[day], values, benchmarks, float(day), code=code
        ):
            gpus = [{"name": machine["gpu"], "uuid": f"GPU-{machine['machine']}-{day % 2}"}]
            node = {
                "gpus": gpus if machine["gpu"] != "none" else [],
                "cpu": machine["cpu"],
                "boot": "b",
            }
            file = record_file(self.folder, record.machine, record.commit)
            append_record(
                file, replace(record, node={**node, "gpus": node["gpus"] * int(machine["num_gpu"])})
            )

    def read(self) -> History:
        return read(self.folder, dates=DATES)


@pytest.fixture
def results(tmp_path: Path) -> Results:
    return Results(tmp_path)


def times(*seconds: float) -> dict[str, list[Any]]:
    return {
        TIME["name"]: [around(each) for each in seconds],
        BANDWIDTH["name"]: [around(1.2e4 / each) for each in seconds],
    }


def matrix_of(history: History) -> Matrix:
    return build(history, Costs({}))


def test_two_gpu_types_come_before_two_sizes_of_one_and_before_a_cpu(results: Results) -> None:
    everything = {**times(1e-5, 2e-5, 3e-3, 4e-3), FLOP["name"]: [8.2e9]}
    results.add(H200, 0, everything)
    results.add(PAIR_OF_H200, 0, everything)
    results.add(LAPTOP, 0, everything)

    def chosen() -> list[str]:
        matrix = build(results.read(), Costs({}))
        return [matrix.columns[each].hardware.label for each in matrix.chosen]

    assert chosen() == ["NVIDIA H200 ×1", "NVIDIA H200 ×2"]
    results.add(A100, 0, times(3e-5))
    assert chosen() == ["NVIDIA A100 ×2", "NVIDIA H200 ×1"]


def test_a_benchmark_has_one_headline_metric_and_its_largest_values_come_first(
    results: Results,
) -> None:
    results.add(H200, 0, {**times(4e-3, 1e-5, 3e-3, 2e-5), FLOP["name"]: [8.2e9]})
    results.add(A100, 0, {**times(8e-3, 2e-5, 6e-3, 4e-5), FLOP["name"]: [8.2e9]})
    matrix = matrix_of(results.read())
    rows = headline_rows(matrix)
    # a rate, not the time; nothing without direction
    assert {row.metric.name for row in rows} == {BANDWIDTH["name"]}
    order = [
        "n=1000, mode=fast",
        "n=1000000, mode=fast",
        "n=1000000, mode=plain",
        "n=1000, mode=plain",
    ]
    assert [row.point for row in rows] == order
    found = judge(matrix, {row.number for row in rows})
    verdicts = describe_verdicts(rows, found, 0, 1)
    assert [verdict[:2] for verdict in verdicts.values()] == [["b", "2.00×"]] * 4
    assert [verdict[:2] for verdict in describe_verdicts(rows, found, 1, 0).values()] == [
        ["w", "0.50×"]
    ] * 4
    assert all(verdict[2] == "at least 1.76×" for verdict in verdicts.values())
    assert all(
        verdict[2] == "at most 0.57×" for verdict in describe_verdicts(rows, found, 1, 0).values()
    )


def test_both_pages_give_one_pair_the_same_verdict(results: Results) -> None:
    """A difference that is significant among four rows, and not among all rows that the two types
    share."""
    many = ours("p", "many", "time", "s", "lower", n=list(range(60)))
    benchmarks = {**BENCHMARKS, many["name"]: many}
    for day, factor in enumerate((1.0, 1.02, 0.98)):
        for machine, slower, equal in ((H200, 1.0, 1.0), (A100, 1.13, 1.0001)):
            few, others = around(1e-3 * slower * factor), around(equal * factor)
            results.add(
                machine, day, {TIME["name"]: [few] * 4, many["name"]: [others] * 60}, benchmarks
            )
    matrix = matrix_of(read(results.folder, benchmarks, DATES))
    rows = headline_rows(matrix)
    found = judge(matrix, {row.number for row in rows})
    numbered = [(group.metric.name, row.point) for group in matrix.groups for row in group.rows]
    for base, other in ((0, 1), (1, 0)):
        for number, (letter, *_) in describe_verdicts(rows, found, base, other).items():
            assert numbered[rows[number].number] == (rows[number].metric.name, rows[number].point)
            assert letter == found.letters[base][other][rows[number].number]
    alone = compare_values(
        [(row.cells[0].values, row.cells[1].values, row.metric.metric) for row in rows]
    )
    assert {each.verdict for each in alone} == {"BETTER", "BOUND"}
    assert {each.verdict for each in found.kept.values()} == {"BOUND"}


def test_the_first_page_has_few_points_of_each_two_types(results: Results) -> None:
    many = ours("p", "many", "time", "s", "lower", n=list(range(4 * MOST_ROWS)))
    for machine in (H200, A100):
        results.add(
            machine, 0, {many["name"]: [around(1e-3)] * 4 * MOST_ROWS}, {many["name"]: many}
        )
    assert (
        len(headline_rows(matrix_of(read(results.folder, {many["name"]: many}, DATES))))
        == MOST_ROWS
    )


def test_a_benchmark_that_needs_no_gpu_says_nothing_about_gpus(results: Results) -> None:
    for machine in (H200, A100, LAPTOP, {**LAPTOP, "machine": "desk", "cpu": "EPYC"}):
        results.add(machine, 0, times(1e-5))
    history = results.read()
    (row,) = headline_rows(matrix := matrix_of(history))
    assert len(row.cells) == 4
    history.benchmarks[-1].needs_gpu = False
    (row,) = headline_rows(matrix)
    assert [matrix.columns[number].hardware.kind for number in row.cells] == [1, 1]


def with_gaps(results: Results) -> History:
    """A machine that is stale, one with a failed point, and one that no longer measures a point."""
    for day in range(12):
        results.add(H200, day, times(1e-5, 2e-5) if day < 4 else times(1e-5))
        if day < 2:
            results.add(A100, day, times(1e-5))
        if day in (0, 11):
            results.add(LAPTOP, day, {TIME["name"]: [1.0, None if day else 1.0]})
    return results.read()


def test_what_is_stale_no_longer_measured_or_failed_is_counted(results: Results) -> None:
    history = with_gaps(results)
    found = {each.name: each for each in find_gaps(history, find_nodes(history))}
    assert list(found) == ["node2", "laptop", "node1"]  # the stale one first
    stale, broken, less = found.values()
    assert (stale.behind, stale.days, stale.stale, stale.dropped, stale.failed) == (
        10,
        10,
        True,
        {},
        0,
    )
    assert (broken.behind, broken.stale, broken.failed) == (0, False, 1)
    assert (less.behind, less.stale, less.failed) == (0, False, 0)
    ((name, (point,)),) = less.dropped.items()
    link = f"history.html#{TIME['name']}?n%3D1000%2C%20mode%3Dfast"
    assert (name, point) == ("vector_add", ("n=1000, mode=fast", link, 3 * 86_400_000.0, 8))


def test_what_is_measured_once_or_seldom_is_not_missed_sooner_than_ever(results: Results) -> None:
    """Of a daily run of a profile: what only a run of everything measures is missed when that is
    overdue."""
    for day in range(20):
        values = times(1e-5, *([2e-5] if day in (0, 7) else []))
        results.add(H200, day, {**values, **({FLOP["name"]: [1e9]} if not day else {})})
        history = results.read()
        dropped = [each.dropped for each in find_gaps(history, find_nodes(history))]
        # From day 0 to day 7 eight points were measured: one of every day, and its own on day 7.
        assert bool(dropped) == (day >= 7 + 8)
    assert list(*dropped) == ["vector_add"]


def test_runs_of_a_part_do_not_make_the_rest_missing_and_runs_of_everything_else_do(
    results: Results,
) -> None:
    many = ours("p", "many", "time", "s", "lower", n=list(range(10)))

    def dropped_after(day: int, measured: Sequence[int]) -> list[str]:
        values = [around(1e-3) if n in measured else None for n in range(10)]
        for record in records_of(
            "node1", COMMITS[day], {many["name"]: values}, {many["name"]: many}, float(day)
        ):
            if record.params["n"] in measured:
                append_record(record_file(results.folder, "node1", record.commit), record)
        history = read(results.folder, {many["name"]: many}, DATES)
        return [
            point
            for gap in find_gaps(history, find_nodes(history))
            for point, *_ in gap.dropped.get("many", ())
        ]

    for day in range(2):
        assert dropped_after(day, range(10)) == []
    # ten runs of one point: the others have been missed by one pass at most
    for day in range(2, 12):
        assert dropped_after(day, [0]) == []
    assert dropped_after(12, range(9)) == []
    assert dropped_after(13, range(9)) == ["n=9"]


def test_the_feed_says_what_is_no_longer_measured(results: Results, tmp_path: Path) -> None:
    history = with_gaps(results)
    write_feed(tmp_path / "feed.xml", [], "project", find_gaps(history, find_nodes(history)))
    atom = "{http://www.w3.org/2005/Atom}"
    entries = ET.parse(tmp_path / "feed.xml").getroot().findall(f"{atom}entry")
    found = {
        (str(each.findtext(f"{atom}title")), str(each.findtext(f"{atom}updated"))[:10])
        for each in entries
    }
    assert found == {
        ("node2: not measured since 1970-01-02", "1970-01-02"),
        ("node1: 1 point of vector_add no longer measured since 1970-01-04", "1970-01-04"),
        ("laptop: 1 point failed", "1970-01-12"),
    }


def test_failures_and_skips_have_their_history_with_reasons(
    results: Results, tmp_path: Path
) -> None:
    for day in range(6):
        results.add(LAPTOP, day, {TIME["name"]: [1.0, (1.0, None, math.nan)[day // 2]]})
    write_history(results.read(), [], tmp_path, "p")
    listed = read_data(tmp_path, "history/index.js")["benchmarks"]
    ((place, points),) = (
        (n, each["points"]) for n, each in enumerate(listed) if each["name"] == TIME["name"]
    )
    (steady,), (broken,) = (
        read_data(tmp_path, f"history/{place}/{n}.js")["lines"] for n, _ in points
    )
    assert (steady["failed"], steady["skipped"], steady["missed"]) == ([], [], [])
    assert (broken["at"], broken["failed"], broken["skipped"]) == ([0, 1], [2, 3], [4, 5])
    assert broken["missed"] == [["failed: it broke", [2, 3]], [f"skipped: {SKIPPED}", [4, 5]]]


def test_a_single_reading_far_from_the_usual_is_suspected_and_a_trembling_one_is_not(
    results: Results,
) -> None:
    for day, factor in enumerate((1.0, 1.002, 0.999, 1.001, 1.0, 1.5)):
        values = {TIME["name"]: [around(1e-3 * factor), around(1e-3 * min(factor, 1.003))]}
        results.add(H200, day, values, code="new" if day == 5 else "old")
    history = results.read()
    ((found,), left_out) = find_suspected(history, set())
    assert not left_out
    assert (found.series.place, found.change.verdict) == (
        (TIME["name"], "n=1000, mode=plain", "node1", ""),
        "worse",
    )
    assert (found.change.first, found.change.wording) == (5, "50 % higher")
    assert find_suspected(history, {found.series.place}) == ([], {})


def test_nothing_is_suspected_of_what_is_no_longer_measured_or_was_measured_twice(
    results: Results,
) -> None:
    def suspected(days: Sequence[int], until: int = 0) -> tuple[int, dict[str, int]]:
        for day in days:
            factor, code = (1.5, "new") if day == days[-1] else (1.0 + day / 1000, "old")
            results.add(H200, day, {TIME["name"]: [around(1e-3 * factor)] * 2}, code=code)
        for day in range(until):
            results.add(LAPTOP, day, {FLOP["name"]: [8.2e9]})
        history = results.read()
        found, left_out = find_suspected(history, set(), find_gaps(history, find_nodes(history)))
        return len(found), left_out

    assert suspected([0, 1]) == (0, {"young": 2})
    results.folder = results.folder / "longer"
    assert suspected([0, 1, 2]) == (2, {})
    assert suspected([], 13) == (0, {"old": 2})  # ten commits behind, nothing else changed


def test_what_is_suspected_is_corrected_for_how_many_series_are_asked(results: Results) -> None:
    generator = random.Random(1)
    newest = []
    for day in range(6):
        for node in range(100):
            newest = [*newest[-199:], *(math.exp(generator.gauss(0, 0.3)) for _ in range(2))]
            values = {TIME["name"]: [around(1e-3 * factor) for factor in newest[-2:]]}
            results.add({**H200, "machine": f"node{node}"}, day, values)
    # of two hundred series that tremble, some stand out
    assert max(newest) > 2 and min(newest) < 0.5
    assert find_suspected(results.read(), set()) == ([], {})


def test_a_card_counts_nodes_and_distinct_cards_and_names_the_source_of_its_peaks(
    results: Results,
) -> None:
    for day in range(3):
        results.add(H200, day, times(1e-5))
    results.add(PAIR_OF_H200, 1, times(1e-5))
    results.add(LAPTOP, 0, times(1e-5))
    h200, laptop = overview.find_cards(results.read())
    assert (h200.name, h200.machines, h200.cards) == ("NVIDIA H200", 2, 3)
    assert (h200.last, h200.commit) == ("1970-01-01", COMMITS[2])
    assert h200.peaks["bandwidth"] == "4.800 TB/s" and "data sheet" in h200.source
    assert list(h200.links) == ["NVIDIA H200 ×1", "NVIDIA H200 ×2"]
    assert (laptop.name, laptop.cards, laptop.peaks) == ("no GPU (Xeon W)", 0, {})


@pytest.fixture
def site(published: Path, browser: Any) -> Iterator[Site]:
    with served(published, browser) as made:
        yield made
    assert not made.troubles


def cells(tab: Any) -> list[str]:
    """The texts of the comparison, head first."""
    return [
        " ".join(text.split())
        for text in tab.locator("#headline th, #headline td").all_inner_texts()
    ]


def test_the_values_are_those_of_the_newest_records(site: Site, published: Path) -> None:
    shown = cells(site.open("index.html"))
    assert shown[1:3] == ["NVIDIA A100 ×2 base", "NVIDIA H200 ×1 faster in 4 of 4"]
    assert shown[3] == "vector_add · bandwidth"
    for machine, place in (("node2", 1), ("node1", 2)):
        files = (published.parent / "results" / machine / "records").iterdir()
        records = [decode(line) for file in files for line in file.read_bytes().splitlines()]
        for point in shown[4::3]:
            same = [each for each in records if formatting.format_point(each.params) == point]
            newest = max(same, key=lambda each: each.started)
            text = formatting.quantity(newest.metrics["bandwidth"].median, "B/s")
            cell = shown[shown.index(point) + place]
            assert text in cell and "3 Records" in cell
    assert all(cell.startswith("1.33×, faster at least 1.3") for cell in shown[6::3])
    assert len(shown) == 4 + 4 * 3


def test_chosen_types_are_kept_in_the_address(site: Site) -> None:
    tab = site.open("index.html")
    before = cells(tab)
    tab.get_by_label("Base", exact=True).select_option("NVIDIA H200 ×1")
    tab.wait_for_url("**/index.html#types=NVIDIA%20H200%20%C3%971,NVIDIA%20A100%20%C3%972")
    tab.locator("#headline th.base", has_text="NVIDIA H200 ×1").wait_for()
    chosen = cells(tab)
    assert chosen[2] == "NVIDIA A100 ×2 slower in 4 of 4"
    assert chosen[6].startswith("0.75×, slower at most 0.7")
    tab.reload()
    tab.locator("#headline th.base", has_text="NVIDIA H200 ×1").wait_for()
    assert cells(tab) == chosen
    tab.get_by_text("Choose what to compare it with").click()
    tab.get_by_label("no GPU (Xeon W)").check()
    tab.get_by_text("no headline point in common").wait_for()
    tab.get_by_label("no GPU (Xeon W)").uncheck()
    tab.locator("#headline").wait_for()
    assert cells(tab) == chosen
    tab.get_by_label("Base", exact=True).select_option("NVIDIA A100 ×2")
    tab.locator("#headline th.base", has_text="NVIDIA A100 ×2").wait_for()
    assert cells(tab) == before  # what the script draws is what the page had


def test_the_first_page_works_from_the_disk_and_without_script(
    published: Path, browser: Any, site: Site
) -> None:
    shown = cells(site.open("index.html"))
    address = (published / "index.html").as_uri()
    for scripts in (True, False):
        context = browser.new_context(java_script_enabled=scripts)
        tab = context.new_page()
        tab.goto(address)
        assert cells(tab) == shown
        if scripts:
            tab.get_by_label("Base", exact=True).select_option("NVIDIA H200 ×1")
            tab.locator("#headline th.base", has_text="NVIDIA H200 ×1").wait_for()
        context.close()


def test_suspected_changes_are_counted_and_lead_to_the_point_s_history(site: Site) -> None:
    tab = site.open("index.html")
    # H200's third commit takes 1.5 times as long: the largest change of the benchmark is listed,
    # the others counted.
    assert "8 suspected regressions" in tab.locator("#state").inner_text()
    listed = [" ".join(text.split()) for text in tab.locator("#changes li").all_inner_texts()]
    assert len(listed) == 1 and listed[0].startswith(
        ("50 % higher vector_add · time", "33.3 % lower vector_add · band")
    )
    tab.locator("#changes li a").first.click()
    tab.wait_for_url("**/history.html#vector_add.track_*?n%3D1000*")
    # All of them are on the page of regressions, one click away.
    site.open("index.html").locator("#state a", has_text="8 suspected regressions").click()
    tab.wait_for_url("**/regressions.html#suspected-regression")
    assert tab.locator("#suspected-regression tbody tr").count() == 8
    assert tab.locator("#open-regression tbody tr").count() == 0


def test_the_first_page_s_data_are_small_and_a_node_with_a_failure_is_named(
    published: Path, site: Site
) -> None:
    assert sum(path.stat().st_size for path in (published / "overview").iterdir()) < 100_000
    tab = site.open("index.html")
    tab.locator("#gaps a", has_text="laptop").click()
    tab.wait_for_url("**/nodes.html#machine-laptop")
    assert tab.locator(":target h2").inner_text() == "laptop"
