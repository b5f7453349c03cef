"""The Records of a results folder: JSON lines under results/<machine>/records/, appended, never
rewritten in place."""

from __future__ import annotations

import gc
import hashlib
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TypeVar

import msgspec

from hpml_plugins.errors import HpmlError, Unwritable
from hpml_plugins.model.formatting import counted
from hpml_plugins.model.record import Record
from hpml_plugins.model.rounds import join_rounds
from hpml_plugins.model.serialization import decode, encode
from hpml_plugins.store.files import (
    OnDamage,
    machine_folder,
    machine_folders,
    open_result,
    open_unfollowed,
    path_in,
    sync_folder,
)

RECORDS = "records"
#: The file name for a machine's Records without a commit.
UNCOMMITTED = "uncommitted"
#: B of the longest line that is read.
MAX_LINE = 64 << 20
#: B of the largest file of Records that is read.
MAX_RECORDS = 4 << 30

#: The result of decoding a line: a Record, or the part of it that a reader needs.
Content = TypeVar("Content")


def record_file(results: Path, machine: str, commit: str) -> Path:
    """The file of a machine's Records at a commit. asv walks results/ for `*.json` and ignores
    `.jsonl`."""
    return path_in(
        machine_folder(results, machine), RECORDS, f"{commit[:8] or UNCOMMITTED}.jsonl"
    )


def record_files(results: Path, on_damage: OnDamage | None = None) -> list[Path]:
    """Every file of Records in a results folder, by machine and name. Links to folders are skipped
    and reported. Raises PermissionError for a folder that must not be read."""
    found: list[Path] = []
    for folder in machine_folders(results, on_damage):
        if not (records := folder / RECORDS).is_symlink():
            with suppress(FileNotFoundError, NotADirectoryError):
                found += sorted(
                    path for path in records.iterdir() if path.name.endswith(".jsonl")
                )
        elif on_damage:
            on_damage(f"{records}: a symbolic link; ignored")
    return found


def is_in_records(results: Path, name: str) -> bool:
    """Whether a name is a machine with Records, or occurs in a Record as a JSON string.

    Searches the bytes as `encode` writes them: decoding all Records takes ten times as long.
    """
    files = record_files(results)
    if any(path.parent.parent.name == name for path in files):
        return True
    try:
        text = msgspec.json.encode(name)
    except UnicodeEncodeError:  # a word of the command line that is not UTF-8
        return False
    for path in files:
        with suppress(FileNotFoundError, HpmlError), open_result(path, MAX_RECORDS) as file:
            if any(text in line for line in file):
                return True
    return False


def append_record(path: Path, record: Record) -> None:
    """Append one Record: one write to a file opened for appending, then fsync.

    If a crash left an incomplete line, it is terminated first, so that only that line is lost.
    Raises HpmlError for an invalid Record, and Unwritable if the file system refuses or the file is
    a symbolic link or a FIFO: foreign results must not make us write elsewhere or wait for a
    reader.
    """
    line = encode(record)
    try:
        decode(line)
    except msgspec.ValidationError as error:
        raise HpmlError(
            f"the Record of {record.benchmark[:100]!r} cannot be stored: {error}", str(path)
        ) from None
    line += b"\n"
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        descriptor = open_unfollowed(path, os.O_RDWR | os.O_APPEND | os.O_CREAT)
        try:
            size = os.fstat(descriptor).st_size
            if size and os.pread(descriptor, 1, size - 1) != b"\n":
                line = b"\n" + line
            rest = memoryview(line)
            while rest:  # a full disk accepts a part, and reports the error for the rest
                rest = rest[os.write(descriptor, rest) :]
            os.fsync(descriptor)
            if not size:
                sync_folder(path.parent)
        finally:
            os.close(descriptor)
    except OSError as error:
        what = f"cannot write the Record: {error.strerror}; free space or fix permissions"
        raise Unwritable(what, str(path)) from None


