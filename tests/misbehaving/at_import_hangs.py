"""Never comes back from being imported."""

import time

from hpml_plugins import Benchmark, Metric, hookimpl

time.sleep(3600)


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
