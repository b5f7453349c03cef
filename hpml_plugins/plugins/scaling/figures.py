"""The exercise's tables 1 to 3, speed-up and efficiency over GPUs, where DataParallel's steps go, what is sent."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from statistics import fmean
from typing import Any

from hpml_plugins import Figure, Record, Samples, Table
from hpml_plugins.plugins.scaling.charts import (
    draw_breakdown,
    draw_efficiencies,
    draw_efficiency_over_batch,
    draw_speedups,
)
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
        row = {**_point(record), "step": record.metrics["step"].median, "epoch": record.metrics["epoch"].median}
        if "efficiency" in record.metrics:
            found = Samples.of(record.metrics["efficiency"].samples, "1")
            low, high = found.interval()
            row |= {"speedup": record.metrics["speedup"].median, "efficiency": found.median, "from": low, "to": high}
        elif record.benchmark == "scaling_single":
            row |= {"speedup": 1.0}
        rows.append(row)
    units = {"step": "s", "epoch": "s", "speedup": "1", "efficiency": "1", "from": "1", "to": "1"}
    return Table.of(_ordered(rows), units)


def table2(records: Sequence[Record]) -> Table:
    """Seconds of an epoch spent computing and communicating, from the profile, and by subtraction."""
    columns = ("computation", "communication", "exposed", "idle", "subtracted")
    rows = []
    for record in records:
        steps = record.metrics["epoch"].median / record.metrics["step"].median
        found = {name: steps * _figure(record, name) for name in columns}
        waiting = _waiting(record)
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
    """Bandwidth of the reduction from the profile and by subtraction, beside that of an all-reduce alone."""
    columns = ("bus_bandwidth", "ceiling", "utilization")
    rows = []
    for record in records:
        point = _point(record)
        measured = {name: _figure(record, name) for name in columns}
        last = min(_reductions(record), default=0.0)
        over = {"last_rank": last, "by_subtraction": _figure(record, "subtracted")}
        rows.append({**point, **measured, **{name: _ring(record, s, point["gpus"]) for name, s in over.items()}})
    units = dict.fromkeys(("bus_bandwidth", "ceiling", "last_rank", "by_subtraction"), "B/s") | {"utilization": "1"}
    return Table.of(_ordered(rows), units)


def _ring(record: Record, seconds: float, ranks: int) -> float | None:
    """Ring bytes of the gradients over so many seconds; unknown where there are none."""
    parameters = record.metrics["ceiling"].info.get("parameters")
    return ring_bandwidth(FLOAT32 * float(parameters), seconds, ranks) if parameters and seconds > 0 else None


def breakdown_table(records: Sequence[Record]) -> Table:
    """Where the host spends DataParallel's step, and one GPU's."""
    columns = ("single_forward", "single_backward", *PARTS, "single", "step", "idle")
    rows = [{**_point(record), **{name: _figure(record, name) for name in columns}} for record in records]
    return Table.of(_ordered(rows), dict.fromkeys(columns, "s"))


def scaling_table(records: Sequence[Record]) -> Table:
    """Speed-up and efficiency of every point on several GPUs."""
    return table1([record for record in records if record.benchmark in ON_GPUS])


def vgg_table(records: Sequence[Record]) -> Table:
    """A row a rank: its GPU's kernels, and the collectives' share in them."""
    rows = []
    for record in records:
        ranks = record.series["ranks"].columns
        for rank, (share, kernels) in enumerate(zip(ranks["collective_share"], ranks["kernels"], strict=True)):
            point = {name: cell for name, cell in _point(record).items() if name not in ("method", "scaling")}
            whole = {name: _figure(record, name) for name in ("epoch", "single", "step", "speedup")}
            rows.append({**point, **whole, "rank": rank, "kernels": kernels, "collective_share": share})
    units = dict.fromkeys(("epoch", "single", "step", "kernels"), "s")
    return Table.of(rows, {**units, "speedup": "1", "collective_share": "1"})


def wire_table(records: Sequence[Record]) -> Table:
    """Bytes by kind."""
    kinds = ("gradients", "buffers", "parameters", "inputs", "outputs", "at_start")
    rows = [
        {
            "machine": record.machine,
            "method": "DDP" if record.benchmark == "scaling_wire_ddp" else "DP",
            "gpus": _ranks(record),
            "model": record.params["model"],
            **{kind: record.metrics[kind].median for kind in kinds},
        }
        for record in records
    ]
    return Table.of(rows, dict.fromkeys(kinds, "B"))


def large_table(records: Sequence[Record]) -> Table:
    """Loss and accuracy of the last epoch."""
    columns = ("train_loss", "train_accuracy", "test_accuracy")
    rows = [
        {
            "machine": record.machine,
            "data": record.params["data"],
            "gpus": _ranks(record),
            "batch": record.params.get("batch", 128),
            "recipe": record.params.get("recipe", "the small batch's"),
            "updates": int(record.series["epochs"].columns["steps"][-1]),
            **{name: record.metrics[name].median for name in columns},
        }
        for record in records
    ]
    rows.sort(key=lambda row: (row["machine"], row["data"], row["gpus"], row["batch"]))
    return Table.of(rows, dict.fromkeys(columns, "1"))


def _point(record: Record) -> Row:
    method, scaling = METHODS[record.benchmark]
    return {
        "machine": record.machine,
        "method": method,
        "scaling": record.params.get("scaling", scaling),
        "dtype": record.params["dtype"],
        "batch": record.params["batch"],
        "gpus": _ranks(record),
    }


def _ranks(record: Record) -> int:
    return int(record.params.get("gpus", record.params.get("ranks", 1)))


def _ordered(rows: Iterable[Row]) -> list[Row]:
    return sorted(
        rows,
        key=lambda row: tuple(row[name] for name in ("machine", "method", "scaling", "dtype", "batch", "gpus")),
    )


def _figure(record: Record, name: str) -> float:
    """A metric's median, or what the series `profile` has under that name."""
    return record.metrics[name].median if name in record.metrics else record.series["profile"].numbers(name)[0]


