"""What is made from Records: figures, tables, charts, comparisons, exports and the published site.

The loop over rounds and the tables are imported at their first use: plugins import this package for its charts.
"""

from typing import TYPE_CHECKING

from hpml_plugins.lazy import import_lazily
from hpml_plugins.report.figures import collect

if TYPE_CHECKING:
    from hpml_plugins.report.progress import RunReport, measure_rounds
    from hpml_plugins.report.tables import as_markdown, as_text

__all__ = ["RunReport", "as_markdown", "as_text", "collect", "measure_rounds"]

__getattr__ = import_lazily(
    __name__, {".progress": ("RunReport", "measure_rounds"), ".tables": ("as_markdown", "as_text")}
)
