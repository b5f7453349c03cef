"""Make the quoted numbers of README.md, docs/ and benchmarks/pages/ anew from results/, the schemas
of Records and of `hpml accept --json`, and the bands that ship with it: `make docs`. `--check`
writes nothing.

See `hpml_plugins.plugins.course.quotes` for how a text quotes a number. Here there are two more
kinds of quote: `backtest NAME`, the table that trying a statistic on the Records gives, and
`first_hour NAME`, what `make bench` took in a fresh clone.
"""

from __future__ import annotations

import functools
import json
import sys
from collections.abc import Iterator
from pathlib import Path

import backtest_levels
import measurement_tables
from accept_runs import accept_runs
from alike_code import alike_code
from backtest import coverage_table, measured_points, verdict_table
from first_hour import figure

from hpml_plugins.analysis.backtest import BackTest
from hpml_plugins.analysis.reference import References
from hpml_plugins.asv.configuration import find_history
from hpml_plugins.errors import HpmlError, nearest
from hpml_plugins.host import make_host
from hpml_plugins.model.alike_code import ALIKE, _first_alike
from hpml_plugins.model.figure import Table
from hpml_plugins.model.record import Record
from hpml_plugins.plugins.course.origins import trace
from hpml_plugins.plugins.course.questions import BACK_TEST, FOLDER
from hpml_plugins.plugins.course.quotes import Quotable, Quote, fill
from hpml_plugins.registry import json_schema, read_registry
from hpml_plugins.report.drawing import draw_all
from hpml_plugins.report.reading import read_history
from hpml_plugins.report.tables import as_markdown
from hpml_plugins.store import DECLARATIONS, commit_order, read_records
from hpml_plugins.tools.accept.backtest import back_test as back_test_accept
from hpml_plugins.tools.accept.bands import SHIPPED, as_file
from hpml_plugins.tools.accept.export import make_bands
from hpml_plugins.tools.accept.judging import Acceptance

#: The tables of the back-test, each by the name in its quote.
BACK_TEST_TABLES = {"coverage": coverage_table, "verdicts": verdict_table}
FIRST_HOUR = "first_hour"
#: Files of schemas in docs/, and what each is of.
SCHEMAS = {"record": Record, "accept": Acceptance}
ROOT = Path(__file__).resolve().parent.parent
#: The table of `backtest_levels`, which takes longer than the others.
LEVELS = "levels"


@functools.cache
def quotable(root: Path, results: Path) -> Quotable:
    """Everything that can be quoted from results, with the plugins of this checkout; read once in a
    process."""
    host = make_host(read_registry(root / "registry.yaml"))
    repository, branches = find_history(root)
    declarations = json.loads((results / DECLARATIONS).read_text(encoding="utf-8"))
    order = commit_order(repository, results, branches)
    history = read_history(results, host, declarations, order, {}, print)
    current = history.current()
    drawing = draw_all(host, current, trace=trace, every_card=history.of_every_card)
    drawables = [each for drawn in drawing for each in drawn.drawables]
    return Quotable(history, drawables)


def texts_of(root: Path) -> list[Path]:
    """The Markdown files that may quote numbers."""
    folders = (root / "docs", root / FOLDER)
    return [
        root / "README.md",
        *sorted(each for at in folders for each in at.rglob("*.md")),
    ]


def filled(
    root: Path, results: Path, *, back_tests: bool = True
) -> Iterator[tuple[Path, str, str]]:
    """Each Markdown file with its text and what that should be. Raises HpmlError for a quote of
    what is not there.

    back_tests: whether the tables of the back-test are made anew, which takes as long as three
    times all the rest; else they stay.
    """
    texts = {path: path.read_text(encoding="utf-8") for path in texts_of(root)}
    quoting = {path: text for path, text in texts.items() if "<!--= " in text}
    known = quotable(root, results) if quoting else None

    def answer(quote: Quote) -> str:
        assert known is not None
        if quote.kind == FIRST_HOUR:
            return figure(quote.name, quote.where)
        if quote.kind == BACK_TEST:
            return back_test(root, results, quote) if back_tests else quote.text
        return known.answer(quote).text

    for path, text in quoting.items():
        yield path, text, fill(text, str(path.relative_to(root)), answer)


def schemas(root: Path) -> Iterator[tuple[Path, str, str]]:
    """Each file of a schema, its text, and what that should be."""
    for name, shape in SCHEMAS.items():
        path = root / "docs" / f"{name}.schema.json"
        old = path.read_text(encoding="utf-8") if path.exists() else ""
        yield path, old, json.dumps(json_schema(shape), indent=2, ensure_ascii=False) + "\n"


def bands(results: Path) -> tuple[Path, str, str]:
    """The bands that `hpml accept` ships with, their text, and what that should be."""
    old = SHIPPED.read_text(encoding="utf-8") if SHIPPED.exists() else ""
    return SHIPPED, old, as_file(make_bands(read_records(results))).decode()


def codes(root: Path) -> tuple[Path, str, str]:
    """Which states of plugins measure alike: the file, its text, and what that should be."""
    old = ALIKE.read_text(encoding="utf-8")
    return ALIKE, old, alike_code(root, read_records(root / "results"))


@functools.cache
def _back_tested(results: Path) -> dict[str, str]:
    """The tables by their names, as Markdown."""
    records = list(read_records(results))
    found = BackTest(measured_points(records), References.of(records)).results
    tables = {
        name: as_markdown(Table.of(list(rows(found))))
        for name, rows in BACK_TEST_TABLES.items()
    }
    accepted = as_markdown(Table.of(list(back_test_accept(records))))
    spread = measurement_tables.spread(records, records)
    planted = as_markdown(Table.of(list(accept_runs())))
    return tables | {"spread": spread, "accept": accepted, "planted": planted}


@functools.cache
def _levels(root: Path, results: Path) -> str:
    return backtest_levels.backtest(root, results)


def back_test(root: Path, results: Path, quote: Quote) -> str:
    """A table of the back-test: `<!--= backtest coverage -->`. Raises HpmlError for an unknown
    one."""
    if quote.name == LEVELS:
        return f"\n{_levels(root, results).strip()}\n"
    tables = _back_tested(results)
    if quote.name not in tables:
        raise HpmlError(
            f"no table {quote.name!r} of the back-test; {nearest(quote.name, [LEVELS, *tables])}",
            quote.where,
        )
    return f"\n{tables[quote.name].strip()}\n"


def main() -> int:
    """Write the files that differ; with --check exit status 1 instead."""
    check = "--check" in sys.argv[1:]
    try:
        # first, and written at once: bands and texts read Records by it
        stale = write_stale([codes(ROOT)], check)
        _first_alike.cache_clear()
        others = [*schemas(ROOT), bands(ROOT / "results"), *filled(ROOT, ROOT / "results")]
        stale += write_stale(others, check)
    except HpmlError as error:
        print(error, file=sys.stderr)
        return 2
    return 1 if check and stale else 0


def write_stale(files: list[tuple[Path, str, str]], check: bool) -> int:
    """Write and name the files whose text is not what it should be; only name them if `check`.
    Returns how many."""
    stale = [(path, new) for path, old, new in files if new != old]
    for path, new in stale:
        print(
            f"{path.relative_to(ROOT)}: {'stale; run `make docs`' if check else 'written'}"
        )
        if not check:
            path.write_text(new, encoding="utf-8")
    return len(stale)


if __name__ == "__main__":
    sys.exit(main())
