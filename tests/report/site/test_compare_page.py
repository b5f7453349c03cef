"""The first page: which types are compared in which points, what changed, what is missing; and its
script."""

from __future__ import annotations

import dataclasses
import itertools
import json
import math
import random
import xml.etree.ElementTree as ET
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from browsing import Site, served
from msgspec.structs import replace
from site_history import (
    A100,
    BANDWIDTH,
    BENCHMARKS,
    FLOP,
    H200,
    LAPTOP,
    NAN,
    SKIPPED,
    TIME,
    around,
    ours,
    read,
    records_of,
)
from workload_pages import dots, read_point, write_points

from hpml_plugins.analysis.measured import CONTINUOUS
from hpml_plugins.analysis.verdicts import Verdict
from hpml_plugins.model.formatting import shown_unit
from hpml_plugins.registry import TaskEntry
from hpml_plugins.report.reading import History
from hpml_plugins.report.site.answers import (
    answer_of_workload,
    can_i_trust,
    has_it_slowed,
    how_close,
    which_gpu,
)
from hpml_plugins.report.site.changes import Judged, Shift, find_suspected, places_of
from hpml_plugins.report.site.feed import write_feed
from hpml_plugins.report.site.matrix import Costs, Matrix, Regime, TaskRow, build
from hpml_plugins.report.site.nodes import find_gaps, find_nodes
from hpml_plugins.report.site.page import point_link
from hpml_plugins.report.site.task_table import show_verdict, verdict_fragments
from hpml_plugins.report.site.tasks import (
    OTHER_CODE,
    RowDifference,
    find_rows,
    judge_rows,
)
from hpml_plugins.report.site.workloads import find_workloads
from hpml_plugins.store import append_record, record_file

PAIR_OF_H200 = {**H200, "machine": "node3", "num_gpu": "2"}
DATES = {f"{day:08x}" + "0" * 32: day * 86_400_000.0 for day in range(40)}
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
                file,
                replace(
                    record, node={**node, "gpus": node["gpus"] * int(machine["num_gpu"])}
                ),
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
    link = "workload-vector_add.html#time?n=1000&mode=fast"
    assert (name, point) == ("vector_add", ("n=1000, mode=fast", link, 3 * 86_400_000.0, 8))


def test_what_is_measured_once_or_seldom_is_not_missed_sooner_than_ever(
    results: Results,
) -> None:
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
    write_feed(
        tmp_path / "feed.xml", [], "project", find_gaps(history, find_nodes(history))
    )
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
    write_points(results.read(), tmp_path)
    steady, broken = (
        dots(read_point(tmp_path, "vector_add", "time", f"n=1000, mode={mode}"))
        for mode in ("plain", "fast")
    )
    assert (len(steady), sum("failed" in each for each in steady)) == (6, 0)
    assert (len(broken), sum("failed, it broke" in each for each in broken)) == (4, 2)
    page = (tmp_path / "workload-vector_add.html").read_text()
    assert f"1 point skipped on laptop: {SKIPPED}" in page


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
    assert (found.change.first, found.change.wording) == (5, "1.50× (+50 %)")
    assert find_suspected(history, {found.series.place}) == ([], {})
    shifts = {kind: [] for kind in ("open regression", "contradicted regression")}
    judged = [Judged("node1", 9, Counter(), 0.0)]
    named = "GPUs: vector_add · time: 1.50× (+50 %)."
    for is_gpu, where in ((True, named), (False, "CPUs.")):
        found.series.metric.benchmark.needs_gpu = is_gpu
        answer = has_it_slowed({**shifts, "suspected regression": [found]}, judged)
        assert answer.rest == f"1 suspected on {where}"


def test_nothing_is_suspected_of_another_way_to_time_it(results: Results) -> None:
    for day, factor in enumerate((1.0, 1.002, 0.999, 1.001, 1.0, 1.5)):
        values = {TIME["name"]: [around(1e-3 * factor)] * 2}
        results.add(H200, day, values, code="new" if day == 5 else "old")
    history = results.read()
    for metric in history.measured:
        for label, name, branch in places_of(metric):
            for _, reading in metric.newest_first(label, name, branch):
                if reading:
                    reading.load = CONTINUOUS if reading.value > 1.2e-3 else "with rests"
    assert find_suspected(history, set()) == ([], {"unclear": 2})  # two points


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
        found, left_out = find_suspected(
            history, set(), find_gaps(history, find_nodes(history))
        )
        return len(found), left_out

    assert suspected([0, 1]) == (0, {"young": 2})
    results.folder = results.folder / "longer"
    assert suspected([0, 1, 2]) == (2, {})
    assert suspected([], 13) == (0, {"old": 2})  # ten commits behind, nothing else changed


