"""The newest Records of each point: their lines as they are stored, to save, and under which
conditions they were measured."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from hpml_plugins.model.differences import unusual_conditions
from hpml_plugins.model.rounds import join_rounds
from hpml_plugins.model.serialization import decode, encode
from hpml_plugins.model.validation import may_need_cleaning
from hpml_plugins.report.reading import History, Outcome, stored_lines
from hpml_plugins.report.site.page import write_data

FOLDER = "records"
#: How many Records of a point are shown, and can be saved: the newest; `hpml export` has all.
MOST_RECORDS = 100


@dataclass(frozen=True)
class StoredRecords:
    """Of a point.  address: of the file that has their lines.  count: of all, of which the newest
    are there.  conditions: `started` → what else the machine did meanwhile."""

    address: str
    count: int
    conditions: Mapping[float, list[str]]


#: (benchmark, point) → its Records; skipped ones do not count.
Addresses = Mapping[tuple[str, str], StoredRecords]


def write_records(history: History, html_dir: Path) -> Addresses:
    """Write a file for each point of which something else than skips is stored; returns where."""
    found: dict[tuple[str, str], StoredRecords] = {}
    for benchmark in history.benchmarks:
        for label in benchmark.points:
            stored = [
                each
                for machine in history.machines
                for each in benchmark.index.stored((label, machine.name))
                if each.file and each.status != "skipped"
            ]
            if stored:
                stored.sort(key=lambda each: each.started, reverse=True)
                address = f"{FOLDER}/{len(found)}.js"
                read = [_read(each) for each in stored[:MOST_RECORDS]]
                lines = [line.decode(errors="replace") for each, _ in read for line in each]
                write_data(html_dir, address, lines)
                conditions = {
                    each.started: told
                    for each, (_, told) in zip(stored, read, strict=False)
                    if told
                }
                found[benchmark.name, label] = StoredRecords(address, len(stored), conditions)
    return found


def _read(outcome: Outcome) -> tuple[list[bytes], list[str]]:
    """The lines of a Record, one for each round, and its conditions."""
    stored = list(stored_lines([outcome]))
    lines = [encode(decode(line)) if may_need_cleaning(line) else line for line in stored]
    (record,) = join_rounds(map(decode, lines))
    return lines, unusual_conditions(record)
