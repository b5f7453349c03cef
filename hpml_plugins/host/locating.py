"""Finding a plugin's code without running any of it: its files, their hash, the distribution that brought them."""

from __future__ import annotations

import functools
import hashlib
import importlib.machinery
import importlib.util
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hpml_plugins import __version__
from hpml_plugins.errors import PluginError
from hpml_plugins.registry import PluginSource

GROUP = "hpml"


@dataclass(frozen=True)
class Origin:
    """Where code comes from. sha256: empty where no file was found.  distribution, version: empty for a mere file."""

    file: Path | None = None
    sha256: str = ""
    distribution: str = ""
    version: str = ""

    def provenance(self, source: PluginSource) -> dict[str, str]:
        """What goes into every Record: the source as declared, the distribution and its version, the hash."""
        found = {"distribution": self.distribution, "version": self.version, "sha256": self.sha256}
        return {**source.sources, **{key: value for key, value in found.items() if value}}


def locate(source: PluginSource, folder: Path) -> Origin:
    """Where the plugin's code is. Nothing is imported, not even the package that a dotted module is in.

    folder: of the registry. What cannot be found is left empty: importing says better why.
    """
    if source.path is not None:
        file = (folder / source.path).resolve()
        return Origin(file, hash_of(file)) if file.is_file() else Origin()
    module, distribution = source.module or "", ("", "")
    if source.entry_point is not None:
        points = entry_points()
        if source.entry_point not in points.names:
            return Origin()
        point = points[source.entry_point]
        module = point.module
        distribution = (point.dist.name, point.dist.version) if point.dist else ("", "")
    if not distribution[0]:
        distribution = _distribution_of(module.partition(".")[0], tuple(sys.path))
    origin = _file_of(module)
    return Origin(origin, hash_of(origin) if origin else "", *distribution)


def hash_of(file: Path) -> str:
    """SHA-256 of a plugin's code: of a single file as `sha256sum` gives it; of a package over all its Python files.

    A package is hashed file by file in the order of their paths: path, a zero byte, content, a zero byte.
    """
    if file.name != "__init__.py":
        return hashlib.sha256(file.read_bytes()).hexdigest()
    digest = hashlib.sha256()
    for part in sorted(file.parent.rglob("*.py")):
        digest.update(part.relative_to(file.parent).as_posix().encode() + b"\0" + part.read_bytes() + b"\0")
    return digest.hexdigest()


def check_pins(source: PluginSource, folder: Path) -> None:
    """Raise PluginError, with what was expected, what was found and how to fix it, where a pin does not hold."""
    if source.version is None and source.sha256 is None:
        return
    origin = locate(source, folder)
    if source.version is not None and not _same_version(source.version, origin.version):
        found = f"{origin.distribution} {origin.version}" if origin.version else "no distribution"
        raise PluginError(
            f"pinned to version {source.version}, found {found}; not imported: install that version, or read what "
            "changed and correct `version:`"
        )
    if source.sha256 is not None and source.sha256 != origin.sha256:
        raise PluginError(
            f"pinned to sha256 {source.sha256}, found {origin.sha256 or 'no file'}; not imported: "
            "put the file back, or read what changed and correct `sha256:`"
        )


def available(enabled: Mapping[str, object]) -> list[tuple[str, str, str, str]]:
    """Installed entry points of the group that no entry names: (name, module, distribution, version), by metadata.

    enabled: the names of entry points that are in the registry.
    """
    return sorted(
        (point.name, point.value, point.dist.name if point.dist else "", point.dist.version if point.dist else "")
        for point in entry_points()
        if point.name not in enabled
    )


def _file_of(module: str) -> Path | None:
    """The file that importing the module would run last. `importlib.util.find_spec` would import what it is in."""
    top, *parts = module.split(".")
    try:
        spec = importlib.util.find_spec(top)
        for number in range(len(parts)):
            if spec is None or spec.submodule_search_locations is None:
                return None
            name = ".".join([top, *parts[: number + 1]])
            spec = importlib.machinery.PathFinder.find_spec(name, list(spec.submodule_search_locations))
    except (ImportError, ValueError):
        return None
    return Path(spec.origin) if spec and spec.origin and Path(spec.origin).is_file() else None


def entry_points() -> Any:
    """The installed entry points of the group."""
    import importlib.metadata  # imports email and zipfile: not for a registry of modules and files

    return importlib.metadata.entry_points(group=GROUP)


@functools.cache
def _distribution_of(package: str, path: tuple[str, ...]) -> tuple[str, str]:
    """Name and version of the distribution that has this package. path: sys.path, on which the answer depends."""
    if package == "hpml_plugins":
        return "hpml-plugins", __version__
    import importlib.metadata

    names = importlib.metadata.packages_distributions().get(package)
    return (names[0], importlib.metadata.version(names[0])) if names else ("", "")


def _same_version(wanted: str, found: str) -> bool:
    if wanted == found or not found:
        return wanted == found
    from packaging.version import Version

    try:
        return Version(wanted) == Version(found)
    except ValueError:  # InvalidVersion is one
        return False
