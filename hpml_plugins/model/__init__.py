"""The core value types: Benchmark, Metric, Requires, Samples, Record, Node."""

from typing import TYPE_CHECKING

from hpml_plugins.errors import Failure
from hpml_plugins.lazy import import_lazily
from hpml_plugins.model.benchmark import (
    Benchmark,
    Direction,
    Grid,
    Metric,
    Params,
    Requires,
    Value,
)
from hpml_plugins.model.checking import check_fields
from hpml_plugins.model.data_source import available_sources, use_sources, why_no_data
from hpml_plugins.model.formatting import (
    LARGEST_RATIO,
    change,
    counted,
    estimate,
    format_choice,
    format_point,
    name_point,
    natural_key,
    quantity,
    times,
    unquoted,
)
from hpml_plugins.model.node import Gpu, GpuHealth, GpuUser, Node
from hpml_plugins.model.record import MetricSamples, Record, Series, point_key
from hpml_plugins.model.rounds import combine
from hpml_plugins.model.samples import Samples
from hpml_plugins.model.units import UNITS

if TYPE_CHECKING:
    from hpml_plugins.model.figure import Cell, Figure, Row, Table
    from hpml_plugins.model.finding import Finding
    from hpml_plugins.model.site_page import Link, SearchEntry, SitePage

#: Names needed by neither benchmarks nor measurements, imported at their first use.
_LATER = {
    ".figure": ("Cell", "Figure", "Row", "Table"),
    ".finding": ("Finding",),
    ".site_page": ("Link", "SearchEntry", "SitePage"),
}

__getattr__ = import_lazily(__name__, _LATER)
