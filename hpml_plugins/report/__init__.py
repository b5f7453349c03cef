"""Presentations of Records: figures, tables, charts, comparisons, exports and the published site.

The report of a run and the tables are imported at their first use, because plugins import this
package for its charts.
"""

from typing import TYPE_CHECKING

from hpml_plugins.lazy import import_lazily

if TYPE_CHECKING:
    from hpml_plugins.report.charts import Axis, bar_chart, dot_chart
    from hpml_plugins.report.drawing import plain_cell
    from hpml_plugins.report.export import record_rows
    from hpml_plugins.report.figures import Drawable, collect
    from hpml_plugins.report.points import format_samples
    from hpml_plugins.report.progress import RunReport
    from hpml_plugins.report.reading import History, Outcome, TrackedMetric
    from hpml_plugins.report.shares import share_of_peak
    from hpml_plugins.report.site.further import Site
    from hpml_plugins.report.site.page import point_link
    from hpml_plugins.report.site.plugin_pages import PluginPage, ShownFigure
    from hpml_plugins.report.tables import as_markdown, as_text, formatted
    from hpml_plugins.report.type_values import KnownRuns, TypeValue, read_point

_LATER = {
    ".charts": ("Axis", "bar_chart", "dot_chart"),
    ".drawing": ("plain_cell",),
    ".export": ("record_rows",),
    ".figures": ("Drawable", "collect"),
    ".points": ("format_samples",),
    ".progress": ("RunReport",),
    ".reading": ("History", "Outcome", "TrackedMetric"),
    ".shares": ("share_of_peak",),
    ".site.further": ("Site",),
    ".site.page": ("point_link",),
    ".site.plugin_pages": ("PluginPage", "ShownFigure"),
    ".tables": ("as_markdown", "as_text", "formatted"),
    ".type_values": ("KnownRuns", "TypeValue", "read_point"),
}
__all__ = [name for names in _LATER.values() for name in names]

__getattr__ = import_lazily(__name__, _LATER)
