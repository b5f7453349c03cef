"""The coursework's figures 2 to 6 and 12 to 14 with our numbers, and the tables that belong to
them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from hpml_plugins import (
    Axis,
    Figure,
    Record,
    Rule,
    Table,
    bar_chart,
    dot_chart,
    line_chart,
    published_figures,
    roofline_chart,
)
from hpml_plugins.plugins.mlp.formulas import (
    COUNTED,
    EXCHANGE,
    IMAGES,
    LAUNCHING,
    ORDER,
    RATE_UNITS,
    STEP,
    WAYS,
    Job,
)

Row = dict[str, Any]
MakeTable = Callable[[Sequence[Record]], Table]
TO_HOST, REDUCE, TO_DEVICE = EXCHANGE

#: The point published in the document, and its sizes.
PUBLISHED = "published"
PUBLISHED_POINT: Row = {
    "machine": PUBLISHED,
    "device": "gpu",
    "ranks": 2,
    "way": "mpi",
    "product": "own",
}
PUBLISHED_SIZE: Row = {"dtype": "float32", "hidden": 512, "batch": 3000}
#: Column → the published quantity shown in it.
PUBLISHED_RATES = {"flops": "compute", "pci": "pcie", "mpi": "mpi"}
PUBLISHED_PHASES = {name: f"{name.lower().replace(' ', '_')}_time" for name in COUNTED}
PUBLISHED_PHASES |= {
    IMAGES: "copy_images_time",
    TO_HOST: "memcpy_device_to_host_time",
    REDUCE: "allreduce_time",
    TO_DEVICE: "memcpy_host_to_device_time",
    STEP: "step_time",
}


def published(quantity: str) -> float:
    """The document's figure of this name."""
    return published_figures("mpi_network", quantity)[0].value


def _with_published(table: Table, names: Mapping[str, str], **more: Any) -> Table:
    """The table with the document's own numbers below ours."""
    if not len(table):
        return table
    theirs = {name: published(quantity) for name, quantity in names.items()}
    return Table.of([*table.rows(), {**PUBLISHED_POINT, **more, **theirs}], table.units)


def _device(record: Record) -> Row:
    return {"device": "cpu" if record.benchmark.endswith("_cpu") else "gpu"}


def of_series(series: str, *params: str) -> MakeTable:
    """The table of a series."""
    return lambda records: Table.of_series(records, series, *params, more=_device)


def errors(records: Sequence[Record]) -> Table:
    """The series, also of old Records, which lack the run of NumPy with weights rounded to
    float32."""
    table = of_series("errors", "data", "dtype", "product")(records)
    return table.extended(
        lambda row: {name: row.get(name) for name in ("perturbed", "perturbed_error")}
    )


def over(sweep: str) -> MakeTable:
    """Accuracy and loss over a sweep; NumPy's accuracy where it was trained too.

    Over epochs also `change`, the loss relative to the row before, less 1: near 0 training has
    converged.
    """

    def table_of(records: Sequence[Record], series: str, by: str) -> Table:
        return Table.of_series(
            records, series, "data", more=lambda record: {"by": by, **_device(record)}
        )

    def table(records: Sequence[Record]) -> Table:
        ours = table_of(records, sweep, "network")
        if sweep == "rate":
            ours = Table.of([*ours.rows(), *table_of(records, "numpy", "NumPy").rows()], ours.units)
        named = ours.select(
            "by", "machine", "device", "data", sweep, accuracy="precision", loss="loss"
        )
        return _with_change(named) if sweep == "epochs" else named

    return table


def _with_change(table: Table) -> Table:
    """The table with `change` of the loss since the row before of the same network."""
    rows: list[Row] = []
    for same in table.groups("by", "machine", "device", "data").values():
        last: Any = None
        for row in same:
            rows.append({**row, "change": row["loss"] / last - 1 if last else None})
            last = row["loss"]
    return Table.of(rows, {**table.units, "change": "1"})


