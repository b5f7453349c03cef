"""The asv plugin, named in asv.conf.json as ".hpml_plugins.asv": what asv lacks, through its own extension points.

An Environment (`environment_type: node`), OutputPublishers (our pages), and the facts of the machine.
"""

from hpml_plugins.asv.configuration import read_configuration
from hpml_plugins.asv.environment import NodeEnvironment
from hpml_plugins.asv.files import name_json_errors, write_json_atomically
from hpml_plugins.asv.machine import load_machines_with_facts
from hpml_plugins.asv.publishing import improve_publish
from hpml_plugins.asv.refusals import say_refusals_in_one_line
from hpml_plugins.asv.saving import save_as_results_come
from hpml_plugins.report.site.publisher import GpuTypes

__all__ = ["GpuTypes", "NodeEnvironment", "read_configuration", "setup"]


def setup() -> None:
    """Called by asv once it has imported this module."""
    load_machines_with_facts()
    write_json_atomically()
    save_as_results_come()
    name_json_errors()
    improve_publish()
    say_refusals_in_one_line()
