"""Appending and reading Records. A crash, a full disk or a second writer loses nothing that was written."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import msgspec

from hpml_plugins.errors import Unwritable
from hpml_plugins.model.record import Record, decode, encode
from hpml_plugins.store.atomic_write import sync_folder


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
    file system refuses, with what it said, and where the file is a symbolic link: results that somebody else made must
    not have us write elsewhere.
    """
    line = encode(record) + b"\n"
    try:
        descriptor = _open(path)
        try:
            size = os.fstat(descriptor).st_size
            if size and os.pread(descriptor, 1, size - 1) != b"\n":
                line = b"\n" + line
            rest = memoryview(line)
            while rest:  # a disk that takes only a part says why when it is offered the rest
                rest = rest[os.write(descriptor, rest) :]
            os.fsync(descriptor)
            if not size:
                sync_folder(path.parent)
        finally:
            os.close(descriptor)
    except OSError as error:
        raise _refused(error, path) from None


def check_writable(path: Path) -> None:
    """Raise what `append` would, before anything is measured for nothing. Leaves a file, which may be empty."""
    try:
        os.close(_open(path))
    except OSError as error:
        raise _refused(error, path) from None


def _open(path: Path) -> int:
    path.parent.mkdir(parents=True, exist_ok=True)
    return os.open(path, os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW, 0o644)


def _refused(error: OSError, path: Path) -> Unwritable:
    if error.errno == errno.ELOOP:
        return Unwritable("cannot write the record: it is a symbolic link; put the file itself there", str(path))
    return Unwritable(f"cannot write the record: {error.strerror}; free space or mend permissions", str(path))


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
                except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
                    problem = str(error)
            if problem and on_damage:
                on_damage(Damaged(path, number, problem))
