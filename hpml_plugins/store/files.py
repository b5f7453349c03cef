"""Files that several processes and nodes read and write: written atomically, read without trust."""

from __future__ import annotations

import json
import os
import socket
from contextlib import suppress
from pathlib import Path
from typing import Any

from hpml_plugins.errors import HpmlError, describe

_PARTIAL = ".partial"


def atomic_write(path: Path, data: bytes, *, durable: bool = True) -> None:
    """Write a temporary file beside the target, fsync it, rename it into place: a reader sees the old file or the new.

    The temporary name carries host and process, so that nodes of a shared file system do not collide.  durable: False
    skips fsync, for files that can be made again.  Raises OSError that names the target, also for a full disk.
    """
    partial = path.with_name(f".{path.name}.{socket.gethostname()}-{os.getpid()}{_PARTIAL}")
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
    """Make the names in a folder survive a power cut: a file's own fsync covers its content alone."""
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


def read_object(path: Path) -> dict[str, Any]:
    """The JSON object in that file, with the NaN and infinities that asv writes.

    Raises HpmlError for what is no JSON or not UTF-8, for nesting too deep to process, and for lone surrogates
    (`"\\ud800"`), which no page and no terminal can show.
    """
    try:
        text = path.read_bytes()
        found = json.loads(text.decode())  # given bytes, json would accept surrogates as characters
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
