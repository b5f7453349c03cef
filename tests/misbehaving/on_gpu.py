"""Misbehaves on a GPU, one point a way, and between them looks whether the card is as good as
new."""

import subprocess
import sys
import time

from hpml_plugins import Benchmark, Metric, Requires, hookimpl

#: What holds memory of the card in a process that leaves its parents: it says so once it does.
HOLDER = """
import sys, time, torch
held = torch.empty(int(sys.argv[1]), dtype=torch.uint8, device="cuda")
print("held", flush=True)
time.sleep(3600)  # holder of GPU memory
"""


def look(bench):
    """The victim: a result that is right, and nearly all memory free for it."""
    import torch

    free, total = torch.cuda.mem_get_info()
    bench.check(
        free > 0.9 * total, f"only {free / 2**30:.1f} of {total / 2**30:.1f} GiB are free"
    )
    x = torch.arange(1 << 20, device="cuda", dtype=torch.float64)
    bench.check(
        bench.result(float(x.sum())) == (2**20 - 1) * 2**19, "the sum differs from Gauss"
    )


def run_out_of_memory():
    import torch

    _, total = torch.cuda.mem_get_info()
    torch.empty(2 * total, dtype=torch.uint8, device="cuda")


def run_out_of_memory_in_numba():
    import numpy as np
    import torch
    from numba import cuda

    _, total = torch.cuda.mem_get_info()
    cuda.device_array(2 * total, dtype=np.uint8)


def use_an_illegal_address():
    import numpy as np
    from numba import cuda

    @cuda.jit
    def write_far_away(array):
        array[cuda.grid(1) + (1 << 40)] = 1.0

    write_far_away[1, 32](cuda.to_device(np.zeros(32, dtype=np.float32)))
    cuda.synchronize()


def index_out_of_range():
    import torch

    x = torch.zeros(8, device="cuda")
    x[torch.tensor([1 << 20], device="cuda")].sum().item()  # a device-side assertion


def hold_memory():
    import torch

    free, _ = torch.cuda.mem_get_info()
    globals()["held"] = torch.empty(int(0.9 * free), dtype=torch.uint8, device="cuda")


def leave_a_holder_of_memory():
    import torch

    free, _ = torch.cuda.mem_get_info()
    words = [sys.executable, "-c", HOLDER, str(int(0.5 * free))]
    holder = subprocess.Popen(words, stdout=subprocess.PIPE, start_new_session=True)
    assert holder.stdout.readline() == b"held\n"


def never_end_on_the_gpu():
    import numpy as np
    from numba import cuda

    @cuda.jit
    def spin(flag):
        while flag[0] == 0:
            cuda.threadfence()

    spin[1, 1](cuda.to_device(np.zeros(1, dtype=np.int32)))
    cuda.synchronize()


def die_with_a_kernel_running():
    import os

    import torch

    torch.cuda._sleep(10**11)
    time.sleep(0.1)
    os._exit(5)


WAYS = {
    way.__name__: way
    for way in (
        run_out_of_memory,
        run_out_of_memory_in_numba,
        use_an_illegal_address,
        index_out_of_range,
        hold_memory,
        leave_a_holder_of_memory,
        never_end_on_the_gpu,
        die_with_a_kernel_running,
    )
}
#: The points in their order: a look after each way, and one before all.
ORDER = [
    "look 0",
    *(name for number, way in enumerate(WAYS, 1) for name in (way, f"look {number}")),
]


def measure(bench, *, way):
    if way.startswith("look"):
        look(bench)
    else:
        WAYS[way]()
    return {"zero": 0.0}


@hookimpl
def hpml_benchmarks():
    requires = Requires(gpus=1, modules=("torch", "numba"))
    metrics = [Metric("zero", "s", "lower")]
    return [
        Benchmark(
            "misbehaves_on_gpu", measure, metrics, {"way": ORDER}, requires, timeout=30
        )
    ]
