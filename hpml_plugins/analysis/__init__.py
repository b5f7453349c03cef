"""What the Records say together: classes of physics, how far values move, and verdicts on
differences."""

from hpml_plugins.analysis.measured import (
    EXACT,
    MeasuredValue,
    Values,
    mean_over_cards,
    variance_of_median,
)
from hpml_plugins.analysis.physics import Physics
from hpml_plugins.analysis.variability import Variability
from hpml_plugins.analysis.variance import Spread
from hpml_plugins.analysis.verdicts import ERROR_RATE, Difference, compare_values

__all__ = [
    "ERROR_RATE",
    "EXACT",
    "Difference",
    "MeasuredValue",
    "Physics",
    "Spread",
    "Values",
    "Variability",
    "compare_values",
    "mean_over_cards",
    "variance_of_median",
]