def test_what_is_suspected_is_corrected_for_how_many_series_are_asked(
    results: Results,
) -> None:
    generator = random.Random(1)
    newest = []
    for day in range(6):
        for node in range(100):
            newest = [
                *newest[-199:],
                *(math.exp(generator.gauss(0, 0.3)) for _ in range(2)),
            ]
            values = {TIME["name"]: [around(1e-3 * factor) for factor in newest[-2:]]}
            results.add({**H200, "machine": f"node{node}"}, day, values)
    # of two hundred series that tremble, some stand out
    assert max(newest) > 2 and min(newest) < 0.5
    assert find_suspected(results.read(), set()) == ([], {})


def rows_of(history: History, tasks: dict[str, list[TaskEntry]]) -> list[TaskRow]:
    rows, problems = find_rows(tasks, history, matrix_of(history))
    assert problems == []
    return rows


def task(
    metric: str = "vector_add.time", regime: Regime = "settled", **point: Any
) -> TaskEntry:
    return TaskEntry("Add vectors", metric, point, regime)


def test_a_task_is_one_point_with_the_number_of_each_type(results: Results) -> None:
    for machine, factor in ((H200, 1.0), (A100, 2.0)):
        results.add(machine, 0, times(1e-5 * factor, 2e-5 * factor))
    (row,) = rows_of(results.read(), {"Vectors": [task(n=1000, mode="fast")]})
    assert (row.section, row.task, row.point) == (
        "Vectors",
        "Add vectors",
        "n=1000, mode=fast",
    )
    assert {number: cell.number.value for number, cell in row.cells.items()} == {
        0: pytest.approx(4e-5),
        1: pytest.approx(2e-5),
    }
    verdicts = judge_rows([row], 0, 1)
    assert (verdicts[0].verdict, verdicts[0].times) == ("BETTER", pytest.approx(2.0))
    assert judge_rows([row], 1, 0)[0].verdict == "WORSE"


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        (task("vector_add.speed"), "no benchmark here has vector_add.speed"),
        (task(n=1000), "matches 2 points: n=1000, mode=plain; n=1000, mode=fast, …"),
    ],
)
def test_a_task_that_means_nothing_or_several_points_is_said_and_the_others_stay(
    results: Results, wrong: TaskEntry, said: str
) -> None:
    results.add(H200, 0, times(1e-5, 2e-5))
    history = results.read()
    right = task(n=1000, mode="plain")
    rows, problems = find_rows({"a": [wrong, right]}, history, matrix_of(history))
    assert [row.point for row in rows] == ["n=1000, mode=plain"]
    assert len(problems) == 1 and said in problems[0]


def test_a_task_that_nobody_measured_keeps_its_row_without_a_number(
    results: Results,
) -> None:
    results.add(H200, 0, times(1e-5))
    rows = rows_of(
        results.read(), {"a": [task(n=1000, mode="plain"), task(n=1000000, mode="fast")]}
    )
    assert [(row.point, bool(row.cells)) for row in rows] == [
        ("n=1000, mode=plain", True),
        ("n=1000000, mode=fast", False),
    ]


def with_regimes(
    results: Results, machine: Mapping[str, str], settled: float, boost: float
) -> None:
    """A Record of a step that the GPU throttles, of both regimes."""
    (record,) = records_of(
        machine["machine"],
        COMMITS[0],
        {TIME["name"]: [around(settled)]},
        started=1.0,
        code="one",
    )
    metric = replace(record.metrics["time"], boost=[boost] * 12)
    record = replace(record, metrics={"time": metric})
    append_record(record_file(results.folder, record.machine, record.commit), record)
    (results.folder / machine["machine"] / "machine.json").write_text(
        json.dumps(dict(machine))
    )


def test_the_row_of_a_regime_leads_to_its_own_values() -> None:
    settled = point_link("matmul", "rate", "size=8192", "settled")
    assert settled == point_link("matmul", "rate", "size=8192")
    assert point_link("matmul", "rate", "size=8192", "boost") == f"{settled}&regime=boost"


def test_unlike_regimes_are_never_compared(results: Results) -> None:
    with_regimes(results, H200, 1.2e-5, 1.0e-5)
    with_regimes(results, A100, 1.2e-5, 0.5e-5)
    asked = [task(n=1000, mode="plain", regime=regime) for regime in ("settled", "boost")]
    rows = rows_of(results.read(), {"a": asked})
    assert [
        [cell.number.value for _, cell in sorted(row.cells.items())] for row in rows
    ] == [
        [pytest.approx(1.2e-5)] * 2,
        [pytest.approx(0.5e-5), pytest.approx(1.0e-5)],
    ]
    assert [row.readings(1)[0].regime for row in rows] == ["sustained", "boost"]
    settled, boost = judge_rows(rows, 0, 1).values()
    assert settled.times == pytest.approx(1.0)
    assert boost.times == pytest.approx(0.5)


