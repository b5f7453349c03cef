"""Changes environment variables."""

import os

from hpml_plugins import Benchmark, Metric, hookimpl

os.environ["OMP_NUM_THREADS"] = "99"
os.environ["MISBEHAVING"] = "yes"
os.environ.pop("HOME", None)


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
