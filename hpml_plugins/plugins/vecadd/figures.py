"""The charts of the exercise, and how near the limit of the card the tuned kernel comes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from hpml_plugins import Figure, Record, Table, find_gpu, legend_below, panels
from hpml_plugins.plugins.vecadd.rows import Row, rows

UNITS = {"time": "s", "kernel": "s", "bandwidth": "B/s", "speedup": "1"}
Line = Callable[[Any, str, list[dict[str, Any]]], None]


def program_table(program: str) -> Callable[[Sequence[Record]], Table]:
    """The table of a chart over K: the whole runs of a GPU program, and the CPU's, on machines that ran both."""

    def table(records: Sequence[Record]) -> Table:
        found = rows(records)
        ran_it = {row.machine for row in found if row.program == program}
        return _table(row for row in found if row.machine in ran_it)

    return table


def draw_times(sheet: Any, table: Table) -> None:
    """Time against K, log-log: one panel a machine, one line a program and variant."""

    def line(axes: Any, label: str, of_one: list[dict[str, Any]]) -> None:
        axes.loglog([row["millions"] for row in of_one], [row["time"] for row in of_one], label=label)

    _panels(sheet, table, ("program", "variant"), line, "time of the program in s", lambda program, name: name)
    legend_below(sheet)


def speedup_table(records: Sequence[Record]) -> Table:
    """Whole runs and their speed-up over the CPU program, where a CPU program was measured beside."""
    return _table(row for row in rows(records) if row.program in ("explicit", "unified") and row.speedup is not None)


def draw_speedups(sheet: Any, table: Table) -> None:
    """Speed-up of whole runs against K, with the line where GPU and CPU are even."""

    def line(axes: Any, label: str, of_one: list[dict[str, Any]]) -> None:
        axes.loglog([row["millions"] for row in of_one], [row["speedup"] for row in of_one], label=label)

    label = "times as fast as the CPU program"
    for axes in _panels(sheet, table, ("program", "variant"), line, label, lambda program, name: f"{program} {name}"):
        axes.axhline(1, color="0.5", linewidth=0.8, linestyle="--", marker="")
    legend_below(sheet)


def bandwidth_table(records: Sequence[Record]) -> Table:
    """Bandwidth of the kernels that use the whole card, the card's copy, and its published peak."""
    found = [row for record in records for row in _bandwidths(record)]
    found.sort(key=lambda row: (row["machine"], row["kernel"], row["millions"]))
    return Table.of(found, {"bandwidth": "B/s", "vs_torch": "1", "peak": "B/s"})


def _bandwidths(record: Record) -> Iterable[dict[str, Any]]:
    """The rows of one Record; none for a launch that leaves the card idle."""
    measured = {name: metric.median for name, metric in record.metrics.items()}
    card = next((find_gpu(str(gpu["name"])) for gpu in record.node.get("gpus", ())), None)
    row = {
        "machine": record.machine,
        "kernel": str(record.params.get("implementation", "one element a thread")),
        "millions": record.params["millions"],
        "bandwidth": measured["bandwidth"],
        "vs_torch": measured.get("vs_torch"),
        "peak": card.bandwidth if card else None,
    }
    if record.benchmark == "vecadd_tuned" or (record.params["launch"], record.params["memory"]) == ("grid", "pinned"):
        yield row
    if row["kernel"] == "tuned":
        yield {**row, "kernel": "copy", "bandwidth": measured["copy_bandwidth"], "vs_torch": None}


def draw_bandwidths(sheet: Any, table: Table) -> None:
    """Bandwidth against K, with the published peak of the memory as a line."""

    def line(axes: Any, label: str, of_one: list[dict[str, Any]]) -> None:
        axes.semilogx([row["millions"] for row in of_one], [row["bandwidth"] / 1e12 for row in of_one], label=label)

    drawn = _panels(sheet, table, ("kernel",), line, "bandwidth in TB/s", lambda name: name)
    for axes, (_, of_one) in zip(drawn, table.groups("machine").items(), strict=False):
        peak = of_one[0]["peak"]
        if isinstance(peak, float):
            axes.axhline(peak / 1e12, color="0.5", linewidth=0.8, linestyle="--", marker="", label="published peak")
        axes.set_ylim(bottom=0)
    legend_below(sheet)


def _panels(
    sheet: Any, table: Table, by: tuple[str, ...], line: Line, ylabel: str, label: Callable[..., str]
) -> list[Any]:
    """One panel a machine with a line for each group of rows; returns the axes."""
    machines = table.groups("machine")
    drawn = panels(sheet, len(machines), sharey=True)
    for axes, ((machine,), of_machine) in zip(drawn, machines.items(), strict=True):
        for key, of_one in Table.of(of_machine).groups(*by).items():
            line(axes, label(*key), of_one)
        axes.set(title=machine, xlabel="K, millions of elements", ylabel=ylabel)
        axes.label_outer()
    return drawn


def _table(found: Iterable[Row]) -> Table:
    cells = [
        {
            "machine": row.machine,
            "program": row.program,
            "variant": " ".join(row.variant.values() if row.program == "CPU" else _words(row.variant)),
            "millions": row.millions,
            "time": row.time,
            "kernel": row.kernel,
            "bandwidth": row.bandwidth,
            "speedup": row.speedup,
        }
        for row in found
    ]
    return Table.of(cells, UNITS)


def _words(variant: Mapping[str, str]) -> Iterable[str]:
    for name, value in variant.items():
        if name == "prefetch":
            yield from ["prefetched"] * (value == "on")
        else:
            yield value


def figures() -> list[Figure]:
    """The two charts that the exercise asks for, the speed-up, and the bandwidth."""
    return [
        Figure(
            "explicit",
            "Vector addition: explicit memory against the CPU",
            ("vecadd_cpu", "vecadd_cuda"),
            program_table("explicit"),
            draw_times,
            "A whole run on the GPU (allocation, copies, one launch, free) against the CPU's loop. Lower is better. "
            "Where the lines of 1x1 and 1x256 rise, the kernel is what takes time; where grid does, the copies are.",
        ),
        Figure(
            "unified",
            "Vector addition: unified memory against the CPU",
            ("vecadd_cpu", "vecadd_unified"),
            program_table("unified"),
            draw_times,
            "A whole run in unified memory (allocation, first launch with its page faults, reading back, free). "
            "Lower is better. “prefetched” asks the driver to move the pages before they are touched.",
        ),
        Figure(
            "speedup",
            "Speed-up over the CPU program",
            ("vecadd_cpu", "vecadd_cuda", "vecadd_unified"),
            speedup_table,
            draw_speedups,
            "The CPU program's time over that of a whole run on the GPU. Below the dashed line the CPU is faster.",
        ),
        Figure(
            "bandwidth",
            "Bandwidth of the kernel",
            ("vecadd_cuda", "vecadd_tuned"),
            bandwidth_table,
            draw_bandwidths,
            "12 B an element over the kernel's time; copy: 8 B. Small vectors fit into the L2 cache, which is faster "
            "than the memory whose published peak is dashed. vs_torch: torch.add's time over this kernel's.",
        ),
    ]
