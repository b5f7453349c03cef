"""Compression of text by the codecs of Python's library: how fast, and to what size."""

import random

from hpml_plugins import (
    Axis,
    Benchmark,
    Figure,
    Metric,
    Samples,
    Table,
    hookimpl,
    line_chart,
)

WORDS = ("memory", "kernel", "stream", "warp", "cache", "grid", "block", "tensor")


def make_text(kibibytes, seed):
    """A text of this size, the same for the same seed."""
    chosen = random.Random(seed)
    size = kibibytes * 1024
    words = chosen.choices(WORDS, k=size // 4)
    return " ".join(words)[:size].encode()


def measure(bench, *, codec, kibibytes):
    """Compress the text once per call; the size of the result is exact."""
    library = bench.import_module(codec)
    text = make_text(kibibytes, bench.seed)
    packed = library.compress(text)
    bench.check(library.decompress(packed) == text, f"{codec} does not give the text back")
    time = bench.time(lambda: library.compress(text))
    size = Samples.of([len(packed)], "B")
    return {"time": time, "throughput": len(text) / time, "size": size}


COMPRESSION = Benchmark(
    "compression",
    measure,
    metrics=[
        Metric("time", "s", "lower"),
        Metric("throughput", "B/s", "higher", "of the text"),
        Metric("size", "B", "lower", "of the result"),
    ],
    grid={"codec": ["zlib", "bz2", "lzma"], "kibibytes": [64, 256]},
    description="Compression of text by zlib, bz2 and LZMA, on one thread.",
)


def table(records):
    """Size and throughput of each codec."""
    return Table.of_records(records, "size", "throughput")


TRADE = Figure(
    "trade",
    "Smaller or faster",
    ("compression",),
    table,
    line_chart(
        Axis("size", "compressed size", "B", log=True),
        Axis("throughput", "throughput", "B/s", log=True),
        "codec",
        lines=False,
    ),
)


@hookimpl
def hpml_benchmarks():
    return [COMPRESSION]


@hookimpl
def hpml_figures():
    return [TRADE]
