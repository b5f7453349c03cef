"""The benchmarks of latencies: `machine_latency`, `machine_peer_latency`, `machine_atomics`,
`machine_mailbox`."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import Any, NamedTuple

from hpml_plugins import Bench, Benchmark, Metric, Requires, Samples
from hpml_plugins.plugins.machine.memory import wrap

#: The least distance between visited places, B: a cache line.
LINE = 128
#: Words of 4 B in a line.
STRIDE = LINE // 4


class Level(NamedTuple):
    """A pointer chase. nbytes: of the working set.  steps: of one launch, which takes 20 to 40
    ms."""

    nbytes: int
    steps: int


#: An L1 of 256 KiB or less per multiprocessor; an L2 of 6 MiB or more; memory: many times the L2.
LEVELS = {
    "l1": Level(32 << 10, 1 << 20),
    "l2": Level(4 << 20, 1 << 17),
    "memory": Level(1 << 30, 1 << 15),
    "peer": Level(1 << 30, 1 << 14),
}
THREADS, BLOCKS = 256, 1024
#: Additions of each thread in one launch.
ADDITIONS = 16
#: Round trips of one launch of the mailbox's kernel, and launches in a round of the point.
ROUND_TRIPS, LAUNCHES = 1000, 10
#: s after which the host stops waiting for the kernel's answer.
PATIENCE = 5.0


def make_cycle(lines: int, seed: int, device: str) -> tuple[Any, Any]:
    """A random cyclic permutation of cache lines: the successor of each, and the lines in visiting
    order.

    Returns the words of the working set as int32 (each line's first word holds the index of the
    next line's first word), and the order as int64 tensor; a chase that begins at line order[0] is
    at order[k % lines] after k steps.
    """
    import torch

    generator = torch.Generator(device=device).manual_seed(seed)
    order = torch.randperm(lines, generator=generator, device=device)
    following = torch.zeros(lines * STRIDE, dtype=torch.int32, device=device)
    following[order * STRIDE] = (order.roll(-1) * STRIDE).to(torch.int32)
    return following, order


def measure_chase(bench: Bench, *, level: str = "peer") -> dict[str, Samples]:
    """Time of one dependent load. level: "l1", "l2", "memory", or "peer": GPU 0 reads the memory of
    GPU 1."""
    import numpy as np
    import torch
    from numba import cuda

    from hpml_plugins.plugins.machine.kernels import chase

    nbytes, steps = LEVELS[level]
    lines = nbytes // LINE
    following, order = make_cycle(lines, bench.seed, "cuda:1" if level == "peer" else "cuda:0")
    if level == "peer":
        if not torch.cuda.can_device_access_peer(0, 1):
            bench.skip("GPU 0 cannot access the memory of GPU 1")
        # torch enables peer access before it copies between two GPUs.
        order[:1].to("cuda:0").to("cuda:1")
        torch.cuda.synchronize(1)
    place = (order[:1] * STRIDE).to("cuda:0", torch.int32)
    words, at = (cuda.as_cuda_array(each).view(np.uint32) for each in (following, place))
    launch, launches = chase[1, 1], 0

    def step() -> None:
        nonlocal launches
        launch(words, np.uint32(steps), at)
        launches += 1

    def check() -> None:
        wanted = int(order[launches * steps % lines]) * STRIDE
        bench.check(
            bench.result(int(place)) == wanted, "the chase does not end where the permutation leads"
        )

    step()
    check()
    seconds = bench.time(step, budget=0.3)
    check()
    return {"time": (seconds / steps).note(working_set=nbytes, steps=steps)}


def measure_atomics(bench: Bench, *, addresses: int) -> dict[str, Samples]:
    """Rate of atomic additions of 1 by 262,144 threads.  addresses: a power of two, over which they
    are spread."""
    import numpy as np
    import torch
    from numba import cuda

    from hpml_plugins.plugins.machine.kernels import count_up

    counters = torch.zeros(addresses, dtype=torch.int32, device="cuda")
    seen = torch.zeros(THREADS * BLOCKS, dtype=torch.int32, device="cuda")
    arguments = (
        cuda.as_cuda_array(counters),
        np.uint32(addresses - 1),
        np.uint32(ADDITIONS),
        cuda.as_cuda_array(seen),
    )
    launch, launches = count_up[BLOCKS, THREADS], 0

    def step() -> None:
        nonlocal launches
        launch(*arguments)
        launches += 1

    def check() -> None:
        each = wrap(launches * ADDITIONS * THREADS * BLOCKS // addresses)
        bench.check(
            bool((bench.result(counters) == each).all()),
            "a counter lacks additions, or has too many",
        )

    step()
    check()
    seconds = bench.time(step, budget=0.3)
    check()
    return {"time": seconds, "rate": THREADS * BLOCKS * ADDITIONS / seconds}


def measure_mailbox(bench: Bench) -> dict[str, Samples]:
    """Time until the host has a kernel's answer to a number that it wrote into pinned memory mapped
    by the GPU."""
    import numpy as np
    from numba import cuda

    from hpml_plugins.plugins.machine.kernels import answer
    from hpml_plugins.plugins.machine.units import run_near

    cpus = run_near(bench.node, 0)
    post, reply = (cuda.mapped_array(1, dtype=np.int32) for _ in range(2))
    launch, samples = answer[1, 1], []
    for number in range(LAUNCHES + 1):
        post[0] = reply[0] = 0
        launch(post, reply, np.int32(ROUND_TRIPS))
        seconds = exchange(memoryview(post), memoryview(reply), ROUND_TRIPS)
        cuda.synchronize()
        bench.check(
            bench.result(int(reply[0])) == ROUND_TRIPS, "the kernel did not answer every number"
        )
        if number:  # the first launch compiles and loads
            samples.append(seconds / (ROUND_TRIPS - 1))
    found = Samples.of(samples, "s", timer="perf_counter", batch=ROUND_TRIPS, cpus=cpus)
    bench.warn_if_imprecise(found, "round_trip")
    return {"round_trip": found}


def exchange(post: Any, reply: Any, rounds: int) -> float:
    """Post the numbers 1 to `rounds`, each after the answer to the previous one; s since the first
    answer.

    Gives up if an answer takes longer than PATIENCE.
    """
    post[0] = 1
    if not _wait(reply, 1):  # the kernel starts during this wait
        return 0.0
    started = time.perf_counter()
    for number in range(2, rounds + 1):
        post[0] = number
        if reply[0] != number and not _wait(reply, number):
            break
    return time.perf_counter() - started


def _wait(reply: Any, number: int) -> bool:
    """Whether the answer came in time. Checks the clock every thousandth time."""
    end = time.perf_counter() + PATIENCE
    while time.perf_counter() < end:
        for _ in range(1000):
            if reply[0] == number:
                return True
    return False


LATENCY = Benchmark(
    "machine_latency",
    measure_chase,
    [
        Metric(
            "time",
            "s",
            "lower",
            "of one dependent load of 4 B, with the computation of its address",
        )
    ],
    grid={"level": ("l1", "l2", "memory")},
    requires=Requires(gpus=1, gpu_memory=4e9, modules=("torch", "numba.cuda")),
    description=(
        "Latency of the GPU's caches and memory: a pointer chase over a random cycle of cache"
        " lines."
    ),
    terms={"level=l1": "32 KiB", "level=l2": "4 MiB", "level=memory": "1 GiB"},
)
PEER_LATENCY = replace(
    LATENCY,
    name="machine_peer_latency",
    grid={},
    requires=Requires(gpus=2, gpu_memory=4e9, modules=("torch", "numba.cuda")),
    description=(
        "Latency of another GPU's memory: GPU 0 follows a random cycle of cache lines in 1 GiB of"
        " GPU 1."
    ),
    terms={},
)
ATOMICS = Benchmark(
    "machine_atomics",
    measure_atomics,
    [
        Metric("time", "s", "lower", "of 4,194,304 additions by 262,144 threads"),
        Metric("rate", "1/s", "higher", "atomic additions over time"),
    ],
    grid={"addresses": (1, 1024, 262144)},
    requires=Requires(gpus=1, modules=("torch", "numba.cuda")),
    description="Rate of atomic additions under contention, whose results are used.",
    terms={"addresses": "over which 262,144 threads are spread: 1 is the highest contention"},
)
MAILBOX = Benchmark(
    "machine_mailbox",
    measure_mailbox,
    [
        Metric(
            "round_trip",
            "s",
            "lower",
            "from the host's write to its reading of the kernel's answer",
        )
    ],
    requires=Requires(gpus=1, modules=("numba.cuda",)),
    description="Round trip between the host and a running kernel through mapped pinned memory.",
)
BENCHMARKS = (LATENCY, PEER_LATENCY, ATOMICS, MAILBOX)
