"""Ends the process with a status of its own when it ends."""

import atexit
import os

from hpml_plugins import Benchmark, Metric, hookimpl

if "HPML_SUITE" not in os.environ:
    atexit.register(print, "said at exit by at_import_atexit")


def measure(bench):
    return {"zero": 0.0}


@hookimpl
def hpml_benchmarks():
    return [
        Benchmark(
            __name__.removeprefix("hpml_file_") + "_bench",
            measure,
            [Metric("zero", "s", "lower")],
        )
    ]
