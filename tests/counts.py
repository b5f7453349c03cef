"""The counts of docs/architecture.md: `python tests/counts.py`. tests/test_architecture.py holds
the limits."""

from __future__ import annotations

import ast
import itertools
from pathlib import Path
from typing import Any

from hpml_plugins.model.record import Record
from hpml_plugins.store import read_object_or_empty, record_files
from hpml_plugins.store.declarations import Declaration, asv_name
from hpml_plugins.store.projection import _by_result_file, _declared_benchmarks, _grid

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = ROOT / "hpml_plugins"
PLUGINS = PACKAGE / "plugins"


def core_and_tools() -> list[Path]:
    """Python files of the package but for the plugins, which each stand alone."""
    return sorted(path for path in PACKAGE.rglob("*.py") if PLUGINS not in path.parents)


def classes_of_one_name(paths: list[Path]) -> dict[str, list[str]]:
    """Public classes that share a name, with the files that have them."""
    found: dict[str, list[str]] = {}
    for path in paths:
        for node in ast.parse(path.read_text(encoding="utf-8")).body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                found.setdefault(node.name, []).append(str(path.relative_to(ROOT)))
    return {name: places for name, places in sorted(found.items()) if len(places) > 1}


def count_missing(results: Path) -> tuple[int, int]:
    """How many metric values of the measured points that Records hold are missing from asv's files,
    and of how many.

    A later Record of the same point at the same commit and environment replaces an earlier one.
    """
    declared = _declared_benchmarks(results)
    total = missing = 0
    for source in record_files(results):
        for target, records in _by_result_file(source).items():
            rows = read_object_or_empty(target).get("results", {})
            in_order = sorted(records, key=lambda record: record.started)
            for record in {
                record.point: record for record in in_order if record.status == "ok"
            }.values():
                for metric, samples in record.metrics.items():
                    row = rows.get(asv_name(record.benchmark, metric))
                    total += 1
                    missing += (
                        _stored(row, record, declared.get(record.benchmark))
                        != samples.estimate.value
                    )
    return missing, total


def _stored(
    row: list[Any] | None, record: Record, declared: Declaration | None
) -> float | None:
    """The value of a Record's point in a row of a result file; None where it has none."""
    if not row or row[2] != record.version:
        return None
    stored = dict(zip(itertools.product(*row[1]), row[0], strict=True))
    names, _ = _grid([record], declared)
    return stored.get(tuple(repr(record.params[name]) for name in names))


def main() -> None:
    """Print the counts."""
    from hpml_plugins.asv import patches

    missing, total = count_missing(ROOT / "results")
    print(
        f"metric values in Records           {total}, missing from asv's files: {missing}"
    )
    print(f"replaced attributes of asv         {len(patches.REPLACED)}")
    shared = classes_of_one_name(core_and_tools()) or "none"
    print(f"public classes that share a name   {shared}")


if __name__ == "__main__":
    main()
