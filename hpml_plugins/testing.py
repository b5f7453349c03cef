"""Measuring a point by hand: for tests of plugins, and for benchmarks of the harness itself."""

from hpml_plugins.measuring.point import Context, measure_point
from hpml_plugins.measuring.preload import import_before_fork

__all__ = ["Context", "import_before_fork", "measure_point"]
