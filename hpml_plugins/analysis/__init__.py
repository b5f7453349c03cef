"""What the Records say together: how far values move, and verdicts on differences."""

from hpml_plugins.analysis.variability import (
    ERROR_RATE,
    EXACT,
    Difference,
    MeasuredValue,
    Variability,
    compare_values,
    variance_of_median,
)
from hpml_plugins.analysis.variance import Spread

__all__ = [
    "ERROR_RATE",
    "EXACT",
    "Difference",
    "MeasuredValue",
    "Spread",
    "Variability",
    "compare_values",
    "variance_of_median",
]
