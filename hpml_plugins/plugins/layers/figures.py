"""What is drawn of the layers: time, memory and power side by side, and what swapping changes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from hpml_plugins import Figure, Record, Table

#: Column, label and scale of each panel.
PANELS = (("time", "time, s", 1.0), ("memory", "memory, GiB", 1 / 2**30), ("power", "power, W", 1.0))
UNITS = {
    "time": "s",
    "memory": "B",
    "power": "W",
    "energy": "J",
    "highest_power": "W",
    "memory_in_use": "B",
    "flop_rate": "FLOP/s",
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
    """Panels over the layers: time, memory, power where known; a colour for each machine, device, mode and batch."""
    layers = list(dict.fromkeys(table.columns["layer"]))
    series = table.groups("machine", "device", "mode", "batch")
    shown = [panel for panel in PANELS if any(value is not None for value in table.columns[panel[0]])]
    panels = sheet.subplots(len(shown), 1, sharex=True)
    sheet.set_size_inches(7.6, 7.2)
    width = 0.8 / len(series)
    for number, (key, rows) in enumerate(series.items()):
        machine, device, mode, batch = key
        for axes, (name, label, scale) in zip(panels, shown, strict=True):
            known = [row for row in rows if row[name] is not None]
            places = [layers.index(row["layer"]) + (number - (len(series) - 1) / 2) * width for row in known]
            heights = [float(row[name] or 0) * scale for row in known]
            spelled = f"{machine} {device}, {mode}, batch {batch}"
            axes.bar(places, heights, width=width, label=spelled, color=f"C{number % 8}")
            axes.set(ylabel=label)
    panels[0].set_yscale("log")
    panels[-1].set_xticks(range(len(layers)), [str(layer) for layer in layers])
    panels[0].legend(loc="lower left", bbox_to_anchor=(0.0, 1.0), ncols=2, fontsize=7)


def swap_table(records: Sequence[Record]) -> Table:
    """A row for each pair of points: time and memory in both orders, and swapped over normal."""
    pairs: dict[str, dict[str, Record]] = {}
    for record in records:
        rest = {name: value for name, value in record.params.items() if name != "order"}
        key = f"{record.machine} {record.benchmark} {sorted(rest.items())}"
        pairs.setdefault(key, {})[str(record.params["order"])] = record
    rows = []
    for pair in pairs.values():
        if len(pair) < 2:
            continue
        first = pair["normal"]
        rest = {name: value for name, value in first.params.items() if name != "order"}
        row: dict[str, Any] = {"machine": first.machine, "device": _device(first), **rest}
        for name in ("time", "memory"):
            normal, swapped = (pair[order].median(name) for order in ("normal", "swapped"))
            row |= {f"{name}_normal": normal, f"{name}_swapped": swapped}
            row[f"{name}_ratio"] = swapped / normal if normal and swapped is not None else None
        rows.append(row)
    units = {f"{name}_{order}": UNITS[name] for name in ("time", "memory") for order in ("normal", "swapped")}
    return Table.of(rows, units | {"time_ratio": "1", "memory_ratio": "1"})


def draw_swap(sheet: Any, table: Table) -> None:
    """How much less time and memory the swapped order takes, in per cent; above zero is a gain."""
    rows = list(table.rows())
    axes = sheet.subplots()
    for number, name in enumerate(("time", "memory")):
        known = [(place, row[f"{name}_ratio"]) for place, row in enumerate(rows) if row[f"{name}_ratio"] is not None]
        gains = [100 * (1 - float(ratio)) for _, ratio in known]  # type: ignore[arg-type]
        axes.barh([place + 0.4 * number - 0.2 for place, _ in known], gains, height=0.4, label=name)
    labels = [
        f"{row['machine']} {row['device']}, {row['mode']}, batch {row['batch']}{', in place' if row['inplace'] else ''}"
        for row in rows
    ]
    axes.set_yticks(range(len(rows)), labels, fontsize=8)
    axes.invert_yaxis()
    axes.axvline(0, linewidth=1, color="gray", marker="")
    axes.set(xlabel="saved by max pooling before ReLU, %")
    axes.legend()


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
        "power is the average while the layer ran on and on, by the card's energy counter, energy that of a pass. "
        "highest_power and memory_in_use are the most that the watcher saw over the whole point.",
    ),
    Figure(
        "swap",
        "VGG16 with max pooling before ReLU",
        ("swap_cuda", "swap_cpu"),
        swap_table,
        draw_swap,
        "Both orders give the same output, bit for bit. In place: ReLUs overwrite their input, as torchvision's do.",
    ),
)
