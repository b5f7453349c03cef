"""The asv plugin, named in asv.conf.json as ".hpml_plugins.asv": an Environment, our pages, and
`patches`."""

from hpml_plugins.asv.arguments import end_at_metrics, refuse_unknown_patterns
from hpml_plugins.asv.configuration import PLUGIN, plugins_folder, read_configuration
from hpml_plugins.asv.driver import run_point
from hpml_plugins.asv.environment import NodeEnvironment, own_requirements
from hpml_plugins.asv.own import own_tasks, run_own
from hpml_plugins.asv.patches import apply, refuse_unmeasured
from hpml_plugins.asv.publisher import GpuTypes
from hpml_plugins.asv.run import (
    AsvTask,
    Prepared,
    machine_file,
    narrow,
    prepare,
    take_record,
    tasks_of,
)


def setup() -> None:
    """Called by asv once it has imported this module."""
    apply()
