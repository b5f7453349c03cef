"""Text available on every machine: the sources and the documentation of Python's standard
library."""

from __future__ import annotations

import hashlib
import sysconfig
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hpml_plugins import HpmlError

#: Folders and files that a distribution of Python may leave out, or writes when it is built.
#: pydoc_data, which is included, has the documentation of the language.
LEFT_OUT = frozenset(
    (
        *("site-packages", "dist-packages", "test", "tests", "idlelib", "lib2to3", "distutils"),
        *("ensurepip", "tkinter", "turtledemo", "turtle.py", "__pycache__"),
    )
)
GENERATED = ("config-", "_sysconfigdata")
#: Every tenth file, in the order of their names, is for validation.
SPLIT = 10


@dataclass(frozen=True)
class Text:
    """The bytes of all files one after another. digest: SHA-256 of names and contents."""

    train: bytes
    validation: bytes
    files: int
    digest: str
    python: str


def is_read(name: Path) -> bool:
    """Whether a file of this name, relative to the standard library, is part of the text."""
    generated = any(part.startswith(GENERATED) for part in name.parts)
    return not generated and not LEFT_OUT & set(name.parts)


def read_text(folder: Path | None = None) -> Text:
    """The text of this Python. Raises HpmlError if its sources are missing.

    folder: of the standard library.
    """
    root = folder or Path(sysconfig.get_path("stdlib"))
    names = sorted(path.relative_to(root).as_posix() for path in root.rglob("*.py"))
    names = [name for name in names if is_read(Path(name))]
    if len(names) < SPLIT:
        raise HpmlError(f"{root} has {len(names)} of Python's sources; install all of them")
    digest = hashlib.sha256()
    parts: tuple[list[bytes], list[bytes]] = ([], [])
    for number, name in enumerate(names, 1):
        content = (root / name).read_bytes()
        digest.update(f"{name}\0{len(content)}\0".encode() + content)
        parts[number % SPLIT == 0].append(content)
    train, validation = (b"\n".join(part) for part in parts)
    python = sysconfig.get_python_version()
    return Text(train, validation, len(names), digest.hexdigest(), python)


def as_tokens(content: bytes, device: str) -> Any:
    """A token for each byte, (bytes,), on the device."""
    import torch

    return torch.frombuffer(bytearray(content), dtype=torch.uint8).to(device)


def chosen(tokens: Any, starts: Any, length: int) -> tuple[Any, Any]:
    """The sequences that begin at `starts`, and the tokens that follow theirs, (starts, length)
    each."""
    import torch

    places = starts[:, None] + torch.arange(length + 1, device=tokens.device)
    text = tokens[places].long()
    return text[:, :-1].contiguous(), text[:, 1:].contiguous()
