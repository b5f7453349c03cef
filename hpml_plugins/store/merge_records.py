"""The union of Records, line by line."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path

import msgspec

from hpml_plugins.model.record import Record, decode
from hpml_plugins.store import Damaged

#: A line without its line break → the Record that it is.
Lines = dict[bytes, Record]


def read_lines(path: Path, on_damage: Callable[[Damaged], None]) -> Lines:
    """The whole lines of a file of Records; what is none is reported and left out."""
    found: Lines = {}
    text = path.read_bytes() if path.exists() else b""
    *whole, rest = text.split(b"\n")
    if rest:
        on_damage(Damaged(path, len(whole) + 1, "no line break at its end"))
    for number, line in enumerate(whole, 1):
        if not line.strip():
            continue
        try:
            found[line] = decode(line)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            on_damage(Damaged(path, number, str(error)))
    return found


def spell(lines: Lines) -> bytes:
    """A file of these lines, the point that was started first in front."""
    ordered = sorted(lines, key=lambda line: (lines[line].started, line))
    return b"".join(line + b"\n" for line in ordered)


def contradictions(records: Iterable[Record]) -> list[str]:
    """Points that one run says two things of. A run measures a point once, so one of the two was edited."""
    first: dict[tuple[str, ...], Record] = {}
    found = []
    for record in records:
        key = (record.run, record.commit, record.environment, record.machine, record.point)
        if record.run and first.setdefault(key, record) != record:
            found.append(f"run {record.run[:8]} says two things of {record.benchmark} {dict(record.params)}; both kept")
    return found
