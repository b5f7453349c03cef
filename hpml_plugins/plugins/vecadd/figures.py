"""The charts of the exercise, and how close to the memory's limit the tuned kernel comes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from hpml_plugins import Axis, Figure, Record, Rule, Table, find_gpu, line_chart
from hpml_plugins.plugins.vecadd.rows import Row, rows

UNITS = {"time": "s", "kernel": "s", "bandwidth": "B/s", "speedup": "1"}
#: How unified memory's pages get to the GPU, by the parameter `prefetch`.
PAGES = {"on": "prefetched", "off": "on demand", "": "host memory"}


def program_table(program: str) -> Callable[[Sequence[Record]], Table]:
    """Whole runs of a GPU program, and of the CPU programs on machines that ran it."""

    def table(records: Sequence[Record]) -> Table:
        found = rows(records)
        ran_it = {row.machine for row in found if row.program == program}
        return _table(row for row in found if row.machine in ran_it and row.program in ("CPU", program))

    return table


def speedup_table(records: Sequence[Record]) -> Table:
    """Whole runs and their speed-up over the CPU program of the same machine."""
    return _table(row for row in rows(records) if row.program in ("explicit", "unified") and row.speedup is not None)


def _table(found: Iterable[Row]) -> Table:
    cells = [
        {
            "machine": row.machine,
            "program": row.program,
            "variant": " ".join(value for name, value in row.variant.items() if name not in ("memory", "prefetch")),
            "memory": row.variant.get("memory") or PAGES[row.variant.get("prefetch", "")],
            **{name: getattr(row, name) for name in ("millions", "time", "kernel", "bandwidth", "speedup")},
        }
        for row in found
    ]
    return Table.of(cells, UNITS)


def bandwidth_table(records: Sequence[Record]) -> Table:
    """Bandwidth of the kernels that use the whole card, of the card's copy, and the published peak."""
    found = [row for record in records for row in _bandwidths(record)]
    found.sort(key=lambda row: (row["machine"], row["kernel"], row["millions"]))
    return Table.of(found, {"bandwidth": "B/s", "vs_torch": "1", "peak": "B/s"})


def _bandwidths(record: Record) -> Iterable[dict[str, Any]]:
    """The rows of one Record; none for a launch that leaves the card idle."""
    card = find_gpu(str(record.gpus[0]["name"])) if record.gpus else None
    row = {
        "machine": record.machine,
        "kernel": str(record.params.get("implementation", "one element per thread")),
        "millions": record.params["millions"],
        "bandwidth": record.median("bandwidth"),
        "vs_torch": record.median("vs_torch"),
        "peak": card.bandwidth if card else None,
    }
    if record.benchmark == "vecadd_tuned" or (record.params["launch"], record.params["memory"]) == ("grid", "pinned"):
        yield row
    if row["kernel"] == "tuned":
        yield {**row, "kernel": "copy", "bandwidth": record.median("copy_bandwidth"), "vs_torch": None}


MILLIONS = Axis("millions", "K, millions of elements", log=True)
TIMES = line_chart(
    MILLIONS, Axis("time", "time of the program", "s", log=True), ("program", "variant"), dash="memory", panel="machine"
)
SPEEDUPS = line_chart(
    MILLIONS,
    Axis("speedup", "speed-up over the CPU program (×)", log=True),
    ("program", "variant"),
    dash="memory",
    panel="machine",
    rules=[Rule("y", 1, "as fast as the CPU")],
)
BANDWIDTHS = line_chart(
    MILLIONS,
    Axis("bandwidth", "memory bandwidth", "B/s", zero=True),
    "kernel",
    dash="machine",
    rules=[Rule("y", "peak", "published peak")],
)


def figures() -> list[Figure]:
    """The two charts that the exercise asks for, the speed-up, and the bandwidth."""
    return [
        Figure(
            "explicit",
            "Vector addition: explicit memory compared with the CPU",
            ("vecadd_cpu", "vecadd_cuda"),
            program_table("explicit"),
            TIMES,
            "A whole run on the GPU (allocation, copies, one launch, free) and the CPU's loop. Lower is better. Where the "
            "lines of 1x1 and 1x256 rise, the kernel dominates; for grid, the copies do.",
        ),
        Figure(
            "unified",
            "Vector addition: unified memory compared with the CPU",
            ("vecadd_cpu", "vecadd_unified"),
            program_table("unified"),
            TIMES,
            "A whole run in unified memory (allocation, first launch with its page faults, reading back, free). Lower is "
            "better. Prefetched: the driver is asked to move the pages before they are touched.",
        ),
        Figure(
            "speedup",
            "Speed-up over the CPU program",
            ("vecadd_cpu", "vecadd_cuda", "vecadd_unified"),
            speedup_table,
            SPEEDUPS,
            "The CPU program's time divided by that of a whole run on the GPU. Below the dashed line the CPU is faster.",
        ),
        Figure(
            "bandwidth",
            "Bandwidth of the kernel",
            ("vecadd_cuda", "vecadd_tuned"),
            bandwidth_table,
            BANDWIDTHS,
            "12 B per element divided by the kernel's time; copy: 8 B. Small vectors fit into the L2 cache, which is "
            "faster than the memory. Dashed horizontal line: the memory's published peak. vs_torch: torch.add's time "
            "divided by this kernel's.",
        ),
    ]
