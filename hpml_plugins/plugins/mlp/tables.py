"""The tables behind the charts, and those that stand alone. Pure functions of Records."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from hpml_plugins import Record, Table, published_figures
from hpml_plugins.plugins.mlp.phases import LAUNCHING, ORDER

Row = dict[str, Any]
PUBLISHED = "published (003)"
#: The topic under which the exercise's figures are found.
TOPIC = "mpi_network"
#: The point that the exercise publishes.
PUBLISHED_POINT: Row = {"machine": PUBLISHED, "device": "gpu", "ranks": 2, "way": "mpi", "product": "own"}
PUBLISHED_SIZE: Row = {"dtype": "float32", "hidden": 512, "batch": 3000}
RATES = {"flops": "FLOP/s", "pci": "B/s", "mpi": "B/s"}
#: How the published figures call them.
PUBLISHED_RATES = {"flops": "compute", "pci": "pcie", "mpi": "mpi"}
#: Phases as the published figures call them.
PUBLISHED_PHASES = {
    "copying images host to device": "copy_images_time",
    "forward GEMM 1": "forward_gemm_1_time",
    "forward GEMM 2": "forward_gemm_2_time",
    "backward GEMM 1": "backward_gemm_1_time",
    "backward GEMM 3": "backward_gemm_3_time",
    "device to host": "memcpy_device_to_host_time",
    "all-reduce": "allreduce_time",
    "host to device": "memcpy_host_to_device_time",
    "step": "step_time",
}


def published(quantity: str) -> float | None:
    """The exercise's figure of this name; None where the data does not have it."""
    found = published_figures(TOPIC, quantity)
    return found[0].value if found else None


def _published(names: Mapping[str, str]) -> dict[str, float | None]:
    return {name: published(quantity) for name, quantity in names.items()}


def rows_of(records: Iterable[Record], series: str, *params: str) -> list[Row]:
    """`Table.of_series`, row by row, with the device."""
    return [
        {"machine": record.machine, **_device(record), **row}
        for record in records
        for row in Table.of_series([record], series, *params).rows()
    ]


def _device(record: Record) -> Row:
    return {"device": "cpu" if record.benchmark.endswith("_cpu") else "gpu"}


def of_series(
    series: str, *params: str, units: Mapping[str, str], error: bool = False
) -> Callable[[Sequence[Record]], Table]:
    """The table of a series. error: with that of `predicted` relative to `time`."""

    def table(records: Sequence[Record]) -> Table:
        rows = rows_of(records, series, *params)
        return Table.of([row | {"error": row["predicted"] / row["time"] - 1} for row in rows] if error else rows, units)

    return table


def gemm(records: Sequence[Record]) -> Table:
    """Our product and torch's."""
    names = ("rate", "vs_torch", "time", "torch")
    tiles = [str(record.metrics["time"].info.get("tile", "")) for record in records]
    table = Table.of_records(records, *names)
    rows: list[Row] = [{**row, "tile": tile} for row, tile in zip(table.rows(), tiles, strict=True)]
    rows.sort(key=lambda row: (row["machine"], str(row["dtype"]), str(row["shape"]), str(row["variant"])))
    return Table.of(rows, {"rate": "FLOP/s", "vs_torch": "1", "time": "s", "torch": "s"})


def over(sweep: str) -> Callable[[Sequence[Record]], Table]:
    """Accuracy and loss over a sweep; NumPy's accuracy where it was trained too."""

    def table(records: Sequence[Record]) -> Table:
        rows = [{"by": "network", **row} for row in rows_of(records, sweep, "data")]
        if sweep == "rate":
            rows += [{"by": "NumPy", **row} for row in rows_of(records, "numpy", "data")]
        rows = [{"accuracy" if name == "precision" else name: cell for name, cell in row.items()} for row in rows]
        return Table.of(rows, dict.fromkeys((sweep, "accuracy", "loss"), "1"))

    return table


def phases(records: Sequence[Record]) -> Table:
    """A batch's phases, one row per point; the exercise's own last."""
    rows: list[Row] = []
    for record in records:
        series = record.series["phases"]
        times = dict(zip(series.columns["phase"], series.numbers("time"), strict=True))
        row = {"machine": record.machine, **_device(record), **record.params, "batch_time": record.median("batch")}
        row |= {name: times.get(name, 0.0) for name in (*ORDER, LAUNCHING)}
        rows.append({**row, "explained": record.median("explained")})
    rows.sort(key=lambda row: tuple(str(row[name]) for name in ("machine", "device", "ranks", "way", "product")))
    theirs = _published(PUBLISHED_PHASES)
    if rows and any(theirs.values()):
        rows.append({**PUBLISHED_POINT, **PUBLISHED_SIZE, "batch_time": published("iteration_time"), **theirs})
    return Table.of(rows, {**dict.fromkeys((*ORDER, LAUNCHING, "batch_time"), "s"), "explained": "1"})


def throughput(records: Sequence[Record]) -> Table:
    """P_flops, P_pci and P_mpi of every point that measured phases, and the exercise's."""
    names = ("ranks", "way", "product", "dtype", "hidden", "batch")
    rows: list[Row] = [
        {
            "machine": record.machine,
            **_device(record),
            **{name: record.params[name] for name in names},
            **_rates(record),
        }
        for record in records
    ]
    rows.sort(key=lambda row: tuple(str(cell) for cell in list(row.values())[:8]))
    theirs = _published(PUBLISHED_RATES)
    if rows and any(theirs.values()):
        rows.append({**PUBLISHED_POINT, **PUBLISHED_SIZE, **theirs})
    return Table.of(rows, RATES)


def _rates(record: Record) -> dict[str, float | None]:
    series = record.series["rates"]
    return {name: series.numbers(name)[0] if name in series.columns else None for name in RATES}


def model(*, images: bool, points: bool) -> Callable[[Sequence[Record]], Table]:
    """Roofs, and the grid's points on them.

    images: whether a point's time includes copying its images.  points: whether there are any but the one that the
    roof's three rates come from.
    """

    def table(records: Sequence[Record]) -> Table:
        rows: list[Row] = []
        for record in records:
            point = {"machine": record.machine, **_device(record), **record.params}
            rows.append({**point, "what": "roof", **_rates(record)})
            grid = rows_of([record], "grid")
            rows += [{**point, "what": "point", **_on_roof(row, images)} for row in (grid if points else grid[:1])]
        theirs = _published(PUBLISHED_RATES)
        if rows and all(theirs.values()):
            rows.append({**PUBLISHED_POINT, "what": "roof", **theirs})
        units = {**RATES, "intensity": "FLOP/B", "rate": "FLOP/s", "time": "s", "predicted": "s", "error": "1"}
        return Table.of(rows, units)

    return table


def _on_roof(row: Row, images: bool) -> Row:
    time, predicted = (row["whole"], row["curves"]) if images else (row["without_images"], row["roofline"])
    found = {"hidden": int(row["hidden"]), "batch": int(row["batch"]), "intensity": row["intensity"]}
    return {**found, "rate": row["flops"] / time, "time": time, "predicted": predicted, "error": predicted / time - 1}
