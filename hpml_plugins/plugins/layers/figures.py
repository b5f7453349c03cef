"""The layers: time, memory and power side by side, and what swapping changes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from hpml_plugins import Axis, Figure, Record, Rule, Table, dot_chart, interval_columns

UNITS = {
    **dict.fromkeys(("time", "time_per_input", "swapped_time"), "s"),
    **dict.fromkeys(("memory", "memory_per_input", "memory_in_use", "swapped_memory"), "B"),
    **dict.fromkeys(("speedup", "speedup_low", "speedup_high", "memory_ratio"), "1"),
    "power": "W",
    "energy": "J",
    "highest_power": "W",
    "flop_rate": "FLOP/s",
}


def layers_table(records: Sequence[Record]) -> Table:
    """One row per point: time and memory; power and energy where the card reports them; the watcher's maxima."""
    rows = []
    for record in records:
        row = _point(record) | {name: record.median(name) for name in ("time", "memory")}
        batch = record.params["batch"]
        row |= {f"{name}_per_input": row[name] and row[name] / batch for name in ("time", "memory")}
        row["flop_rate"] = _highest(record, "work", "rate")
        row |= {name: _highest(record, "power", name) for name in ("power", "energy")}
        row["highest_power"] = _highest(record, "gpu0", "power")
        row["memory_in_use"] = _highest(record, "gpu0", "memory_used")
        rows.append(row)
    return Table.of(rows, UNITS)


def swap_table(records: Sequence[Record]) -> Table:
    """One row per point: time and memory in both orders, and what the swapped order saves of them.

    speedup: normal over swapped time, with its interval over the rounds.  time_saved: 1 − 1 / speedup. A Record without
    speedup (of version 1, which had one point per order) is left out.
    """
    rows = []
    for record in records:
        if "speedup" not in record.metrics:
            continue
        row = _point(record) | {name: record.median(name) for name in ("time", "swapped_time")}
        speedup = interval_columns(record, "speedup")
        saved = {name.replace("speedup", "time_saved"): _saved(cell) for name, cell in speedup.items()}
        normal, swapped = (record.median(name) for name in ("memory", "swapped_memory"))
        ratio = swapped / normal if normal and swapped is not None else None
        row |= {**speedup, **saved, "memory": normal, "swapped_memory": swapped, "memory_ratio": ratio}
        rows.append(row | {"memory_saved": None if ratio is None else 1 - ratio})
    return Table.of(rows, UNITS)


def _saved(speedup: Any) -> float | None:
    return 1 - 1 / speedup if speedup else None


def _point(record: Record) -> dict[str, Any]:
    return {"machine": record.machine, "device": record.benchmark.rpartition("_")[2], **record.params}


def _highest(record: Record, series: str, column: str) -> float | None:
    found = record.series.get(series)
    return max(found.numbers(column), default=None) if found and column in found.columns else None


LAYERS = dot_chart(
    "layer",
    [
        Axis("time_per_input", "time per input", "s", log=True),
        Axis("memory_per_input", "memory per input", "B", zero=True),
        Axis("power", "power", "W", zero=True),
    ],
    ("machine", "device", "mode", "batch {batch}"),
)
SWAP = dot_chart(
    ("machine", "device", "mode", "batch {batch}", "{side}²", "in place: {inplace}"),
    [Axis("time_saved", "time saved", "%"), Axis("memory_saved", "memory saved", "%")],
    low="time_saved_low",
    high="time_saved_high",
    rules=[Rule("x", 0, "no difference")],
)
FIGURES = (
    Figure(
        "layers",
        "Single layers: time, memory and power",
        ("layers_cuda", "layers_cpu"),
        layers_table,
        LAYERS,
        "Time and memory in the chart are divided by the batch size; the table also has those of a whole pass. power: "
        "mean during repeated runs (energy counter); energy: per pass. highest_power and memory_in_use: maxima over the "
        "whole point.",
    ),
    Figure(
        "swap",
        "VGG16 with max pooling before ReLU",
        ("swap_cuda", "swap_cpu"),
        swap_table,
        SWAP,
        "Both orders give bitwise identical output and are timed alternately. Whiskers: 95 % interval of the median; where "
        "it includes zero, no gain is established. In place: ReLUs overwrite their input, as in torchvision.",
    ),
)
