"""Time per token by part, predictions from the parts, the cost of sharing a model, losses over
time."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from typing import Any

from hpml_plugins import Axis, Figure, Record, Rule, Table, bar_chart, dot_chart, line_chart
from hpml_plugins.analysis import card_of

Row = dict[str, Any]
PARTS = (
    "embedding",
    "attention_in",
    "attention",
    "attention_out",
    "feed_forward_in",
    "feed_forward_out",
    "head",
    "optimiser",
)
EXPLAINED = ("lm_explained", "lm_explained_cpu")


def parts(records: Sequence[Record]) -> Table:
    """Shares of the sum of the parts' times, each measured by itself. attention_in: norm, queries,
    keys, values, rotary embedding and writing the cache; attention_out: the product behind the
    attention; head: with the loss where a model trains. The time of a token is measured.
    """
    rows: list[Row] = []
    for record in records:
        times: Row = dict.fromkeys(PARTS)
        for row in Table.of_series([record], "parts").rows():
            times[str(row["part"])] = row["time"]
        total = sum(value for value in times.values() if value)
        shares = {name: value and value / total for name, value in times.items()}
        point = {"machine": record.machine, "rung": record.params["rung"]}
        rows.append({**point, "token_time": record.median("token_time"), **shares})
    return Table.of(rows, {**dict.fromkeys(PARTS, "1"), "token_time": "s"})


def predictions(records: Sequence[Record]) -> Table:
    """predicted: the sum of the parts' times; low, high: of their 95 % intervals' ends. error: of
    the prediction. The parts lack the compiler's fusion across them and the cache effects of the
    whole step; left_out is the prediction times the geometric mean of measured over predicted of
    the other rungs that the same card has measured.
    """
    rows: list[Row] = []
    for record in records:
        predicted = record.metrics["predicted"]
        rows.append(
            {
                "machine": record.machine,
                "rung": record.params["rung"],
                "time": record.median("time"),
                "predicted": predicted.median,
                "low": predicted.info.get("low"),
                "high": predicted.info.get("high"),
            }
        )
    cards = [card_of(record) for record in records]
    judged = [
        row | _judged(row, [other for other, its in zip(rows, cards, strict=True) if its == card])
        for row, card in zip(rows, cards, strict=True)
    ]
    times = ("time", "predicted", "low", "high", "left_out")
    return Table.of(judged, dict.fromkeys(times, "s") | {"error": "1", "left_out_error": "1"})


def _judged(row: Row, rows: Sequence[Row]) -> Row:
    """The errors of a row's prediction; without another rung of its card none is left out.

    rows: of the same card.
    """
    found: Row = {"error": row["predicted"] / row["time"] - 1}
    others = [
        math.log(other["time"] / other["predicted"])
        for other in rows
        if other["rung"] != row["rung"]
    ]
    if not others:
        return {**found, "left_out": None, "left_out_error": None}
    left_out = row["predicted"] * math.exp(statistics.fmean(others))
    return {**found, "left_out": left_out, "left_out_error": left_out / row["time"] - 1}


def sharing(records: Sequence[Record]) -> Table:
    """predicted: the time of one alone over the number of ranks, and that of the all-reduces by
    themselves; low, high: of the ends of their intervals.
    """
    names = ("single", "communication", "time")
    table = Table.of_records(records, "speedup", intervals=names)

    def predicted(row: Row) -> Row:
        sums = {
            name: row[f"single{end}"] / row["ranks"] + row[f"communication{end}"]
            for name, end in (("predicted", ""), ("low", "_low"), ("high", "_high"))
        }
        return {**sums, "error": sums["predicted"] / row["time"] - 1}

    units = {**dict.fromkeys(("predicted", "low", "high"), "s"), "error": "1"}
    chosen = ("machine", "batch", "ranks", *names, "predicted", "low", "high", "error", "speedup")
    return table.extended(predicted, units).select(*chosen)


def curves(records: Sequence[Record]) -> Table:
    """Validation loss, nats per byte, one line per run; dashed: the target."""

    def target(record: Record) -> Row:
        return {"target": record.params["target"], "model": record.params["model"]}

    table = Table.of_series(records, "curves", more=target)
    return table.extended(lambda row: {"run": int(row["run"]) + 1})


def latencies(records: Sequence[Record]) -> Table:
    """first: from a request's arrival to its first token; output: between two tokens of a request;
    each the median and the 99th percentile.
    """
    names = ("first_token", "first_token_p99", "output_token", "output_token_p99")
    table = Table.of_records(records, *names, "rate", "energy")
    chosen = ("machine", "model", "format", "arrival", *names, "rate", "energy")
    return table.select(*chosen).sorted("machine", "format", "arrival")


FIGURES = [
    Figure(
        "parts",
        "Where the time of a token goes",
        EXPLAINED,
        parts,
        bar_chart(("machine", "rung"), Axis("value", "share of the parts' sum", "%"), parts=PARTS),
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
            Axis("value", "time of a step", "s", log=True),
            parts=("single", "communication", "time", "predicted"),
        ),
    ),
    Figure(
        "latencies",
        "Latency of requests over their rate",
        ("lm_serving", "lm_serving_cpu"),
        latencies,
        line_chart(
            Axis("arrival", "requests", "1/s", log=True),
            Axis("value", "latency", "s", log=True),
            ("machine", "format", "part"),
            panel="model",
            parts=("first_token", "first_token_p99", "output_token", "output_token_p99"),
        ),
    ),
    Figure(
        "curves",
        "Validation loss over time",
        ("lm_time_to_loss", "lm_time_to_loss_cpu"),
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
