"""`mlp_counters`: hardware counters of the tiled product and torch's. As a program: runs both once
for ncu to count.

python -m hpml_plugins.plugins.mlp.counters '["10x512x1500", "float32", "nn", 0, [32, 32, 16, 4, 4,
0, 16]]'
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from dataclasses import astuple
from typing import Any

from hpml_plugins import Bench, Benchmark, Metric, Requires, Samples, count_kernels
from hpml_plugins.plugins.mlp.gemm import SHAPES, find_tiles, operands, parse_shape
from hpml_plugins.plugins.mlp.tiles import VARIANTS, Dtype, Tile, Variant

#: Metric or column → ncu's counter. Shares are in %. "compute" is the busiest of a multiprocessor's
#: pipelines. Source: ncu's sections SpeedOfLight, Occupancy, SchedulerStats, LaunchStats,
#: MemoryWorkloadAnalysis.
SHARES = {
    "compute": "sm__throughput.avg.pct_of_peak_sustained_elapsed",
    "memory": "gpu__compute_memory_throughput.avg.pct_of_peak_sustained_elapsed",
    "dram": "dram__throughput.avg.pct_of_peak_sustained_elapsed",
    "occupancy": "sm__warps_active.avg.pct_of_peak_sustained_active",
    "issue": "smsp__issue_active.avg.pct_of_peak_sustained_active",
}
NUMBERS = {
    "time": "gpu__time_duration.sum",
    "blocks": "launch__grid_size",
    "registers": "launch__registers_per_thread",
    "waves": "launch__waves_per_multiprocessor",
    "wavefronts": "l1tex__data_pipe_lsu_wavefronts_mem_shared.sum",
    "conflicts": "l1tex__data_bank_conflicts_pipe_lsu_mem_shared.sum",
}
#: Why a warp does not issue, as cycles of waiting per instruction. Source: ncu's section
#: WarpStateStats.
STALLS = {
    reason: f"smsp__average_warps_issue_stalled_{reason}_per_issue_active.ratio"
    for reason in (
        "long_scoreboard",
        "short_scoreboard",
        "barrier",
        "math_pipe_throttle",
        "mio_throttle",
        "wait",
        "not_selected",
        "dispatch_stall",
        "lg_throttle",
        "no_instruction",
    )
}
NCU_TIMEOUT = 100.0


def measure_counters(
    bench: Bench, *, shape: str, dtype: Dtype, variant: Variant
) -> Mapping[str, Samples | float]:
    """Counters of the fastest tile's kernel (the first, if a second adds up parts) and of torch's,
    hot caches."""
    import torch

    from hpml_plugins.plugins.mlp.product import Tiled

    m, n, _ = parse_shape(shape)
    a, b = operands(*parse_shape(shape), variant, dtype, bench.seed, bench.device)
    c = torch.empty(m, n, dtype=a.dtype, device=bench.device)
    bench.progress("trying tiles", 0.1)
    tile = next(iter(find_tiles(bench, Tiled(bench, many=True), c, a, b, variant)))
    arguments = json.dumps([shape, dtype, variant, bench.seed, astuple(tile)])
    command = [sys.executable, "-m", __name__, arguments]
    bench.progress("counting", 0.5)

    def count() -> list[list[Any]]:
        every = [*SHARES.values(), *NUMBERS.values(), *STALLS.values()]
        return [
            [kernel.name, kernel.counters]
            for kernel in count_kernels(command, every, timeout=NCU_TIMEOUT)
        ]

    kernels = bench.once("counters", count)
    rows = [
        row(whose, name, found)
        for whose, (name, found) in zip(owners(len(kernels), tile), kernels, strict=True)
    ]
    columns = {name: [each[name] for each in rows] for name in rows[0]}
    units = {**dict.fromkeys(columns, "1"), "time": "s"}
    bench.series(
        "kernels",
        columns,
        {name: unit for name, unit in units.items() if name not in ("whose", "kernel")},
    )
    # Only the products, not the kernels that add up their parts.
    first = [
        next(
            found for each, (_, found) in zip(rows, kernels, strict=True) if each["whose"] == whose
        )
        for whose in ("own", "torch")
    ]
    own, theirs = ([found.get(counter, 0.0) for counter in STALLS.values()] for found in first)
    bench.series(
        "stalls", {"reason": list(STALLS), "own": own, "torch": theirs}, {"own": "1", "torch": "1"}
    )
    return {
        name: Samples((float(rows[0][name]),), info={"tile": str(tile), "source": "ncu"})
        for name in SHARES
    }


def owners(count: int, tile: Tile) -> list[str]:
    """The origin of each kernel, in launch order: ours, the sum of its parts, torch's."""
    ours = ["own"] if tile.parts == 1 else ["own", "own, adding up"]
    return ours + ["torch"] * (count - len(ours))


def row(whose: str, kernel: str, found: Mapping[str, float]) -> dict[str, Any]:
    """Shares from 0 to 1, other numbers unchanged; 0 for a counter that the card or this ncu
    lacks."""
    shares = {name: found.get(counter, 0.0) / 100 for name, counter in SHARES.items()}
    numbers = {name: found.get(counter, 0.0) for name, counter in NUMBERS.items()}
    return {"whose": whose, "kernel": kernel[:80], **shares, **numbers}


def main(arguments: str) -> None:
    """Multiply by our kernel and by torch's with the profiler on, after both have run."""
    import torch

    from hpml_plugins.plugins.mlp.network import multiply_by_torch
    from hpml_plugins.plugins.mlp.product import bound

    shape, dtype, variant, seed, fields = json.loads(arguments)
    m, n, _ = parse_shape(shape)
    torch.backends.cuda.matmul.allow_tf32 = False
    a, b = operands(*parse_shape(shape), variant, dtype, seed, "cuda")
    c = torch.empty(m, n, dtype=a.dtype, device="cuda")
    own = bound(Tile(*fields), c, a, b, variant)
    for profiled in (False, True):
        torch.cuda.synchronize()
        if profiled:
            torch.cuda.profiler.start()
        own()
        multiply_by_torch(c, a, b, variant)
        torch.cuda.synchronize()
    torch.cuda.profiler.stop()


COUNTERS = Benchmark(
    "mlp_counters",
    measure_counters,
    (
        Metric(
            "compute",
            "1",
            "higher",
            "the busiest pipeline of the multiprocessors over its peak",
            (0, 1.05),
        ),
        Metric(
            "memory", "1", None, "the busiest part of the memory system over its peak", (0, 1.05)
        ),
        Metric("dram", "1", None, "device memory's throughput over its peak", (0, 1.05)),
        Metric(
            "occupancy",
            "1",
            None,
            "warps resident on a multiprocessor over those it can hold",
            (0, 1),
        ),
        Metric("issue", "1", "higher", "cycles in which a scheduler issued an instruction", (0, 1)),
    ),
    {
        "shape": (SHAPES[1], SHAPES[3], SHAPES[5]),
        "dtype": ("float32", "float64"),
        "variant": VARIANTS[:1],
    },
    Requires(gpus=1, modules=("numba.cuda", "torch"), tools=("ncu",)),
    timeout=180,
    description="Hardware counters of the tiled product and of torch's, by Nsight Compute.",
)

if __name__ == "__main__":
    main(*sys.argv[1:])
