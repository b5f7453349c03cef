"""An ordinary plugin that looks at all that others may have touched, and fails where it is not as
it was."""

import math
import os
import signal
import sys
import threading
from pathlib import Path

from hpml_plugins import Benchmark, Metric, Requires, Samples, hookimpl


def measure(bench, *, size):
    import torch

    bench.check(Path.cwd() != Path("/"), "the working directory was changed")
    bench.check(
        "MISBEHAVING" not in os.environ and "HOME" in os.environ, "variables were changed"
    )
    bench.check(os.environ.get("OMP_NUM_THREADS") != "99", "a number of threads was set")
    bench.check(signal.getsignal(signal.SIGTERM) == signal.SIG_DFL, "SIGTERM is handled")
    bench.check(
        not [each for each in threading.enumerate() if "left-by" in each.name],
        "threads were left",
    )
    bench.check(math.sqrt(4) == 2, "math was patched")
    bench.check(Samples.of([1.0, 2.0, 3.0], "s").median == 2, "Samples were patched")
    bench.check(sys.getrecursionlimit() < 77777, "the recursion limit was set")
    bench.check(torch.get_default_dtype() == torch.float32, "torch's default dtype was set")
    bench.check(
        not torch.are_deterministic_algorithms_enabled(), "torch was made deterministic"
    )
    bench.check(
        torch.is_grad_enabled() and not torch.backends.cudnn.benchmark,
        "torch's flags were set",
    )
    time = bench.time(lambda: sum(range(size)))
    bench.check(time.median > 0, "the clock stands")
    return {"time": time}


@hookimpl
def hpml_benchmarks():
    metrics = [Metric("time", "s", "lower")]
    return [
        Benchmark(
            "victim", measure, metrics, {"size": [1000, 2000]}, Requires(modules=("torch",))
        )
    ]
