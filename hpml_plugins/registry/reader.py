"""Reading registry.yaml: YAML, then the schema, then what a schema cannot say. Every error names its line."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec

from hpml_plugins.errors import RegistryError
from hpml_plugins.registry.explaining import explain
from hpml_plugins.registry.lines import Lines
from hpml_plugins.registry.schema import PluginEntry, RegistryFile

DEFAULT_PATH = Path("registry.yaml")
EVERYTHING = "full"


@dataclass(frozen=True)
class Registry:
    """A valid registry: its file, its plugins in order, and where each of its values stands."""

    path: Path
    plugins: tuple[PluginEntry, ...]
    lines: Lines

    @property
    def enabled(self) -> list[tuple[int, PluginEntry]]:
        """The plugins that are on, with their index in the file."""
        return [(index, entry) for index, entry in enumerate(self.plugins) if entry.enabled]

    @property
    def profiles(self) -> list[str]:
        """The names of the profiles, `full` (every point) first."""
        named = (name for entry in self.plugins for name in entry.profiles)
        return list(dict.fromkeys([EVERYTHING, *named]))

    def at(self, *path: str | int) -> str:
        """`file:line` of the value at that path."""
        return self.lines.at(path)


def read_registry(path: Path | str = DEFAULT_PATH) -> Registry:
    """The registry in that file. Raises RegistryError, with file and line, for anything it cannot mean."""
    path = Path(path)
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise RegistryError("no such file; run in the project's folder or name it with --registry", str(path)) from None
    except (OSError, UnicodeDecodeError) as error:
        raise RegistryError(f"cannot be read: {error}", str(path)) from None
    lines = Lines(text, str(path))
    if not isinstance(lines.document, dict):
        raise RegistryError("must be a mapping with the keys 'version' and 'plugins'", str(path))
    try:
        file = msgspec.convert(lines.document, RegistryFile)
    except msgspec.ValidationError as error:
        raise explain(error, lines, RegistryFile) from None
    _check_entries(file.plugins, lines)
    return Registry(path, tuple(file.plugins), lines)


def _check_entries(entries: Sequence[PluginEntry], lines: Lines) -> None:
    first: dict[str, int] = {}
    for index, entry in enumerate(entries):
        where = lines.at(("plugins", index, "name"))
        if entry.name in first:
            other = lines.at(("plugins", first[entry.name], "name"))
            raise RegistryError(f"plugin name {entry.name!r} is taken by {other}; give one of them another", where)
        first[entry.name] = index
        if len(entry.sources) != 1:
            given = " and ".join(entry.sources) or "none"
            raise RegistryError(
                f"plugin {entry.name!r} needs exactly one of module, entry_point, path; {given} given", where
            )
        if entry.path is not None and entry.version is not None:
            raise RegistryError(
                f"plugin {entry.name!r}: a file has no version to pin; pin it by sha256: (`sha256sum {entry.path}`)",
                lines.at(("plugins", index, "version")),
            )
        for key, seconds in (("timeout", entry.timeout), ("sampling", entry.sampling.budget)):
            if seconds is not None and not math.isfinite(seconds):
                raise RegistryError(
                    f"plugin {entry.name!r}: {key} is {seconds}; give seconds", lines.at(("plugins", index, key))
                )
        if EVERYTHING in entry.profiles:
            raise RegistryError(
                f"profile {EVERYTHING!r} always means every point and cannot be redefined",
                lines.at(("plugins", index, "profiles", EVERYTHING)),
            )
