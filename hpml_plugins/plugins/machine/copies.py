"""The benchmarks `machine_host_copy` and `machine_peer_copy`: copies between host and GPU, and
between GPUs."""

from __future__ import annotations

import itertools
import statistics
from collections.abc import Callable, Iterable
from contextlib import ExitStack
from typing import Any

from hpml_plugins import Bench, Benchmark, Metric, Node, Requires, Samples
from hpml_plugins.plugins.machine.units import run_near, size_in_bytes

SIZES = ("4KiB", "256KiB", "16MiB", "1GiB", "4GiB")
GPUS = 8
#: B of one copy between two GPUs: it takes milliseconds, so that the launch is negligible.
PEER_BYTES = 1 << 30
#: s of warming up and of sampling one pair of GPUs. There may be 56 of them.
PAIR_WARM_UP, PAIR_BUDGET = 0.02, 0.03
#: Share of the node's memory that two host buffers may take.
LARGEST_SHARE = 0.5


def why_not(node: Node, point: dict[str, Any]) -> str:
    """Why a point of `machine_host_copy` cannot be measured on that node, or ""."""
    gpu, nbytes = int(point["gpu"]), size_in_bytes(str(point["size"]))
    if gpu >= node.num_gpu:
        return (
            f"needs GPU {gpu}, this node has {node.num_gpu or 'no'} GPU{'s' * (node.num_gpu != 1)}"
        )
    if 2 * nbytes > LARGEST_SHARE * node.ram:
        return f"two host buffers of {point['size']} are more than half of this node's memory"
    if 4 * nbytes > node.gpus[gpu].memory:
        return f"two GPU buffers of {point['size']} are more than half of the GPU's memory"
    return ""


def measure_host(bench: Bench, *, memory: str, size: str, gpu: int) -> dict[str, Samples | None]:
    """Copy `size` to the GPU, from it, and both at once.  memory: of the host, "pinned" or
    "pageable".

    Both at once are two copies on two streams. A pageable copy blocks its calling thread until the
    bytes have left or reached that memory (to the GPU, until they are staged), so there is no such
    pair.
    """
    import torch

    warn_of_unwatched(bench, [gpu])
    cpus, nbytes, pinned = run_near(bench.node, gpu), size_in_bytes(size), memory == "pinned"
    torch.cuda.set_device(gpu)
    torch.manual_seed(bench.seed)
    kept = torch.randint(256, (nbytes,), dtype=torch.uint8, device=f"cuda:{gpu}")
    arrived = torch.zeros_like(kept)
    bench.progress("allocating host memory", 0.1)
    sent, received = (torch.zeros(nbytes, dtype=torch.uint8, pin_memory=pinned) for _ in range(2))
    second = torch.cuda.Stream()

    def to_device() -> None:
        arrived.copy_(sent, non_blocking=True)

    def to_host() -> None:
        received.copy_(kept, non_blocking=True)

    def both() -> None:
        second.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(second):
            to_host()
        to_device()
        torch.cuda.current_stream().wait_stream(second)

    def check(step: Callable[[], None]) -> None:
        """Run the step on cleared targets; then each must equal its source."""
        arrived.zero_()
        received.zero_()
        torch.cuda.synchronize()
        step()
        torch.cuda.synchronize()
        if step is not to_host:
            bench.check(
                torch.equal(bench.result(arrived), kept),
                f"{step.__name__}: what arrived on the GPU differs",
            )
        if step is not to_device:
            bench.check(
                torch.equal(received.to(kept.device), kept),
                f"{step.__name__}: what arrived on the host differs",
            )

    sent.copy_(kept)
    device = f"cuda:{gpu}"
    found: dict[str, Samples | None] = {}
    steps = {"to_device": to_device, "to_host": to_host, **({"both": both} if pinned else {})}
    for number, (name, step) in enumerate(steps.items()):
        bench.progress(name, 0.2 + 0.25 * number)
        check(step)
        time = bench.time(step, device=device, name=name).note(cpus=cpus)
        found |= {f"{name}_time": time, name: (2 if name == "both" else 1) * nbytes / time}
    return {"both_time": None, "both": None, **found}


def warn_of_unwatched(bench: Bench, gpus: Iterable[int]) -> None:
    """Warn for which of these GPUs the Record has no clocks, power or throttling.

    The harness monitors as many GPUs as `Requires` gives, from GPU 0 on; others cannot be declared.
    """
    if others := [str(gpu) for gpu in gpus if gpu >= bench.gpus]:
        bench.warn(
            f"not watched: GPU {', '.join(others)}; clocks, power and throttling are of the GPUs"
            " before"
        )


def pattern(gpu: int, elements: int, device: str) -> Any:
    """The data of GPU `gpu`: int32, different at each place and on each GPU, computed on any
    device."""
    import torch

    return torch.arange(elements, dtype=torch.int32, device=device) * (2 * gpu + 1) + gpu


