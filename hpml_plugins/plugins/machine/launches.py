"""The benchmarks around kernels: `machine_launch`, `machine_calls`, `machine_start`,
`machine_compile`."""

from __future__ import annotations

import ctypes
import functools
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from hpml_plugins import Bench, Benchmark, HpmlError, Metric, Requires, Samples

#: Kernels of a CUDA graph; their mean is the time of one.
GRAPH_KERNELS = 1000
STREAMS = 4
#: Calls of a step whose kernels are counted.
CHECKED = 100
#: B of an allocation: of the caching allocator's large blocks.
ALLOCATION = 64 << 20
#: s of warming up in a round, and of sampling in all rounds together, of one of several metrics:
#: each takes µs.
WARM_UP, BUDGET = 0.1, 0.3
SIDE = 256
#: s for one process that compiles.
COMPILING = 200.0


def measure_launch(bench: Bench) -> dict[str, Samples]:
    """Time of one launch of a kernel that adds 1 to a counter: by torch, by numba, on several
    streams; in a graph.

    The kernels of the graph are empty, except for the last, which counts.
    """
    import torch
    from numba import cuda

    from hpml_plugins.plugins.machine.kernels import count_launch, do_nothing

    counter = torch.zeros(1, dtype=torch.int32, device="cuda")
    streams = [(torch.cuda.Stream(), torch.zeros_like(counter)) for _ in range(STREAMS)]
    counters = [counter, *(own for _, own in streams)]
    on_gpu = cuda.as_cuda_array(counter)
    by_numba = functools.partial(count_launch[1, 1], on_gpu)
    by_numba()  # compiles, which is not possible during a capture
    do_nothing[1, 1]()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        how = (1, 1, cuda.external_stream(torch.cuda.current_stream().cuda_stream))
        for _ in range(GRAPH_KERNELS - 1):
            do_nothing[how]()
        count_launch[how](on_gpu)

    def on_streams() -> None:
        for stream, own in streams:
            with torch.cuda.stream(stream):
                own.add_(1)

    def round_trip() -> None:
        counter.add_(1)
        torch.cuda.synchronize()

    # name → the step, how many kernels it launches, how many of them count, and whose time it is
    steps: dict[str, tuple[Callable[[], object], int, int, str]] = {
        "eager": (functools.partial(counter.add_, 1), 1, 1, "cpu"),
        "numba": (by_numba, 1, 1, "cpu"),
        "streams": (on_streams, STREAMS, STREAMS, "cpu"),
        "round_trip": (round_trip, 1, 1, "cpu"),
        "graph": (graph.replay, GRAPH_KERNELS, 1, "cuda"),
    }
    found, plan = {}, bench.plan.but(warm_up=WARM_UP, budget=BUDGET)
    for number, (name, (step, kernels, counted, device)) in enumerate(steps.items()):
        bench.progress(name, number / len(steps))
        step()
        torch.cuda.synchronize()
        before = sum(int(each) for each in counters)
        for _ in range(CHECKED):
            step()
        torch.cuda.synchronize()
        ran = bench.result(sum(int(each) for each in counters)) - before
        bench.check(ran == CHECKED * counted, f"{name}: the number of kernels that ran differs")
        found[name] = bench.time(step, device=device, plan=plan, name=name) / kernels
        torch.cuda.synchronize()
    return found


def measure_calls(bench: Bench) -> dict[str, Samples]:
    """Time of the host's calls: events, synchronising, and allocation with and without the caching
    allocator."""
    import torch

    torch.zeros(1, device="cuda")
    event = torch.cuda.Event()
    event.record()
    torch.cuda.synchronize()
    bench.check(event.query(), "an event that was waited for is not complete")
    block = torch.empty(ALLOCATION, dtype=torch.uint8, device="cuda")
    place = block.data_ptr()
    del block
    again = torch.empty(ALLOCATION, dtype=torch.uint8, device="cuda").data_ptr()
    bench.check(
        bench.result(again) == place, "the caching allocator does not give a freed block again"
    )
    allocate = _driver_allocation()
    bench.check(allocate() != 0, "the driver allocated nothing")
    steps: dict[str, Callable[[], object]] = {
        "event_record": event.record,
        "event_query": event.query,
        "synchronize": torch.cuda.synchronize,
        "allocate_cached": lambda: torch.empty(ALLOCATION, dtype=torch.uint8, device="cuda"),
        "allocate_driver": allocate,
    }
    plan = bench.plan.but(warm_up=WARM_UP, budget=BUDGET)
    return {
        name: bench.time(step, device="cpu", plan=plan, name=name) for name, step in steps.items()
    }


def _driver_allocation() -> Callable[[], int]:
    """Allocates and frees ALLOCATION B by the driver, as cudaMalloc and cudaFree do; returns the
    address.

    Source: CUDA Driver API, "Memory Management": cuMemAlloc, cuMemFree.
    """
    driver = ctypes.CDLL("libcuda.so.1")
    address = ctypes.c_uint64()

    def allocate() -> int:
        status = driver.cuMemAlloc_v2(ctypes.byref(address), ctypes.c_size_t(ALLOCATION))
        status = status or driver.cuMemFree_v2(address)
        if status:
            raise HpmlError(f"cuMemAlloc and cuMemFree of {ALLOCATION} B: CUDA error {status}")
        return address.value

    return allocate