def phases(records: Sequence[Record]) -> Table:
    """A phase is device time, without launch overhead; ranks are synchronised before gradients are
    reduced. The mark is the whole batch as it runs; launching (in the table): host time to launch
    the computation; gradients: the library that sums them, and the memory. Last row: the
    coursework's own.
    """
    names = (*ORDER, LAUNCHING)

    def times(record: Record) -> Row:
        series = record.series["phases"]
        found = dict(zip(series.columns["phase"], series.numbers("time"), strict=True))
        return {
            **_device(record),
            "gradients": WAYS[str(record.params["way"])],
            "batch_time": record.value("batch"),
            **{n: found.get(n, 0.0) for n in names},
        }

    table = Table.of_records(
        records, "explained", more=times, units=dict.fromkeys(("batch_time", *names), "s")
    )
    point = ("machine", "device", "ranks", "way", "product")
    ours = table.select(
        *point, "hidden", "batch", "dtype", "gradients", "batch_time", *names, "explained"
    ).sorted(*point)
    return _with_published(
        ours,
        {**PUBLISHED_PHASES, "batch_time": "iteration_time"},
        **PUBLISHED_SIZE,
        gradients=WAYS["mpi"],
    )


def throughput(records: Sequence[Record]) -> Table:
    """P_flops: FLOP of the four products divided by their time; P_pci: gradients there and back;
    P_mpi: bytes of the all-reduce, 2 b between two ranks as the coursework counts. Last row: the
    coursework's own.
    """
    point = ("machine", "device", "ranks", "way", "product", "dtype", "hidden", "batch")
    table = Table.of_records(
        records, more=lambda record: {**_device(record), **_rates(record)}, units=RATE_UNITS
    )
    return _with_published(
        table.select(*point, *RATE_UNITS).sorted(*point), PUBLISHED_RATES, **PUBLISHED_SIZE
    )


def _rates(record: Record) -> dict[str, float | None]:
    series = record.series["rates"]
    return {
        name: series.numbers(name)[0] if name in series.columns else None for name in RATE_UNITS
    }


def model(*, images: bool, points: bool) -> MakeTable:
    """Roofs, and the grid's points on them, with the time of images or without; or only the one
    that sets the roof, with the coursework's own roof, of which no points are published.
    """
    time, predicted = ("whole", "curves") if images else ("without_images", "roofline")

    def on_roof(row: Row) -> Row:
        return {
            "hidden": int(row["hidden"]),
            "batch": int(row["batch"]),
            "intensity": row["intensity"],
            "rate": row["flops"] / row[time],
            "error": row[predicted] / row[time] - 1,
            "time": row[time],
            "predicted": row[predicted],
            REDUCE: row.get(REDUCE),
        }

    def table(records: Sequence[Record]) -> Table:
        rows: list[Row] = []
        for record in records:
            point = {"machine": record.machine, **_device(record), **record.params}
            ranks = int(record.params["ranks"])
            share = Job(512, ranks, ranks).copied_share  # whatever the sizes
            rows.append({**point, "what": "roof", **_rates(record), "copied": share})
            grid = list(Table.of_series([record], "grid").rows())
            found = [on_roof(row) for row in grid[: None if points else 1]]
            found.sort(key=lambda row: (row["hidden"], row["batch"]))
            # Points of one batch have nearly the same intensity: the highest carries the label for
            # all.
            highest = {row["batch"]: row for row in sorted(found, key=lambda row: row["rate"])}
            for row in found:
                label = f"B {row['batch']}" if highest[row["batch"]] is row else None
                rows.append({**point, "what": "point", **row, "label": label})
        units = {"intensity": "FLOP/B", "rate": "FLOP/s", "error": "1", "copied": "1"}
        units |= dict.fromkeys(("time", "predicted", REDUCE), "s")
        ours = Table.of(rows, {**RATE_UNITS, **units})
        return ours if points else _with_published(ours, PUBLISHED_RATES, what="roof", copied=0.5)

    return table


def overlap(records: Sequence[Record]) -> Table:
    """Mark: predicted from the phases of the plain and of the pinned batch."""
    table = of_series("ways", "ranks", "way", "hidden", "batch", "product")(records)
    return table.extended(lambda row: {"error": row["predicted"] / row["time"] - 1}, {"error": "1"})


def gemm(records: Sequence[Record]) -> Table:
    """vs_torch: torch's time divided by ours, both in float32 without tf32; tile: the fastest of
    those tried."""

    def tile(record: Record) -> Row:
        return {"tile": str(record.metrics["time"].info.get("tile", ""))}

    table = Table.of_records(records, "rate", "vs_torch", "time", "torch", more=tile)
    return table.sorted("machine", "dtype", "shape", "variant")


