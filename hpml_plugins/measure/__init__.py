"""Measuring: what a benchmark is handed (Bench, Rank), and one point measured in a process of its own."""

from hpml_plugins.measure.bench import Bench
from hpml_plugins.measure.point import Context, measure_point
from hpml_plugins.measure.preload import SHARED, import_before_fork, shared
from hpml_plugins.measure.ranks.rank import Rank
from hpml_plugins.measure.sampling import Plan as SamplingPlan

__all__ = ["SHARED", "Bench", "Context", "Rank", "SamplingPlan", "import_before_fork", "measure_point", "shared"]
