"""One figure per family of kernels, and the fastest variants."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from hpml_plugins import Axis, Figure, Record, Rule, Table, dot_chart, find_gpu, line_chart
from hpml_plugins.plugins.kernels.formulas import bound
from hpml_plugins.plugins.kernels.gemm import FORMATS, product_bytes
from hpml_plugins.plugins.kernels.models import layer_shape

Row = dict[str, Any]
ATTENTION = (
    "kernels_attention",
    "kernels_attention_training",
    "kernels_attention_window",
    "kernels_decode",
)
STAGES = ("layer_time", "time", "routing_time", "permutation_time", "combination_time")


def linear_layers(records: Sequence[Record]) -> Table:
    """Products of a layer's weight with 1 to 16,384 tokens, by the fastest way of each format;
    short timings. share: of the published peak of the limiting roof, memory for few tokens and
    compute for many. Calls follow one another, so weights not much larger than the L2 cache (60 MiB
    on an H200) are partly read from it, as in the layers of 8B and Mixtral.
    """
    table = Table.of_series(records, "tokens", "layer", more=_card)

    def against_roof(row: Row) -> Row:
        n, k = layer_shape(row["layer"])
        card = find_gpu(row["card"])
        peak = card.peak(FORMATS[row["format"]][1]) if card else None
        nbytes = product_bytes(row["format"], row["tokens"], n, k)
        binds = bound(2 * row["tokens"] * n * k, nbytes, peak, card.bandwidth if card else None)
        limit = {
            "compute": (row["rate"], peak),
            "memory": (row["bandwidth"], card and card.bandwidth),
        }.get(binds)
        return {"bound": binds, "share": limit[0] / limit[1] if limit and limit[1] else None}

    return table.extended(against_roof, {"share": "1"})


def _card(record: Record) -> Row:
    return {"card": record.gpu_names[0] if record.gpus else ""}


def fastest(records: Sequence[Record]) -> Table:
    """The way chosen for each point in its first round; its time is measured in full."""

    def chosen(record: Record) -> Row:
        time = record.metrics.get("time")
        return {"benchmark": record.benchmark, "way": time.info.get("way") if time else None}

    table = Table.of_records(records, "time", "error", more=chosen)
    first = ("machine", "benchmark")
    return table.select(*first, *(name for name in table.columns if name not in first))


def attention(records: Sequence[Record]) -> Table:
    """Back ends of attention, short timings; the fastest one is measured in full. Missing ones have
    their reason in the table. Decoding is memory-bound: its axis is the cache's bandwidth.
    """

    def named(record: Record) -> Row:
        kind = (
            record.benchmark.removeprefix("kernels_")
            .replace("attention_", "")
            .replace("attention", "forward")
        )
        size = record.params.get("length") or record.params.get("context")
        work = record.work.get("time")
        cache = str(record.params.get("cache", ""))
        return {
            "kind": f"{kind} {cache}".strip(),
            "length": size,
            "flop": work.flop if work else 0.0,
            "bytes": work.bytes if work else 0.0,
        }

    table = Table.of_series(records, "variants", more=named, units={"flop": "FLOP", "bytes": "B"})

    def rates(row: Row) -> Row:
        decode, seconds = str(row["kind"]).startswith("decode"), row["time"]
        return {
            "rate": row["flop"] / seconds if seconds and not decode else None,
            "bandwidth": row["bytes"] / seconds if seconds and decode else None,
        }

    return table.extended(rates, {"rate": "FLOP/s", "bandwidth": "B/s"})


def experts(records: Sequence[Record]) -> Table:
    """A layer of experts and its stages. time: of the product out of the experts alone; the others
    are short timings. speedup: of one grouped kernel over a loop of products.
    """
    return Table.of_records(records, *STAGES, "rate", "error", intervals=("speedup",))


def operators(records: Sequence[Record]) -> Table:
    """Our kernels, torch's operations, eager and by torch.compile; short timings, bytes over time.
    The published bandwidth of the memory is in the table, and the metric `copy_share` compares with
    a copy.
    """

    def declared(record: Record) -> Row:
        work, card = record.work.get("time"), find_gpu(str(_card(record)["card"]))
        return {
            **record.params,
            "bytes": work.bytes if work else 0.0,
            "peak": card.bandwidth if card else None,
        }

    table = Table.of_series(records, "variants", more=declared, units={"bytes": "B", "peak": "B/s"})
    return table.extended(
        lambda row: {"bandwidth": row["time"] and row["bytes"] / row["time"]}, {"bandwidth": "B/s"}
    )


FIGURES = [
    Figure(
        "linear_layers",
        "Linear layers of language models",
        ("kernels_gemm_tokens",),
        linear_layers,
        line_chart(
            Axis("tokens", "tokens", log=True, base=2),
            Axis("share", "share of the binding roof", "%", zero=True),
            ("machine", "format"),
            panel="layer",
            also=("way", "bound"),
        ),
    ),
    Figure(
        "attention",
        "Back ends of attention",
        ATTENTION,
        attention,
        dot_chart(
            ("kind", "{length} tokens"),
            [
                Axis("rate", "prefill", "FLOP/s", zero=True),
                Axis("bandwidth", "decoding", "B/s", zero=True),
            ],
            ("machine", "variant"),
        ),
    ),
    Figure(
        "experts",
        "A layer of experts",
        ("kernels_experts",),
        experts,
        dot_chart(
            ("{tokens} tokens", "load"),
            Axis("value", "time", "s", log=True),
            ("machine", "part"),
            parts=STAGES,
        ),
    ),
    Figure(
        "operators",
        "Memory-bound operators",
        ("kernels_operators",),
        operators,
        dot_chart(
            ("operator", "{mebibytes} MiB"),
            Axis("bandwidth", "bandwidth", "B/s", zero=True),
            ("machine", "variant"),
            rules=[Rule("x", "peak", "published peak")],
        ),
    ),
    Figure(
        "fastest",
        "The fastest way of each point",
        ("kernels_gemm", *ATTENTION, "kernels_experts"),
        fastest,
    ),
]
