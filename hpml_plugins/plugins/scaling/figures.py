"""The exercise's tables 1 to 3, speed-up and efficiency over GPUs, where DataParallel's steps go, what is sent."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from statistics import fmean
from typing import Any

from hpml_plugins import Axis, Figure, Record, Rule, Table, bar_chart, dot_chart, interval_columns, line_chart
from hpml_plugins.plugins.scaling.dp import PARTS
from hpml_plugins.plugins.scaling.formulas import ring_bandwidth
from hpml_plugins.plugins.scaling.results import FLOAT32

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
DATA_PARALLEL = ("scaling_dp", "scaling_dp_strong")
WIRE = ("scaling_wire_ddp", "scaling_wire_dp")
LARGE = ("scaling_small_batch", "scaling_large_batch", "scaling_large_batch_cpu")

Row = dict[str, Any]


def table1(records: Sequence[Record]) -> Table:
    """Epoch, speed-up, and efficiency with its 95 % interval."""
    rows = []
    for record in records:
        row = {**_point(record), "step": record.median("step"), "epoch": record.median("epoch")}
        if "efficiency" in record.metrics:
            row |= {"speedup": record.median("speedup"), **interval_columns(record, "efficiency")}
        elif record.benchmark == "scaling_single":
            row |= {"speedup": 1.0}
        rows.append(row)
    ratios = ("speedup", "efficiency", "efficiency_low", "efficiency_high")
    return Table.of(_ordered(rows), {"step": "s", "epoch": "s", **dict.fromkeys(ratios, "1")})


def table2(records: Sequence[Record]) -> Table:
    """Seconds of an epoch spent computing and communicating, from the profile, and by subtraction."""
    columns = ("computation", "communication", "exposed", "idle", "subtracted")
    rows = []
    for record in records:
        steps = record.metrics["epoch"].median / record.metrics["step"].median
        waiting = _waiting(record)
        found = {name: steps * _figure(record, name) for name in columns}
        rows.append({**_point(record), **found, "waiting": None if waiting is None else steps * waiting})
    return Table.of(_ordered(rows), dict.fromkeys((*columns, "waiting"), "s"))


def _reductions(record: Record) -> list[float]:
    """Seconds that each rank's reductions took in a profiled step; none for DataParallel, which has no ranks."""
    ranks = record.series.get("ranks")
    return ranks.numbers("reduction") if ranks and "reduction" in ranks.columns else []


def _waiting(record: Record) -> float | None:
    """Of a profiled step, mean over ranks: how much longer its reductions took than those of the rank that came last.

    A collective's kernel starts when its own rank is there and ends when all are done, so the last rank's is the
    shortest. At least that much of the communication is waiting.
    """
    reductions = _reductions(record)
    return fmean(reductions) - min(reductions) if reductions else None


def table3(records: Sequence[Record]) -> Table:
    """Bandwidth of the reduction from the profile and by subtraction, and that of an all-reduce alone."""
    columns = ("bus_bandwidth", "ceiling", "utilization")
    rows = []
    for record in records:
        point = _point(record)
        last = min(_reductions(record), default=0.0)
        over = {"last_rank": last, "by_subtraction": _figure(record, "subtracted")}
        measured = {name: _figure(record, name) for name in columns}
        rows.append({**point, **measured, **{name: _ring(record, s, point["gpus"]) for name, s in over.items()}})
    units = dict.fromkeys(("bus_bandwidth", "ceiling", "last_rank", "by_subtraction"), "B/s") | {"utilization": "1"}
    return Table.of(_ordered(rows), units)


def _ring(record: Record, seconds: float, ranks: int) -> float | None:
    """Ring bytes of the gradients over so many seconds; unknown where there are none."""
    parameters = record.metrics["ceiling"].info.get("parameters")
    return ring_bandwidth(FLOAT32 * float(parameters), seconds, ranks) if parameters and seconds > 0 else None