#: Of the phases in their order: copying images, forward, backward, element-wise, gradients (to
#: host, all-reduce, to device), step.
COLOURS = (
    "#74808d",
    "#2a78d6",
    "#7fb0ea",
    "#b34a08",
    "#e0762f",
    "#f2b48a",
    "#c9ced4",
    "#0f7350",
    "#159a6f",
    "#7fd0b3",
    "#8a6fd1",
)
RATE = Axis("rate", "learning rate", log=True)
ACCURACY = Axis("accuracy", "accuracy", "%", zero=True)
LOSS = Axis("loss", "loss (mean cross-entropy)", log=True)
WHO_RUNS = ("machine", "device")
WHO = (*WHO_RUNS, "data")
POINT = (
    "machine",
    "ranks: {ranks}",
    "way",
    "H {hidden}",
    "B {batch}",
    "dtype",
    "{product} product",
)
ERRORS = line_chart(
    RATE,
    Axis("error", "relative error of weights", log=True),
    WHO_RUNS,
    dash=("dtype", "{product} product"),
    panel="data",
    transform=[
        {"joinaggregate": [{"op": "max", "field": "steps", "as": "last"}]},
        {"filter": "datum.steps === datum.last"},
    ],
)
PHASE_BARS = bar_chart(
    POINT,
    Axis("value", "time per batch", "s"),
    parts=ORDER,
    colours=COLOURS,
    marks={"batch_time": "whole batch"},
)
OVERLAP_BARS = bar_chart(
    "variant",
    Axis("time", "time per batch", "s"),
    marks={"predicted": "predicted from phases"},
    panel=tuple(name for name in POINT if name != "dtype"),
    independent=("x", "y"),
)
THROUGHPUT_DOTS = dot_chart(
    ("machine", "device", "ranks: {ranks}", "way", "{product} product", "H {hidden}", "B {batch}"),
    [
        Axis("flops", "P_flops", "FLOP/s", log=True),
        Axis("pci", "P_pci", "B/s", log=True),
        Axis("mpi", "P_mpi", "B/s", log=True),
    ],
)
SPLIT_BARS = bar_chart(
    ("machine", "ranks: {ranks}", "way", "{how} parallel"),
    Axis("time", "time of a batch", "s"),
    marks={"predicted": "estimated from phases"},
)
GEMM_DOTS = dot_chart(
    ("shape", "dtype", "variant"),
    [Axis("rate", "rate", "FLOP/s", log=True), Axis("vs_torch", "torch's time / ours", zero=True)],
    "machine",
)


def _roofline(**options: Any) -> dict[str, Any]:
    """Roofs and points, coloured by how gradients are summed."""
    also = [
        Axis("time", "time per batch", "s"),
        Axis("predicted", "predicted", "s"),
        Axis("error", "error of the prediction", "%"),
        Axis(REDUCE, REDUCE, "s"),
        "batch",
    ]
    return roofline_chart(
        Axis(
            "intensity",
            "arithmetic intensity (FLOP per byte copied or reduced)",
            "FLOP/B",
            log=True,
        ),
        Axis("rate", "rate (1 multiply-add = 2 FLOP)", "FLOP/s", log=True),
        ("{ranks} ranks", "way", "{product} product"),
        roof=(
            "datum.at / (datum.at / datum.flops + datum.copied / datum.pci + (1 - datum.copied) /"
            " datum.mpi)"
        ),
        shape="H {hidden}",
        label="label",
        also=also,
        **options,
    )


ROOFLINE = _roofline(dash=WHO_RUNS)
POINTS = _roofline(panel=WHO_RUNS, across=2, independent=("y",))


