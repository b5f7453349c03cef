"""The code of asv's benchmark processes: the generated `track_` functions, and the points that they
measure.

asv imports this package at the commit under test, so it must not import asv, and `track_functions`
stays compatible with suites that newer commits wrote. It is imported at its first use, because
`hpml run` measures points without asv.
"""

from typing import TYPE_CHECKING

from hpml_plugins.lazy import import_lazily
from hpml_plugins.suite.points import (
    ASV_ENVIRONMENTS_VARIABLE,
    ASV_RESULTS_VARIABLE,
    PROFILE_VARIABLE,
    REFUSAL_VARIABLE,
    SHARD_VARIABLE,
    make_suite,
    record_of,
)

if TYPE_CHECKING:
    from hpml_plugins.suite.functions import track_functions

__getattr__ = import_lazily(__name__, {".functions": ("track_functions",)})
