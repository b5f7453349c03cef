"""registry.yaml: which plugins are enabled, where they come from, and which points are measured."""

from hpml_plugins.registry.lines import YamlLines, read_yaml
from hpml_plugins.registry.reader import (
    DEFAULT_PATH,
    EVERYTHING,
    PluginEntry,
    PluginSource,
    Question,
    Registry,
    TaskEntry,
    is_one_of,
    json_schema,
    name_of_file,
    plugin_name,
    read_registry,
    registry_of,
    registry_with,
)
