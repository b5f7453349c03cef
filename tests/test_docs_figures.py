"""The numbers that README.md and docs/ quote are those of results/ as they are committed, and lead
to their Records."""

from __future__ import annotations

import itertools
import math
import re
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest
from fill_docs import ROOT, filled, quotable, texts_of
from first_hour import measure
from workload_pages import read_point, write_points

from hpml_plugins.analysis.measured import MeasuredValue
from hpml_plugins.errors import HpmlError
from hpml_plugins.model.figure import Cell
from hpml_plugins.model.formatting import (
    estimate,
    format_point,
    quantity,
    times,
)
from hpml_plugins.plugins.course.origins import RecordLink
from hpml_plugins.plugins.course.questions import FOLDER
from hpml_plugins.plugins.course.quotes import CONTRADICTS, Quotable, Quote, fill
from hpml_plugins.report.site.matrix import Costs, build
from hpml_plugins.store import read_records

#: Numbers of the question pages without a Record: (quote, its options) → why.
WITHOUT_RECORD = {
    (
        "memory.ratio",
        "column=ratio model=resnet18 gpus=1 machine=V100 SXM2, published",
    ): "the report's own figure",
    (
        "memory.ratio",
        "column=ratio model=resnet50 gpus=1 machine=V100 SXM2, published",
    ): "the report's own figure",
    (
        "memory.layers",
        "column=layers who=GeForce GTX 1080 Ti, published conv=61.0",
    ): "the report's own figure",
    ("mlp.throughput", "column=flops machine=published"): "the coursework's own figure",
    ("mlp.throughput", "column=pci machine=published"): "the coursework's own figure",
    ("mlp.throughput", "column=mpi machine=published"): "the coursework's own figure",
}


