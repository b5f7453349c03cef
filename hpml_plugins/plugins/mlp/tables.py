"""The tables behind the charts, and those that stand alone. Pure functions on Records."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from hpml_plugins import Record, Table, published_figures
from hpml_plugins.plugins.mlp.phases import LAUNCHING, ORDER

Row = dict[str, Any]
PUBLISHED = "published (003)"
#: The topic under which the exercise's figures are found.
TOPIC = "mpi_network"
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
    """What the exercise publishes under this name; None where the data does not have it."""
    found = published_figures(TOPIC, quantity)
    return found[0].value if found else None


def rows_of(records: Iterable[Record], series: str, *more: str) -> list[Row]:
    """A row for each row of the series, with its machine, device and these of the point's parameters before it."""
    rows: list[Row] = []
    for record in records:
        if found := record.series.get(series):
            point = {"machine": record.machine, **_device(record), **{name: record.params[name] for name in more}}
            names = list(found.columns)
            rows += [
                {**point, **dict(zip(names, values, strict=True))}
                for values in zip(*found.columns.values(), strict=True)
            ]
    return rows


def gemm(records: Sequence[Record]) -> Table:
    """Our product and torch's."""
    rows = [
        {
            "machine": record.machine,
            **record.params,
            "rate": record.median("rate"),
            "vs_torch": record.median("vs_torch"),
            "time": record.median("time"),
            "torch": record.median("torch"),
            "tile": str(record.metrics["time"].info.get("tile", "")),
        }
        for record in records
    ]
    rows.sort(key=lambda row: (row["machine"], str(row["dtype"]), str(row["shape"]), str(row["variant"])))
    return Table.of(rows, {"rate": "FLOP/s", "vs_torch": "1", "time": "s", "torch": "s"})


def tiles(records: Sequence[Record]) -> Table:
    """Every tile that was tried."""
    rows = rows_of(records, "tuning", "shape", "dtype", "variant")
    return Table.of(rows, {"time": "s", "waste": "1"})


def errors(records: Sequence[Record]) -> Table:
    """How far weights are from NumPy's, over learning rate and steps."""
    rows = rows_of(records, "errors", "data", "dtype", "product")
    return Table.of(rows, dict.fromkeys(("rate", "steps", "error", "precision", "reference"), "1"))


def over(sweep: str) -> Callable[[Sequence[Record]], Table]:
    """Precision and loss over a sweep; NumPy's precision beside it where it was trained too."""

    def table(records: Sequence[Record]) -> Table:
        rows = [{"by": "network", **row} for row in rows_of(records, sweep, "data")]
        if sweep == "rate":
            rows += [{"by": "NumPy", **row} for row in rows_of(records, "numpy", "data")]
        return Table.of(rows, dict.fromkeys((sweep, "precision", "loss"), "1"))

    return table


def phases(records: Sequence[Record]) -> Table:
    """A batch's phases, a row a point; the exercise's own below."""
    rows: list[Row] = []
    for record in records:
        series = record.series["phases"]
        times = dict(zip(series.columns["phase"], series.numbers("time"), strict=True))
        named = {name: times.get(name, 0.0) for name in (*ORDER, LAUNCHING)}
        row = {"machine": record.machine, **_device(record), **record.params, "batch_time": record.median("batch")}
        rows.append({**row, **named, "explained": record.median("explained")})
    rows.sort(key=lambda row: tuple(str(row[name]) for name in ("machine", "device", "ranks", "way", "product")))
    told = {name: published(quantity) for name, quantity in PUBLISHED_PHASES.items()}
    if rows and any(told.values()):
        point = {"ranks": 2, "way": "mpi", "hidden": 512, "batch": 3000, "dtype": "float32", "product": "own"}
        rows.append({"machine": PUBLISHED, "device": "gpu", **point, "batch_time": published("iteration_time"), **told})
    return Table.of(rows, {**dict.fromkeys((*ORDER, LAUNCHING, "batch_time"), "s"), "explained": "1"})


def setup(records: Sequence[Record]) -> Table:
    """What came before the first timed batch."""
    return Table.of(rows_of(records, "setup", "ranks", "way", "product"), {"time": "s"})


def throughput(records: Sequence[Record]) -> Table:
    """P_flops, P_pci and P_mpi of every point that measured phases, and the exercise's."""
    rows = [
        {
            "machine": record.machine,
            **_device(record),
            "ranks": record.params["ranks"],
            "way": record.params["way"],
            "product": record.params["product"],
            "dtype": record.params["dtype"],
            "hidden": record.params["hidden"],
            "batch": record.params["batch"],
            **{name: _first(record, name) for name in RATES},
        }
        for record in records
    ]
    rows.sort(key=lambda row: tuple(str(cell) for cell in list(row.values())[:8]))
    told = {name: published(quantity) for name, quantity in PUBLISHED_RATES.items()}
    if rows and any(told.values()):
        point = {"ranks": 2, "way": "mpi", "product": "own", "dtype": "float32", "hidden": 512, "batch": 3000}
        rows.append({"machine": PUBLISHED, "device": "gpu", **point, **told})
    return Table.of(rows, RATES)


def model(*, images: bool, points: bool) -> Callable[[Sequence[Record]], Table]:
    """Roofs, and the grid's points on them.

    images: whether a point's time holds copying its images.  points: whether there are any but the one from which the
    roof's three rates are.
    """

    def table(records: Sequence[Record]) -> Table:
        rows: list[Row] = []
        for record in records:
            point = {"machine": record.machine, **_device(record), **record.params}
            rows.append({**point, "what": "roof", **{name: _first(record, name) for name in RATES}})
            for index, row in enumerate(rows_of([record], "grid", *record.params)):
                if index and not points:
                    break
                time = row["whole"] if images else row["without_images"]
                rows.append({
                    **point,
                    "what": "point",
                    "hidden": int(row["hidden"]),
                    "batch": int(row["batch"]),
                    "intensity": row["intensity"],
                    "rate": row["flops"] / time,
                    "time": time,
                    "predicted": row["curves"] if images else row["roofline"],
                    "error": (row["curves"] if images else row["roofline"]) / time - 1,
                })  # fmt: skip
        told = {name: published(quantity) for name, quantity in PUBLISHED_RATES.items()}
        if rows and all(told.values()):
            point = {"machine": PUBLISHED, "device": "gpu", "ranks": 2, "way": "mpi", "product": "own"}
            rows.append({**point, "what": "roof", **told})
        units = {**RATES, "intensity": "FLOP/B", "rate": "FLOP/s", "time": "s", "predicted": "s", "error": "1"}
        return Table.of(rows, units)

    return table


def ways(records: Sequence[Record]) -> Table:
    """Every variant of a batch, measured and predicted."""
    rows = rows_of(records, "ways", "ranks", "way", "hidden", "batch", "product")
    for row in rows:
        row["error"] = row["predicted"] / row["time"] - 1
    return Table.of(rows, {"time": "s", "predicted": "s", "error": "1"})


def split(records: Sequence[Record]) -> Table:
    """Data parallel and model parallel: time and bytes, measured and predicted."""
    rows = rows_of(records, "predicted", "ranks", "way", "hidden", "batch", "product")
    return Table.of(rows, {"time": "s", "predicted": "s", "handed": "B", "counted": "B"})


def _first(record: Record, column: str) -> float | None:
    columns = record.series["rates"].columns
    return record.series["rates"].numbers(column)[0] if column in columns else None


def _device(record: Record) -> Row:
    return {"device": "cpu" if record.benchmark.endswith("_cpu") else "gpu"}
