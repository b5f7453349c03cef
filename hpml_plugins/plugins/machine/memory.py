"""The benchmarks `machine_memory`, `machine_cache` and `machine_shared`: bandwidth within one
GPU."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from hpml_plugins import Bench, Benchmark, Metric, Requires, Samples

#: Arrays that each operation reads and writes, all of one size. Source: McCalpin, STREAM, "Counting
#: Bytes and FLOPS".
ARRAYS = {"read": 1, "write": 1, "copy": 2, "triad": 3}
#: Elements of float32 in each array: 4 GiB, many times a GPU's L2 cache.
ELEMENTS = 1 << 30
#: Working sets of the staircase, B: powers of two.
WORKING_SETS = tuple(1 << power for power in range(16, 33))
#: The working set of the memory's plateau, B: far above all caches.
IN_MEMORY = 4 << 30
#: B read by a launch over a smaller working set than this: it takes some 0.3 ms from the L2.
LEAST_READ = 2 << 30
BLOCKS_PER_MULTIPROCESSOR = 8
#: s of warming up and of sampling one working set.
SET_WARM_UP, SET_BUDGET = 0.02, 0.03
#: Passes over shared memory of one launch, a multiple of SHARED_THREADS: about 0.5 ms.
PASSES = 4096


def measure_memory(bench: Bench, *, operation: str) -> dict[str, Samples]:
    """Time an operation on arrays of 4 GiB: read (a sum), write (a fill), copy, triad (a = b + 3
    c)."""
    import torch

    torch.manual_seed(bench.seed)
    a, b, c = (torch.zeros(ELEMENTS, device="cuda") for _ in range(3))
    # Small integers, whose sums are exact: random signs, which nearly cancel, and random zeros and
    # ones.
    b.bernoulli_(0.5).mul_(2).sub_(1)
    c.bernoulli_(0.5)
    total = torch.zeros((), device="cuda")
    steps: dict[str, Callable[[], object]] = {
        "read": lambda: torch.sum(b, dim=0, out=total),
        "write": lambda: a.fill_(1.0),
        "copy": lambda: a.copy_(b),
        "triad": lambda: torch.add(b, c, alpha=3.0, out=a),
    }
    step = steps[operation]
    step()
    if operation == "read":
        positive = int(torch.count_nonzero(b > 0))
        bench.check(
            bench.result(float(total)) == 2 * positive - ELEMENTS,
            "the sum differs from the count of signs",
        )
    else:
        right: dict[str, Callable[[], Any]] = {
            "write": lambda: a == 1.0,
            "copy": lambda: a == b,
            "triad": lambda: (a - b) / 3 == c,
        }
        a[-1] = bench.result(float(a[-1]))
        bench.check(bool(right[operation]().all()), f"the result of {operation} differs")
    bench.work(bytes=ARRAYS[operation] * 4 * ELEMENTS)
    return {"time": bench.time(step, budget=0.5)}


def expected_sum(whole: int, length: int, sum_of_first: Callable[[int], int], words: int) -> int:
    """The sum of `words` consecutive values of a cyclic array, as an int32 that wraps around.

    whole: the sum of the array.  length: of the array.  sum_of_first: of its first values, given
    how many.
    """
    cycles, rest = divmod(words, length)
    return wrap(cycles * whole + sum_of_first(rest))


def wrap(number: int) -> int:
    """A number wrapped to int32: 2³¹ is −2³¹."""
    return (number + 2**31) % 2**32 - 2**31


def steps_of(length: int, blocks: int, tile: int, least: int) -> int:
    """The number of tiles that each block reads, so that all blocks together read at least `length`
    and at least `least` words.

    tile: words that a block reads in one step.
    """
    return -(-max(length, least) // (blocks * tile))


def in_l2(cache: int) -> int:
    """The working set of the L2's plateau, B: the largest power of two up to half the cache. Of 60
    MiB: 16 MiB."""
    return 1 << (cache // 2).bit_length() - 1


def measure_cache(bench: Bench) -> dict[str, float | Samples]:
    """Read working sets from 64 KiB to 4 GiB again and again; the bandwidth of each, and of the two
    plateaus."""
    import numpy as np
    import torch
    from numba import cuda

    from hpml_plugins.plugins.machine.kernels import READ_THREADS, READS, read_cyclic

    torch.manual_seed(bench.seed)
    values = torch.randint(-(2**31), 2**31, (IN_MEMORY // 4,), dtype=torch.int32, device="cuda")
    properties = torch.cuda.get_device_properties(0)
    blocks = BLOCKS_PER_MULTIPROCESSOR * properties.multi_processor_count
    sums = torch.zeros(blocks * READ_THREADS, dtype=torch.int32, device="cuda")
    plan = bench.plan.but(warm_up=SET_WARM_UP, budget=SET_BUDGET * bench.plan.rounds)
    launch, on_gpu = read_cyclic[blocks, READ_THREADS], cuda.as_cuda_array(sums)

    def bandwidth(nbytes: int) -> float:
        length = nbytes // 4
        steps = steps_of(length, blocks, READS * READ_THREADS, LEAST_READ // 4)
        part = values[:length]
        arguments = (cuda.as_cuda_array(part), np.uint64(length - 1), np.uint64(steps), on_gpu)
        launch(*arguments)
        words = blocks * READ_THREADS * READS * steps
        wanted = expected_sum(_sum(part), length, lambda first: _sum(part[:first]), words)
        bench.check(
            wrap(_sum(bench.result(sums))) == wanted,
            f"the sum over {nbytes} B differs from torch's",
        )
        time = bench.time(lambda: launch(*arguments), plan=plan, quiet=True)
        return float(4 * words / time.median)

    def staircase() -> list[float]:
        found = []
        for number, nbytes in enumerate(WORKING_SETS):
            bench.progress(f"{nbytes >> 10} KiB", 0.8 * number / len(WORKING_SETS))
            found.append(bandwidth(nbytes))
        return found

    rates = bench.once("staircase", staircase)
    units = {"working_set": "B", "bandwidth": "B/s"}
    bench.series(
        "staircase",
        {"working_set": [float(each) for each in WORKING_SETS], "bandwidth": rates},
        units,
    )
    in_cache = in_l2(properties.L2_cache_size)
    l2 = Samples.of([bandwidth(in_cache)], "B/s", working_set=in_cache)
    return {"l2": l2, "memory": bandwidth(IN_MEMORY)}


def _sum(values: Any) -> int:
    """The sum of an int32 tensor, exact in int64."""
    import torch

    return int(values.sum(dtype=torch.int64))


def shared_sum(passes: int) -> int:
    """The expected sum of each thread of `kernels.read_shared`: in 1024 passes it reads each of the
    8192 words once."""
    from hpml_plugins.plugins.machine.kernels import SHARED_READS, SHARED_THREADS

    words = SHARED_READS * SHARED_THREADS
    return wrap(passes // SHARED_THREADS * (words * (words - 1) // 2))


def measure_shared(bench: Bench) -> dict[str, Samples]:
    """Read shared memory on all multiprocessors, without bank conflicts, 4 B per thread and
    load."""
    import numpy as np
    import torch
    from numba import cuda

    from hpml_plugins.plugins.machine.kernels import SHARED_READS, SHARED_THREADS, read_shared

    blocks = 2 * torch.cuda.get_device_properties(0).multi_processor_count
    sums = torch.zeros(blocks * SHARED_THREADS, dtype=torch.int32, device="cuda")
    launch, arguments = (
        read_shared[blocks, SHARED_THREADS],
        (np.uint32(PASSES), cuda.as_cuda_array(sums)),
    )
    launch(*arguments)
    bench.check(
        bool((bench.result(sums) == shared_sum(PASSES)).all()), "the sums over shared memory differ"
    )
    time = bench.time(lambda: launch(*arguments), budget=0.5)
    return {"time": time, "bandwidth": blocks * SHARED_THREADS * SHARED_READS * 4 * PASSES / time}


ON_GPU = Requires(gpus=1, modules=("torch", "numba.cuda"))
MEMORY = Benchmark(
    "machine_memory",
    measure_memory,
    [
        Metric("time", "s", "lower", "of one operation on arrays of 4 GiB"),
        Metric("bandwidth", "B/s", "higher", "bytes read and written, over time"),
    ],
    grid={"operation": tuple(ARRAYS)},
    requires=Requires(gpus=1, gpu_memory=30e9, modules=("torch",)),
    description=(
        "Bandwidth of the GPU's memory by STREAM-like operations of torch on arrays of 4 GiB."
    ),
    terms={
        "operation=read": "torch.sum",
        "operation=write": "Tensor.fill_",
        "operation=copy": "Tensor.copy_",
        "operation=triad": "torch.add(b, c, alpha=3)",
    },
)
CACHE = Benchmark(
    "machine_cache",
    measure_cache,
    [
        Metric(
            "l2",
            "B/s",
            "higher",
            "read bandwidth of a working set of a quarter to half of the L2 cache",
        ),
        Metric("memory", "B/s", "higher", "read bandwidth of a working set of 4 GiB"),
    ],
    requires=Requires(gpus=1, gpu_memory=8e9, modules=("torch", "numba.cuda")),
    description=(
        "Read bandwidth by working set, 64 KiB to 4 GiB: the staircase of the GPU's caches."
    ),
)
SHARED = Benchmark(
    "machine_shared",
    measure_shared,
    [
        Metric("time", "s", "lower", "of one launch"),
        Metric(
            "bandwidth",
            "B/s",
            "higher",
            "bytes read from shared memory on all multiprocessors, over time",
        ),
    ],
    requires=ON_GPU,
    description="Read bandwidth of shared memory on all multiprocessors together.",
)
BENCHMARKS = (MEMORY, CACHE, SHARED)