def measure_peers(bench: Bench, *, way: str) -> dict[str, float]:
    """Copy PEER_BYTES between every ordered pair of the node's GPUs.  way: "one", or "both" at
    once."""
    import torch

    count, elements = torch.cuda.device_count(), PEER_BYTES // 4
    warn_of_unwatched(bench, range(count))
    sources = [pattern(gpu, elements, f"cuda:{gpu}") for gpu in range(count)]
    targets = [torch.empty_like(source) for source in sources]
    plan = bench.plan.but(warm_up=PAIR_WARM_UP, budget=PAIR_BUDGET * bench.plan.rounds)
    pairs = list(
        itertools.permutations(range(count), 2)
        if way == "one"
        else itertools.combinations(range(count), 2)
    )
    rows: list[tuple[str, str, float]] = []
    for number, (a, b) in enumerate(pairs):
        bench.progress(f"GPU {a} to GPU {b}", number / len(pairs))
        step = (
            _one_way(sources[a], targets[b]) if way == "one" else _both_ways(sources, targets, a, b)
        )
        ways = [(a, b)] if way == "one" else [(a, b), (b, a)]
        with torch.cuda.device(a):
            for _, to in ways:
                targets[to].zero_()
            _synchronize(a, b)
            step()
            _synchronize(a, b)
            for origin, to in ways:
                right = torch.equal(
                    bench.result(targets[to]), pattern(origin, elements, f"cuda:{to}")
                )
                bench.check(right, f"what GPU {to} got from GPU {origin} differs")
            time = bench.time(step, device=f"cuda:{a}", plan=plan, quiet=True)
        rows += [
            (str(origin), str(to), len(ways) * PEER_BYTES / time.median) for origin, to in ways
        ]
    direct = [
        torch.cuda.can_device_access_peer(a, b) for a, b in itertools.permutations(range(count), 2)
    ]
    if not all(direct):
        bench.warn(
            f"{direct.count(False)} of {len(direct)} pairs cannot access each other's memory:"
            " copied via the host"
        )
    rates = [rate for _, _, rate in rows]
    columns: dict[str, list[Any]] = {
        "from": [origin for origin, _, _ in rows],
        "to": [target for _, target, _ in rows],
        "bandwidth": rates,
    }
    bench.series("pairs", columns, {"bandwidth": "B/s"})
    return {"slowest": min(rates), "bandwidth": statistics.median(rates), "fastest": max(rates)}


def _synchronize(*gpus: int) -> None:
    import torch

    for gpu in gpus:
        torch.cuda.synchronize(gpu)


def _one_way(source: Any, target: Any) -> Callable[[], object]:
    return lambda: target.copy_(source, non_blocking=True)


def _both_ways(sources: list[Any], targets: list[Any], a: int, b: int) -> Callable[[], None]:
    """Copies a → b and b → a at once, on a stream of each GPU for each of them.

    In torch, a copy waits for the current streams of both GPUs, and they wait for it: on the same
    streams, the second copy would wait for the first.
    """
    import torch

    ways = [
        (a, b, torch.cuda.Stream(a), torch.cuda.Stream(b)),
        (b, a, torch.cuda.Stream(b), torch.cuda.Stream(a)),
    ]

    def step() -> None:
        now = torch.cuda.current_stream(a)
        for origin, to, stream, other in ways:
            stream.wait_stream(now)
            with ExitStack() as streams:
                streams.enter_context(torch.cuda.stream(other))
                streams.enter_context(torch.cuda.stream(stream))
                targets[to].copy_(sources[origin], non_blocking=True)
        for _, _, stream, _ in ways:
            now.wait_stream(stream)

    return step


_WAYS = {
    "to_device": "from the host's memory to the GPU's",
    "to_host": "from the GPU's memory to the host's",
    "both": "in both directions at once; pinned memory only",
}
HOST_COPY = Benchmark(
    "machine_host_copy",
    measure_host,
    [
        *(
            Metric(name, "B/s", "higher", f"bytes copied {words}, over time")
            for name, words in _WAYS.items()
        ),
        *(
            Metric(f"{name}_time", "s", "lower", f"of a copy {words}")
            for name, words in _WAYS.items()
        ),
    ],
    grid={"memory": ("pinned", "pageable"), "size": SIZES, "gpu": tuple(range(GPUS))},
    requires=Requires(gpus=1, modules=("torch",), also=(why_not,)),
    timeout=120,
    description="Copies between the host's memory and a GPU's, on the CPUs of the GPU's NUMA node.",
    terms={"gpu": "index of the GPU", "memory": "of the host: pinned to its place, or pageable"},
)
PEER_COPY = Benchmark(
    "machine_peer_copy",
    measure_peers,
    [
        Metric("slowest", "B/s", "higher", "lowest bandwidth of any ordered pair of GPUs"),
        Metric("bandwidth", "B/s", "higher", "median over all ordered pairs of GPUs"),
        Metric("fastest", "B/s", "higher", "highest bandwidth of any ordered pair of GPUs"),
    ],
    grid={"way": ("one", "both")},
    requires=Requires(gpus=2, gpu_memory=8e9, modules=("torch",)),
    timeout=120,
    description="Copies of 1 GiB between every ordered pair of the node's GPUs.",
    terms={
        "way=one": "one direction at a time",
        "way=both": "both directions at once; bytes of both, over time",
    },
)
