"""The pluggy host: collects what the plugins of a registry offer, and loads the plugin that is to
run."""

from hpml_plugins.host.declared import Declared
from hpml_plugins.host.host import Host, Unmet, make_host
from hpml_plugins.host.loading import LoadedPlugin, load_plugin
from hpml_plugins.host.locating import GROUP, entry_points, locate
from hpml_plugins.host.offers import (
    Offers,
    ask_for_offers,
    load_sources,
    merge_offers,
    own_sources,
)
