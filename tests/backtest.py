"""Print how well intervals and verdicts hold over the Records in results/: `python
tests/backtest.py [RESULTS]`.

Cards are left out and predicted by the others; see `hpml_plugins.analysis.backtest`. `make docs`
writes the same tables into docs/measurement.md.
"""

from __future__ import annotations

import sys
from pathlib import Path

from hpml_plugins.analysis.backtest import BackTest, coverage_table, points_of, verdict_table
from hpml_plugins.model.figure import Table
from hpml_plugins.report.tables import as_markdown
from hpml_plugins.store import read_records


def main() -> None:
    """Print both tables."""
    results = Path(sys.argv[1]) if len(sys.argv) > 1 else Path("results")
    found = BackTest(points_of(read_records(results))).results
    for rows in (coverage_table(found), verdict_table(found)):
        print(as_markdown(Table.of(list(rows))), end="\n\n")


if __name__ == "__main__":
    main()
