"""Leaves a thread that never ends."""

import threading
import time

from hpml_plugins import Benchmark, Metric, hookimpl

threading.Thread(
    target=time.sleep, args=(3600,), daemon=True, name="left-by-at-import"
).start()


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