def decode_file(
    path: Path, decode_line: Callable[[bytes], Content], on_damage: OnDamage | None = None
) -> Iterator[tuple[int, Content]]:
    """The offset of each line of a file of Records, B, and its decoded content.

    Damaged lines, invalid Records and Records of another machine or commit than the file's are
    reported with their line and skipped; so is a file that `open_result` refuses. A file may be
    read while it is written: a last line without a line break is not yet a Record. decode_line:
    raises ValueError (as msgspec's errors are) or RecursionError for an invalid Record.
    """
    try:
        file = open_result(path, MAX_RECORDS)
    except FileNotFoundError:
        return
    except HpmlError as error:
        if on_damage:
            on_damage(str(error))
        return
    end = 0
    elsewhere: list[tuple[int, str]] = []
    place = _place(path)
    with file:
        for number, line in enumerate(iter(lambda: file.readline(MAX_LINE), b""), 1):
            offset = end
            end = end + len(line)
            if not line.strip():
                continue
            try:
                content = _decode_whole(line, decode_line)
            except (ValueError, RecursionError) as error:
                if on_damage:
                    on_damage(f"{path}:{number}: not a complete Record ({error}); ignored")
                continue
            # `hpml run --record` appends Records without a commit to any file that the user
            # names.
            if (
                isinstance(content, Record)
                and content.commit
                and (fault := _whose(content, *place))
            ):
                elsewhere.append((number, fault))
            else:
                yield offset, content
    if elsewhere and on_damage:
        number, fault = elsewhere[0]
        on_damage(f"{path}:{number}: {counted(len(elsewhere), 'Record')} {fault}; ignored")


def _decode_whole(line: bytes, decode_line: Callable[[bytes], Content]) -> Content:
    if not line.endswith(b"\n"):
        raise ValueError("no line break at its end")
    return decode_line(line)


def misplaced(path: Path, record: Record) -> str:
    """Describe the owner of a Record that is in the file of another machine or commit; empty if it
    is in the right file.

    Stricter than reading: merged Records go into the folder of the machine that they name.
    """
    return _whose(record, *_place(path))


def _place(path: Path) -> tuple[str | None, str]:
    """The machine and the abbreviated commit that a file of Records belongs to; no machine for a
    file outside results."""
    machine = path.parent.parent.name if path.parent.name == RECORDS else None
    return machine, path.stem


def _whose(record: Record, machine: str | None, commit: str) -> str:
    if machine is None:
        return ""
    if record.machine != machine:
        return "of another machine"
    return "of another commit" if record.commit and record.commit[:8] != commit else ""


def read_file(path: Path, on_damage: OnDamage | None = None) -> Iterator[Record]:
    """The Records of a file in the order written, the rounds of a point joined; see
    `decode_file`."""
    return iter(join_rounds(record for _, record in decode_file(path, decode, on_damage)))


def unpack_records(
    file: Path,
    results: Path,
    on_damage: OnDamage,
    *,
    runs_as_commits: bool = False,
) -> None:
    """Copy the Records of a file of `hpml run --record` into a results folder.

    runs_as_commits: give a run without a commit an artificial one, so that pages show each run.
    """
    for _, record in decode_file(file, decode, on_damage):
        if runs_as_commits and not record.commit:
            commit = hashlib.sha1(record.run.encode(), usedforsecurity=False).hexdigest()
            record = msgspec.structs.replace(record, commit=commit)
        path = record_file(results, record.machine, record.commit)
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("ab") as target:
            target.write(encode(record) + b"\n")


@contextmanager
def collector_paused() -> Iterator[None]:
    """Disable garbage collection while all of results/ is read: Records contain no cycles, and
    scanning them would take a third of the time."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


def read_records(results: Path, on_damage: OnDamage | None = None) -> Iterator[Record]:
    """Every Record in a results folder, machine by machine, file by file."""
    with collector_paused():
        for path in record_files(results, on_damage):
            yield from read_file(path, on_damage)


def stored_rounds(results: Path, machine: str | None = None) -> list[Record]:
    """The stored rounds of one or all machines, not joined, in the order in which they were
    started. Unreadable ones are skipped."""
    found: list[Record] = []
    for path in record_files(results):
        if machine in (None, path.parent.parent.name):
            found += [record for _, record in decode_file(path, decode)]
    return sorted(found, key=lambda each: each.started)
