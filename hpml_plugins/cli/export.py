"""`hpml export FILE`: all Records as one Parquet file, a row a metric."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from hpml_plugins.cli import Settings


@click.command("export")
@click.argument("file", type=click.Path(path_type=Path, dir_okay=False))
@click.option("--results", type=click.Path(path_type=Path), default=Path("results"), show_default=True)
@click.pass_obj
def command(settings: Settings, file: Path, results: Path) -> int:
    """Write every Record to FILE as Parquet, for DuckDB, pandas and their like. A row is one metric of one Record."""
    from hpml_plugins.report.export import write_parquet
    from hpml_plugins.store import read_records

    rows = write_parquet(read_records(results, lambda damage: print(f"hpml: {damage}", file=sys.stderr)), file)
    print(f"{file}: {rows} rows")
    return 0
