"""Statistics over the Records: classes of physics, variation of values, and verdicts on
differences.

Each name is imported at its first use, so that a node that only measures does not need SciPy.
"""

from typing import TYPE_CHECKING

from hpml_plugins.lazy import import_lazily

if TYPE_CHECKING:
    from hpml_plugins.analysis.measured import (
        MeasuredValue,
        Values,
        card_of,
        hardware_of,
    )
    from hpml_plugins.analysis.physics import Physics, compared_metrics
    from hpml_plugins.analysis.variability import Place, Variability, observe
    from hpml_plugins.analysis.variance import p_value, student_quantile
    from hpml_plugins.analysis.verdicts import (
        ERROR_RATE,
        Difference,
        ValuePair,
        compare_values,
        correct,
        different_problems,
    )

_NAMES = {
    ".measured": ("MeasuredValue", "Values", "card_of", "hardware_of"),
    ".physics": ("Physics", "compared_metrics"),
    ".variability": ("Place", "Variability", "observe"),
    ".variance": ("p_value", "student_quantile"),
    ".verdicts": (
        "ERROR_RATE",
        "Difference",
        "ValuePair",
        "compare_values",
        "correct",
        "different_problems",
    ),
}
__all__ = [name for names in _NAMES.values() for name in names]

__getattr__ = import_lazily(__name__, _NAMES)