def speedup_table(records: Sequence[Record]) -> Table:
    """Speed-up of each method at the largest batch measured on the most numbers of GPUs; 1 on one GPU."""
    rows: list[Row] = []
    for of_one in table1(records).groups("machine", "method", "scaling", "dtype").values():
        counts: dict[Any, set[Any]] = {}
        for row in of_one:
            counts.setdefault(row["batch"], set()).add(row["gpus"])
        longest = max(counts, key=lambda batch: (len(counts[batch]), batch))
        chosen = [row for row in of_one if row["batch"] == longest]
        names = ("machine", "method", "scaling", "dtype", "batch", "gpus", "speedup")
        rows.append({name: chosen[0][name] for name in names} | {"gpus": 1, "speedup": 1.0})
        rows += [{name: row[name] for name in names} for row in chosen]
    return Table.of(rows, {"speedup": "1"})


def breakdown_table(records: Sequence[Record]) -> Table:
    """Where the host spends DataParallel's step, and one GPU's."""
    columns = ("single_forward", "single_backward", *PARTS, "single", "step", "idle")
    rows = [{**_point(record), **{name: _figure(record, name) for name in columns}} for record in records]
    return Table.of(_ordered(rows), dict.fromkeys(columns, "s"))


def vgg_table(records: Sequence[Record]) -> Table:
    """One row per rank: its GPU's kernels, and the share of collectives in them."""
    rows = []
    for record in records:
        ranks = record.series["ranks"].columns
        point = {name: cell for name, cell in _point(record).items() if name not in ("method", "scaling")}
        point |= {name: _figure(record, name) for name in ("epoch", "single", "step", "speedup")}
        for rank, (share, kernels) in enumerate(zip(ranks["collective_share"], ranks["kernels"], strict=True)):
            rows.append({**point, "rank": rank, "kernels": kernels, "collective_share": share})
    units = dict.fromkeys(("epoch", "single", "step", "kernels"), "s")
    return Table.of(rows, {**units, "speedup": "1", "collective_share": "1"})


def wire_table(records: Sequence[Record]) -> Table:
    """Bytes by kind."""
    kinds = ("gradients", "buffers", "parameters", "inputs", "outputs", "at_start")
    rows = []
    for record in records:
        method = "DDP" if record.benchmark == "scaling_wire_ddp" else "DP"
        row = {"machine": record.machine, "method": method, "gpus": _ranks(record), "model": record.params["model"]}
        rows.append({**row, **{kind: record.median(kind) for kind in kinds}})
    return Table.of(rows, dict.fromkeys(kinds, "B"))


def large_table(records: Sequence[Record]) -> Table:
    """Loss and accuracy of the last epoch."""
    columns = ("train_loss", "train_accuracy", "test_accuracy")
    rows: list[Row] = [
        {
            "machine": record.machine,
            "data": record.params["data"],
            "gpus": _ranks(record),
            "batch": record.params.get("batch", 128),
            "recipe": record.params.get("recipe", "small batch"),
            "updates": int(record.series["epochs"].numbers("steps")[-1]),
            **{name: record.median(name) for name in columns},
        }
        for record in records
    ]
    rows.sort(key=lambda row: (row["machine"], row["data"], row["gpus"], row["batch"]))
    return Table.of(rows, dict.fromkeys(columns, "1"))


def _point(record: Record) -> Row:
    method, scaling = METHODS[record.benchmark]
    scaling = str(record.params.get("scaling", scaling))
    asked = {name: record.params[name] for name in ("dtype", "batch")}
    return {"machine": record.machine, "method": method, "scaling": scaling, **asked, "gpus": _ranks(record)}


def _ranks(record: Record) -> int:
    return int(record.params.get("gpus", record.params.get("ranks", 1)))


def _ordered(rows: Iterable[Row]) -> list[Row]:
    names = ("machine", "method", "scaling", "dtype", "batch", "gpus")
    return sorted(rows, key=lambda row: tuple(row[name] for name in names))