def measure_start(bench: Bench) -> dict[str, float]:
    """The first cuBLAS call and the first NCCL communicator of this process, which has a CUDA
    context already.

    Each round is a fresh process, and therefore gives one sample. The context itself is
    `harness_first_kernel`'s.
    """
    import torch
    import torch.distributed as dist

    ones = torch.ones(SIDE, SIDE, device="cuda")
    torch.cuda.synchronize()
    started = time.perf_counter()
    product = ones @ ones
    torch.cuda.synchronize()
    cublas = time.perf_counter() - started
    bench.check(
        bool((bench.result(product) == SIDE).all()), "the product of matrices of ones differs"
    )

    started = time.perf_counter()
    dist.init_process_group(
        "nccl", store=dist.HashStore(), rank=0, world_size=1, device_id=torch.device("cuda", 0)
    )
    dist.all_reduce(ones)
    torch.cuda.synchronize()
    nccl = time.perf_counter() - started
    dist.destroy_process_group()
    bench.check(bool((ones == 1).all()), "an all-reduce over one rank changed what it reduces")
    return {"cublas": cublas, "nccl": nccl}


def measure_compile(bench: Bench) -> dict[str, float]:
    """The first call of a compiled function in a fresh process, with an empty and then with a
    filled cache folder."""
    with tempfile.TemporaryDirectory(prefix="hpml-compile-") as folder:
        found = {}
        for number, name in enumerate(("cold", "warm")):
            bench.progress(
                f"compiling, the cache folder {'filled' if number else 'empty'}", 0.5 * number
            )
            found[name], error = _compile(Path(folder), bench.device)
            bench.check(
                bench.result(error) < 1e-4,
                f"{name}: the compiled function's result differs from eager's",
            )
            bench.check(
                any(Path(folder, "inductor").iterdir()), "nothing was written into the cache folder"
            )
    return found


def _compile(folder: Path, device: str) -> tuple[float, float]:
    """Seconds of the first call, and the largest difference from eager, of a process that
    compiles."""
    environment = {
        **os.environ,
        "TORCHINDUCTOR_CACHE_DIR": str(folder / "inductor"),
        "TRITON_CACHE_DIR": str(folder / "triton"),
        "TORCHINDUCTOR_FX_GRAPH_CACHE": "1",
        "PYTHONPATH": os.pathsep.join(filter(None, sys.path)),
    }
    command = [sys.executable, "-m", "hpml_plugins.plugins.machine.compiling", device]
    done = subprocess.run(
        command,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=COMPILING,
        cwd=folder,
    )
    if done.returncode:
        last = done.stderr.strip().splitlines()[-1:] or [f"exit status {done.returncode}"]
        raise HpmlError(f"the process that compiles failed: {last[0]}")
    seconds, error = json.loads(done.stdout.splitlines()[-1])
    return seconds, error


LAUNCH = Benchmark(
    "machine_launch",
    measure_launch,
    [
        Metric("eager", "s", "lower", "host time of torch's launch of a kernel on one element"),
        Metric("numba", "s", "lower", "host time of numba's launch of a kernel of one thread"),
        Metric(
            "streams", "s", "lower", "host time of torch's launch with a change of stream before it"
        ),
        Metric(
            "graph",
            "s",
            "lower",
            "GPU time of one of 1000 successive kernels in a CUDA graph, which do nothing",
        ),
        Metric(
            "round_trip", "s", "lower", "host time of torch's launch and waiting for the kernel"
        ),
    ],
    requires=Requires(gpus=1, modules=("torch", "numba.cuda")),
    description=(
        "Time to launch a kernel that does next to nothing, from Python and in a CUDA graph."
    ),
)
CALLS = Benchmark(
    "machine_calls",
    measure_calls,
    [
        Metric("event_record", "s", "lower"),
        Metric("event_query", "s", "lower", "of an event that is complete"),
        Metric("synchronize", "s", "lower", "of an idle GPU"),
        Metric(
            "allocate_cached",
            "s",
            "lower",
            "64 MiB that torch's caching allocator has, and giving it back",
        ),
        Metric(
            "allocate_driver", "s", "lower", "64 MiB by the driver (cudaMalloc), and freeing it"
        ),
    ],
    requires=Requires(gpus=1, modules=("torch",)),
    description="Host time of calls that programs make between kernels.",
)
START = Benchmark(
    "machine_start",
    measure_start,
    [
        Metric(
            "cublas", "s", "lower", "first matrix product of a process, its CUDA context excluded"
        ),
        Metric("nccl", "s", "lower", "process group of one rank and its first all-reduce"),
    ],
    requires=Requires(gpus=1, modules=("torch",)),
    timeout=120,
    description="The first cuBLAS call and the first NCCL communicator of a fresh process.",
)
COMPILE = Benchmark(
    "machine_compile",
    measure_compile,
    [
        Metric("cold", "s", "lower", "first call of a compiled function, the cache folder empty"),
        Metric("warm", "s", "lower", "the same in another process, the cache folder filled"),
    ],
    requires=Requires(gpus=1, modules=("torch",), cpu_fallback=True),
    timeout=2 * COMPILING,
    rounds=2,
    description="torch.compile of a small network's forward and backward pass in fresh processes.",
)
BENCHMARKS = (LAUNCH, CALLS, START, COMPILE)
