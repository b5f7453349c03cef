"""The generated asv benchmarks: one `track_` function a metric, carrying what asv and our pages need to know."""

from __future__ import annotations

import math
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, NoReturn

from hpml_plugins.errors import Unwritable
from hpml_plugins.isolation import end_with_parent
from hpml_plugins.measure import import_before_fork, shared
from hpml_plugins.model.record import Record
from hpml_plugins.model.units import unit
from hpml_plugins.suite.current import record_of
from hpml_plugins.suite.declaration import Declared, DeclaredMetric, Suite, load_suite

#: asv formats these two by itself and leaves "unit" away; anything else it shows as a number and the unit's text.
_ASV_UNITS = {"s": "seconds", "B": "bytes", "1": "unit"}
#: What asv waits beyond a benchmark's own timeout, s: ours must end the point first, to say why.
GRACE = 30.0

TrackFunction = Callable[..., Any]


def track_functions(root: Path) -> dict[str, TrackFunction]:
    """Name in the module → function, for every metric of every declared benchmark. root: the project's folder."""
    suite = load_suite(root)
    if sys.argv[1:2] == ["run_server"]:
        import_before_fork(shared(module for declared in suite.benchmarks for module in declared.modules))
    functions = [_function(suite, declared, metric) for declared in suite.benchmarks for metric in declared.metrics]
    return {f"track_{number}": function for number, function in enumerate(functions)}


def _function(suite: Suite, declared: Declared, metric: DeclaredMetric) -> TrackFunction:
    def track(*values: Any) -> Any:
        end_with_parent()  # of asv's fork server, which forked this process
        params = dict(zip(declared.grid, values, strict=True))
        try:
            record = record_of(suite, declared, params)
        except Unwritable as error:
            _fail(str(error))
        return to_asv(record, metric.name)

    name = f"{declared.benchmark}.track_{metric.name}"
    attributes = {
        "__name__": f"track_{metric.name}",
        "benchmark_name": name,
        "unit": _ASV_UNITS.get(metric.unit, str(unit(metric.unit))),
        "version": declared.version,
        "timeout": declared.timeout + GRACE,
        # asv shows this as the benchmark's code, and would otherwise read the source of the generated function
        "pretty_source": f"# plugin {declared.plugin.name}\n# {declared.description}".rstrip("# "),
        "plugin": declared.plugin.name,
        "benchmark": declared.benchmark,
        "metric": metric.name,
        "direction": metric.direction,
        "si_unit": metric.unit,
    }
    if declared.grid:
        attributes["params"] = list(declared.grid.values())
        attributes["param_names"] = list(declared.grid)
    for key, value in attributes.items():
        setattr(track, key, value)
    return track


def to_asv(record: Record | None, metric: str) -> Any:
    """A metric of a Record as asv wants it: samples, so that its median and interval are real; NaN for skipped.

    A failed point ends this process with status 1 and its reason, which is how asv records a failure.
    """
    if record is None:
        return math.nan
    if record.status == "skipped":
        print(f"skipped: {record.reason}", file=sys.stderr)
        return math.nan
    if record.status == "failed":
        _fail(record.reason)  # what it printed is in the Record
    samples = record.metrics[metric].samples
    # asv's interval of a single sample is infinite: a count that was counted once is a plain number
    return samples[0] if len(samples) == 1 else {"samples": samples, "number": 1}


def _fail(reason: str) -> NoReturn:
    print(f"failed: {reason}", file=sys.stderr)
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(1)  # an exception would put asv_runner's traceback in front of the reason