def make_figures() -> list[Figure]:
    """In the order of the document's questions."""
    at_rate = Rule("x", published("best_learning_rate"), "the coursework's best rate")
    at_best = Rule("y", published("precision"), "the coursework's accuracy")
    at_loss = Rule("y", published("best_loss"), "the coursework's best loss")
    weights, learning, phased, modelled, overlapped, split = (
        (f"mlp_{name}", f"mlp_{name}_cpu")
        for name in ("weights", "learning", "phases", "model", "overlap", "split")
    )
    return [
        Figure(
            "errors",
            "Weights compared with NumPy's in float64",
            weights,
            errors,
            ERRORS,
            "Relative error of the weights after the last step. Where it is large, training is"
            " chaotic: accuracies (precision, and reference for NumPy) differ too, as do those of"
            " NumPy itself from weights rounded to float32 (perturbed).",
        ),
        Figure(
            "precision",
            "Accuracy vs. learning rate",
            learning,
            over("rate"),
            line_chart(RATE, ACCURACY, WHO, dash="by", rules=[at_rate, at_best]),
            "On test images, after five epochs with 512 hidden units. Grey lines: the coursework's"
            " result on MNIST, about 0.97 and a best rate near 0.1.",
        ),
        Figure(
            "rate",
            "Loss vs. learning rate",
            learning,
            over("rate"),
            line_chart(RATE, LOSS, WHO, rules=[at_rate]),
            "Mean cross-entropy over the training images after five epochs. Too small a rate"
            " converges slowly; too large a rate diverges.",
        ),
        Figure(
            "loss",
            "Loss by epochs",
            learning,
            over("epochs"),
            line_chart(Axis("epochs", "epochs", log=True), LOSS, WHO, rules=[at_loss]),
            "At twice the coursework's best rate. Grey line: its best loss, after a thousand"
            " epochs.",
        ),
        Figure(
            "hidden",
            "Accuracy by hidden size",
            learning,
            over("hidden"),
            line_chart(
                Axis("hidden", "hidden units", log=True, base=2), ACCURACY, WHO, rules=[at_best]
            ),
            "After five epochs at a rate of 0.1. Grey line: about where the coursework's accuracy"
            " saturates, on MNIST.",
        ),
        Figure("phases", "Where the time of a batch goes", phased, phases, PHASE_BARS),
        Figure(
            "setup",
            "Before the first batch",
            phased,
            of_series("setup", "ranks", "way", "product"),
            None,
            "Starting MPI, importing, drawing weights and images, and the three batches that are"
            " checked.",
        ),
        Figure("throughput", "Effective throughputs", phased, throughput, THROUGHPUT_DOTS),
        Figure(
            "roofline",
            "Roofline with effective throughputs",
            modelled,
            model(images=False, points=False),
            ROOFLINE,
            "AI / (AI / P_flops + s / P_pci + (1 − s) / P_mpi), with the rates measured at the"
            " point shown. s: the copies' share of the bytes moved, p / (3 p − 2): ½ for two ranks,"
            " as in the coursework, 0.4 for four.",
        ),
        Figure(
            "points",
            "Measured points on the roofline",
            modelled,
            model(images=True, points=True),
            POINTS,
            "One panel per machine. Whole batches, including copying the images, which the roof"
            " does not model. predicted: from each phase's rates at the other points of the grid."
            " H: hidden units; B: batch, the same for all points above one another. all-reduce: of"
            " the gradients, within the time.",
        ),
        Figure(
            "points_without_images",
            "Measured points without copying images",
            modelled,
            model(images=False, points=True),
            POINTS,
            "Points above the roof compute faster than the point at which the roof was measured. "
            "predicted: by the roof.",
        ),
        Figure(
            "overlap", "Pinned memory, pieces, prefetched images", overlapped, overlap, OVERLAP_BARS
        ),
        Figure(
            "split",
            "Data parallel and model parallel",
            split,
            of_series("predicted", "ranks", "way", "hidden", "batch", "product"),
            SPLIT_BARS,
            "handed: bytes that each rank gives to the all-reduce per batch, counted there;"
            " counted: by formula, (H D + H + C H + C) b and B C b.",
        ),
        Figure("gemm", "Our tiled product and torch's", ("mlp_gemm",), gemm, GEMM_DOTS),
        Figure(
            "tiles",
            "The tiles that were tried",
            ("mlp_gemm",),
            of_series("tuning", "shape", "dtype", "variant"),
            None,
            "The fastest first.",
        ),
        Figure(
            "counters",
            "Hardware counters of our product and torch's",
            ("mlp_counters",),
            of_series("kernels", "shape", "dtype", "variant"),
            None,
            "By Nsight Compute, one launch each, hot caches. compute: the busiest pipeline of the"
            " multiprocessors; memory: the busiest part of the memory system; dram: device memory;"
            " each over its peak. occupancy: resident warps over those a multiprocessor can hold;"
            " issue: cycles in which a scheduler issued; waves: blocks over those that run at once;"
            " wavefronts, conflicts: of shared memory.",
        ),
        Figure(
            "stalls",
            "Why warps of our product and of torch's wait",
            ("mlp_counters",),
            of_series("stalls", "shape", "dtype", "variant"),
            None,
            "Cycles that a warp waits for each reason per instruction that is issued.",
        ),
    ]
