"""What is made from Records: figures, tables, charts, comparisons, exports and the published site."""

from hpml_plugins.report.figures import collect

__all__ = ["collect"]
