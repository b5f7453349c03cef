"""Sets flags of the interpreter and of torch for everybody."""

import random
import sys

from hpml_plugins import Benchmark, Metric, hookimpl

sys.setrecursionlimit(77777)
random.seed(0)
if torch := sys.modules.get("torch"):
    torch.set_default_dtype(torch.float64)
    torch.set_num_threads(1)
    torch._C._set_deterministic_algorithms(True)  # the public way imports for seconds


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
