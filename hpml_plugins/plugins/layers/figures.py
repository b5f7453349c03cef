"""What is drawn of the layers: time, memory and power side by side, and what swapping changes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from hpml_plugins import Figure, Record, Samples, Table, dots

#: Column and label of each panel. Time and memory are divided by the batch: a GPU's and a CPU's are not the same.
PANELS = (("time", "time / batch, s"), ("memory", "memory / batch, MiB"), ("power", "power, W"))
UNITS = {
    "time": "s",
    "memory": "B",
    "power": "W",
    "energy": "J",
    "highest_power": "W",
    "memory_in_use": "B",
    "flop_rate": "FLOP/s",
}
SWAP_UNITS = {
    "time": "s",
    "swapped_time": "s",
    "speedup": "1",
    "speedup_low": "1",
    "speedup_high": "1",
    "memory": "B",
    "swapped_memory": "B",
    "memory_ratio": "1",
}


def layers_table(records: Sequence[Record]) -> Table:
    """A row a point: its time and memory; power and energy a pass where the card told; what the watcher saw highest."""
    rows = []
    for record in records:
        row: dict[str, Any] = {"machine": record.machine, "device": _device(record), **record.params}
        row |= {name: record.median(name) for name in ("time", "memory")}
        row["flop_rate"] = _highest(record, "work", "rate")
        row |= {name: _highest(record, "power", name) for name in ("power", "energy")}
        row["highest_power"] = _highest(record, "gpu0", "power")
        row["memory_in_use"] = _highest(record, "gpu0", "memory_used")
        rows.append(row)
    return Table.of(rows, UNITS)


def draw_layers(sheet: Any, table: Table) -> None:
    """Layers down, time, memory and power (where known) across: a mark for each machine, device, mode and batch."""
    scales = {"time": lambda row: 1 / row["batch"], "memory": lambda row: 1 / row["batch"] / 2**20}
    rows = list(table.rows())
    shown = [panel for panel in PANELS if any(row[panel[0]] is not None for row in rows)]
    points = {
        label: [
            (
                str(row["layer"]),
                f"{row['machine']} {row['device']}, {row['mode']}, batch {row['batch']}",
                _scaled(row[name], scales[name](row) if name in scales else 1),
            )
            for row in rows
        ]
        for name, label in shown
    }
    time, *_ = dots(sheet, points)
    time.set_xscale("log")


def _scaled(cell: Any, scale: float) -> Any:
    return None if cell is None else cell * scale


def swap_table(records: Sequence[Record]) -> Table:
    """A row a point: time and memory in both orders, normal over swapped time, and swapped over normal memory.

    speedup_low, speedup_high: the interval of the median over the rounds. A Record without speedup (of version 1, which
    had a point an order) is left out.
    """
    rows = []
    for record in records:
        if not (rounds := record.metrics.get("speedup")):
            continue
        row: dict[str, Any] = {"machine": record.machine, "device": _device(record), **record.params}
        row |= {name: record.median(name) for name in ("time", "swapped_time", "speedup")}
        row["speedup_low"], row["speedup_high"] = Samples(tuple(rounds.samples)).interval()
        normal, swapped = (record.median(name) for name in ("memory", "swapped_memory"))
        row |= {"memory": normal, "swapped_memory": swapped}
        row["memory_ratio"] = swapped / normal if normal and swapped is not None else None
        rows.append(row)
    return Table.of(rows, SWAP_UNITS)


def draw_swap(sheet: Any, table: Table) -> None:
    """How much less time and memory the swapped order takes, in per cent; right of zero is a gain, a line its interval.

    The time saved is 1 − 1 / speedup.
    """
    points: list[tuple[str, str, Any]] = []
    intervals = []
    for row in table.rows():
        label = f"{row['machine']} {row['device']}, {row['mode']}, batch {row['batch']} of {row['side']}²"
        label += ", in place" if row["inplace"] else ""
        ratio = row["memory_ratio"]
        points.append((label, "time", _saved_time(row["speedup"])))
        points.append((label, "memory", None if ratio is None else 100 - _scaled(ratio, 100)))
        intervals.append((_saved_time(row["speedup_low"]), _saved_time(row["speedup_high"])))
    (axes,) = dots(sheet, {"saved by max pooling before ReLU, %": points})
    times = axes.get_lines()[0]
    axes.hlines(times.get_ydata(), *zip(*intervals, strict=True), linewidth=1, color=times.get_color())
    axes.axvline(0, linewidth=1, color="gray", marker="")


def _saved_time(speedup: Any) -> float:
    return 100 - 100 / float(speedup)


def _device(record: Record) -> str:
    return record.benchmark.rpartition("_")[2]


def _highest(record: Record, series: str, column: str) -> float | None:
    found = record.series.get(series)
    return max(found.numbers(column), default=None) if found and column in found.columns else None


FIGURES = (
    Figure(
        "layers",
        "Layers alone: time, memory and power",
        ("layers_cuda", "layers_cpu"),
        layers_table,
        draw_layers,
        "Time and memory in the chart are divided by the batch, in the table they are of a pass over it. "
        "power is the average while the layer ran on and on, by the card's energy counter, energy that of a pass. "
        "highest_power and memory_in_use are the most that the watcher saw over the whole point.",
    ),
    Figure(
        "swap",
        "VGG16 with max pooling before ReLU",
        ("swap_cuda", "swap_cpu"),
        swap_table,
        draw_swap,
        "Both orders give the same output, bit for bit, and are timed in turns. The line through a time is the "
        "interval of its median over the rounds; where it crosses zero no gain is known. In place: ReLUs overwrite "
        "their input, as torchvision's do.",
    ),
)
