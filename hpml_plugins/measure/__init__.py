"""Measuring: what a benchmark is handed (Bench, Rank), and one point measured in a process of its
own."""

from hpml_plugins.measure.bench import Bench, Rank
from hpml_plugins.measure.libraries import SHARED, import_before_fork, torch_build
from hpml_plugins.measure.metrics import to_metrics
from hpml_plugins.measure.point import Context, measure_point, unmeasured
from hpml_plugins.measure.ranks.launchers import why_no_mpi
from hpml_plugins.measure.sampling import SamplingPlan
from hpml_plugins.measure.session import Progress