def test_without_tasks_each_benchmark_has_its_headline_at_the_point_most_types_measured(
    results: Results,
) -> None:
    results.add(H200, 0, {**times(4e-3, 1e-5, 3e-3), FLOP["name"]: [8.2e9]})
    results.add(A100, 0, {**times(8e-3, 2e-5), FLOP["name"]: [8.2e9]})
    (row,) = rows_of(results.read(), {})
    # a rate, not the time; nothing without direction; of the points of both the largest
    assert (row.metric.name, row.point) == (BANDWIDTH["name"], "n=1000, mode=fast")


def test_a_benchmark_that_needs_no_gpu_says_nothing_about_gpus(results: Results) -> None:
    for machine in (H200, A100, LAPTOP, {**LAPTOP, "machine": "desk", "cpu": "EPYC"}):
        results.add(machine, 0, times(1e-5))
    history = results.read()
    assert len(rows_of(history, {})[0].cells) == 4
    history.benchmarks[-1].needs_gpu = False
    (row,) = rows_of(history, {})
    matrix = matrix_of(history)
    assert [matrix.columns[number].hardware.kind for number in row.cells] == [1, 1]


NAMES = ["Old", "New"]


def difference(ratio: float, verdict: Verdict, low: float, high: float) -> RowDifference:
    least = low if ratio > 1 else high
    return RowDifference(verdict, ratio, low, high, 0.001, "", "higher", 1.0, least)


def test_a_ratio_without_the_cards_own_speed_says_so(results: Results) -> None:
    results.add(H200, 0, times(1e-5))
    row = rows_of(results.read(), {})[0]
    plain = difference(1.1, "BETTER", 1.05, 1.15)
    adjusted = dataclasses.replace(plain, adjusted=True)
    words = [show_verdict(row, each, 2.0)["wording"] for each in (plain, adjusted)]
    assert words == ["at least 1.05×", "at least 1.05×, adjusted"]


def test_a_ratio_of_older_code_than_the_values_shown_tells_which_values_were_compared(
    results: Results,
) -> None:
    """Of code that one type alone measured there is a value and no ratio."""
    results.add(A100, 0, times(2.0e-5))
    results.add(H200, 0, times(1.0e-5))
    (found,) = judge_rows(
        rows_of(results.read(), {"a": [task(n=1000, mode="plain")]}), 0, 1
    ).values()
    assert (found.times, found.compared) == (pytest.approx(2.0), "")
    results.add(A100, 2, times(1.6e-5), code="new")
    (row,) = rows = rows_of(results.read(), {"a": [task(n=1000, mode="plain")]})
    assert row.cells[0].number.value == pytest.approx(1.6e-5)
    (found,) = judge_rows(rows, 0, 1).values()
    assert found.times == pytest.approx(2.0)
    told = "10.00 µs (1 run) against 20.00 µs (1 run)"
    assert found.compared == f"with the code of {COMMITS[0][:8]}: {told}"
    fragments = verdict_fragments(rows, {1: {0: found}}, 2.0)
    assert f"<small>{found.compared}</small>" in fragments[1][0]


def test_a_ratio_of_two_states_of_the_code_says_so(results: Results) -> None:
    results.add(A100, 0, times(2.0e-5), code="old")
    results.add(H200, 2, times(1.0e-5), code="new")
    rows = rows_of(results.read(), {"a": [task(n=1000, mode="plain")]})
    (found,) = judge_rows(rows, 0, 1).values()
    assert (found.times, found.compared) == (pytest.approx(2.0), OTHER_CODE)
    fragments = verdict_fragments(rows, {1: {0: found}}, 2.0)
    assert f"<small>{OTHER_CODE}</small>" in fragments[1][0]
    assert which_gpu(rows, NAMES, (0, 1), {0: found}).rest.endswith(
        " Different code or software in 1."
    )
    columns = matrix_of(results.read()).columns
    _, rest = answer_of_workload(rows[0], columns, 0, {1: found})
    assert rest.startswith("NVIDIA H200 ×1 is better than NVIDIA A100 ×2 (at least ")
    assert rest.endswith(f", {OTHER_CODE}).")


