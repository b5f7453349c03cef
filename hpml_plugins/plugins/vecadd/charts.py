"""Times of the programs and their speed-up over the CPU, and the bandwidth of the kernels compared
with the limit."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from hpml_plugins import Axis, Figure, Record, Rule, Table, find_gpu, line_chart
from hpml_plugins.plugins.vecadd.cpu import IMPLEMENTATIONS

PROGRAMS = {"vecadd_cpu": "CPU", "vecadd_cuda": "explicit", "vecadd_unified": "unified"}
#: The values of `memory` of the program in CUDA C++ → its name, and the kind of transfers.
IN_CPP = {"explicit": ("explicit, C++", "pageable"), "managed": ("unified, C++", "on demand")}
CPP = ("vecadd_cpu", "vecadd_cuda_cpp")
#: The values of `prefetch`, in words.
PAGES = {"on": "prefetched", "off": "on demand"}
#: The CPU programs that are the baseline of speed-ups: the C++ one, or the same loop by numba if
#: there was no compiler.
BASELINES = {"cpp": "C++", "loop": "numba's loop"}


def programs(records: Sequence[Record]) -> Table:
    """One row per point. time: of a whole run where the benchmark measures it, else of the addition
    as `kernel` is. speedup: over the CPU program that `over` names, on the same machine.
    """
    on_cpu: dict[tuple[str, Any], dict[Any, float]] = {}
    for record in records:
        if record.benchmark == "vecadd_cpu":
            of_point = on_cpu.setdefault((record.machine, record.params["millions"]), {})
            of_point[record.params["implementation"]] = record.metrics["time"].value

    def row(record: Record) -> dict[str, Any]:
        params = record.params
        time = record.metrics["total" if "total" in record.metrics else "time"].value
        of_point = on_cpu.get((record.machine, params["millions"]), {})
        baseline = next((name for name in BASELINES if name in of_point), None)
        memory = params.get("memory") or PAGES.get(str(params.get("prefetch")), "host memory")
        program = PROGRAMS.get(record.benchmark, "")
        if not program:
            program, memory = IN_CPP[str(memory)]
        return {
            "machine": record.machine,
            "program": program,
            "variant": params.get("implementation") or params["launch"],
            "memory": memory,
            "millions": float(params["millions"]),
            "time": time,
            "kernel": record.value("time"),
            "bandwidth": record.value("bandwidth"),
            "speedup": of_point[baseline] / time if baseline else None,
            "over": BASELINES[baseline] if baseline else None,
        }

    units = {"time": "s", "kernel": "s", "bandwidth": "B/s", "speedup": "1"}
    return Table.of(map(row, records), units).sorted(
        "machine", "program", "variant", "memory", "millions"
    )


def compared(
    program: str, cpu: Sequence[str] = IMPLEMENTATIONS
) -> Callable[[Sequence[Record]], Table]:
    """The table of a GPU program, and of these CPU programs on the machines that ran it."""

    def table(records: Sequence[Record]) -> Table:
        found = programs(records)
        ran_it = {row["machine"] for row in found.rows() if row["program"] == program}

        def shown(row: dict[str, Any]) -> bool:
            on_cpu = row["program"] == "CPU" and row["variant"] in cpu
            return row["machine"] in ran_it and (on_cpu or row["program"] == program)

        return found.filtered(shown)

    return table


def speedup(records: Sequence[Record]) -> Table:
    """The CPU program's time divided by that of a whole run on the GPU. Below the dashed line the
    CPU is faster."""
    return programs(records).filtered(
        lambda row: row["program"] != "CPU" and row["speedup"] is not None
    )


def bandwidth(records: Sequence[Record]) -> Table:
    """12 B per element divided by the kernel's time; copy: 8 B. Small vectors fit into the L2
    cache, which is faster than the memory. Dashed horizontal line: the memory's published peak.
    vs_torch: torch.add's time divided by this kernel's.
    """
    rows: list[dict[str, Any]] = []
    for record in records:
        card = find_gpu(record.gpu_names[0]) if record.gpus else None
        row = {
            "machine": record.machine,
            "kernel": str(record.params.get("implementation", "one element per thread")),
            "millions": record.params["millions"],
            "bandwidth": record.value("bandwidth"),
            "vs_torch": record.value("vs_torch"),
            "peak": card.bandwidth if card else None,
        }
        if (
            record.params.get("launch", "grid") == "grid"
            and record.params.get("memory", "pinned") == "pinned"
        ):
            rows.append(row)
        if row["kernel"] == "tuned":
            rows.append(
                {
                    **row,
                    "kernel": "copy",
                    "bandwidth": record.value("copy_bandwidth"),
                    "vs_torch": None,
                }
            )
    units = {"bandwidth": "B/s", "vs_torch": "1", "peak": "B/s"}
    return Table.of(rows, units).sorted("machine", "kernel", "millions")


MILLIONS = Axis("millions", "K, millions of elements", log=True)
TIME = Axis("time", "time of the program", "s", log=True)
SPEEDUP = Axis("speedup", "speed-up over the CPU program (×)", log=True)
EVEN, PEAK = Rule("y", 1, "as fast as the CPU"), Rule("y", "peak", "published peak")
BANDWIDTH = Axis("bandwidth", "memory bandwidth", "B/s", zero=True)
TIMES = line_chart(MILLIONS, TIME, ("program", "variant"), dash="memory", panel="machine")
SPEEDUPS = line_chart(
    MILLIONS, SPEEDUP, ("program", "variant"), dash="memory", panel="machine", rules=[EVEN]
)
BANDWIDTHS = line_chart(MILLIONS, BANDWIDTH, "kernel", dash="machine", rules=[PEAK])
FIGURES = (
    Figure(
        "explicit",
        "Vector addition: explicit memory compared with the CPU",
        ("vecadd_cpu", "vecadd_cuda"),
        compared("explicit"),
        TIMES,
        "A whole run on the GPU (allocation, copies, one launch, free) and the CPU's loop. Lower is"
        " better. Where the lines of 1x1 and 1x256 rise, the kernel dominates; for grid, the"
        " copies do.",
    ),
    Figure(
        "unified",
        "Vector addition: unified memory compared with the CPU",
        ("vecadd_cpu", "vecadd_unified"),
        compared("unified"),
        TIMES,
        "A whole run in unified memory (allocation, first launch with its page faults, reading"
        " back, free). Lower is better. Prefetched: the driver is asked to move the pages before"
        " they are touched.",
    ),
    Figure(
        "explicit_cpp",
        "The programs in CUDA C++ and C++: explicit memory",
        CPP,
        compared("explicit, C++", ["cpp"]),
        TIMES,
        "As above: cudaMalloc, cudaMemcpy from pageable memory, one launch, cudaMemcpy, cudaFree."
        " Lower is better.",
    ),
    Figure(
        "unified_cpp",
        "The programs in CUDA C++ and C++: unified memory",
        CPP,
        compared("unified, C++", ["cpp"]),
        TIMES,
        "As above: cudaMallocManaged, the first launch with its page faults, reading back,"
        " cudaFree. Lower is better.",
    ),
    Figure("speedup", "Speed-up over the CPU program", tuple(PROGRAMS), speedup, SPEEDUPS),
    Figure(
        "bandwidth",
        "Bandwidth of the kernel",
        ("vecadd_cuda", "vecadd_tuned"),
        bandwidth,
        BANDWIDTHS,
    ),
)
