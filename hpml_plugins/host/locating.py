"""Find a plugin's code without running any of it: its files, their hash, and its distribution."""

from __future__ import annotations

import functools
import hashlib
import importlib.machinery
import importlib.util
import os
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hpml_plugins.errors import HpmlError
from hpml_plugins.registry import PluginSource
from hpml_plugins.version import __version__

GROUP = "hpml"
_BYTE_CODE = (".pyc", ".pyo")


@dataclass(frozen=True)
class _Origin:
    """The origin of code. sha256: empty if no file was found.  distribution, version: empty for a
    plain file."""

    file: Path | None = None
    sha256: str = ""
    distribution: str = ""
    version: str = ""


def locate(source: PluginSource, folder: Path) -> _Origin:
    """The location of the plugin's code. Nothing is imported, not even the parent package of a
    dotted module.

    folder: of the registry. What cannot be found is left empty; the error is reported on import.
    """
    if source.path is not None:
        file = (folder / source.path).resolve()
        return _Origin(file, hash_of(file)) if file.is_file() else _Origin()
    module = source.module or ""
    distribution = ("", "")
    if source.entry_point is not None:
        points = entry_points()
        if source.entry_point not in points.names:
            return _Origin()
        point = points[source.entry_point]
        module = point.module
        distribution = (point.dist.name, point.dist.version) if point.dist else ("", "")
    if not distribution[0]:
        distribution = _distribution_of(module.partition(".")[0], tuple(sys.path))
    origin = _file_of(module)
    return _Origin(origin, hash_of(origin) if origin else "", *distribution)


def hash_of(file: Path) -> str:
    """SHA-256 of a plugin's files: for one file, the output of `sha256sum`; for a package, over
    every file in its folder.

    For a package it is the SHA-256 of the output of `sha256sum -z` for its files, sorted by path.
    Hidden files, `__pycache__` and compiled byte code are excluded. A link to a file is hashed by
    the content of that file. Any other link is not followed: its target is hashed as text.
    Unreadable files are included as such. Source: the same construction as Go's module hash,
    golang.org/x/mod/sumdb/dirhash.
    """
    if file.name != "__init__.py":
        return _digest(file)
    digest = hashlib.sha256()
    for path, part in sorted(
        (part.relative_to(file.parent).as_posix(), part) for part in _parts(file.parent)
    ):
        digest.update(f"{_digest(part)}  {path}\0".encode(errors="surrogateescape"))
    return digest.hexdigest()


def _parts(folder: Path) -> Iterator[Path]:
    """The parts of a package: its files at every depth, links that are not followed, unreadable
    folders."""
    try:
        entries = list(os.scandir(folder))
    except OSError:
        yield folder
        return
    for entry in entries:
        path = Path(entry.path)
        if (
            path.name.startswith(".")
            or path.name == "__pycache__"
            or path.suffix in _BYTE_CODE
        ):
            continue
        if entry.is_dir(follow_symlinks=False):
            yield from _parts(path)
        # excludes sockets and pipes: opening one would block
        elif entry.is_symlink() or entry.is_file():
            yield path


def _digest(file: Path) -> str:
    try:
        if file.is_symlink() and not file.is_file():
            return f"link to {file.readlink()}"
        with file.open("rb") as content:
            # in blocks: data may be larger than memory
            return hashlib.file_digest(content, "sha256").hexdigest()
    except OSError:
        return "unreadable"


def check_pins(source: PluginSource, folder: Path) -> None:
    """Raise HpmlError if a pin does not match, with the expected and the found value and how to fix
    it."""
    if source.version is None and source.sha256 is None:
        return
    origin = locate(source, folder)
    if source.version is not None and not _same_version(source.version, origin.version):
        if origin.version:
            found = f"{origin.distribution} {origin.version}"
        else:
            found = "no distribution"
        raise HpmlError(
            f"pinned to version {source.version}, found {found}; not imported: install that"
            " version, or read what changed and correct `version:`"
        )
    if source.sha256 is not None and source.sha256 != origin.sha256:
        raise HpmlError(
            f"pinned to sha256 {source.sha256}, found {origin.sha256 or 'no file'}; not imported: "
            "put the file back, or read what changed and correct `sha256:`"
        )


def _file_of(module: str) -> Path | None:
    """The file that importing the module would run last. `importlib.util.find_spec` would import
    the parent package."""
    top, *parts = module.split(".")
    try:
        spec = importlib.util.find_spec(top)
        for number in range(len(parts)):
            if spec is None or spec.submodule_search_locations is None:
                return None
            name = ".".join([top, *parts[: number + 1]])
            spec = importlib.machinery.PathFinder.find_spec(
                name, list(spec.submodule_search_locations)
            )
    except (ImportError, ValueError):
        return None
    return (
        Path(spec.origin) if spec and spec.origin and Path(spec.origin).is_file() else None
    )


def entry_points() -> Any:
    """The installed entry points of the group."""
    import importlib.metadata  # imports email and zipfile, not needed for modules and files

    return importlib.metadata.entry_points(group=GROUP)


@functools.cache
def _distribution_of(package: str, path: tuple[str, ...]) -> tuple[str, str]:
    """Name and version of the distribution that contains this package. path: sys.path, which
    determines the answer."""
    if package == "hpml_plugins":
        return "hpml-plugins", __version__
    import importlib.metadata

    names = importlib.metadata.packages_distributions().get(package)
    return (names[0], importlib.metadata.version(names[0])) if names else ("", "")


def _same_version(wanted: str, found: str) -> bool:
    from packaging.version import Version

    try:
        return Version(wanted) == Version(found)
    except ValueError:  # includes InvalidVersion
        return wanted == found
