"""Measuring: what a benchmark is handed (Bench, Rank), and one point measured in a process of its
own.

Each name is imported when it is first used.
"""

from typing import TYPE_CHECKING

from hpml_plugins.lazy import import_lazily

if TYPE_CHECKING:
    from hpml_plugins.measure.bench import Bench, Progress
    from hpml_plugins.measure.libraries import SHARED, import_before_fork, torch_build
    from hpml_plugins.measure.point import Context, measure_point, to_metrics, unmeasured
    from hpml_plugins.measure.ranks.launchers import why_no_mpi
    from hpml_plugins.measure.ranks.rank import Rank
    from hpml_plugins.measure.sampling import SamplingPlan

_NAMES = {
    ".bench": ("Bench", "Progress"),
    ".libraries": ("SHARED", "import_before_fork", "torch_build"),
    ".point": ("Context", "measure_point", "to_metrics", "unmeasured"),
    ".ranks.launchers": ("why_no_mpi",),
    ".ranks.rank": ("Rank",),
    ".sampling": ("SamplingPlan",),
}
__all__ = [name for names in _NAMES.values() for name in names]

__getattr__ = import_lazily(__name__, _NAMES)
