"""The layers: time, memory and power side by side, and the effect of swapping."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from hpml_plugins import Axis, Figure, Record, Rule, Table, dot_chart

Row = dict[str, Any]
#: Column → the series and its column whose largest value it is, and the unit.
WATCHED = {
    "flop_rate": ("work", "rate", "FLOP/s"),
    "power": ("power", "power", "W"),
    "energy": ("power", "energy", "J"),
    "highest_power": ("gpu0", "power", "W"),
    "memory_in_use": ("gpu0", "memory_used", "B"),
}


def layers(records: Sequence[Record]) -> Table:
    """Time and memory in the chart are divided by the batch size; the table also has those of a
    whole pass. power: mean during repeated runs (energy counter); energy: per pass. highest_power
    and memory_in_use: maxima over the whole point.
    """
    units = {name: unit for name, (_, _, unit) in WATCHED.items()}

    def watched(record: Record) -> Row:
        found = _device(record)
        for name, (series, column, _) in WATCHED.items():
            read = record.series.get(series)
            found[name] = (
                max(read.numbers(column), default=None) if read and column in read.columns else None
            )
        return found

    def per_input(row: Row) -> Row:
        return {
            f"{name}_per_input": row[name] and row[name] / row["batch"]
            for name in ("time", "memory")
        }

    table = Table.of_records(records, "time", "memory", more=watched, units=units)
    return table.extended(per_input, {"time_per_input": "s", "memory_per_input": "B"})


def _device(record: Record) -> Row:
    return {"device": record.benchmark.rpartition("_")[2]}


def swap(records: Sequence[Record]) -> Table:
    """Both orders give bitwise identical output and are timed alternately. ratio: time over
    swapped_time, of the two values in the row. speedup: the median of the same ratio of turns timed
    one after the other, which is less sensitive to disturbances; the chart shows it. Whiskers: 95 %
    interval of that median; where it includes zero, no gain is established. In place: ReLUs
    overwrite their input, as in torchvision.
    """

    def saved(row: Row) -> Row:
        speedups = {f"time_saved{end}": row[f"speedup{end}"] for end in ("", "_low", "_high")}
        ratio = row["swapped_memory"] / row["memory"] if row["memory"] else None
        ratios = {"ratio": row["time"] / row["swapped_time"], "memory_ratio": ratio}
        ratios["memory_saved"] = None if ratio is None else 1 - ratio
        return {name: speedup and 1 - 1 / speedup for name, speedup in speedups.items()} | ratios

    # Version 1 had one point per order and no speed-up.
    both = [record for record in records if "speedup" in record.metrics]
    names = ("time", "swapped_time", "memory", "swapped_memory")
    return Table.of_records(both, *names, intervals=("speedup",), more=_device).extended(
        saved, {"ratio": "1", "memory_ratio": "1"}
    )


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
FIGURES = [
    Figure(
        "layers",
        "Single layers: time, memory and power",
        ("layers_cuda", "layers_cpu"),
        layers,
        LAYERS,
    ),
    Figure("swap", "VGG16 with max pooling before ReLU", ("swap_cuda", "swap_cpu"), swap, SWAP),
]
