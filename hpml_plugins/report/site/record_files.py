"""The Records of each point as a file to download, and what each machine's Records say of it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

from hpml_plugins.model import formatting as display
from hpml_plugins.model.record import Record, encode

FOLDER = "records"

#: (our benchmark, point in words) → the address of its Records, and how many there are.
Addresses = dict[tuple[str, str], tuple[str, int]]


@dataclass
class RecordFiles:
    """Records sorted by point. One version of a benchmark each: the declared one, so that they compare."""

    versions: dict[str, str]
    found: dict[str, list[Record]] = field(default_factory=dict)

    def take(self, records: Iterable[Record]) -> None:
        """Take Records in."""
        for record in records:
            if record.version == self.versions.get(record.benchmark, record.version):
                self.found.setdefault(record.point, []).append(record)

    def write(self, html_dir: Path) -> Addresses:
        """Write a file of JSON lines for each point, oldest Record first; returns where."""
        if self.found:
            (html_dir / FOLDER).mkdir(exist_ok=True)
        addresses: Addresses = {}
        for point, records in self.found.items():
            address = f"{FOLDER}/{point}.jsonl"
            lines = sorted(records, key=lambda record: record.started)
            (html_dir / address).write_bytes(b"".join(encode(record) + b"\n" for record in lines))
            addresses[records[0].benchmark, spelled(records[0])] = (address, len(records))
        return addresses


def spelled(record: Record) -> str:
    """The point of a Record as pages spell it."""
    return display.point(list(record.params), [repr(value) for value in record.params.values()])
