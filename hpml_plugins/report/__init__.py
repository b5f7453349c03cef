"""What is made from Records: figures, tables, charts, comparisons, exports and the published site.

The report of a run and the tables are imported at their first use: plugins import this package for
its charts.
"""

from typing import TYPE_CHECKING

from hpml_plugins.lazy import import_lazily

if TYPE_CHECKING:
    from hpml_plugins.report.figures import collect
    from hpml_plugins.report.progress import RunReport
    from hpml_plugins.report.tables import as_markdown, as_text

__all__ = ["RunReport", "as_markdown", "as_text", "collect"]

__getattr__ = import_lazily(
    __name__,
    {".figures": ("collect",), ".progress": ("RunReport",), ".tables": ("as_markdown", "as_text")},
)
