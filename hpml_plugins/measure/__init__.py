"""Measuring: the objects passed to benchmarks (Bench, Rank), and the measurement of one point in a
separate process.

Each name is imported at its first use.
"""

from typing import TYPE_CHECKING

from hpml_plugins.lazy import import_lazily

if TYPE_CHECKING:
    from hpml_plugins.measure.bench import Bench, Rank
    from hpml_plugins.measure.libraries import SHARED, import_before_fork, torch_build
    from hpml_plugins.measure.metrics import to_metrics
    from hpml_plugins.measure.point import Context, measure_point, unmeasured
    from hpml_plugins.measure.ranks.launchers import why_no_mpi
    from hpml_plugins.measure.sampling import SamplingPlan
    from hpml_plugins.measure.session import Progress

_NAMES = {
    ".bench": ("Bench", "Rank"),
    ".libraries": ("SHARED", "import_before_fork", "torch_build"),
    ".metrics": ("to_metrics",),
    ".point": ("Context", "measure_point", "unmeasured"),
    ".ranks.launchers": ("why_no_mpi",),
    ".sampling": ("SamplingPlan",),
    ".session": ("Progress",),
}
__all__ = [name for names in _NAMES.values() for name in names]

__getattr__ = import_lazily(__name__, _NAMES)