def test_the_answer_of_a_workload_compares_also_types_without_the_base_of_its_table(
    results: Results,
) -> None:
    results.add(A100, 0, times(1e-5, 1e-5))
    results.add(H200, 0, times(1e-5, 1e-5, 8e-5))
    results.add(PAIR_OF_H200, 0, {TIME["name"]: [NAN, NAN, around(2e-5)]})
    history = results.read()
    (found,) = (
        each
        for each in find_workloads(history, matrix_of(history), [])
        if each.benchmark.name == "vector_add"
    )
    assert found.base == 0  # the A100
    lead = next(
        number
        for number, row in enumerate(found.rows)
        if row.point == "n=1000000, mode=plain" and row.metric.metric == "time"
    )
    strong, rest = dataclasses.replace(found, lead=lead).answer
    assert "A100" not in strong
    assert rest.startswith("NVIDIA H200 ×2 is better than NVIDIA H200 ×1 (at least ")


def test_which_gpu_names_the_largest_certain_ratio_and_counts_what_is_open(
    results: Results,
) -> None:
    for machine in (H200, A100):
        results.add(machine, 0, times(1e-5, 2e-5, 3e-3, 4e-3))
    points = itertools.product((1000, 1000000), ("plain", "fast"))
    asked = [
        TaskEntry(f"{n} {mode}", "vector_add.time", {"n": n, "mode": mode})
        for n, mode in points
    ]
    rows = rows_of(results.read(), {"a": asked})
    verdicts = {
        0: difference(1.2, "BETTER", 1.1, 1.3),
        1: difference(1.5, "BETTER", 1.4, 1.6),
        2: difference(0.8, "WORSE", 0.7, 0.9),
        3: difference(1.01, "BOUND", 0.95, 1.07),
    }
    found = which_gpu(rows, NAMES, (0, 1), verdicts)
    assert found.strong == "New is faster in 2 of 4 workloads."
    assert found.rest == (
        "Most in “1000 fast”: at least 1.40× Old. Slower in 1: “1000000 plain”, at most 0.90×."
        " Not decided in 1: the table gives the bounds."
    )
    undecided = {n: difference(1.0, "BOUND", 0.8, 1.25) for n in range(4)}
    assert (
        which_gpu(rows, NAMES, (0, 1), undecided).strong
        == "No workload distinguishes New from Old."
    )
    assert which_gpu(rows, NAMES, None, {}).strong == "This cannot be told."
    assert which_gpu([], NAMES, None, {}).strong == "Nothing is measured yet."


def test_answers_say_what_nobody_can_know(results: Results) -> None:
    results.add(H200, 0, times(1e-5))
    rows = rows_of(results.read(), {})
    assert which_gpu(rows, ["NVIDIA H200 ×1"], None, {}).strong == (
        "One type has been measured: NVIDIA H200 ×1."
    )
    assert how_close(rows, ["NVIDIA H200 ×1"], [0]).strong == "This cannot be told."
    kinds = "open regression", "suspected regression", "contradicted regression"
    no_shifts: dict[str, list[Shift]] = {kind: [] for kind in kinds}
    assert has_it_slowed(no_shifts, []).strong == "This cannot be told."
    judged = [Judged("node1", 9, Counter({"busy": 7}), 0.0, short=1200)]
    calm = has_it_slowed(no_shifts, judged)
    assert calm.strong == "No open regression on GPUs."
    assert "7 of 16 values could not be judged" in calm.rest
    assert "1,200 series have too few readings to judge." in calm.rest
    cpu = can_i_trust(rows, ["no GPU (AMD EPYC)"], [0], 12, {0: 0}, 0)
    assert (cpu.strong, cpu.rest.split(". ")[0]) == (
        "no GPU (AMD EPYC).",
        "1 of 1 values below rest on one node",
    )
    trust = can_i_trust(rows, ["NVIDIA H200 ×1"], [0], 1234, {0: 1}, 2)
    assert trust.strong == "NVIDIA H200 ×1: 1 card."
    # not every card that measured something measured what is shown
    of_many = can_i_trust(rows, ["NVIDIA H200 ×1"], [0], 1234, {0: 41}, 2)
    assert of_many.strong == "NVIDIA H200 ×1: 1 of 41 cards per value."
    assert trust.rest == (
        "1 of 1 values below rest on one card or node. 1,234 Records with values, every sample"
        " kept. 2 nodes with missing or stale results."
    )


@pytest.fixture
def site(published: Path, browser: Any) -> Iterator[Site]:
    with served(published, browser) as made:
        yield made
    assert not made.troubles


