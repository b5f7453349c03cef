"""What is to be checked: a plugin of the registry, an installed entry point, a file or a module."""

from __future__ import annotations

import importlib.metadata
from dataclasses import dataclass
from pathlib import Path

import msgspec

from hpml_plugins.errors import UsageError
from hpml_plugins.host import GROUP
from hpml_plugins.registry import PluginSource, plugin_name, read_registry


@dataclass(frozen=True)
class Target:
    """A plugin's source, and the folder that its path is relative to, which is also where results/ may be."""

    source: PluginSource
    folder: Path

    def spelled(self) -> str:
        """As one argument for another process."""
        return msgspec.json.encode((self.source, str(self.folder))).decode()

    @classmethod
    def read(cls, text: str) -> Target:
        """From what `spelled` gave."""
        source, folder = msgspec.json.decode(text, type=tuple[PluginSource, str])
        return cls(source, Path(folder))


def find_target(name: str, registry: Path = Path("registry.yaml")) -> Target:
    """The plugin that NAME means: of the registry, else a file, else an entry point, else a module.

    Raises UsageError where a name cannot be any of these; a module that is not there is found out on loading.
    """
    if registry.is_file():
        for entry in read_registry(registry).plugins:
            if entry.name == name:
                return Target(entry.source, registry.resolve().parent)
    here = registry.resolve().parent
    if name.endswith(".py") or Path(name).is_file():
        if not Path(name).is_file():
            raise UsageError(f"{name}: no such file")
        path = Path(name).resolve()
        return Target(PluginSource(plugin_name(path.stem), path=str(path)), here)
    if name in importlib.metadata.entry_points(group=GROUP).names:
        return Target(PluginSource(plugin_name(name), entry_point=name), here)
    if not all(part.isidentifier() for part in name.split(".")):
        raise UsageError(f"{name!r} is no plugin of {registry}, no file, no entry point and no module's name")
    return Target(PluginSource(plugin_name(name), module=name), here)
