"""The site that a publish replaces: files of it that would be made alike are taken over."""

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
    """Let what is published in this block take files over from a site, which may not be there."""
    token = _PREVIOUS.set(site)
    try:
        yield
    finally:
        _PREVIOUS.reset(token)


def replaced_site() -> Path | None:
    """Where the site is that is replaced."""
    return _PREVIOUS.get()


def previous_file(address: str) -> Path | None:
    """A regular file of the site that is replaced; None where there is none."""
    site = replaced_site()
    file = site / address if site else None
    return file if file and file.is_file() and not file.is_symlink() else None


def take_over(address: str, html_dir: Path) -> None:
    """Have a file of the site that is replaced in the new one."""
    file = previous_file(address)
    assert file is not None
    target = html_dir / address
    target.parent.mkdir(parents=True, exist_ok=True)
    try:
        os.link(file, target)
    except OSError:  # a file system without links
        shutil.copyfile(file, target)
