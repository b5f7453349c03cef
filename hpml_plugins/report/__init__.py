"""What is made from Records: figures, tables, charts, comparisons, exports and the published site.

The loop over rounds and the tables are imported at their first use: plugins import this package for its charts.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from hpml_plugins.report.figures import collect

if TYPE_CHECKING:
    from hpml_plugins.report.progress import RunReport, measure_rounds
    from hpml_plugins.report.tables import as_markdown, as_text

__all__ = ["RunReport", "as_markdown", "as_text", "collect", "measure_rounds"]

_NAMES = {"progress": ("RunReport", "measure_rounds"), "tables": ("as_markdown", "as_text")}


def __getattr__(name: str) -> Any:
    """An exported name, at its first use (PEP 562)."""
    for module, names in _NAMES.items():
        if name in names:
            return getattr(import_module(f"{__name__}.{module}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
