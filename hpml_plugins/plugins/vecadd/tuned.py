"""The benchmark `vecadd_tuned`: a kernel tuned for the card, torch.add and CuPy."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from hpml_plugins import Bench, Benchmark, Metric, Requires, Samples
from hpml_plugins.plugins.vecadd.vectors import (
    LENGTHS,
    METRICS,
    MILLION,
    bytes_moved,
    is_sum,
    require,
    vectors,
)

if TYPE_CHECKING:
    import torch

#: Accesses of a thread, as (float32 in one access, accesses to each vector): 4 to 32 B of each
#: vector in flight.
SHAPES = ((1, 1), (1, 4), (2, 1), (2, 2), (4, 1), (4, 2))
#: How loads and stores treat the caches: PTX's default; data used once (evicted first); or loads by
#: the read-only path that leave no line in the L1. The last needs compute capability 7.0.
CACHINGS = ("default", "streaming", "bypass")
THREADS = (128, 256, 512, 1024)
IMPLEMENTATIONS = ("tuned", "torch", "cupy")
SIZES = (1, 10, 100, 400)
#: s of timing alternately with torch.add, in all rounds of a point together.
COMPARISON = 3.6
#: Blocks of a resident grid for the check on short vectors: few enough that it must stride.
FEW_BLOCKS = 3

Step = Callable[[], object]


class Configuration(NamedTuple):
    """One way to launch the tuned kernel.

    width: float32 in one access.  unroll: accesses of a thread to each vector before it stores.
    threads: of a block. resident: whether the grid is only as large as the card holds at once and
    strides over the vectors.
    """

    width: int = 1
    unroll: int = 1
    threads: int = 256
    resident: bool = False
    caching: str = "default"

    def blocks(self, elements: int, most: int) -> int:
        """Blocks of the grid over `elements` elements.  most: blocks that the card holds at
        once."""
        once = -(-elements // (self.width * self.unroll * self.threads))
        return min(once, most) if self.resident else once

    def __str__(self) -> str:
        grid = "resident" if self.resident else "one pass"
        return (
            f"{self.unroll} × {self.width} float32, {self.threads} threads, {grid}, {self.caching}"
        )


def kernels(cachings: Sequence[str]) -> list[Configuration]:
    """Every kernel once, at 256 threads in one pass: those that differ in compiled code."""
    return [
        Configuration(width, unroll, caching=how) for how in cachings for width, unroll in SHAPES
    ]


def launches_of(kernel: Configuration) -> list[Configuration]:
    """The kernel launched in every other way."""
    every = [
        kernel._replace(threads=threads, resident=resident)
        for resident in (False, True)
        for threads in THREADS
    ]
    return [configuration for configuration in every if configuration != kernel]


def tune(
    seconds: Callable[[Configuration, float], float],
    cachings: Sequence[str],
    progress: Callable[[str, float], None] = lambda text, share: None,
) -> dict[Configuration, float]:
    """The time of every configuration tried, s, the best first.

    seconds: the time of one addition; its second argument is how long to sample, s. Each kernel is
    tried with one launch configuration, the best three kernels with all, and the best five of these
    again, for longer.
    """
    tried: dict[Configuration, float] = {}

    def attempt(configurations: Sequence[Configuration], budget: float, share: float) -> None:
        for number, configuration in enumerate(configurations):
            progress(f"trying {configuration}", share + 0.25 * number / len(configurations))
            tried[configuration] = seconds(configuration, budget)

    def best(count: int) -> list[Configuration]:
        return sorted(tried, key=tried.__getitem__)[:count]

    attempt(kernels(cachings), 0.02, 0.1)
    attempt([launch for kernel in best(3) for launch in launches_of(kernel)], 0.02, 0.35)
    finalists = best(5)
    attempt(finalists, 0.3, 0.6)
    # The finalists were measured longer than the rest: a lucky short sample must not outrank them.
    return dict(sorted(tried.items(), key=lambda each: (each[0] not in finalists, each[1])))


def measure(bench: Bench, *, millions: int, implementation: str) -> Mapping[str, Samples]:
    """Time c = a + b of `millions` million float32 on the GPU, as fast as possible, and torch.add
    on the same memory."""
    require("implementation", implementation, IMPLEMENTATIONS)
    elements = millions * MILLION

    import torch

    free, _ = torch.cuda.mem_get_info()
    if bytes_moved(elements) > 0.9 * free:
        bench.skip(
            f"needs {bytes_moved(elements) / 2**30:.2f} GiB of GPU memory, {free / 2**30:.2f} GiB"
            " are free"
        )
    bench.progress(f"making vectors of {millions} million", 0.0)
    host = vectors(elements, bench.seed)
    a, b, c = on_gpu = [torch.from_numpy(vector).cuda() for vector in host]

    with_torch: Step = functools.partial(torch.add, a, b, out=c)
    step = with_torch
    info: dict[str, str | float] = {}
    if implementation == "tuned":
        step, info = _tuned(bench, on_gpu)
    elif implementation == "cupy":
        cupy = bench.import_module("cupy")
        arrays = [cupy.asarray(vector) for vector in on_gpu]
        step = functools.partial(cupy.add, *arrays[:2], out=arrays[2])

    bench.progress("checking", 0.85)
    c.fill_(float("nan"))
    step()
    torch.from_numpy(host[2]).copy_(c)
    bench.check(is_sum(*host), "sum differs from NumPy's")
    bench.progress("timing", 0.9)
    bench.work(bytes=bytes_moved(elements))
    time = bench.time(step).note(**info)
    alternating = bench.time_alternately(
        {"own": lambda: step, "torch": lambda: with_torch}, budget=COMPARISON
    )
    bench.progress("timing a copy", 0.97)
    copy = bench.time(lambda: c.copy_(a), name="copy")
    return {
        "time": time,
        "vs_torch": alternating.ratio("torch", "own"),
        "copy_bandwidth": 2 * a.nbytes / copy,
    }


def _tuned(bench: Bench, on_gpu: Sequence[torch.Tensor]) -> tuple[Step, dict[str, str | float]]:
    """The step of the fastest configuration, and the configuration, found in the first round; all
    times become a series."""
    from numba import cuda

    launcher = make_launcher(bench, on_gpu)

    def seconds(configuration: Configuration, budget: float) -> float:
        # Only one round searches, so it has the budget of all.
        return bench.time(
            launcher(configuration)[0], budget=budget * bench.plan.rounds, quiet=True
        ).median

    cachings = CACHINGS if cuda.get_current_device().compute_capability >= (7, 0) else CACHINGS[:-1]
    found = bench.once("tuning", lambda: list(tune(seconds, cachings, bench.progress).items()))
    tried = {Configuration(*fields): time for fields, time in found}
    series = columns(tried)
    bench.series("tuning", series, dict.fromkeys(series, "1") | {"time": "s"})
    best = next(iter(tried))
    step, blocks = launcher(best)
    return step, {
        "configuration": str(best),
        "width": best.width,
        "unroll": best.unroll,
        "threads": best.threads,
        "blocks": blocks,
        "grid": "resident" if best.resident else "one pass",
        "caching": best.caching,
        "configurations": len(tried),
    }


def make_launcher(
    bench: Bench, on_gpu: Sequence[torch.Tensor]
) -> Callable[[Configuration], tuple[Step, int]]:
    """A function that returns a configuration's asynchronous step over these vectors, and its
    blocks.

    on_gpu: a, b and c, contiguous float32. A configuration is checked, for LENGTHS, before its step
    is returned.
    """
    from numba import cuda

    from hpml_plugins.plugins.vecadd.cuda_kernels import make_add_wide, make_kernel, try_lengths

    arrays = [cuda.as_cuda_array(vector) for vector in on_gpu]

    @functools.cache
    def compile_kernel(width: int, unroll: int, caching: str) -> Any:
        return cuda.jit(make_kernel(width, unroll, make_add_wide(width, unroll, caching)))

    @functools.cache
    def launcher(configuration: Configuration) -> tuple[Step, int]:
        threads = configuration.threads
        kernel = compile_kernel(configuration.width, configuration.unroll, configuration.caching)
        attempts = try_lengths(
            lambda length: kernel[configuration.blocks(length, FEW_BLOCKS), threads], bench.seed
        )
        lengths = ", ".join(map(str, LENGTHS))
        bench.check(
            all(right for _, right, _ in attempts),
            f"{configuration}: sums of {lengths} elements differ from NumPy's",
        )
        most = min(
            compiled.max_cooperative_grid_blocks(threads) for compiled in kernel.overloads.values()
        )
        blocks = configuration.blocks(arrays[0].size, most)
        launch = kernel[blocks, threads]
        return lambda: launch(*arrays), blocks

    return launcher


def columns(tried: Mapping[Configuration, float]) -> dict[str, list[float]]:
    """Configurations and their times, s, as columns of numbers; the caching becomes columns of 0
    and 1."""
    numbers = {
        name: [float(getattr(each, name)) for each in tried]
        for name in ("width", "unroll", "threads", "resident")
    }
    caching = {
        how: [float(each.caching == how) for each in tried] for how in ("streaming", "bypass")
    }
    return {**numbers, **caching, "time": list(tried.values())}


VECADD_TUNED = Benchmark(
    "vecadd_tuned",
    measure,
    metrics=(
        *METRICS,
        Metric(
            "vs_torch",
            "1",
            "higher",
            "torch.add's time over this one, in turns in one process; 1: as fast",
        ),
        Metric(
            "copy_bandwidth",
            "B/s",
            "higher",
            "of a copied into c by the driver, 8 B an element, in one process",
        ),
    ),
    grid={"millions": SIZES, "implementation": IMPLEMENTATIONS},
    requires=Requires(gpus=1, modules=("numba.cuda", "torch")),
    timeout=300,
    description="c = a + b of float32 vectors, tuned for the card; torch.add and CuPy beside it.",
)