def shown(tab: Any) -> list[str]:
    """The visible texts of the table."""
    found = tab.locator("#tasks th, #tasks td").all()
    return [" ".join(each.inner_text().split()) for each in found if each.is_visible()]


def test_the_page_has_answers_values_and_verdicts_also_without_its_script(
    published: Path, browser: Any, site: Site
) -> None:
    tab = site.open("index.html")
    answers = tab.locator(".answers section").all_inner_texts()
    assert [each.split("\n")[0] for each in answers] == [
        "Which GPU?",
        "How close to its limit?",
        "Has it slowed?",
        "Can I trust it?",
    ]
    assert "NVIDIA H200 ×1 is faster in 1 of 1 workload" in answers[0]
    tab.get_by_label("all", exact=True).check()
    with_script = shown(tab)
    assert any("faster at least 1.3" in each for each in with_script)
    context = browser.new_context(java_script_enabled=False)
    without = context.new_page()
    without.goto((published / "index.html").as_uri())
    assert set(shown(without)) <= set(with_script)
    context.close()


def test_choices_are_kept_in_the_address(site: Site) -> None:
    tab = site.open("index.html")
    tab.get_by_label("all", exact=True).check()
    first = shown(tab)
    tab.get_by_label("Compared with").select_option("NVIDIA H200 ×1")
    tab.locator("#tasks .verdict", has_text="slower at most 0.7").wait_for()
    chosen = shown(tab)
    assert "count=all" in tab.url and "base=" in tab.url
    tab.reload()
    tab.locator("#tasks .verdict", has_text="slower at most 0.7").wait_for()
    assert shown(tab) == chosen
    tab.get_by_label("Compared with").select_option("NVIDIA A100 ×2")
    tab.locator("#tasks .verdict", has_text="faster at least 1.3").wait_for()
    assert shown(tab) == first  # what the script draws is what the page had


def test_prices_are_the_reader_s_own_and_scale_values_and_ratios(site: Site) -> None:
    tab = site.open("index.html")
    tab.get_by_label("all", exact=True).check()
    tab.get_by_label("Per USD").check()
    # 1.33 times as fast; gpu-prices.yaml: 4 for one H200, 1 for each of two A100
    assert (
        "0.67"
        in tab.locator("#tasks .verdict:visible", has_text="for the price").inner_text()
    )
    field = tab.get_by_label("USD/h of NVIDIA H200 ×1")
    assert field.input_value() == "4"
    field.fill("2")
    tab.locator("#tasks .verdict", has_text="1.3").first.wait_for()
    assert "price-" in tab.url
    field.fill("")
    tab.locator("#tasks .value", has_text="enter a price").first.wait_for()


@pytest.mark.parametrize(
    ("unit", "value", "price"),
    [
        ("1/s", "500", "2 USD per million"),  # 3.6 USD for 3600 s · 500/s: 1.8 million
        ("s", "900", "0.9 USD a run"),
        ("s", "0.5", "500 USD per million runs"),
    ],
)
def test_a_count_and_a_time_have_a_price(
    site: Site, unit: str, value: str, price: str
) -> None:
    tab = site.open("index.html")
    tab.get_by_label("all", exact=True).check()
    column = tab.evaluate(
        """([unit, value]) => {
        const cell = document.querySelector("#tasks a.cell[data-value]");
        cell.dataset.value = value;
        cell.closest("tr").dataset.unit = unit;
        return cell.parentElement.dataset.column;
    }""",
        [shown_unit(unit).label, value],
    )
    tab.get_by_label("Per USD").check()
    tab.locator(f'#prices [name="price-{column}"]').fill("3.6")
    shown = tab.locator("#tasks .value", has_text=price).first
    shown.wait_for()
    assert shown.inner_text().strip() == price


def test_a_click_shows_every_card_and_another_one_folds_it(site: Site) -> None:
    tab = site.open("index.html")
    tab.get_by_label("all", exact=True).check()
    value = tab.locator("#tasks a.cell").first
    value.click()
    drawer = tab.locator("tr.drawer")
    drawer.locator("svg circle").first.wait_for()
    assert drawer.locator("svg circle title").first.text_content()
    assert "hpml run" in drawer.inner_text() or "History" in drawer.inner_text()
    assert value.get_attribute("aria-expanded") == "true"
    value.click()
    drawer.wait_for(state="detached")


def test_what_is_missing_is_on_the_page_of_nodes(site: Site) -> None:
    tab = site.open("index.html")
    tab.locator("main").get_by_role("link", name="Evidence").click()
    tab.wait_for_url("**/evidence.html#gaps")
    tab.locator("#gaps a", has_text="laptop").click()
    assert tab.locator(":target h2").inner_text() == "laptop"
