"""What `hpml publish` remembers, on disk: a folder of files, each of which counts whole or not at all."""

from __future__ import annotations

import gc
import hashlib
import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from hpml_plugins.records.whole import write_whole

Content = TypeVar("Content")
SIZE = 16


class Packs:
    """Named contents in a folder. made_by: `digest` of the code; what other code wrote is not there."""

    def __init__(self, folder: Path, made_by: bytes) -> None:
        self.folder, self.made_by = folder, made_by
        self.used: set[str] = set()

    def load(self, name: str, content: type[Content]) -> Content | None:
        """The content of this name; None where there is none, it is damaged, or other code made it."""
        self.used.add(name)
        was_on = gc.isenabled()
        try:
            whole = memoryview((self.folder / name).read_bytes())
            body = whole[2 * SIZE :]
            if whole[:SIZE] != self.made_by or whole[SIZE : 2 * SIZE] != digest(body):
                return None
            gc.disable()  # many objects, all alive
            return msgspec.msgpack.decode(body, type=content)
        except (OSError, msgspec.DecodeError):
            return None
        finally:
            if was_on:
                gc.enable()

    def save(self, name: str, content: Any) -> None:
        """Write a content, whole. Raises OSError."""
        self.used.add(name)
        if self.folder.is_file():  # what earlier versions left
            self.folder.unlink()
        body = msgspec.msgpack.encode(content)
        # A write that the machine's end cuts off is known by its digest.
        write_whole(self.folder / name, self.made_by + digest(body) + body, lasting=False)

    def forget_others(self) -> None:
        """Remove what was neither loaded nor saved, and what killed writers left."""
        for path in self.folder.iterdir():
            if path.is_file() and path.name not in self.used:
                path.unlink()


def name_of(kind: str, *parts: str) -> str:
    """A file name for a content that is known by any text."""
    return f"{kind}-{digest(spelled(parts)).hex()}"


def digest(content: bytes | memoryview) -> bytes:
    """SIZE bytes that tell contents apart."""
    return hashlib.sha256(content).digest()[:SIZE]


def digest_of_sources(paths: Iterable[str | Path], *said: str) -> bytes:
    """One digest of files' contents and some words."""
    return digest("\0".join(said).encode() + b"".join(digest(Path(path).read_bytes()) for path in paths))


def spelled(content: Any) -> bytes:
    """Plain values as bytes, for a digest: msgpack, or JSON for what msgpack cannot hold."""
    try:
        return msgspec.msgpack.encode(content)
    except (OverflowError, ValueError):  # integers of more than 64 bits, half characters
        return json.dumps(content).encode()
