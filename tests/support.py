"""What more than one folder of tests needs."""

from __future__ import annotations

from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent

TOY = """
from hpml_plugins import Benchmark, Metric, hookimpl

def measure(bench, *, size):
    bench.check(sum(range(size)) == size * (size - 1) // 2, "sum differs from Gauss")
    return {"time": bench.time(lambda: sum(range(size)))}

TOY = Benchmark("toy", measure, [Metric("time", "s", "lower")], grid={"size": [10, 1000]})

@hookimpl
def hpml_benchmarks():
    return [TOY]
"""
