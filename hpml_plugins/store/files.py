"""Files that several processes and nodes read and write: written atomically, read without trust."""

from __future__ import annotations

import hashlib
import json
import os
import socket
import stat
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, BinaryIO

from hpml_plugins.errors import HpmlError, UsageError, describe

#: The file that makes a folder a project of asv.
CONFIGURATION = "asv.conf.json"
_PARTIAL = ".partial"
#: How deep a results folder goes: `machine/records/commit.jsonl`.
DEPTH = 3
#: Takes what is left out of results, in words: a line that is no Record, a file that is no regular
#: one.
OnDamage = Callable[[str], None]
#: B of the largest file of results that is read whole.
MAX_FILE = 256 << 20
#: B of the longest name of a file or folder, on every file system that is met.
LONGEST_NAME = 255
_KINDS = {
    stat.S_IFLNK: "a symbolic link",
    stat.S_IFIFO: "a FIFO",
    stat.S_IFSOCK: "a socket",
    stat.S_IFDIR: "a folder",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
}


def open_result(path: Path, limit: float = MAX_FILE) -> BinaryIO:
    """Open a file among results, or of a job, for reading. All of them are opened here: others may
    have written them.

    Raises HpmlError for anything but a regular file of at most `limit` B: a link is not followed,
    and a FIFO or a device is not opened, which could block. Raises FileNotFoundError where there is
    nothing.
    """
    try:
        refuse_irregular(path)
        file = os.fdopen(open_unfollowed(path, os.O_RDONLY), "rb")
    except FileNotFoundError:
        raise
    except OSError as error:
        raise HpmlError(f"cannot be read: {describe(error)}; ignored", str(path)) from None
    if (size := os.fstat(file.fileno()).st_size) > limit:
        file.close()
        raise HpmlError(
            f"{size / 1e6:,.0f} MB, and the limit is {limit / 1e6:,.0f} MB; ignored",
            str(path),
        )
    return file


def open_unfollowed(path: Path, flags: int) -> int:
    """A descriptor of a file that others may have made: a link is not followed, and a FIFO does not
    block. Raises OSError."""
    return os.open(path, flags | os.O_NOFOLLOW | os.O_NONBLOCK, 0o644)


def refuse_irregular(path: Path) -> None:
    """Raise HpmlError, with what it is, for anything but a regular file; FileNotFoundError where
    there is nothing."""
    if kind := _KINDS.get(stat.S_IFMT(path.lstat().st_mode)):
        raise HpmlError(f"{kind}; ignored", str(path))


def path_in(folder: Path, *names: str) -> Path:
    """`folder/name/…`, of names that others chose: the text of a Record, a file's name in somebody
    else's results.

    This is the only way from such a text to a path (a test holds that): each name is one step down.
    Raises HpmlError for a name that is empty, hidden, longer than a file system allows, not
    printable, or that holds a separator, and so for `..`, for an absolute path and for one with a
    NUL.
    """
    for name in names:
        size = len(os.fsencode(name)) if name.isprintable() else 0
        if (
            not 0 < size <= LONGEST_NAME
            or name.startswith(".")
            or "/" in name
            or "\\" in name
        ):
            shown = repr(name if len(name) <= LONGEST_NAME else f"{name[:LONGEST_NAME]}…")
            raise HpmlError(f"{shown} cannot name a file or folder below {folder}")
    return folder.joinpath(*names)


def results_folder(project: Path) -> Path:
    """Where a project keeps its results: `results_dir` of its asv.conf.json, else `results`."""
    try:
        text = (project / CONFIGURATION).read_text(encoding="utf-8")
        place = _parse_with_comments(text).get("results_dir")
    except (OSError, ValueError, AttributeError, RecursionError):
        place = None  # whoever needs more of the file says what is wrong with it
    return project / place if isinstance(place, str) and place else project / "results"


