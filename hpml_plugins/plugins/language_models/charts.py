"""Rates, time per token by part, predictions from the parts, the cost of sharing a model,
latencies, and losses over time."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from typing import Any

from hpml_plugins import Axis, Figure, Record, Rule, Table, bar_chart, dot_chart, line_chart
from hpml_plugins.analysis import card_of

Row = dict[str, Any]
EXPLAINED = ("lm_explained", "lm_explained_cpu")
LAUNCHES = ("lm_launches", "lm_launches_cpu")
RANKS = ("lm_training_ranks", "lm_training_ranks_cpu")
COMMUNICATION = ("lm_communication", "lm_communication_cpu")
STEPS = {"lm_decode": "compiled", "lm_decode_fused": "fused", "lm_decode_cpu": "uncompiled"}
TO_LOSS = ("lm_time_to_loss", "lm_time_to_loss_cpu")
GAPS = "launch_gaps"
#: Eight parts and the gaps.
PART_COLOURS = (
    *("#2a78d6", "#d1580c", "#159a6f", "#c2548f", "#8a6fd1", "#9a7613", "#1391a3", "#74808d"),
    "#d14a5a",
)
#: Kind of a rung → the error that its prediction may have.
ALLOWED = {"decode": 0.15, "prefill": 0.10, "training": 0.10}


def per_joule(row: Row) -> Row:
    """Tokens for a joule, as `energy` counts it."""
    return {"tokens_per_joule": 1 / row["energy"] if row.get("energy") else None}


def training(records: Sequence[Record]) -> Table:
    """rate: tokens per second. mfu: (6 N + 12 L h q T) FLOP per token over time and the published
    bfloat16 peak. memory: the most that a step allocates. energy: of a token, above that of the
    idle card.
    """
    table = Table.of_records(records, "mfu", "memory", "energy", intervals=("rate",))
    return table.extended(per_joule).sorted("machine", "model", "batch", "checkpointing")


def fused(records: Sequence[Record]) -> Table:
    """As for training. speedup: the time of the step of `lm_training`, timed in turn with this one,
    over the time of this one.
    """
    measured = "mfu", "memory", "energy"
    table = Table.of_records(records, *measured, intervals=("rate", "speedup"))
    return table.extended(per_joule).sorted("machine", "model", "batch", "checkpointing")


def decode(records: Sequence[Record]) -> Table:
    """step: compiled; fused: by kernels of ours (lm_decode_fused); uncompiled. rate: tokens per
    second of all sequences. bandwidth: matrices and cache, each read once. error: relative change
    of the logits by the format. energy: of a token, above that of the idle card.
    """

    def step(record: Record) -> Row:
        return {"step": STEPS[record.benchmark]}

    measured = "bandwidth", "error", "energy"
    table = Table.of_records(records, *measured, intervals=("rate",), more=step)
    return table.extended(per_joule).sorted("machine", "format", "context", "batch", "step")


def prefill(records: Sequence[Record]) -> Table:
    """rate: tokens of the prompt per second. error: relative change of the logits by the format.
    energy: of a token, above that of the idle card.
    """
    table = Table.of_records(records, "flop_rate", "error", "energy", intervals=("rate",))
    return table.extended(per_joule).sorted("machine", "format", "length")


def parts(records: Sequence[Record]) -> Table:
    """time: of a step; low, high: its 95 % interval; share: of the sum. Each part is measured by
    itself. attention_in: norm, queries, keys, values, rotary embedding and writing the cache;
    attention_out: the product behind the attention; head: with the loss where a model trains.
    launch_gaps: as many kernels as all parts launch, each doing next to nothing; the times of the
    parts are without it. Where it is unknown (–), the gaps are still within the parts.
    """
    gaps = {_rung(record): record for record in records if record.benchmark in LAUNCHES}
    rows: list[Row] = []
    for record in records:
        if record.benchmark in EXPLAINED:
            rows += _parts_of(record, gaps.get(_rung(record)))
    units = {**dict.fromkeys(("time", "low", "high"), "s"), "share": "1", "launches": "1"}
    return Table.of(rows, units)


def _rung(record: Record) -> tuple[str, Any]:
    return record.machine, record.params["rung"]


def _parts_of(explained: Record, launched: Record | None) -> list[Row]:
    """The parts of a step and the gaps between its kernels.  launched: None if not measured."""
    rows: list[Row] = list(Table.of_series([explained], "parts").rows())
    total = sum(row["time"] for row in rows)
    counts: dict[str, float] = {}
    gap: Row = dict.fromkeys(("time", "low", "high"))
    if launched:
        series: list[Row] = list(Table.of_series([launched], "launches").rows())
        counts = {str(row["part"]): row["launches"] for row in series}
        estimate = launched.metrics["gap"].estimate
        gap = {"time": estimate.value, "low": estimate.low, "high": estimate.high}
    every = sum(counts.values())
    found: list[Row] = []
    for row in rows:
        count = counts.get(str(row["part"]))
        inside = (count or 0.0) * (gap["time"] or 0.0)
        times = {name: max(0.0, row[name] - inside) for name in ("time", "low", "high")}
        found.append({"part": row["part"], **times, "launches": count})
    of_gaps = {name: each and every * each for name, each in gap.items()}
    found.append({"part": GAPS, **of_gaps, "launches": every or None})
    point = {"machine": explained.machine, "rung": explained.params["rung"]}
    return [
        {
            **point,
            "part": row["part"],
            "share": row["time"] and row["time"] / total,
            **{name: row[name] for name in ("time", "low", "high", "launches")},
        }
        for row in found
    ]


def predictions(records: Sequence[Record]) -> Table:
    """predicted: the sum of the parts' times, launch gaps included; low, high: of their 95 %
    intervals' ends. error: of the prediction. The parts lack the compiler's fusion across them and
    the cache effects of the whole step; left_out is the prediction times the geometric mean of
    measured over predicted of the benchmark's other rungs on the same card, of those of its kind
    where there are any. within: whether left_out_error is at most allowed.
    """
    rows: list[Row] = []
    for record in records:
        predicted = record.metrics["predicted"]
        rows.append(
            {
                "machine": record.machine,
                "benchmark": record.benchmark,
                "rung": record.params["rung"],
                "time": record.value("time"),
                "predicted": predicted.value,
                "low": predicted.info.get("low"),
                "high": predicted.info.get("high"),
            }
        )
    # a node with a GPU measures the tiny rungs too, on its CPU: they say nothing about the GPU's
    sets = [(card_of(record), record.benchmark) for record in records]
    judged = [
        row | _judged(row, [other for other, its in zip(rows, sets, strict=True) if its == own])
        for row, own in zip(rows, sets, strict=True)
    ]
    units = {
        **dict.fromkeys(("time", "predicted", "low", "high", "left_out"), "s"),
        **dict.fromkeys(("error", "left_out_error", "allowed"), "1"),
    }
    return Table.of(judged, units)


def _kind(row: Row) -> str:
    return str(row["rung"]).partition("_")[0]


def _judged(row: Row, rows: Sequence[Row]) -> Row:
    """The errors of a row's prediction; without another rung of its card none is left out.

    rows: by the same benchmark on the same card.
    """
    found: Row = {"error": row["predicted"] / row["time"] - 1}
    others = [other for other in rows if other["rung"] != row["rung"]]
    alike = [other for other in others if _kind(other) == _kind(row)]
    ratios = [math.log(other["time"] / other["predicted"]) for other in alike or others]
    left_out = row["predicted"] * math.exp(statistics.fmean(ratios)) if ratios else None
    error = left_out / row["time"] - 1 if left_out else None
    return {
        **found,
        "left_out": left_out,
        "left_out_error": error,
        **_within(error, ALLOWED[_kind(row)]),
    }


def _within(error: float | None, allowed: float) -> Row:
    """What an error is held against; "–" if there is none."""
    within = None if error is None else "yes" if abs(error) <= allowed else "no"
    return {"allowed": allowed, "within": within}


#: The columns of a prediction of several GPUs' step.
SHARED = ("time", "predicted", "low", "high", "error")
SHARED_UNITS = {
    **dict.fromkeys(("communication", *SHARED), "s"),
    **dict.fromkeys(("error", "allowed"), "1"),
}


def sharing(records: Sequence[Record]) -> Table:
    """single: of one alone. own: of all ranks, if each adds up only its own part. sums: over the
    ranks, and the norms after them, alone. predicted: own and sums, with the norms twice; low,
    high: of the ends of their intervals. sums_share: sums over time. within: whether the error is
    at most allowed.
    """
    names = ("single", "own", "sums", "time")
    table = Table.of_records(records, "speedup", "sums_share", intervals=names)

    def predicted(row: Row) -> Row:
        ends = {"predicted": "", "low": "_low", "high": "_high"}
        if row["own"] is None or row["sums"] is None:  # Records of before they were timed
            return {**dict.fromkeys((*ends, "error")), **_within(None, ALLOWED["decode"])}
        both = {name: row[f"own{end}"] + row[f"sums{end}"] for name, end in ends.items()}
        error = both["predicted"] / row["time"] - 1
        return {**both, "error": error, **_within(error, ALLOWED["decode"])}

    point = ("machine", "batch", "ranks", "single", "own", "sums")
    chosen = (*point, *SHARED, "allowed", "within", "sums_share", "speedup")
    return table.extended(predicted, SHARED_UNITS).select(*chosen)


def training_sharing(records: Sequence[Record]) -> Table:
    """single: of one alone on its batch. communication: of the step's collectives by themselves
    (lm_communication). predicted: their sum, as if nothing were hidden; low: of single alone, as if
    all were; high: of the ends of the intervals. share: of the time, by which it is longer than
    single: the communication that is not hidden. within: whether the error is at most allowed.
    """
    alone = {_collectives(each): each for each in records if each.benchmark in COMMUNICATION}
    own = [each for each in records if each.benchmark in RANKS]

    def communication(record: Record) -> Row:
        found = alone.get(_collectives(record))
        if found is None:
            return dict.fromkeys(("communication", "communication_high"))
        estimate = found.metrics["time"].estimate
        return {"communication": estimate.value, "communication_high": estimate.high}

    def predicted(row: Row) -> Row:
        low = row["single_low"]
        if row["communication"] is None:
            unknown = dict.fromkeys(("predicted", "high", "error"))
            return {**unknown, "low": low, **_within(None, ALLOWED["training"])}
        total = row["single"] + row["communication"]
        high = row["single_high"] + row["communication_high"]
        error = total / row["time"] - 1
        sums = {"predicted": total, "low": low, "high": high}
        return {**sums, "error": error, **_within(error, ALLOWED["training"])}

    names = ("single", "time")
    table = Table.of_records(own, "share", "speedup", intervals=names, more=communication)
    point = ("machine", "model", "way", "ranks")
    parts = ("single", "communication")
    chosen = (*point, *parts, *SHARED, "allowed", "within", "share", "speedup")
    return table.extended(predicted, SHARED_UNITS).select(*chosen).sorted(*point)


def _collectives(record: Record) -> tuple[Any, ...]:
    return (record.machine, *(record.params[name] for name in ("model", "way", "ranks")))


def losses(records: Sequence[Record]) -> Table:
    """mean_time: of the runs that reached the target, evaluations included; variation: their
    standard deviation over it. success: share of the runs that reached it. energy: of such a run,
    the whole card. bytes: of the text that is trained on, the standard library of that Python; its
    digest is in the Record.
    """

    def text(record: Record) -> Row:
        columns: Mapping[str, Any] = record.series["text"].columns
        return {"python": str(columns["python"][0]), "bytes": columns["train"][0]}

    names = ("mean_time", "variation", "success", "steps", "energy", "setup")
    table = Table.of_records(records, *names, more=text, units={"bytes": "B"})
    return table.select("machine", "model", "target", "runs", *names, "python", "bytes")


def curves(records: Sequence[Record]) -> Table:
    """Validation loss, nats per byte, one line per run; dashed: the target."""

    def target(record: Record) -> Row:
        return {"target": record.params["target"], "model": record.params["model"]}

    table = Table.of_series(records, "curves", more=target)
    return table.extended(lambda row: {"run": int(row["run"]) + 1})


def latencies(records: Sequence[Record]) -> Table:
    """first_token: from a request's arrival to its first token; output_token: between two tokens of
    a request; each the median and the 99th percentile (p99). rate: tokens of all answers per
    second. energy: of a token, the whole card. engine: what answered; ours is this plugin's loop.
    """
    names = ("first_token", "first_token_p99", "output_token", "output_token_p99")

    def answered(record: Record) -> Row:
        params = record.params
        return {
            "engine": params.get("engine", "ours"),
            "format": params.get("format", "bfloat16"),
        }

    table = Table.of_records(records, *names, "rate", "energy", more=answered)
    chosen = ("machine", "model", "engine", "format", "arrival", *names, "rate", "energy")
    ordered = table.extended(per_joule).select(*chosen, "tokens_per_joule")
    return ordered.sorted("machine", "engine", "format", "arrival")


STEP_TIMES = Axis("value", "time of a step", "s", log=True)
TOKENS = Axis("rate", "tokens per second", "1/s", log=True)
FIGURES = [
    Figure(
        "training",
        "Tokens trained per second, and their share of the peak",
        ("lm_training", "lm_training_cpu"),
        training,
        dot_chart(
            ("machine", "model", "batch {batch}"),
            [Axis("rate", "tokens per second", "1/s"), Axis("mfu", "MFU", "%")],
            "checkpointing: {checkpointing}",
        ),
    ),
    Figure(
        "fused",
        "Tokens trained per second with fewer passes over memory",
        ("lm_training_fused",),
        fused,
    ),
    Figure(
        "decode",
        "Tokens generated per second, and the memory bandwidth reached",
        tuple(STEPS),
        decode,
        dot_chart(
            ("machine", "format", "batch {batch}", "context {context}"),
            [TOKENS, Axis("bandwidth", "bandwidth", "B/s")],
            "step",
        ),
    ),
    Figure(
        "prefill",
        "Tokens of a prompt read per second, over its length",
        ("lm_prefill", "lm_prefill_cpu"),
        prefill,
        line_chart(
            Axis("length", "tokens of the prompt", log=True, base=2),
            TOKENS,
            ("machine", "format"),
            panel="model",
        ),
    ),
    Figure(
        "parts",
        "Where the time of a token goes",
        (*EXPLAINED, *LAUNCHES),
        parts,
        bar_chart(
            ("machine", "rung"),
            Axis("share", "share of the sum", "%"),
            "part",
            stacked=True,
            colours=PART_COLOURS,
        ),
    ),
    Figure(
        "predictions",
        "Measured against predicted from the parts",
        EXPLAINED,
        predictions,
        line_chart(
            Axis("predicted", "predicted", "s", log=True),
            Axis("time", "measured", "s", log=True),
            ("machine", "rung"),
            lines=False,
            diagonal=True,
        ),
    ),
    Figure(
        "sharing",
        "A decode step on several GPUs",
        ("lm_decode_parallel", "lm_decode_parallel_cpu"),
        sharing,
        dot_chart(
            ("machine", "batch {batch}", "{ranks} ranks"),
            STEP_TIMES,
            parts=("single", "own", "sums", "time", "predicted"),
        ),
    ),
    Figure(
        "training_sharing",
        "A training step on several GPUs",
        (*RANKS, *COMMUNICATION),
        training_sharing,
        dot_chart(
            ("machine", "model", "way", "{ranks} ranks"),
            STEP_TIMES,
            parts=("single", "communication", "time", "predicted"),
        ),
    ),
    Figure(
        "latencies",
        "Latency of requests over their rate",
        ("lm_serving", "lm_serving_engines", "lm_serving_cpu"),
        latencies,
        line_chart(
            Axis("arrival", "requests", "1/s", log=True),
            Axis("value", "latency", "s", log=True),
            ("machine", "engine", "format"),
            dash="part",
            panel="model",
            parts=("first_token", "first_token_p99", "output_token", "output_token_p99"),
        ),
    ),
    Figure("losses", "Time to a validation loss", TO_LOSS, losses),
    Figure(
        "curves",
        "Validation loss over time",
        TO_LOSS,
        curves,
        line_chart(
            Axis("time", "time", "s"),
            Axis("loss", "validation loss (nats per byte)"),
            "machine",
            panel="model",
            each="run",
            rules=[Rule("y", "target", "target")],
            independent=("x", "y"),
        ),
    ),
]
