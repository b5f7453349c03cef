"""Prints to stdout, in both ways."""

import sys

from hpml_plugins import Benchmark, Metric, hookimpl

print("printed by at_import_prints")
sys.stdout.write("written by at_import_prints\n")


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