def _parse_with_comments(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        import json5  # as asv does; comments are rare, and it is slow

        return json5.loads(text)


def machine_folder(results: Path, machine: str) -> Path:
    """results/<machine>/. Raises UsageError for a name that is not that of a folder there, such as
    `../x`."""
    try:
        return path_in(results, machine)
    except HpmlError:
        raise UsageError(
            f"machine name {machine[:LONGEST_NAME]!r} cannot name a folder in {results}; leave out"
            " slashes and leading dots"
        ) from None


def machine_folders(results: Path, on_damage: OnDamage | None = None) -> list[Path]:
    """The folders of machines below a results folder, by name. Links are not followed; `on_damage`
    is given each."""
    found = [
        path
        for path in sorted(results.glob("*"))
        if path.is_dir() and not path.name.startswith(".")
    ]
    for path in found:
        if path.is_symlink() and on_damage:
            on_damage(f"{path}: a symbolic link; ignored")
    return [path for path in found if not path.is_symlink()]


def walk_results(folder: Path, on_damage: OnDamage, place: Path = Path()) -> Iterator[Path]:
    """The files and links of a results folder that somebody else may have made, relative to it, by
    name; hidden ones are left out.

    `on_damage` is given each folder that cannot be listed, or that lies deeper than results do and
    is not entered: others nest as deep as they like.
    """
    try:
        entries = sorted(os.scandir(folder / place), key=lambda entry: entry.name)
    except OSError as error:
        on_damage(f"{folder / place}: cannot be listed: {error.strerror}; ignored")
        return
    for entry in entries:
        inner = place / entry.name
        if entry.name.startswith("."):
            continue
        if not entry.is_dir(follow_symlinks=False):
            yield inner
        elif len(inner.parts) < DEPTH:
            yield from walk_results(folder, on_damage, inner)
        else:
            on_damage(f"{folder / inner}: deeper than results are; ignored")


def atomic_write(path: Path, data: bytes, *, durable: bool = True) -> None:
    """Write a temporary file beside the target, fsync it, rename it into place: a reader sees the
    old file or the new.

    The temporary name carries host and process, so that nodes of a shared file system do not
    collide.  durable: False skips fsync, for files that can be made again.  Raises OSError that
    names the target, also for a full disk.
    """
    ending = f".{socket.gethostname()}-{os.getpid()}{_PARTIAL}"
    name = path.name
    if len(os.fsencode(f".{name}{ending}")) > LONGEST_NAME:
        name = hashlib.sha256(os.fsencode(name)).hexdigest()[:32]
    partial = path.with_name(f".{name}{ending}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            with partial.open("wb") as file:
                file.write(data)
                if durable:
                    file.flush()
                    os.fsync(file.fileno())
            partial.replace(path)
            if durable:
                sync_folder(path.parent)
        finally:
            with suppress(OSError):  # a read-only file system refuses this too
                partial.unlink(missing_ok=True)
    except OSError as error:
        raise OSError(error.errno, error.strerror, str(path)) from None


def sync_folder(folder: Path) -> None:
    """Make the names in a folder survive a power cut: a file's own fsync covers its content
    alone."""
    with suppress(OSError):  # not every file system can
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def remove_partial_files(folder: Path, name: str = "*") -> None:
    """Remove what killed writers left in a folder. Call it only while holding the folder's lock."""
    for left in folder.glob(f".{name}.*{_PARTIAL}"):
        left.unlink(missing_ok=True)


def spell_json(data: Any, *, compact: bool = False) -> bytes:
    """JSON as asv writes it: its results compact, all other files sorted and indented."""
    text = json.dumps(data) if compact else json.dumps(data, indent=4, sort_keys=True)
    return text.encode()


def read_object(path: Path) -> dict[str, Any]:
    """The JSON object in that file, with the NaN and infinities that asv writes.

    Raises HpmlError for what `open_result` refuses, for what is no JSON or not UTF-8, for nesting
    too deep to process, and for lone surrogates (`"\\ud800"`), which no page and no terminal can
    show.
    """
    try:
        with open_result(path) as file:
            text = file.read()
        found = json.loads(
            text.decode()
        )  # given bytes, json would accept surrogates as characters
        refuse_lone_surrogates(text, found)
    except RecursionError:
        raise HpmlError("cannot be read: nested too deep", str(path)) from None
    except (OSError, ValueError) as error:
        raise HpmlError(f"cannot be read: {describe(error)}", str(path)) from None
    if not isinstance(found, dict):
        raise HpmlError("not a JSON object", str(path))
    return found


def read_object_or_empty(path: Path) -> dict[str, Any]:
    """The same for what can be done without: an empty object where there is none."""
    try:
        return read_object(path)
    except HpmlError:
        return {}


def refuse_lone_surrogates(text: bytes, parsed: Any) -> None:
    """Raise ValueError where JSON text, parsed to `parsed`, holds a lone surrogate."""
    if b"\\ud" in text.lower():
        json.dumps(parsed, ensure_ascii=False).encode()
