"""hpml_plugins: a plugin-based GPU benchmark registry, run by airspeed velocity.

The public names, all that a plugin needs, are these. Each is imported when it is first used, so that a command loads
only what it needs. None of them loads torch, numba, NumPy or matplotlib.
"""

from typing import TYPE_CHECKING

from hpml_plugins.lazy import lazy_names

if TYPE_CHECKING:
    from hpml_plugins.errors import HpmlError
    from hpml_plugins.hookspecs import hookimpl
    from hpml_plugins.measure import Bench, Rank
    from hpml_plugins.model import Benchmark, Figure, Metric, Node, Record, Requires, Samples, Series, Table
    from hpml_plugins.model.figure import interval_columns
    from hpml_plugins.published import GpuType, find_gpu, gpu_types
    from hpml_plugins.report.charts import Axis, Rule, bar_chart, dot_chart, line_chart, roofline_chart
    from hpml_plugins.workloads.complexity import ModelCount, Work, build_model, count_model
    from hpml_plugins.workloads.datasets import Arrays, DataSet, DataSource, Split, load_data
    from hpml_plugins.workloads.ncu import Kernel, count_kernels
    from hpml_plugins.workloads.published import PublishedFigure, published_figures

__version__ = "0.1.0"

__all__ = [
    "Arrays",
    "Axis",
    "Bench",
    "Benchmark",
    "DataSet",
    "DataSource",
    "Figure",
    "GpuType",
    "HpmlError",
    "Kernel",
    "Metric",
    "ModelCount",
    "Node",
    "PublishedFigure",
    "Rank",
    "Record",
    "Requires",
    "Rule",
    "Samples",
    "Series",
    "Split",
    "Table",
    "Work",
    "bar_chart",
    "build_model",
    "count_kernels",
    "count_model",
    "dot_chart",
    "find_gpu",
    "gpu_types",
    "hookimpl",
    "interval_columns",
    "line_chart",
    "load_data",
    "published_figures",
    "roofline_chart",
]

__getattr__ = lazy_names(
    __name__,
    {
        "errors": ("HpmlError",),
        "hookspecs": ("hookimpl",),
        "measure": ("Bench", "Rank"),
        "model": ("Benchmark", "Figure", "Metric", "Node", "Record", "Requires", "Samples", "Series", "Table"),
        "model.figure": ("interval_columns",),
        "published": ("GpuType", "find_gpu", "gpu_types"),
        "report.charts": ("Axis", "Rule", "bar_chart", "dot_chart", "line_chart", "roofline_chart"),
        "workloads.complexity": ("ModelCount", "Work", "build_model", "count_model"),
        "workloads.datasets": ("Arrays", "DataSet", "DataSource", "Split", "load_data"),
        "workloads.ncu": ("Kernel", "count_kernels"),
        "workloads.published": ("PublishedFigure", "published_figures"),
    },
)
