"""registry.yaml: which plugins are on, where they come from, and which points they run with."""

from hpml_plugins.registry.reader import Registry, read_registry
from hpml_plugins.registry.schema import PluginEntry, json_schema

__all__ = ["PluginEntry", "Registry", "json_schema", "read_registry"]
