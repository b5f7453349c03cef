"""Data sets: where they are looked for, how they are read, what a benchmark gets of them. Importing loads no torch."""

from hpml_plugins.workloads.datasets.dataset import DataSet, Split
from hpml_plugins.workloads.datasets.loading import load_data
from hpml_plugins.workloads.datasets.lookup import find, why_missing
from hpml_plugins.workloads.datasets.source import Arrays, DataSource, Found

__all__ = ["Arrays", "DataSet", "DataSource", "Found", "Split", "find", "load_data", "why_missing"]
