"""Ends the process that imports it, past every handler."""

import os

from hpml_plugins import Benchmark, Metric, hookimpl

os._exit(7)


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
