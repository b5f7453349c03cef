"""hpml_plugins: a plugin-based GPU benchmark registry, run by airspeed velocity.

These public names are all that a plugin needs. Each is imported at its first use, so that a command
loads only what it needs. None of them loads torch, numba, NumPy or matplotlib.
"""

from typing import TYPE_CHECKING

from hpml_plugins.lazy import import_lazily
from hpml_plugins.version import __version__ as __version__

if TYPE_CHECKING:
    from hpml_plugins.errors import HpmlError as HpmlError
    from hpml_plugins.hookspecs import hookimpl as hookimpl
    from hpml_plugins.measure import Bench as Bench
    from hpml_plugins.measure import Rank as Rank
    from hpml_plugins.model import Benchmark as Benchmark
    from hpml_plugins.model import Figure as Figure
    from hpml_plugins.model import Metric as Metric
    from hpml_plugins.model import Node as Node
    from hpml_plugins.model import Record as Record
    from hpml_plugins.model import Requires as Requires
    from hpml_plugins.model import Samples as Samples
    from hpml_plugins.model import Series as Series
    from hpml_plugins.model import SitePage as SitePage
    from hpml_plugins.model import Table as Table
    from hpml_plugins.model.figure import interval_columns as interval_columns
    from hpml_plugins.model.program_output import ProgramOutput as ProgramOutput
    from hpml_plugins.published import GpuType as GpuType
    from hpml_plugins.published import find_gpu as find_gpu
    from hpml_plugins.published import gpu_types as gpu_types
    from hpml_plugins.report.charts import Axis as Axis
    from hpml_plugins.report.charts import Rule as Rule
    from hpml_plugins.report.charts import bar_chart as bar_chart
    from hpml_plugins.report.charts import dot_chart as dot_chart
    from hpml_plugins.report.charts import line_chart as line_chart
    from hpml_plugins.report.charts import roofline_chart as roofline_chart
    from hpml_plugins.tools.frame import Frame as Frame
    from hpml_plugins.tools.frame import load as load
    from hpml_plugins.workloads.complexity import ModelCount as ModelCount
    from hpml_plugins.workloads.complexity import Work as Work
    from hpml_plugins.workloads.complexity import build_model as build_model
    from hpml_plugins.workloads.complexity import count_model as count_model
    from hpml_plugins.workloads.datasets import Arrays as Arrays
    from hpml_plugins.workloads.datasets import DataSet as DataSet
    from hpml_plugins.workloads.datasets import DataSource as DataSource
    from hpml_plugins.workloads.datasets import Split as Split
    from hpml_plugins.workloads.datasets import load_data as load_data
    from hpml_plugins.workloads.ncu import Kernel as Kernel
    from hpml_plugins.workloads.ncu import count_kernels as count_kernels
    from hpml_plugins.workloads.published import PublishedFigure as PublishedFigure
    from hpml_plugins.workloads.published import published_figures as published_figures

#: module → its public names
_NAMES = {
    ".errors": ("HpmlError",),
    ".hookspecs": ("hookimpl",),
    ".measure": ("Bench", "Rank"),
    ".model": (
        "Benchmark",
        "Figure",
        "Metric",
        "Node",
        "Record",
        "Requires",
        "Samples",
        "Series",
        "SitePage",
        "Table",
    ),
    ".model.figure": ("interval_columns",),
    ".model.program_output": ("ProgramOutput",),
    ".published": ("GpuType", "find_gpu", "gpu_types"),
    ".report.charts": (
        "Axis",
        "Rule",
        "bar_chart",
        "dot_chart",
        "line_chart",
        "roofline_chart",
    ),
    ".tools.frame": ("Frame", "load"),
    ".workloads.complexity": ("ModelCount", "Work", "build_model", "count_model"),
    ".workloads.datasets": ("Arrays", "DataSet", "DataSource", "Split", "load_data"),
    ".workloads.ncu": ("Kernel", "count_kernels"),
    ".workloads.published": ("PublishedFigure", "published_figures"),
}
__all__ = [name for names in _NAMES.values() for name in names]


__getattr__ = import_lazily(__name__, _NAMES)


def __dir__() -> list[str]:
    return [*__all__, "__version__"]
