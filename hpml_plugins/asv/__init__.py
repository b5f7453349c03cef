"""The asv plugin, named in asv.conf.json as ".hpml_plugins.asv": an Environment, our pages, and `patches`."""

from hpml_plugins.asv.configuration import read_configuration
from hpml_plugins.asv.environment import NodeEnvironment
from hpml_plugins.asv.patches import apply
from hpml_plugins.asv.publisher import GpuTypes


def setup() -> None:
    """Called by asv once it has imported this module."""
    apply()