def figures() -> list[Figure]:
    """The three tables, three charts, DataParallel's step, the wire, large batches."""
    return [
        Figure(
            "table1",
            "Table 1: time of an epoch, speed-up and efficiency",
            tuple(METHODS),
            table1,
            None,
            "weak: batch is that of each GPU; strong: that of all. Speed-up and efficiency against one GPU that runs "
            "the same code in the same point; from, to: the 95 % interval of the efficiency.",
        ),
        Figure(
            "table2",
            "Table 2: computing and communicating, of an epoch",
            SEVERAL,
            table2,
            None,
            "From a profile, mean over GPUs: exposed is communication while nothing was computed, idle is nothing at "
            "all. Subtracted is the step less a perfectly scaled one, times steps, as the exercise has it. Waiting is "
            "in communication: how much longer a rank's reductions took than those of the rank that came last.",
        ),
        Figure(
            "table3",
            "Table 3: bandwidth of the gradients' reduction",
            SEVERAL,
            table3,
            None,
            "Ring all-reduce: 2 (n − 1) / n · S over the time of the reductions in the profile, waiting for other "
            "ranks included; ceiling: the same of one all-reduce of as many bytes with nothing beside it; last_rank: "
            "over the reductions of the rank that came last and waited least; by_subtraction: over step − single.",
        ),
        Figure(
            "speedup",
            "Speed-up over GPUs",
            ON_GPUS,
            scaling_table,
            draw_speedups,
            "Each way at the batch that was measured on the most numbers of GPUs, the largest of several. Dashed: as "
            "many times as there are GPUs.",
        ),
        Figure(
            "efficiency",
            "Efficiency, with its 95 % interval",
            ON_GPUS,
            scaling_table,
            draw_efficiencies,
            "The number is the batch: weak, of each GPU; strong, of all. Dashed: 1, every GPU as fast as one alone. A "
            "wide interval is a step bound by the host, or one whose clocks a power cap changes.",
        ),
        Figure(
            "efficiency_over_batch",
            "Efficiency over the batch",
            ON_GPUS,
            scaling_table,
            draw_efficiency_over_batch,
            "weak: the batch of each GPU; strong: of all. Where a step is bound by the host's launching or by "
            "communication, a larger batch gives the GPUs more to do beside it.",
        ),
        Figure(
            "dp_step",
            "Where DataParallel's step goes",
            DATA_PARALLEL,
            breakdown_table,
            draw_breakdown,
            "The host's time in the parts of a profiled step, which takes longer than others: the square is "
            "DataParallel's step as it is, the diamond that of one GPU. Copies between GPUs are not among the parts: "
            "see communication in table 2.",
        ),
        Figure(
            "vgg16",
            "VGG16: one GPU against several",
            ("scaling_vgg16",),
            vgg_table,
            None,
            "An epoch is 8192 images of 224×224. single, step: a step on one GPU and on all; kernels: all of a "
            "profiled step's on that rank's GPU; collective_share: NCCL's in them, which also wait for other ranks.",
        ),
        Figure(
            "wire",
            "What crosses the wire in a step",
            WIRE,
            wire_table,
            None,
            "Bytes handed over in one step, counted. DDP: on each rank, before the ring makes 2 (n − 1) / n of them; "
            "DP: all that goes from GPU to GPU.",
        ),
        Figure(
            "large_batch",
            "Large batches after five epochs",
            LARGE,
            large_table,
            None,
            "linear: the rate scaled with the batch, after a warm-up of two epochs; zero_gamma: residual blocks start "
            "as the identity (Goyal et al.).",
        ),
    ]
