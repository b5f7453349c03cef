"""Appending and reading Records. A crash, a full disk or a second writer loses nothing that was written."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import msgspec

from hpml_plugins.errors import HpmlError
from hpml_plugins.model.record import Record, decode, encode


@dataclass(frozen=True)
class Damaged:
    """A line that is no Record: half-written, or not ours."""

    path: Path
    line: int
    problem: str

    def __str__(self) -> str:
        return f"{self.path}:{self.line}: not a whole record ({self.problem}); stepped over"


def record_file(results: Path, machine: str, commit: str) -> Path:
    """The file of a machine's Records for a commit. asv walks results/ for `*.json` and leaves `.jsonl` alone."""
    return results / machine / "records" / f"{commit[:8] or 'uncommitted'}.jsonl"


def append(path: Path, record: Record) -> None:
    """Append one Record: one write to a file opened for appending, then fsync.

    A line that a crash left half-written is closed first, so that it costs only itself. Raises HpmlError when the
    file system refuses, with what it said.
    """
    line = encode(record) + b"\n"
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(path, os.O_RDWR | os.O_APPEND | os.O_CREAT, 0o644)
        try:
            size = os.fstat(descriptor).st_size
            if size and os.pread(descriptor, 1, size - 1) != b"\n":
                line = b"\n" + line
            written = os.write(descriptor, line)
            if written != len(line):
                raise OSError(28, "only part of the record fitted")
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
    except OSError as error:
        raise HpmlError(
            f"cannot write the record: {error.strerror}; free space or mend permissions", str(path)
        ) from None


def read(path: Path, on_damage: Callable[[Damaged], None] | None = None) -> Iterator[Record]:
    """The Records of a file in the order written. A damaged line is reported and stepped over.

    A file may be read while it is written: the last line without its line break is then not yet a Record.
    """
    if not path.exists():
        return
    with path.open("rb") as file:
        for number, line in enumerate(file, 1):
            if not line.strip():
                continue
            problem = ""
            if not line.endswith(b"\n"):
                problem = "no line break at its end"
            else:
                try:
                    yield decode(line)
                except (msgspec.DecodeError, UnicodeDecodeError) as error:
                    problem = str(error)
            if problem and on_damage:
                on_damage(Damaged(path, number, problem))
