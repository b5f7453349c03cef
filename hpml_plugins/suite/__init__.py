"""What runs in asv's benchmark processes: the generated `track_` functions.

This package is imported there at the commit under test, so it must not import asv, and
`track_functions` is kept compatible with suites that newer commits wrote.
"""

from hpml_plugins.suite.declaration import (
    ASV_ENVIRONMENTS_VARIABLE,
    ASV_RESULTS_VARIABLE,
    PROFILE_VARIABLE,
    REFUSAL_VARIABLE,
    SHARD_VARIABLE,
)
from hpml_plugins.suite.functions import track_functions
