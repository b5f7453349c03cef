"""The asv suite: one `track_` benchmark for each metric of each benchmark that registry.yaml
declares.

Everything is generated; there is nothing to edit here. The package under test may be older than
this file.
"""

import json
import os
from pathlib import Path

try:
    # asv takes any public track_* for one
    from hpml_plugins.suite import track_functions as _track_functions

    globals().update(_track_functions(Path(__file__).resolve().parent.parent))
except ImportError as error:
    # A commit from before the package had a suite: everything declared is there as not available,
    # not as failed.
    def _not_available(benchmark, metric, reason=str(error)):
        def track(*values):
            print(f"skipped: not available at this commit: {reason}")
            return float("nan")

        track.benchmark_name = f"{benchmark['benchmark']}.track_{metric['name']}"
        track.params = list(benchmark["grid"].values())
        track.param_names = list(benchmark["grid"])
        track.version = benchmark["version"]
        return track

    _suite = (
        json.loads(Path(os.environ["HPML_SUITE"]).read_text())
        if "HPML_SUITE" in os.environ
        else None
    )
    if _suite is None:
        raise
    for _benchmark in _suite["benchmarks"]:
        for _metric in _benchmark["metrics"]:
            globals()[f"track_{len(globals())}"] = _not_available(_benchmark, _metric)
