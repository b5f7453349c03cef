"""The generated asv benchmarks: one `track_` function per metric, which has a point measured
(`points.record_of`) and returns the result to asv."""

from __future__ import annotations

import functools
import math
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import msgspec

from hpml_plugins.errors import Unwritable
from hpml_plugins.host import Declared, make_host
from hpml_plugins.isolation import end_with_parent
from hpml_plugins.measure import import_before_fork
from hpml_plugins.model.record import Record
from hpml_plugins.node import detect_node, machine_name
from hpml_plugins.registry import EVERYTHING, read_registry
from hpml_plugins.suite.points import (
    PROFILE_VARIABLE,
    SUITE_VARIABLE,
    Suite,
    leave_progress,
    leave_record,
    make_suite,
    record_of,
)

if TYPE_CHECKING:
    from hpml_plugins.store.declarations import Declaration

#: s that asv waits beyond a benchmark's own timeout: we must end the point first, to say why.
GRACE = 30.0
#: Attributes of a function that asv copies into its entry of benchmarks.json.
_TOLD = ("unit", "version", "plugin", "benchmark", "metric", "si_unit")

TrackFunction = Callable[..., Any]


def track_functions(root: Path) -> dict[str, TrackFunction]:
    """Name in the module → function, for every metric of every declared benchmark. root: the
    project's folder."""
    suite = load_suite(root)
    if sys.argv[1:2] == ["run_server"]:
        import_before_fork(
            module for declared in suite.benchmarks for module in declared.modules
        )
    functions = [
        _function(suite, declared, entry)
        for declared in suite.benchmarks
        for entry in declared.entries()
    ]
    return {f"track_{number}": function for number, function in enumerate(functions)}


def _function(suite: Suite, declared: Declared, entry: Declaration) -> TrackFunction:
    def track(*values: Any) -> Any:
        end_with_parent()  # that is, with asv's fork server, which forked this process
        params = dict(zip(declared.grid, values, strict=True))
        try:
            record = record_of(
                suite, declared, params, functools.partial(leave_progress, suite)
            )
        except Unwritable as error:
            _fail(str(error))
        leave_record(suite, record)
        return to_asv(record, entry.metric)

    told = {name: getattr(entry, name) for name in _TOLD}
    attributes = {
        **told,
        "__name__": f"track_{entry.metric}",
        "benchmark_name": entry.name,
        "timeout": declared.timeout + GRACE,
        # asv shows this as the benchmark's code instead of the source of the generated function
        "pretty_source": entry.code,
        "direction": "none" if entry.name in suite.unranked else entry.direction,
    }
    if declared.grid:
        attributes["params"] = list(declared.grid.values())
        attributes["param_names"] = list(declared.grid)
    for key, value in attributes.items():
        setattr(track, key, value)
    return track


def to_asv(record: Record, metric: str) -> Any:
    """A metric of a Record in asv's form: samples, so that asv computes median and interval; NaN
    for skipped.

    A failed point ends this process with status 1 and its reason, which is how asv records a
    failure.
    """
    if record.status == "skipped":
        print(f"skipped: {record.reason}", file=sys.stderr)
        return math.nan
    if record.status == "failed":
        _fail(record.reason)  # its output is in the Record
    samples = record.metrics[metric].samples
    # asv's interval of a single sample is infinite: return a single count as a plain number
    return samples[0] if len(samples) == 1 else {"samples": samples, "number": 1}


def _fail(reason: str) -> NoReturn:
    print(f"failed: {reason}", file=sys.stderr)
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(1)  # an exception would print asv_runner's traceback before the reason


def load_suite(root: Path) -> Suite:
    """The suite that asv's process wrote; without one (`asv check`), a suite from root's
    registry."""
    if file := os.environ.get(SUITE_VARIABLE):
        return msgspec.json.decode(Path(file).read_bytes(), type=Suite)
    node = detect_node()
    host = make_host(
        read_registry(root / "registry.yaml"),
        profile=os.environ.get(PROFILE_VARIABLE) or EVERYTHING,
    )
    return make_suite(host, node, machine_name(node), "")
