"""The site that a publish replaces: files that would be identical are taken over from it."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path

_PREVIOUS: ContextVar[Path | None] = ContextVar("the site that is replaced", default=None)


@contextmanager
def replacing(site: Path) -> Iterator[None]:
    """Allow what is published in this block to take over files from a site, which need not
    exist."""
    token = _PREVIOUS.set(site)
    try:
        yield
    finally:
        _PREVIOUS.reset(token)


def replaced_site() -> Path | None:
    """The folder of the site that is replaced."""
    return _PREVIOUS.get()


def previous_file(address: str) -> Path | None:
    """A regular file of the site that is replaced; None if it does not exist."""
    site = replaced_site()
    file = site / address if site else None
    return file if file and file.is_file() and not file.is_symlink() else None


def take_over(address: str, html_dir: Path) -> None:
    """Take over a file of the replaced site into the new one."""
    file = previous_file(address)
    assert file is not None
    target = html_dir / address
    target.parent.mkdir(parents=True, exist_ok=True)
    try:
        os.link(file, target)
    except OSError:  # a file system without hard links
        shutil.copyfile(file, target)
