"""Files that several processes and nodes read and write: written atomically, and not trusted when
read."""

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

from hpml_plugins.errors import HpmlError, UsageError, why_unreadable

#: The file that makes a folder an asv project.
CONFIGURATION = "asv.conf.json"
_PARTIAL = ".partial"
#: The depth of a results folder: `machine/records/commit.jsonl`.
DEPTH = 3
#: Receives a message about anything ignored in results, such as a line that is not a Record or a
#: file that is not regular.
OnDamage = Callable[[str], None]
#: B of the largest result file that is read as a whole.
MAX_FILE = 256 << 20
#: B of the longest file or folder name on all common file systems.
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
    """Open a file among results, or of a job, for reading. All such files are opened here, because
    others may have written them.

    Raises HpmlError for anything but a regular file of at most `limit` B: links are not followed,
    and FIFOs and devices, which could block, are not opened. Raises FileNotFoundError if there is
    no file.
    """
    try:
        refuse_irregular(path)
        file = os.fdopen(open_unfollowed(path, os.O_RDONLY), "rb")
    except FileNotFoundError:
        raise
    except OSError as error:
        raise HpmlError(
            f"cannot be read: {why_unreadable(error)}; ignored", str(path)
        ) from None
    if (size := os.fstat(file.fileno()).st_size) > limit:
        file.close()
        raise HpmlError(
            f"{size / 1e6:,.0f} MB, and the limit is {limit / 1e6:,.0f} MB; ignored",
            str(path),
        )
    return file


def open_unfollowed(path: Path, flags: int) -> int:
    """Open a file that others may have created: links are not followed, and a FIFO does not block.
    Raises OSError."""
    return os.open(path, flags | os.O_NOFOLLOW | os.O_NONBLOCK, 0o644)


def refuse_irregular(path: Path) -> None:
    """Raise HpmlError, naming the type, for anything but a regular file; FileNotFoundError if it
    does not exist."""
    if kind := _KINDS.get(stat.S_IFMT(path.lstat().st_mode)):
        raise HpmlError(f"{kind}; ignored", str(path))


def path_in(folder: Path, *names: str) -> Path:
    """`folder/name/…` from names that others chose: the text of a Record, or a file name in foreign
    results.

    This is the only way to make a path from such a text (a test enforces this): each name is one
    level down. Raises HpmlError for a name that is empty, hidden, too long for a file system or not
    printable, or that contains a separator; this covers `..`, absolute paths and names with NUL.
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
    """The results folder of a project: `results_dir` of its asv.conf.json; `results` if the file is
    missing or names none. Raises UsageError for a file that cannot be read."""
    file = project / CONFIGURATION
    try:
        found = _parse_with_comments(file.read_text(encoding="utf-8"))
        place = found.get("results_dir", "results")
    except (FileNotFoundError, NotADirectoryError):
        place = "results"
    except AttributeError:
        raise UsageError("it is not a JSON object", str(file)) from None
    except (OSError, ValueError, RecursionError) as error:
        raise UsageError(f"cannot be read: {why_unreadable(error)}", str(file)) from None
    if not isinstance(place, str) or not place:
        raise UsageError(f"results_dir is {json.dumps(place)}; name a folder", str(file))
    return project / place


def _parse_with_comments(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        import json5  # as asv does; comments are rare, and json5 is slow

        return json5.loads(text)


def machine_folder(results: Path, machine: str) -> Path:
    """results/<machine>/. Raises UsageError for a name that is not a folder name, such as
    `../x`."""
    try:
        return path_in(results, machine)
    except HpmlError:
        raise UsageError(
            f"machine name {machine[:LONGEST_NAME]!r} cannot name a folder in {results}; leave out"
            " slashes and leading dots"
        ) from None


def machine_folders(results: Path, on_damage: OnDamage | None = None) -> list[Path]:
    """The folders of machines in a results folder, by name. Links are not followed; each is passed
    to `on_damage`."""
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
    """The files and links of a results folder that others may have created, as relative paths, by
    name; hidden ones are excluded.

    Folders that cannot be listed, or that are deeper than results and therefore not entered, are
    passed to `on_damage`.
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
    """Write a temporary file beside the target, fsync it, and rename it into place: readers see the
    old file or the new one.

    The temporary name contains host and process, so that nodes of a shared file system do not
    collide.  durable: False skips fsync, for files that can be recreated.  Raises OSError that
    names the target, also for a full disk.
    """
    ending = f".{socket.gethostname()}-{os.getpid()}{_PARTIAL}"
    name = path.name
    if len(os.fsencode(f".{name}{ending}")) > LONGEST_NAME:
        name = hashlib.sha256(os.fsencode(name)).hexdigest()[:32]
    partial = path.with_name(f".{name}{ending}")
    try:
        if not path.parent.is_dir():
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
            with suppress(OSError):  # fails on a read-only file system too
                partial.unlink(missing_ok=True)
    except OSError as error:
        raise OSError(error.errno, error.strerror, str(path)) from None


def sync_folder(folder: Path) -> None:
    """Make file names in a folder durable: fsync of a file covers only its contents."""
    with suppress(OSError):  # not supported by every file system
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def remove_partial_files(folder: Path, name: str = "*") -> None:
    """Remove temporary files of killed writers from a folder. Call it only while holding the
    folder's lock."""
    for left in folder.glob(f".{name}.*{_PARTIAL}"):
        left.unlink(missing_ok=True)


def format_json(data: Any, *, compact: bool = False) -> bytes:
    """Format JSON as asv does: results compact, all other files sorted and indented."""
    text = json.dumps(data) if compact else json.dumps(data, indent=4, sort_keys=True)
    return text.encode()


def read_object(path: Path) -> dict[str, Any]:
    """The JSON object in that file, including asv's NaN and infinities.

    Raises HpmlError if `open_result` refuses the file, and for invalid JSON or UTF-8, excessive
    nesting, and lone surrogates (`"\\ud800"`), which no page or terminal can show.
    """
    try:
        with open_result(path) as file:
            text = file.read()
        # given bytes, json would accept surrogates as characters
        found = json.loads(text.decode())
        refuse_lone_surrogates(text, found)
    except (OSError, ValueError, RecursionError) as error:
        raise HpmlError(f"cannot be read: {why_unreadable(error)}", str(path)) from None
    if not isinstance(found, dict):
        raise HpmlError("not a JSON object", str(path))
    return found


def read_object_or_empty(path: Path) -> dict[str, Any]:
    """The same for an optional file: an empty object if it is missing."""
    try:
        return read_object(path)
    except HpmlError:
        return {}


def refuse_lone_surrogates(text: bytes, parsed: Any) -> None:
    """Raise ValueError if JSON text, parsed to `parsed`, contains a lone surrogate."""
    if b"\\ud" in text.lower():
        json.dumps(parsed, ensure_ascii=False).encode()
