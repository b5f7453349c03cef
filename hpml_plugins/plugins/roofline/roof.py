"""The benchmarks `roof_copy` and `roof_matmul`: the measured roof of this node."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import Any

from hpml_plugins import Bench, Benchmark, Metric, Requires, Samples
from hpml_plugins.plugins.roofline import formulas

MEBIBYTE = 2**20
#: Sides of the matrices. A power cap slows the largest, and the smallest do not fill the card.
SIZES = {"cuda": (4096, 8192, 12288), "cpu": (1024, 2048)}
#: s without work before each size on a GPU. A power cap slows a rested card after about 0.3 s,
#: which is less than warming up and sampling take; the roof, the best sample, is the rate until
#: then.
REST = 1.0
#: s of warming up, and of sampling, a rested card.
BURST_WARM_UP, BURST = 0.01, 0.1


def copy(bench: Bench, *, mebibytes: int) -> dict[str, Any]:
    """Copy a buffer of `mebibytes` MiB within the device's memory. bandwidth: bytes read and
    written, over time."""
    import torch

    nbytes = mebibytes * MEBIBYTE
    if bench.device == "cpu" and 2 * nbytes > bench.node.ram / 2:
        bench.skip(f"two buffers of {mebibytes} MiB are more than half of this node's memory")
    source = torch.randint(256, (nbytes,), dtype=torch.uint8, device=bench.device)
    target = torch.zeros_like(source)
    target.copy_(source)
    bench.check(torch.equal(source, target), "the copy differs from the original")
    bench.work(bytes=2 * nbytes, roof=True)

    def step() -> None:
        target.copy_(source)

    seconds = bench.time(step, budget=1.0)
    return {"time": seconds, "best": best(2 * nbytes / seconds), "energy": bench.energy(step)}


def matmul(bench: Bench, *, dtype: str) -> dict[str, Any]:
    """Multiply square matrices of a few sizes. rate, size: those with the highest median rate.
    best: of all.

    That size is found in the point's first round; the others time only it, but search all sizes for
    the best sample.
    """
    formulas.require_precision(bench, dtype)
    from hpml_plugins.plugins.roofline.steps import Step, checked_kernel

    # For a rested card. `but` splits the budget over all rounds; here each round has BURST.
    burst = bench.plan.but(warm_up=BURST_WARM_UP, budget=BURST * bench.plan.rounds)
    times: dict[int, Samples] = {}
    roofs: list[Samples] = []
    built: dict[int, Step] = {}
    for number, size in enumerate(SIZES[bench.device]):
        bench.progress(f"{size} × {size}", 0.5 * number / len(SIZES[bench.device]))
        built[size] = checked_kernel(bench, f"matmul_{dtype}_{size}")
        if bench.device == "cuda":
            time.sleep(REST)
            roofs.append(
                best(
                    formulas.matmul_flop(size) / bench.time(built[size].run, plan=burst, quiet=True)
                )
            )

    def time_at(size: int) -> float:
        bench.progress(f"timing {size} × {size}", 0.7)
        times[size] = bench.time(built[size].run, budget=1.0, name=f"time at {size}")
        rate = formulas.matmul_flop(size) / times[size]
        roofs.append(best(rate))
        return rate.median

    size = bench.once("size", lambda: max(built, key=time_at))
    if size not in times:
        time_at(size)
    medians = [formulas.matmul_flop(side) / seconds.median for side, seconds in times.items()]
    bench.series("sizes", {"size": list(times), "rate": medians}, {"rate": "FLOP/s"})
    bench.work(flop=formulas.matmul_flop(size), dtype=dtype, roof=True)
    return {
        "time": times[size],
        "best": max(roofs, key=lambda roof: roof.median),
        "size": size,
        "energy": bench.energy(built[size].run),
    }


def best(samples: Samples) -> Samples:
    """The highest sample: a roof is the attainable rate, not the typical one."""
    return replace(samples, values=(max(samples.values),), boost=())


ENERGY = Metric("energy", "J", "lower", "of one call, above that of the idle device")
COPY = Benchmark(
    "roof_copy",
    copy,
    [
        Metric("time", "s", "lower", "of one copy"),
        Metric("bandwidth", "B/s", "higher", "bytes read plus bytes written, over time"),
        Metric("best", "B/s", "higher", "the highest sample of bandwidth: the roof"),
        ENERGY,
    ],
    grid={"mebibytes": [256, 4096]},
    requires=Requires(gpus=1, modules=("torch",), cpu_fallback=True),
    timeout=120,
    description=(
        "Bandwidth of a copy within the device's memory: the slanted part of the measured roof."
    ),
)
MATMUL = Benchmark(
    "roof_matmul",
    matmul,
    [
        Metric("time", "s", "lower", "of one product of the best of a few sizes"),
        Metric("rate", "FLOP/s", "higher", "2 n³ over time, at that size"),
        Metric("best", "FLOP/s", "higher", "the highest sample of any size: the roof"),
        Metric("size", "1", None, "n of the best size"),
        ENERGY,
    ],
    grid={"dtype": ["float32", "tf32", "bfloat16", "float16"]},
    requires=COPY.requires,
    version="2",
    timeout=120,
    description=(
        "Rate of large matrix products in each precision: the flat part of the measured roof."
    ),
)
