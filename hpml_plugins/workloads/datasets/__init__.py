"""Data sets: where they are searched for, how they are read, and their form in a benchmark.
Importing this does not load torch.

A built-in plugin: registry.yaml names this module, and other plugins bring data sets by the same
hook.
"""

from collections.abc import Iterable

from hpml_plugins.hookspecs import hookimpl
from hpml_plugins.workloads.datasets.builtin import SOURCES
from hpml_plugins.workloads.datasets.dataset import Arrays, DataSet, Split
from hpml_plugins.workloads.datasets.lookup import load_data
from hpml_plugins.workloads.datasets.places import cache
from hpml_plugins.workloads.datasets.source import DataSource

__all__ = [
    "SOURCES",
    "Arrays",
    "DataSet",
    "DataSource",
    "Split",
    "cache",
    "hpml_data",
    "load_data",
]


@hookimpl
def hpml_data() -> Iterable[DataSource]:
    """The built-in data sets."""
    return SOURCES.values()
