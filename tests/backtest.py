"""Print how well intervals and verdicts hold over the Records in results/: `python
tests/backtest.py [RESULTS]`.

Cards are left out and predicted by the others; see `hpml_plugins.analysis.backtest`. `make docs`
writes the same tables into docs/measurement.md and benchmarks/pages/measuring.md.
"""

from __future__ import annotations

import math
import statistics
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

from hpml_plugins.analysis.backtest import (
    FOUND,
    TESTED,
    BackTest,
    ClassResult,
    MeasuredPoint,
    smallest_in_most,
)
from hpml_plugins.analysis.measured import MeasuredValue
from hpml_plugins.analysis.physics import ON_GPU, compared_metrics
from hpml_plugins.analysis.reference import References
from hpml_plugins.model.figure import Table
from hpml_plugins.model.record import Record
from hpml_plugins.report.tables import as_markdown
from hpml_plugins.store import read_records

#: The slow-downs of which it is told how often they are found.
PLANTED = (0.05, 0.10)


def measured_points(records: Iterable[Record]) -> Iterator[MeasuredPoint]:
    """Of each Record that was measured."""
    for record in records:
        if record.status == "ok":
            names = compared_metrics(record)
            values = {name: MeasuredValue.of(record, name) for name in names}
            yield MeasuredPoint(record.machine, record.benchmark, record.point, values)


def coverage_table(found: BackTest) -> Iterator[dict[str, str]]:
    """Of each class how often its intervals hold another card's value, and how wide they are."""
    for physics in TESTED:
        if result := found.results.get(physics):
            yield {
                "class": str(physics),
                "cards": str(len(result.cards)),
                "values left out": str(len(result.covered)),
                "covered": f"{statistics.fmean(result.covered):.1%}",
                "half width": f"{result.half_width:.2%}",
                "half width that would hold 95 %": f"{result.empirical:.2%}",
            }


def verdict_table(found: BackTest) -> Iterator[dict[str, str]]:
    """Of each class how often equal code is called different, and how often a slow-down is
    found."""
    results = found.results
    groups: dict[str, list[ClassResult]] = {}
    for physics in TESTED:
        if physics in results:
            groups[str(physics)] = [results[physics]]
        if physics in found.adjusted:
            groups[f"{physics}, by the reference"] = [found.adjusted[physics]]
    groups["all classes of a GPU"] = [
        results[physics] for physics in ON_GPU if physics in results
    ]
    groups["all"] = list(results.values())
    for name, members in groups.items():
        if pairs := sum(len(each.called) for each in members):
            row = {"class": name, "pairs of cards": str(pairs)}
            row["called different, alone"] = (
                f"{sum(sum(each.called) for each in members) / pairs:.2%}"
            )
            together = sum(sum(each.called_together) for each in members)
            row["called different, corrected"] = f"{together / pairs:.2%}"
            smallest = [size for each in members for size in each.smallest]
            for planted in PLANTED:
                count = sum(size < math.log1p(planted) for size in smallest)
                row[f"{planted:.0%} found, alone"] = f"{count / pairs:.1%}"
            row[f"found in {FOUND:.0%} of pairs"] = (
                f"{math.expm1(smallest_in_most(smallest)):.1%}"
            )
            yield row


def main() -> None:
    """Print both tables."""
    results = Path(sys.argv[1]) if len(sys.argv) > 1 else Path("results")
    records = list(read_records(results))
    found = BackTest(measured_points(records), References.of(records))
    for rows in (coverage_table(found), verdict_table(found)):
        print(as_markdown(Table.of(list(rows))), end="\n\n")


if __name__ == "__main__":
    main()
