"""Crashes the process that imports it."""

import ctypes

from hpml_plugins import Benchmark, Metric, hookimpl

ctypes.string_at(0)


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
