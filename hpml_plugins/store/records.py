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
#: The name of the file of a machine's Records that are of no commit.
UNCOMMITTED = "uncommitted"
#: B of the longest line that is read.
MAX_LINE = 64 << 20
#: B of the largest file of Records that is read.
MAX_RECORDS = 4 << 30

#: What a decoder makes of a line: a Record, or the part of it that a reader needs.
Content = TypeVar("Content")


def record_file(results: Path, machine: str, commit: str) -> Path:
    """The file of a machine's Records at a commit. asv walks results/ for `*.json` and ignores
    `.jsonl`."""
    return path_in(
        machine_folder(results, machine), RECORDS, f"{commit[:8] or UNCOMMITTED}.jsonl"
    )


def record_files(results: Path, on_damage: OnDamage | None = None) -> list[Path]:
    """Every file of Records below a results folder, by machine and name. Links to folders are left
    out and reported."""
    found = []
    for folder in machine_folders(results, on_damage):
        if not (records := folder / RECORDS).is_symlink():
            found += sorted(records.glob("*.jsonl"))
        elif on_damage:
            on_damage(f"{records}: a symbolic link; ignored")
    return found


def is_in_records(results: Path, name: str) -> bool:
    """Whether a name is a machine with Records or, as JSON, any text in a Record.

    Looks at bytes alone, as `encode` writes them: decoding all Records takes ten times as long.
    """
    files = record_files(results)
    if any(path.parent.parent.name == name for path in files):
        return True
    text = msgspec.json.encode(name)
    for path in files:
        with suppress(FileNotFoundError, HpmlError), open_result(path, MAX_RECORDS) as file:
            if any(text in line for line in file):
                return True
    return False


def append_record(path: Path, record: Record) -> None:
    """Append one Record: one write to a file opened for appending, then fsync.

    A line that a crash left half-written is closed first, so that it costs only itself. Raises
    HpmlError for a Record that no reader would take, and Unwritable when the file system refuses,
    and where the file is a symbolic link or a FIFO: results made by somebody else must not have us
    write elsewhere, nor wait for a reader.
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
            while (
                rest
            ):  # a full disk takes a part, and names the error when it is offered the rest
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
    """The offset of each line of a file of Records, B, and what a decoder makes of it.

    Damaged lines and refused Records are reported with their place, and left out; so is a file that
    `open_result` refuses, and a Record of another machine or commit than the file's. A file may be
    read while it is written: a last line without its line break is not yet a Record.
    decode_line: raises ValueError (as msgspec's errors are) or RecursionError for what is no
    Record.
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
            # `hpml run --record` appends Records of no commit to any file that its user names.
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
    """Whose Record it is, where a file of results is another machine's or commit's; empty where it
    is in its place.

    Stricter than reading: what is merged goes into the folder of the machine that it names.
    """
    return _whose(record, *_place(path))


def _place(path: Path) -> tuple[str | None, str]:
    """The machine and the commit, by its first letters, whose Records a file has; no machine for a
    file elsewhere."""
    machine = path.parent.parent.name if path.parent.name == RECORDS else None
    return machine, path.stem


def _whose(record: Record, machine: str | None, commit: str) -> str:
    if machine is None:
        return ""
    if record.machine != machine:
        return "of another machine"
    return "of another commit" if record.commit and record.commit[:8] != commit else ""


def read_file(path: Path, on_damage: OnDamage | None = None) -> Iterator[Record]:
    """The Records of a file in the order written, the rounds of a point as one; see
    `decode_file`."""
    return iter(join_rounds(record for _, record in decode_file(path, decode, on_damage)))


def unpack_records(
    file: Path,
    results: Path,
    on_damage: OnDamage | None = None,
    *,
    runs_as_commits: bool = False,
) -> None:
    """Put the Records of a file of `hpml run --record` where a folder of results has them.

    runs_as_commits: a run of no commit gets one made of its name, so that pages show each run.
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
    """No garbage collection while all of results/ is read: Records hold no cycles, and each
    collection would look at all that were read so far, for a third of the time."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


def read_records(results: Path, on_damage: OnDamage | None = None) -> Iterator[Record]:
    """Every Record below a results folder, machine by machine, file by file."""
    with collector_paused():
        for path in record_files(results, on_damage):
            yield from read_file(path, on_damage)


def past_rounds(results: Path, machine: str | None = None) -> list[Record]:
    """The stored rounds of a machine, or of all, not joined, in the order in which they were
    started. What cannot be read is left out."""
    found: list[Record] = []
    for path in record_files(results):
        if machine in (None, path.parent.parent.name):
            found += [record for _, record in decode_file(path, decode)]
    return sorted(found, key=lambda each: each.started)