@pytest.mark.parametrize("back_tests", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_no_quoted_number_is_stale(committed_results: Path, back_tests: bool) -> None:
    stale = [
        str(path.relative_to(ROOT))
        for path, old, new in filled(ROOT, committed_results, back_tests=back_tests)
        if new != old
    ]
    assert not stale, f"{', '.join(stale)}: run `make docs` and commit"


def test_a_missing_number_of_a_table_is_quoted_too() -> None:
    """A dash written by hand stays when the number is measured."""
    by_hand: list[str] = []
    for path in texts_of(ROOT):
        shown = re.sub(r"<!--= table .*?<!--/-->", "", path.read_text(), flags=re.DOTALL)
        rows = [
            line for line in shown.splitlines() if line.startswith("|") and "<!--=" in line
        ]
        by_hand += [f"{path.name}: {row[:60]}" for row in rows if "| – |" in row]
    assert by_hand == []


def test_no_number_contradicts_its_sentence() -> None:
    texts = {path.name: path.read_text() for path in texts_of(ROOT)}
    assert [name for name, text in texts.items() if CONTRADICTS in text] == []


def test_rows_of_a_quoted_table_tell_their_machines_apart(committed_results: Path) -> None:
    known = quotable(ROOT, committed_results)
    mixed: list[str] = []
    for path in texts_of(ROOT):
        fill(path.read_text(), path.name, lambda quote: _mixed_rows(known, quote, mixed))
    assert mixed == []


def _mixed_rows(known: Quotable, quote: Quote, mixed: list[str]) -> str:
    """Appends the place of a table of which two rows of different machines differ only in measured
    numbers."""
    if quote.kind != "table" or "columns" not in quote.options:
        return quote.text
    options = {key: text for key, text in quote.options.items() if key != "otherwise"}
    shown = [name.partition("=")[0] for name in options["columns"].split(",")]
    try:
        rows = known._rows(replace(quote, options=options))
    except HpmlError:
        if "otherwise" in quote.options:  # nothing measured it
            return quote.text
        raise
    machines: dict[tuple[Cell, ...], set[Cell]] = {}
    for row in rows.rows():
        told = tuple(row[name] for name in shown if _tells(row.get(name)))
        machines.setdefault(told, set()).add(row.get("machine"))
    if any(len(each) > 1 for each in machines.values()):
        mixed.append(f"{quote.where} {quote.name}")
    return quote.text


def _tells(cell: Cell) -> bool:
    """Whether a cell can be a parameter or a name, not a measured number."""
    return isinstance(cell, str | int) or (isinstance(cell, float) and cell.is_integer())


def test_no_line_begins_with_the_quote_of_a_number() -> None:
    """Markdown takes such a line for HTML, outside of its paragraph."""
    begin = re.compile(r"^<!--= (?:value|cell|ratio) ", re.MULTILINE)
    assert [path.name for path in texts_of(ROOT) if begin.search(path.read_text())] == []


def test_the_first_hour_is_measured_from_the_log_and_the_clone(tmp_path: Path) -> None:
    for name, size in ((".venv/lib/torch.so", 3000), ("html/index.html", 20)):
        (tmp_path / name).parent.mkdir(parents=True)
        (tmp_path / name).write_bytes(b"x" * size)
    log = "Measured 48 points of 41 benchmarks on m in 5 min 9 s\n"
    busy = "Busy: during 4 of 48 points other processes used up to 1.9 of 2 CPUs; measure again\n"
    found = measure(tmp_path, log + busy)
    assert found == {
        "points": "48",
        "time": "5 min 9 s",
        "load": "1.9 of 2",
        ".venv": "3 kB",
        "html": found["html"],
        "lines": "2",
        "words": "30",
    }
    assert found["html"].startswith("20")
    assert measure(tmp_path, log)["load"] == "0 of 2"


def test_each_number_of_the_questions_leads_to_its_record_in_two_clicks(
    committed_results: Path, tmp_path: Path
) -> None:
    known = quotable(ROOT, committed_results)
    write_points(known.history, tmp_path)
    site = _Site(tmp_path)
    without, reached = set(), 0

    def text(quote: Quote) -> str:
        nonlocal reached
        answer = known.answer(quote)
        # none: no Record has such a point yet
        if quote.kind in ("value", "cell", "ratio") and answer.links:
            for link in answer.links[0]:
                assert site.has_record(link), f"{quote.where}: {quote.name}: {link}"
            if not any(answer.links):
                without.add(
                    (
                        quote.name,
                        " ".join(f"{key}={value}" for key, value in quote.options.items()),
                    )
                )
            reached += bool(answer.links[0])
        return answer.text

    for path in sorted((ROOT / FOLDER).glob("[0-9]*.md")):  # of questions
        fill(path.read_text(encoding="utf-8"), str(path), text)
    assert without == set(WITHOUT_RECORD)
    assert reached > 200


def test_each_value_and_ratio_of_points_is_that_of_the_sites_pages(
    committed_results: Path,
) -> None:
    """A value without a commit is that of the point's cell for the machine's type."""
    known = quotable(ROOT, committed_results)
    matrix = build(known.history, Costs({}))
    numbers = {}
    for row in matrix.rows:
        for column in matrix.columns:
            if row.regime == "settled" and column.number in row.cells:
                metric = row.metric
                for machine in column.machines:
                    place = metric.benchmark.name, metric.metric, row.point, machine
                    numbers[place] = row.cells[column.number].number, metric.unit
    checked: Counter[str] = Counter()

    def shown(link: RecordLink) -> tuple[MeasuredValue, str]:
        return numbers[link.benchmark, link.metric, link.label, link.machine]

    def text(quote: Quote) -> str:
        show = quote.options.get("show", "estimate")
        is_of_points = quote.kind == "value" or quote.name not in known.figures
        if quote.kind not in ("value", "ratio") or not is_of_points or show == "duration":
            return ""
        answer = known.answer(quote)
        if {"commit", "over.commit"} & quote.options.keys() or not any(answer.links):
            return ""
        values = [shown(link) for link in answer.links[0]]
        value, unit = values[0]
        if quote.kind == "ratio":
            below, _ = values[-1]
            expected = times(value.value / below.value)
        else:
            percent = f"{value.value * 100:.4g} %"
            expected = {
                "estimate": f"{estimate(value.estimate, unit)} {value.regime}".rstrip(),
                "value": quantity(value.value, unit),
                "boost": quantity(value.boost or math.nan, unit),
                "percent": percent,
            }[show]
        assert answer.text == expected, quote.where
        checked[quote.kind] += 1
        return ""

    for path in texts_of(ROOT):
        fill(path.read_text(encoding="utf-8"), str(path), text)
    assert checked["value"] > 300
    assert checked["ratio"] > 4


def test_each_number_of_a_commit_is_that_of_the_records_that_it_names(
    committed_results: Path,
) -> None:
    """By another way than quotes take: the Records of the named machine and commit, read anew."""
    known = quotable(ROOT, committed_results)
    records = list(read_records(committed_results))
    checked = 0

    def medians(link: RecordLink) -> list[float]:
        """Of each card that measured the point at that commit."""
        found = [
            record.value(link.metric)
            for record in records
            if record.benchmark == link.benchmark
            and record.machine == link.machine
            and record.commit.startswith(link.commit)
            and record.status == "ok"
            and format_point(record.params) == link.label
        ]
        assert found
        assert None not in found
        return [value for value in found if value is not None]

    def text(quote: Quote) -> str:
        nonlocal checked
        is_of_points = quote.kind in ("value", "ratio") and quote.name not in known.figures
        if is_of_points and {"commit", "over.commit"} & quote.options.keys():
            answer = known.answer(quote)
            ((above, *below),) = answer.links
            inverses = ([1 / value for value in medians(link)] for link in below)
            possible = map(math.prod, itertools.product(medians(above), *inverses))
            assert answer.number in map(pytest.approx, possible), quote.where
            checked += 1
        return ""

    for path in texts_of(ROOT):
        fill(path.read_text(encoding="utf-8"), str(path), text)
    assert checked > 4


class _Site:
    """The pages of workloads. The first click leads to a point; the second opens its Records."""

    def __init__(self, html_dir: Path) -> None:
        self.html_dir = html_dir

    def has_record(self, link: RecordLink) -> bool:
        """Whether the point lists the Record."""
        shown = read_point(self.html_dir, link.benchmark, link.metric, link.label)
        rows = shown.partition('class="records"')[2].split("<tr>")
        return any(
            f"<td>{link.machine}<" in row and f"<code>{link.commit}" in row for row in rows
        )