def _figure(record: Record, name: str) -> float:
    """A metric's median, or what the series `profile` has under that name."""
    return record.metrics[name].median if name in record.metrics else record.series["profile"].numbers(name)[0]


GPUS = Axis("gpus", "GPUs", log=True, base=2)
EFFICIENCY = Axis("efficiency", "efficiency: speed-up / GPUs", zero=True)
IDEAL = "ideal: every GPU as fast as one alone"
SPEEDUP_CHART = line_chart(
    GPUS,
    Axis("speedup", "speed-up over one GPU (×)", zero=True),
    ("method", "scaling", "dtype"),
    dash="machine",
    diagonal=True,
    also=["batch"],
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


def figures() -> list[Figure]:
    """Tables 1 to 3, speed-up and efficiency, DataParallel's step, the wire, large batches."""
    return [
        Figure(
            "table1", "Table 1: epoch time, speed-up and efficiency", tuple(METHODS), table1,
            caption="weak: batch per GPU; strong: total batch. Speed-up and efficiency are relative to one GPU running the "
            "same code in the same point; efficiency_low, efficiency_high: 95 % interval.",
        ),
        Figure(
            "table2", "Table 2: computation and communication per epoch", SEVERAL, table2,
            caption="From a profile, mean over GPUs. exposed: communication during which nothing was computed; idle: neither. "
            "subtracted: the step minus a perfectly scaled one, times the number of steps, as in the exercise. waiting (part "
            "of communication): how much longer a rank's reductions took than those of the last rank to arrive.",
        ),
        Figure(
            "table3", "Table 3: bandwidth of the gradient reduction", SEVERAL, table3,
            caption="Ring all-reduce: 2 (n − 1) / n · S divided by the time of the reductions in the profile, including "
            "waiting for other ranks. ceiling: a single all-reduce of the same size without concurrent work; last_rank: "
            "over the reductions of the last rank to arrive; by_subtraction: over step − single.",
        ),
        Figure(
            "speedup", "Speed-up by number of GPUs", ON_GPUS, speedup_table, SPEEDUP_CHART,
            "Each method at the largest batch size measured on the most GPU counts. Dashed grey: ideal linear scaling.",
        ),
        Figure(
            "efficiency", "Efficiency with its 95 % interval", ON_GPUS, table1, EFFICIENCY_CHART,
            "The number is the batch size: per GPU (weak) or total (strong). Dashed: 1, ideal scaling. A wide interval means "
            "a step limited by the host, or one whose clocks the power cap changes.",
        ),
        Figure(
            "efficiency_over_batch", "Efficiency by batch size", ON_GPUS, table1, BATCH_CHART,
            "weak: batch size per GPU; strong: in total. Where launch overhead or communication limits a step, a larger "
            "batch gives the GPUs more work to overlap with it.",
        ),
        Figure(
            "dp_step", "Where DataParallel spends its step", DATA_PARALLEL, breakdown_table, STEP_CHART,
            "Host time in each part of a profiled step, which is slower than an unprofiled one. Diamond: step on one GPU, "
            "not profiled; square: DataParallel's step, not profiled. Copies between GPUs are not included: see "
            "communication in table 2.",
        ),
        Figure(
            "vgg16", "VGG16: one GPU and several", ("scaling_vgg16",), vgg_table,
            caption="An epoch is 8192 images of 224×224. single, step: a step on one GPU and on all; kernels: time of all "
            "kernels of a profiled step on that rank's GPU; collective_share: NCCL's share of it, including waiting.",
        ),
        Figure(
            "wire", "Data sent per step", WIRE, wire_table,
            caption="Bytes handed over in one step, counted. DDP: on each rank, before the ring turns them into "
            "2 (n − 1) / n of that; DP: all transfers between GPUs.",
        ),
        Figure(
            "large_batch", "Large batches after five epochs", LARGE, large_table,
            caption="linear: learning rate scaled with the batch after a warm-up of two epochs; zero_gamma: residual blocks "
            "start as the identity (Goyal et al.).",
        ),
    ]  # fmt: skip
