"""Make the quoted numbers of README.md and docs/ anew from results/, and the schema of a Record:
`make docs`. `--check` writes nothing.

See `hpml_plugins.plugins.course.quotes` for how a text quotes a number. Here there is one more kind
of quote, `backtest NAME`: the table that trying a statistic on the Records gives.
"""

from __future__ import annotations

import functools
import json
import sys
from collections.abc import Iterator
from pathlib import Path

import backtest_levels
import measurement_tables
from backtest import coverage_table, measured_points, verdict_table

from hpml_plugins.analysis.backtest import BackTest
from hpml_plugins.analysis.reference import References
from hpml_plugins.asv.configuration import find_history
from hpml_plugins.errors import HpmlError, nearest
from hpml_plugins.host import make_host
from hpml_plugins.model.figure import Table
from hpml_plugins.model.record import Record
from hpml_plugins.plugins.course.origins import trace
from hpml_plugins.plugins.course.quotes import Quotable, Quote, fill
from hpml_plugins.registry import json_schema, read_registry
from hpml_plugins.report.drawing import draw_all
from hpml_plugins.report.reading import read_history
from hpml_plugins.report.tables import as_markdown
from hpml_plugins.store import commit_order, read_records

#: The kind of quote that stands for a table of the back-test, and these tables.
BACK_TEST = "backtest"
BACK_TEST_TABLES = {"coverage": coverage_table, "verdicts": verdict_table}
ROOT = Path(__file__).resolve().parent.parent
#: The table of `backtest_levels`, which takes longer than the others.
LEVELS = "levels"


def quotable(root: Path, results: Path) -> Quotable:
    """Everything that can be quoted from results, with the plugins of this checkout."""
    host = make_host(read_registry(root / "registry.yaml"))
    repository, branches = find_history(root)
    history = read_history(
        results, host, {}, commit_order(repository, results, branches), {}, print
    )
    current = history.current()
    drawing = draw_all(host, current, trace=trace)
    drawables = [each for drawn in drawing for each in drawn.drawables]
    return Quotable(history, drawables)


def filled(root: Path, results: Path) -> Iterator[tuple[Path, str, str]]:
    """Each Markdown file with its text and what that should be. Raises HpmlError for a quote of
    what is not there."""
    texts = {
        path: path.read_text(encoding="utf-8")
        for path in (root / "README.md", *sorted(root.glob("docs/**/*.md")))
    }
    quoting = {path: text for path, text in texts.items() if "<!--= " in text}
    known = quotable(root, results) if quoting else None

    def answer(quote: Quote) -> str:
        assert known is not None
        return (
            back_test(root, results, quote)
            if quote.kind == BACK_TEST
            else known.answer(quote).text
        )

    for path, text in quoting.items():
        yield path, text, fill(text, str(path.relative_to(root)), answer)


def schema(root: Path) -> tuple[Path, str, str]:
    """The file of the schema of a Record, its text, and what that should be."""
    path = root / "docs" / "record.schema.json"
    old = path.read_text(encoding="utf-8") if path.exists() else ""
    return path, old, json.dumps(json_schema(Record), indent=2, ensure_ascii=False) + "\n"


@functools.cache
def _back_tested(results: Path) -> dict[str, str]:
    """The tables by their names, as Markdown."""
    records = list(read_records(results))
    found = BackTest(measured_points(records), References.of(records))
    tables = {
        name: as_markdown(Table.of(list(rows(found))))
        for name, rows in BACK_TEST_TABLES.items()
    }
    return tables | {"spread": measurement_tables.spread(records, records)}


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
        files = [schema(ROOT), *filled(ROOT, ROOT / "results")]
        stale = [(path, new) for path, old, new in files if new != old]
    except HpmlError as error:
        print(error, file=sys.stderr)
        return 2
    for path, new in stale:
        print(
            f"{path.relative_to(ROOT)}: {'stale; run `make docs`' if check else 'written'}"
        )
        if not check:
            path.write_text(new, encoding="utf-8")
    return 1 if check and stale else 0


if __name__ == "__main__":
    sys.exit(main())
