"""The Records that stand for today: of every point the newest measured one, on each machine."""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path

from hpml_plugins.model.record import Record
from hpml_plugins.store.records import Damaged, read


def read_all(results: Path, on_damage: Callable[[Damaged], None] | None = None) -> Iterator[Record]:
    """Every Record below asv's results folder, machine by machine, file by file. Symbolic links are left alone."""
    for path in sorted(results.glob("*/records/*.jsonl")):
        if not any(each.is_symlink() for each in (path, path.parent, path.parent.parent)):
            yield from read(path, on_damage)


def commit_order(repository: Path) -> dict[str, int]:
    """Commit → its place in history, the newest highest. Empty where there is no git repository to ask."""
    try:
        done = subprocess.run(
            ["git", "rev-list", "--all", "--date-order", "--reverse"],
            cwd=repository,
            capture_output=True,
            text=True,
            check=True,
        )
    except (OSError, subprocess.CalledProcessError):
        return {}
    return {commit: place for place, commit in enumerate(done.stdout.split())}


def newest(records: Iterable[Record], versions: Mapping[str, str], order: Mapping[str, int]) -> list[Record]:
    """Of each machine and point the measured Record of the newest commit, of that the one measured last.

    versions: benchmark → its version; Records of other benchmarks and versions are left out.  order: see
    `commit_order`; commits that it does not have are the oldest.  The result is ordered by machine, benchmark and when
    a point was first met.
    """
    found: dict[tuple[str, str, str], Record] = {}
    for record in records:
        if record.status != "ok" or versions.get(record.benchmark) != record.version:
            continue
        key = (record.machine, record.benchmark, record.point)
        if key not in found or _age(record, order) >= _age(found[key], order):
            found[key] = record
    return sorted(found.values(), key=lambda record: (record.machine, record.benchmark))


def _age(record: Record, order: Mapping[str, int]) -> tuple[int, float]:
    return order.get(record.commit, -1), record.started
