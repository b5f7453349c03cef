"""The words of the system, as values: Benchmark, Metric, Requires, Samples, Record, Node.

Verdicts need NumPy and SciPy and are imported at their first use, for listing must answer at once.
"""

from typing import TYPE_CHECKING

from hpml_plugins.lazy import import_lazily
from hpml_plugins.model.benchmark import Benchmark, Direction, Grid, Metric, Params, Requires, Value
from hpml_plugins.model.data_source import available_sources, use_sources, why_no_data
from hpml_plugins.model.declaring import check_fields
from hpml_plugins.model.figure import Figure, Table
from hpml_plugins.model.finding import Finding
from hpml_plugins.model.formatting import counted, format_point, natural_key, quantity, spell_choice
from hpml_plugins.model.node import Gpu, GpuHealth, GpuUser, Node
from hpml_plugins.model.record import Estimate, MetricSamples, Record, Series, Status
from hpml_plugins.model.rounds import combine
from hpml_plugins.model.samples import Samples

if TYPE_CHECKING:
    from hpml_plugins.model.variability import (
        ERROR_RATE,
        EXACT,
        Difference,
        MeasuredValue,
        Variability,
        compare_values,
        variance_of_median,
    )
    from hpml_plugins.model.variance import Spread

_VERDICTS = (
    "ERROR_RATE", "EXACT", "Difference", "MeasuredValue", "Variability", "compare_values", "variance_of_median",
)  # fmt: skip
__getattr__ = import_lazily(__name__, {".variability": _VERDICTS, ".variance": ("Spread",)})
