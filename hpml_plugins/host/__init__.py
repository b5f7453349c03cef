"""The pluggy host: loads the plugins that a registry declares and asks them for their benchmarks."""

from hpml_plugins.host.host import Host, make_host, make_host_for
from hpml_plugins.host.loading import LoadedPlugin, load_plugin

__all__ = ["Host", "LoadedPlugin", "load_plugin", "make_host", "make_host_for"]
