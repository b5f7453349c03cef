"""Measuring a point by hand: for tests of plugins, and for benchmarks of the harness itself."""

from hpml_plugins.measuring.point import Context, measure_point

__all__ = ["Context", "measure_point"]
