"""The charts of the exercise, and how close to the memory's limit the tuned kernel comes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from hpml_plugins import Axis, Figure, Record, Rule, Table, find_gpu, line_chart
from hpml_plugins.plugins.vecadd.rows import Row, rows

#: How unified memory's pages get to the GPU, by the parameter `prefetch`.
PAGES = {"on": "prefetched", "off": "on demand", "": "host memory"}


def program(name: str) -> Callable[[Sequence[Record]], Table]:
    """The table of a GPU program's whole runs, and of the CPU programs on machines that ran it."""

    def table(records: Sequence[Record]) -> Table:
        found = rows(records)
        ran_it = {row.machine for row in found if row.program == name}
        return _table(row for row in found if row.machine in ran_it and row.program in ("CPU", name))

    return table


def speedup(records: Sequence[Record]) -> Table:
    """The CPU program's time divided by that of a whole run on the GPU. Below the dashed line the CPU is faster."""
    return _table(row for row in rows(records) if row.program in ("explicit", "unified") and row.speedup is not None)


def _table(found: Iterable[Row]) -> Table:
    numbers = ("millions", "time", "kernel", "bandwidth", "speedup")
    cells = [
        {
            "machine": row.machine,
            "program": row.program,
            "variant": row.variant.get("implementation") or row.variant["launch"],
            "memory": row.variant.get("memory") or PAGES[row.variant.get("prefetch", "")],
            **{name: getattr(row, name) for name in numbers},
        }
        for row in found
    ]
    return Table.of(cells, {"time": "s", "kernel": "s", "bandwidth": "B/s", "speedup": "1"})


def bandwidth(records: Sequence[Record]) -> Table:
    """12 B per element divided by the kernel's time; copy: 8 B. Small vectors fit into the L2 cache, which is faster
    than the memory. Dashed horizontal line: the memory's published peak. vs_torch: torch.add's time divided by this
    kernel's.
    """
    found = [row for record in records for row in _bandwidths(record)]
    return Table.of(found, {"bandwidth": "B/s", "vs_torch": "1", "peak": "B/s"}).sorted("machine", "kernel", "millions")


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
TIME = Axis("time", "time of the program", "s", log=True)
SPEEDUP = Axis("speedup", "speed-up over the CPU program (×)", log=True)
EVEN, PEAK = Rule("y", 1, "as fast as the CPU"), Rule("y", "peak", "published peak")
BANDWIDTH = Axis("bandwidth", "memory bandwidth", "B/s", zero=True)
TIMES = line_chart(MILLIONS, TIME, ("program", "variant"), dash="memory", panel="machine")
SPEEDUPS = line_chart(MILLIONS, SPEEDUP, ("program", "variant"), dash="memory", panel="machine", rules=[EVEN])
BANDWIDTHS = line_chart(MILLIONS, BANDWIDTH, "kernel", dash="machine", rules=[PEAK])
FIGURES = (
    Figure(
        "explicit",
        "Vector addition: explicit memory compared with the CPU",
        ("vecadd_cpu", "vecadd_cuda"),
        program("explicit"),
        TIMES,
        "A whole run on the GPU (allocation, copies, one launch, free) and the CPU's loop. Lower is better. Where the "
        "lines of 1x1 and 1x256 rise, the kernel dominates; for grid, the copies do.",
    ),
    Figure(
        "unified",
        "Vector addition: unified memory compared with the CPU",
        ("vecadd_cpu", "vecadd_unified"),
        program("unified"),
        TIMES,
        "A whole run in unified memory (allocation, first launch with its page faults, reading back, free). Lower is "
        "better. Prefetched: the driver is asked to move the pages before they are touched.",
    ),
    Figure(
        "speedup", "Speed-up over the CPU program", ("vecadd_cpu", "vecadd_cuda", "vecadd_unified"), speedup, SPEEDUPS
    ),
    Figure("bandwidth", "Bandwidth of the kernel", ("vecadd_cuda", "vecadd_tuned"), bandwidth, BANDWIDTHS),
)
