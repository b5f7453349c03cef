"""Replaces functions of other modules."""

import math
import time

import hpml_plugins.measure.sampling
from hpml_plugins import Benchmark, Metric, Samples, hookimpl

math.sqrt = lambda value: 42.0
time.perf_counter = lambda: 0.0
Samples.median = property(lambda self: -1.0)
hpml_plugins.measure.sampling.SamplingPlan = None


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
