"""What the Records say together: classes of physics, how far values move, and verdicts on
differences."""

from hpml_plugins.analysis.measured import MeasuredValue, Values, mean_over_cards
from hpml_plugins.analysis.physics import Physics
from hpml_plugins.analysis.variability import Variability
from hpml_plugins.analysis.variance import p_value, student_quantile
from hpml_plugins.analysis.verdicts import (
    ERROR_RATE,
    Difference,
    compare_values,
    correct,
    different_problems,
)

__all__ = [
    "ERROR_RATE",
    "Difference",
    "MeasuredValue",
    "Physics",
    "Values",
    "Variability",
    "compare_values",
    "correct",
    "different_problems",
    "mean_over_cards",
    "p_value",
    "student_quantile",
]
