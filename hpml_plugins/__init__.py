"""hpml_plugins: a plugin-based GPU benchmark registry, run by airspeed velocity.

The public names, all that a plugin needs, are these. Importing them loads no torch, numba, NumPy or matplotlib.
"""

from hpml_plugins.errors import HpmlError
from hpml_plugins.hookspecs import hookimpl
from hpml_plugins.measure import Bench, Rank
from hpml_plugins.model import Benchmark, Figure, Metric, Node, Page, Record, Requires, Samples, Series, Table
from hpml_plugins.published import GpuType, PublishedFigure, find_gpu, gpu_types, published_figures
from hpml_plugins.report.drawing import dots, legend_below, panels
from hpml_plugins.workloads.complexity import ModelCount, Work, build_model, count_model
from hpml_plugins.workloads.datasets import Arrays, DataSet, DataSource, Split, load_data

__version__ = "0.1.0"

__all__ = [
    "Arrays",
    "Bench",
    "Benchmark",
    "DataSet",
    "DataSource",
    "Figure",
    "GpuType",
    "HpmlError",
    "Metric",
    "ModelCount",
    "Node",
    "Page",
    "PublishedFigure",
    "Rank",
    "Record",
    "Requires",
    "Samples",
    "Series",
    "Split",
    "Table",
    "Work",
    "build_model",
    "count_model",
    "dots",
    "find_gpu",
    "gpu_types",
    "hookimpl",
    "legend_below",
    "load_data",
    "panels",
    "published_figures",
]
