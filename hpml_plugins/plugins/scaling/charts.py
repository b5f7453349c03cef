"""The coursework's tables 1 to 3, speed-up and efficiency over GPUs, where DataParallel's steps go,
what is sent."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from statistics import fmean
from typing import Any

from hpml_plugins import Axis, Figure, Record, Rule, Table, bar_chart, dot_chart, line_chart
from hpml_plugins.plugins.scaling.dp import DP_UNITS, PARTS
from hpml_plugins.plugins.scaling.jobs import FLOAT32, METRICS, ring_bandwidth
from hpml_plugins.plugins.scaling.wire import WIRE_METRICS

#: Benchmark → (how it trains, what stays the same as GPUs are added).
METHODS = {
    "scaling_single": ("one GPU", ""),
    "scaling_dp": ("DP", "weak"),
    "scaling_dp_strong": ("DP", "strong"),
    "scaling_ddp": ("DDP", "weak"),
    "scaling_ddp_strong": ("DDP", "strong"),
    "scaling_ddp_graph": ("DDP, CUDA graph", "weak"),
    "scaling_vgg16": ("DDP, VGG16", "weak"),
    "scaling_single_cpu": ("one process, small model", ""),
    "scaling_ddp_cpu": ("DDP over gloo, small model", ""),
}
SEVERAL = tuple(name for name in METHODS if not name.startswith("scaling_single"))
ON_GPUS = tuple(name for name in SEVERAL if not name.endswith("_cpu"))
#: Methods that train ResNet18 on images of which `scaling_loading` measures these, s.
WITH_DATA, DATA = ("one GPU", "DP", "DDP", "DDP, CUDA graph"), ("copy", "loading")
STATISTICS = ("scaling_statistics", "scaling_statistics_cpu")
LARGE = ("scaling_small_batch", "scaling_large_batch", "scaling_large_batch_cpu")

#: The columns that identify a point.
POINT = ("machine", "method", "scaling", "dtype", "batch", "gpus")
UNITS = {**{metric.name: metric.unit for metric in METRICS}, **DP_UNITS}
UNITS |= {"waiting": "s", "last_rank": "B/s", "by_subtraction": "B/s"}
USE = ("utilisation", "sm_efficiency", "occupancy")  # of scaling_use, and of scaling_vgg16's ranks

Row = dict[str, Any]


def points(records: Sequence[Record]) -> Table:
    """One row per point: how it trains, its metrics, its profile, and derived values."""

    def more(record: Record) -> Row:
        method, scaling = METHODS[record.benchmark]
        row: Row = {
            "method": method,
            "scaling": record.params.get("scaling", scaling),
            "gpus": _ranks(record),
        }
        if record.benchmark not in SEVERAL:
            return {**row, "speedup": 1.0} if method == "one GPU" else row
        row |= {name: column[0] for name, column in record.series["profile"].columns.items()}
        # Seconds that each rank's reductions took in a profiled step; DataParallel has no ranks. A
        # collective's kernel starts when its own rank arrives and ends when all are done, so the
        # last rank's is the shortest: the others waited for at least the difference.
        reductions = record.series["ranks"].numbers("reduction") if "ranks" in record.series else []
        last = min(reductions, default=0.0)
        row["waiting"] = fmean(reductions) - last if reductions else None
        return {
            **row,
            "last_rank": _ring(record, last),
            "by_subtraction": _ring(record, row["subtracted"]),
        }

    names = [metric.name for metric in METRICS if metric.name != "efficiency"]
    return Table.of_records(
        records, *names, intervals=("efficiency",), more=more, units=UNITS
    ).sorted(*POINT)


def _ring(record: Record, seconds: float) -> float | None:
    """Ring bytes of the gradients over `seconds`; None if that is 0."""
    parameters = float(record.metrics["ceiling"].info["parameters"])
    return ring_bandwidth(FLOAT32 * parameters, seconds, _ranks(record)) if seconds > 0 else None


def table1(records: Sequence[Record]) -> Table:
    """weak: batch per GPU; strong: total batch. single: step on one GPU running the same code,
    timed in turns with the step on all (in older Records right before it); speed-up and efficiency
    are relative to it. efficiency_low, efficiency_high: 95 % interval. copy, loading: of an epoch's
    images, from host memory and by a DataLoader, each alone (scaling_loading); the step includes
    neither.
    """
    ratios = ("speedup", "efficiency", "efficiency_low", "efficiency_high")
    return with_data(records).select(*POINT, "single", "step", "epoch", *ratios, *DATA)


def with_data(records: Sequence[Record]) -> Table:
    """`points`, each of ResNet18 in float32 with what copying and loading an epoch's images takes
    there, s."""
    measured = {
        (record.machine, record.params["batch"], _ranks(record)): record
        for record in records
        if record.benchmark == "scaling_loading"
    }

    def more(row: Row) -> Row:
        found = measured.get((row["machine"], row["batch"], row["gpus"]))
        if (
            found is None
            or row["dtype"] != "float32"
            or row["method"] not in WITH_DATA
            or row["scaling"] == "strong"
        ):
            return dict.fromkeys(DATA)
        steps = row["epoch"] / row["step"]
        return {name: steps * found.metrics[name].value for name in DATA}

    trained = [record for record in records if record.benchmark in METHODS]
    return points(trained).extended(more, dict.fromkeys(DATA, "s"))


def loading(records: Sequence[Record]) -> Table:
    """Of an epoch of 50,000 images. train: on images that are on the device; copy: from pinned host
    memory; loading: by a DataLoader of two processes per GPU; epoch: all together, with the
    DataLoader in parallel.
    """
    names = ("train", *DATA)

    def of_epoch(record: Record) -> Row:
        steps = record.metrics["epoch"].value / record.metrics["step"].value
        return {"gpus": _ranks(record)} | {
            name: steps * record.metrics[name].value for name in names
        }

    table = Table.of_records(records, "epoch", more=of_epoch, units=dict.fromkeys(names, "s"))
    return table.select("machine", "batch", "gpus", *names, "epoch").sorted(
        "machine", "batch", "gpus"
    )


def table2(records: Sequence[Record]) -> Table:
    """compute: steps that exchange nothing, on all GPUs at once (DataParallel: one GPU's, perfectly
    shared out); exchange: what steps that do take longer. Both are of one run, in which the two
    take turns; their sum is `parts`. epoch: of steps timed for themselves. The rest is from a
    profile, mean over GPUs, whose steps take longer. overlapped: communication while something was
    computed; exposed: while nothing was; idle: neither; profiled: computation, exposed and idle.
    subtracted: the step minus a perfectly scaled one, as in the coursework. waiting (part of
    communication): how much longer a rank's reductions took than those of the last rank to arrive.
    copy, loading: as in table 1.
    """
    columns = ("computation", "communication", "exposed", "idle", "subtracted", "waiting")

    def of_epoch(row: Row) -> Row:
        steps = row["epoch"] / row["step"]

        def times_steps(seconds: float | None) -> float | None:
            return None if seconds is None else steps * seconds

        compute, parts = (times_steps(row.get(name)) for name in ("apart", "together"))
        found: Row = {name: times_steps(row[name]) for name in columns}
        found |= {"compute": compute, "parts": parts}
        found["exchange"] = _difference(parts, compute)
        found["overlapped"] = _difference(found["communication"], found["exposed"])
        profiled = [found[name] for name in ("computation", "exposed", "idle")]
        return {**found, "profiled": None if None in profiled else sum(profiled)}

    in_turns = ("compute", "exchange", "parts")
    units = dict.fromkeys((*in_turns, "overlapped", "profiled"), "s")
    table = with_data(records).extended(of_epoch, units)
    profile = (*columns[:2], "overlapped", *columns[2:], "profiled")
    return table.select(*POINT, *in_turns, "epoch", *profile, *DATA)


def _difference(one: float | None, other: float | None) -> float | None:
    return None if one is None or other is None else one - other


def table3(records: Sequence[Record]) -> Table:
    """Ring all-reduce: 2 (n − 1) / n · S divided by the time of the reductions in the profile,
    including waiting for other ranks. ceiling: a single all-reduce of the same size without
    concurrent work; last_rank: over the reductions of the last rank to arrive; by_subtraction: over
    step − single. reducing: the share of step − single in which gradients were reduced, which is
    by_subtraction / bus_bandwidth; the rest of it is copying the model, and the host.
    """
    bandwidths = ("bus_bandwidth", "ceiling", "last_rank", "by_subtraction")

    def reducing(row: Row) -> Row:
        subtracted, profiled = row["by_subtraction"], row["bus_bandwidth"]
        return {"reducing": subtracted / profiled if subtracted and profiled else None}

    table = points(records).extended(reducing, {"reducing": "1"})
    return table.select(*POINT, *bandwidths, "utilization", "reducing")


def speedups(records: Sequence[Record]) -> Table:
    """All methods at one batch size, the one that most points have; a method without it, such as
    VGG16, at its own, which the legend names. Dashed grey: ideal linear scaling.
    """

    def most_common(rows: Sequence[Row]) -> Any:
        counts = Counter(row["batch"] for row in rows)
        return max(counts, key=lambda batch: (counts[batch], batch))

    table, rows = table1(records).select(*POINT, "speedup"), []
    shared = most_common(list(table.rows())) if len(table) else None
    for of_one in table.groups("machine", "method", "scaling", "dtype").values():
        batch = shared if any(row["batch"] == shared for row in of_one) else most_common(of_one)
        drawn = [row for row in of_one if row["batch"] == batch]
        rows += [{**drawn[0], "gpus": 1, "speedup": 1.0}, *drawn]
    return Table.of(rows, table.units)


def dp_step(records: Sequence[Record]) -> Table:
    """Host time in each part of a profiled step, which is slower than an unprofiled one. Diamond:
    step on one GPU, not profiled; square: DataParallel's step, not profiled. Copies between GPUs
    are not included: see communication in table 2.
    """
    parts = ("single_forward", "single_backward", *PARTS, "single", "step", "idle")
    return points(records).select(*POINT, *parts)


def vgg16(records: Sequence[Record]) -> Table:
    """An epoch is 8192 images of 224×224. single, step: a step on one GPU and on all; single_epoch:
    an epoch of steps on one GPU; kernels: time of all kernels of a profiled step on that rank's
    GPU; collective_share: NCCL's share of it, including waiting; utilisation, sm_efficiency,
    occupancy: as in `use`.
    """
    units = {**UNITS, "kernels": "s"}
    table = Table.of_series(
        records, "ranks", more=lambda record: next(points([record]).rows()), units=units
    )
    columns = (
        "single_epoch",
        "epoch",
        "single",
        "step",
        "speedup",
        "rank",
        "kernels",
        "collective_share",
        *USE,
    )

    def of_epoch(row: Row) -> Row:
        steps_of_one = row["gpus"] * row["epoch"] / row["step"]  # weak scaling
        return {"rank": int(row["rank"]), "single_epoch": steps_of_one * row["single"]}

    ranks = table.extended(of_epoch, {"single_epoch": "s"})
    return ranks.select("machine", "dtype", "batch", "gpus", *columns)


def use(records: Sequence[Record]) -> Table:
    """utilisation: share of the profiled time in which anything ran; sm_efficiency: kernels' time,
    weighted with its blocks per multiprocessor up to 1; occupancy: resident warps over those a
    multiprocessor can hold.
    """
    return Table.of_records(records, "step", *USE).select(
        "machine", "model", "dtype", "batch", "step", *USE
    )


def wire(records: Sequence[Record]) -> Table:
    """Bytes transferred in one step, counted. DDP: on each rank, before the ring turns them into 2
    (n − 1) / n of that; DP: all transfers between GPUs.
    """
    kinds = [metric.name for metric in WIRE_METRICS]

    def method(record: Record) -> Row:
        return {
            "method": "DDP" if record.benchmark == "scaling_wire_ddp" else "DP",
            "gpus": _ranks(record),
        }

    return Table.of_records(records, *kinds, more=method).select(
        "machine", "method", "gpus", "model", *kinds
    )


def large_batch(records: Sequence[Record]) -> Table:
    """linear: learning rate scaled with the batch after a warm-up of two epochs; zero_gamma:
    residual blocks start as the identity (Goyal et al.).
    """
    reached = ("train_loss", "train_accuracy", "test_accuracy")
    usual = {"batch": 128, "recipe": "small batch"}

    def settings(record: Record) -> Row:
        updates = int(record.series["epochs"].numbers("steps")[-1])
        return {"gpus": _ranks(record), "updates": updates, **usual, **record.params}

    table = Table.of_records(records, *reached, more=settings)
    columns = ("machine", "data", "gpus", "batch", "recipe", "updates", *reached)
    return table.select(*columns).sorted("machine", "data", "gpus", "batch")


def statistics(records: Sequence[Record]) -> Table:
    """Five epochs in which only gradients are exchanged. mean_drift: of a rank's running means from
    those of all, in standard deviations, root mean square over channels; variance_drift: the same
    of variances, relative.
    """
    table = Table.of_series(
        records, "ranks", "data", "batch", more=lambda record: {"gpus": _ranks(record)}
    )
    columns = ("rank", "mean_drift", "variance_drift", "test_accuracy")
    return table.select("machine", "data", "gpus", "batch", *columns).sorted(
        "machine", "data", "gpus", "batch", "rank"
    )


def _ranks(record: Record) -> int:
    return int(record.params.get("gpus", record.params.get("ranks", 1)))


EFFICIENCY = Axis("efficiency", "efficiency: speed-up / GPUs", zero=True)
IDEAL = "ideal: every GPU as fast as one alone"
SPEEDUP_CHART = line_chart(
    Axis("gpus", "GPUs", log=True, base=2),
    Axis("speedup", "speed-up over one GPU (×)", zero=True),
    ("method", "scaling", "dtype", "batch {batch}"),
    dash="machine",
    diagonal=True,
)
EFFICIENCY_CHART = dot_chart(
    ("method", "scaling", "dtype", "batch {batch}"),
    EFFICIENCY,
    ("machine", "{gpus} GPUs"),
    low="efficiency_low",
    high="efficiency_high",
    rules=[Rule("x", 1, IDEAL)],
)
BATCH_CHART = line_chart(
    Axis("batch", "images (weak: per GPU; strong: in total)", log=True, base=2),
    EFFICIENCY,
    ("method", "scaling", "dtype"),
    panel=("machine", "{gpus} GPUs"),
    rules=[Rule("y", 1, IDEAL)],
)
STEP_CHART = bar_chart(
    ("machine", "dtype", "{scaling} scaling", "batch {batch}", "{gpus} GPUs"),
    Axis("value", "host time", "s"),
    parts=PARTS,
    marks={"single": "step on one GPU, not profiled", "step": "DataParallel's step, not profiled"},
)


TABLE2_CHART = bar_chart(
    ("batch {batch}", "machine", "dtype", "{gpus} GPUs"),
    Axis("value", "time of an epoch", "s"),
    parts=("compute", "exchange"),
    marks={"epoch": "epoch, timed for itself"},
    panel="method",
    transform=[{"filter": "isValid(datum.compute) && datum.scaling === 'weak'"}],
    independent=("x", "y"),
)
TABLE3_CHART = dot_chart(
    ("method", "machine", "{gpus} GPUs", "batch {batch}"),
    Axis("value", "bandwidth", "B/s", log=True),
    parts=("by_subtraction", "bus_bandwidth", "last_rank", "ceiling"),
    transform=[{"filter": "datum.dtype === 'float32' && datum.scaling === 'weak'"}],
)
LOADING_CHART = dot_chart(
    ("machine", "GPUs: {gpus}", "batch {batch}"),
    Axis("value", "time of an epoch", "s", log=True),
    parts=("train", *DATA, "epoch"),
)
LARGE_BATCH_CHART = dot_chart(
    ("data", "machine", "GPUs: {gpus}", "batch {batch}", "recipe"),
    Axis("value", "accuracy after five epochs", "%", zero=True),
    parts=("train_accuracy", "test_accuracy"),
)
WIRE_CHART = bar_chart(
    ("machine", "method", "{gpus} GPUs"),
    Axis("value", "sent in a step", "B"),
    parts=tuple(metric.name for metric in WIRE_METRICS if metric.name != "at_start"),
)
STATISTICS_CHART = dot_chart(
    ("machine", "data", "{gpus} ranks"),
    Axis("value", "distance of a rank's statistics from the mean", log=True),
    parts=("mean_drift", "variance_drift"),
)
EFFICIENCY_CAPTION = (
    "The number is the batch size: per GPU (weak) or total (strong). Dashed: 1, ideal scaling. A"
    " wide interval means a step limited by the host, or one whose clocks the power cap changes."
)
BATCH_CAPTION = (
    "weak: batch size per GPU; strong: in total. Where launch overhead or communication limits a"
    " step, a larger batch gives the GPUs more work to overlap with it."
)
FIGURES = (
    Figure(
        "table1",
        "Table 1: epoch time, speed-up and efficiency",
        (*METHODS, "scaling_loading"),
        table1,
    ),
    Figure(
        "table2",
        "Table 2: computation and communication per epoch",
        (*SEVERAL, "scaling_loading"),
        table2,
        TABLE2_CHART,
    ),
    Figure(
        "loading",
        "An epoch with its data",
        ("scaling_loading", "scaling_loading_cpu"),
        loading,
        LOADING_CHART,
    ),
    Figure("use", "How far training fills one GPU", ("scaling_use",), use),
    Figure("table3", "Table 3: bandwidth of the gradient reduction", SEVERAL, table3, TABLE3_CHART),
    Figure("speedup", "Speed-up by number of GPUs", ON_GPUS, speedups, SPEEDUP_CHART),
    Figure(
        "efficiency",
        "Efficiency with its 95 % interval",
        ON_GPUS,
        table1,
        EFFICIENCY_CHART,
        EFFICIENCY_CAPTION,
    ),
    Figure(
        "efficiency_over_batch",
        "Efficiency by batch size",
        ON_GPUS,
        table1,
        BATCH_CHART,
        BATCH_CAPTION,
    ),
    Figure(
        "dp_step",
        "Where DataParallel spends its step",
        ("scaling_dp", "scaling_dp_strong"),
        dp_step,
        STEP_CHART,
    ),
    Figure("vgg16", "VGG16: one GPU and several", ("scaling_vgg16",), vgg16),
    Figure("wire", "Data sent per step", ("scaling_wire_ddp", "scaling_wire_dp"), wire, WIRE_CHART),
    Figure("large_batch", "Large batches after five epochs", LARGE, large_batch, LARGE_BATCH_CHART),
    Figure(
        "statistics",
        "Running statistics of the ranks after five epochs",
        STATISTICS,
        statistics,
        STATISTICS_CHART,
    ),
)
