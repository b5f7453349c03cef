"""The diagram of a node with the measured numbers on its arrows, and the table behind it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from hpml_plugins import Record, Table


@dataclass(frozen=True)
class Quantity:
    """A number of the diagram.

    arrow: its arrow, a key of ARROWS.  label: its name.  benchmark, metric: its source. params: of
    its points; among several, the one with the largest `size` is used.
    """

    arrow: str
    label: str
    benchmark: str
    metric: str
    params: Mapping[str, Any] = field(default_factory=dict)


_PINNED: dict[str, Any] = {"memory": "pinned", "gpu": 0}
_PAIR: dict[str, Any] = {"collective": "all_reduce", "over": "nccl", "ranks": 2}
_SAVED: dict[str, Any] = {"format": "torch"}
QUANTITIES = (
    Quantity("storage", "write, fsync", "machine_checkpoint", "write", _SAVED),
    Quantity("storage", "read, cold", "machine_checkpoint", "cold", _SAVED),
    Quantity("host", "triad, all threads", "machine_triad", "bandwidth"),
    Quantity("host", "page fault", "machine_core", "page_fault"),
    Quantity("pcie", "to the GPU", "machine_host_copy", "to_device", _PINNED),
    Quantity("pcie", "from the GPU", "machine_host_copy", "to_host", _PINNED),
    Quantity("pcie", "both at once", "machine_host_copy", "both", _PINNED),
    Quantity("launch", "eager launch", "machine_launch", "eager"),
    Quantity("launch", "kernel in a graph", "machine_launch", "graph"),
    Quantity("launch", "mailbox, there and back", "machine_mailbox", "round_trip"),
    Quantity("shared", "shared memory", "machine_shared", "bandwidth"),
    Quantity("shared", "L1 load", "machine_latency", "time", {"level": "l1"}),
    Quantity("l2", "read", "machine_cache", "l2"),
    Quantity("l2", "load", "machine_latency", "time", {"level": "l2"}),
    Quantity(
        "memory", "copy, read + written", "machine_memory", "bandwidth", {"operation": "copy"}
    ),
    Quantity("memory", "load", "machine_latency", "time", {"level": "memory"}),
    Quantity("peer", "one way", "machine_peer_copy", "bandwidth", {"way": "one"}),
    Quantity("peer", "both ways", "machine_peer_copy", "bandwidth", {"way": "both"}),
    Quantity("peer", "load", "machine_peer_latency", "time"),
    Quantity("peer", "all-reduce of 8 B", "machine_collective", "latency", _PAIR),
)
#: Box → its text and place: centre and half of its width and height.
BOXES = {
    "storage": ("storage", (0.9, 0.7, 0.75, 0.45)),
    "ram": ("host memory", (0.9, 2.6, 0.75, 0.45)),
    "cpu": ("CPU", (0.9, 4.5, 0.75, 0.45)),
    "sm": ("multiprocessors", (5.9, 4.5, 0.95, 0.45)),
    "local": ("L1, shared memory", (9.9, 4.5, 0.95, 0.45)),
    "cache": ("L2", (5.9, 2.6, 0.95, 0.45)),
    "hbm": ("GPU memory", (5.9, 0.7, 0.95, 0.45)),
    "peer": ("other GPU's memory", (12.0, 0.7, 0.85, 0.45)),
}
#: Arrow → the boxes at its ends, by the sides that face each other, and the position of its
#: numbers: beside it, or above.
ARROWS = {
    "storage": ("storage", "ram", (1.0, 1.65)),
    "host": ("ram", "cpu", (1.0, 3.55)),
    "pcie": ("ram", "hbm", (2.75, 2.15)),
    "launch": ("cpu", "sm", (1.8, 4.6)),
    "shared": ("sm", "local", (7.0, 4.6)),
    "l2": ("sm", "cache", (6.0, 3.55)),
    "memory": ("cache", "hbm", (6.0, 1.65)),
    "peer": ("hbm", "peer", (7.0, 0.78)),
}
ABOVE = ("pcie", "launch", "shared", "peer")
WIDTH, HEIGHT = 13.0, 5.2
NOT_MEASURED = "not measured"


def quantities(records: Sequence[Record]) -> Table:
    """The parts of a node, by this plugin's newest Records. GPU 0 stands for its GPUs; empty: not
    measured there. bandwidth: of copies the bytes copied, of the GPU's memory and of the triad
    those read and written.
    """
    machines = sorted({record.machine for record in records})
    rows = [
        row
        for machine in machines
        for row in _rows([each for each in records if each.machine == machine])
    ]
    return Table.of(rows, {"bandwidth": "B/s", "time": "s"})


def _rows(records: list[Record]) -> Iterable[dict[str, Any]]:
    for each in QUANTITIES:
        record = _largest(record for record in records if _gives(record, each))
        metric = record.metrics[each.metric] if record else None
        unit = metric.unit if metric else ""
        yield {
            "machine": records[0].machine,
            "arrow": each.arrow,
            "what": each.label,
            "bandwidth": metric.value if metric and unit == "B/s" else None,
            "time": metric.value if metric and unit == "s" else None,
            "size": str(record.params.get("size", "")) if record else "",
            "benchmark": each.benchmark,
        }


def _gives(record: Record, quantity: Quantity) -> bool:
    same = all(record.params.get(name) == value for name, value in quantity.params.items())
    return record.benchmark == quantity.benchmark and quantity.metric in record.metrics and same


def _largest(records: Iterable[Record]) -> Record | None:
    from hpml_plugins.plugins.machine.units import size_in_bytes

    return max(
        records,
        key=lambda record: size_in_bytes(str(record.params.get("size", "1B"))),
        default=None,
    )


def text_of(row: dict[str, Any]) -> str:
    """A number of the diagram in words: "to the GPU: 55.4 GB/s"."""
    if row["bandwidth"] is not None:
        return f"{row['what']}: {scaled(row['bandwidth'], 'B/s')}"
    return f"{row['what']}: {scaled(row['time'], 's') if row['time'] is not None else NOT_MEASURED}"


def scaled(number: float, unit: str) -> str:
    """Three digits and a prefix: 5.54e10 B/s is "55.4 GB/s", 8.7e-7 s is "870 ns"."""
    prefixes = (
        (1e12, "T"),
        (1e9, "G"),
        (1e6, "M"),
        (1e3, "k"),
        (1.0, ""),
        (1e-3, "m"),
        (1e-6, "µ"),
        (1e-9, "n"),
    )
    # a value that rounds up to 1000 gets the next prefix
    size, prefix = next(
        (each for each in prefixes if abs(number) >= 0.9995 * each[0]), prefixes[-1]
    )
    digits = number / size
    return f"{digits:.{2 if digits < 9.995 else 1 if digits < 99.95 else 0}f} {prefix}{unit}"


def draw(sheet: Any, table: Table) -> None:
    """One panel per machine, those with the most numbers first, showing the measured
    connections."""
    groups = table.groups("machine")
    if not groups:
        return
    order = sorted(
        groups,
        key=lambda machine: -sum(NOT_MEASURED not in text_of(row) for row in groups[machine]),
    )
    sheet.set_size_inches(0.8 * WIDTH, 0.9 * HEIGHT * len(order))
    for number, machine in enumerate(order):
        panel = sheet.add_subplot(len(order), 1, number + 1)
        panel.set(xlim=(0, WIDTH), ylim=(0, HEIGHT), aspect="equal")
        panel.set_title(str(machine[0]), loc="left")
        panel.axis("off")
        panel.grid(False)
        texts = {
            arrow: [text_of(row) for row in groups[machine] if row["arrow"] == arrow]
            for arrow in ARROWS
        }
        known = [
            arrow
            for arrow, lines in texts.items()
            if any(NOT_MEASURED not in line for line in lines)
        ]
        _draw_boxes(panel, known)
        for arrow in known:
            align, text = "bottom" if arrow in ABOVE else "center", "\n".join(texts[arrow])
            panel.text(*ARROWS[arrow][2], text, fontsize=8, va=align, ha="left", linespacing=1.25)


def _draw_boxes(panel: Any, arrows: Sequence[str]) -> None:
    from matplotlib.patches import FancyArrowPatch, Rectangle

    ends = [ARROWS[arrow][:2] for arrow in arrows]
    shown = {box for pair in ends for box in pair}
    if shown - {"storage", "ram", "cpu"}:
        panel.add_patch(
            Rectangle((4.75, 0.05), 6.2, 5.05, facecolor="0.96", edgecolor="0.7", zorder=0)
        )
        panel.text(10.8, 2.6, "GPU", fontsize=10, ha="right", va="center", color="0.4")
    for label, (x, y, wide, high) in (place for name, place in BOXES.items() if name in shown):
        panel.add_patch(
            Rectangle((x - wide, y - high), 2 * wide, 2 * high, facecolor="white", edgecolor="0.3")
        )
        panel.text(x, y, label.replace(" memory", "\nmemory"), fontsize=9, ha="center", va="center")
    for first, second in ends:
        line = facing(BOXES[first][1], BOXES[second][1])
        panel.add_patch(
            FancyArrowPatch(
                *line, arrowstyle="<->", mutation_scale=11, color="0.3", shrinkA=0, shrinkB=0
            )
        )


def facing(
    first: Sequence[float], second: Sequence[float]
) -> tuple[tuple[float, float], tuple[float, float]]:
    """The middles of the sides of two boxes that face each other. A box: x, y, half its width, half
    its height."""
    (x, y, wide, high), (to_x, to_y, to_wide, to_high) = first, second
    if x == to_x:
        sign = 1 if to_y > y else -1
        return (x, y + sign * high), (to_x, to_y - sign * to_high)
    sign = 1 if to_x > x else -1
    return (x + sign * wide, y), (to_x - sign * to_wide, to_y)
