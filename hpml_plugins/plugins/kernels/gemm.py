"""The benchmarks `kernels_gemm` and `kernels_gemm_tokens`: linear layers of published models in
several formats."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

from hpml_plugins import Bench, Benchmark, Metric, Node, Requires
from hpml_plugins.plugins.kernels import formulas
from hpml_plugins.plugins.kernels.models import layer_shape
from hpml_plugins.plugins.kernels.variants import (
    Step,
    refusal_of,
    release_memory,
    speedup,
    survey,
    trial,
)

if TYPE_CHECKING:
    from hpml_plugins.plugins.kernels.products import Product

#: Format → the compute capability that computes it in hardware, the precision of its peak, and the
#: bytes of a number.
FORMATS = {
    "float32": ((0, 0), "float32", 4.0),
    "bfloat16": ((8, 0), "bfloat16", 2.0),
    "fp8_tensor": ((8, 9), "fp8", 1.0),
    "fp8_row": ((9, 0), "fp8", 1.0),
    "int8": ((7, 5), "int8", 1.0),
    "mxfp8": ((10, 0), "fp8", 1.0 + 1 / 32),
    "nvfp4": ((10, 0), "nvfp4", 0.5 + 1 / 16),
}
#: Relative error of the product against the float64 product of the quantised operands.
TOLERANCE = {"float32": 1e-4}
LARGEST_ERROR = 2e-2
#: Rows of the sweep, and the formats that it times in addition to bfloat16.
TOKENS = (1, 4, 16, 64, 256, 1024, 4096, 16384)
SWEPT = ("bfloat16", "fp8_tensor", "fp8_row", "int8")


def has_format(node: Node, point: dict[str, Any]) -> str:
    """Why the node's card does not have the number format of the point in hardware; "" if it
    does."""
    format = str(point.get("format", "bfloat16"))
    needs = FORMATS[format][0]
    if not node.gpus or not (has := node.gpus[0].capability):
        return ""
    if tuple(map(int, has.split("."))) >= needs:
        return ""
    return f"{format} needs compute capability {needs[0]}.{needs[1]}, this card has {has}"


def measure(bench: Bench, *, layer: str, tokens: int, format: str) -> dict[str, Any]:
    """Time a linear layer on `tokens` rows by the fastest way in this format, and against torch.mm
    in the plain one.

    layer: see `models.layer_shape`.  The way is found in the point's first round.
    """
    import torch

    from hpml_plugins.plugins.kernels.products import operands, product

    n, k = layer_shape(layer)
    plain = "bfloat16" if bench.device == "cuda" else "float32"
    x, w = operands(tokens, n, k, getattr(torch, plain), bench.device, bench.seed)
    baseline = product(plain, x, w).ways["torch.mm"]()
    bench.progress("quantising", 0.0)
    wanted = product(format, x, w)
    tolerance = TOLERANCE.get(format, LARGEST_ERROR)
    found = survey(bench, wanted.ways, wanted.error, tolerance)
    step = found.steps[found.fastest]
    flop, nbytes = formulas.gemm_flop(tokens, n, k), product_bytes(format, tokens, n, k)
    bench.work(flop=flop, bytes=nbytes, dtype=FORMATS[format][1])
    bench.progress("timing", 0.6)
    times: dict[str, Any] = {"time": bench.time(step).note(way=found.fastest)}
    times["error"] = wanted.error(step(), of_format=True)
    times |= dict.fromkeys(("quantize_time", "speedup", "net_speedup"))
    if format == plain and found.fastest == "torch.mm":
        return times
    steps = {"speedup": step}
    if quantize := wanted.quantize:
        times["quantize_time"] = trial(bench, quantize)
        steps["net_speedup"] = lambda: (quantize(), step())
    return times | speedup(bench, baseline, steps)


def product_bytes(format: str, m: int, n: int, k: int) -> float:
    """Bytes of the operands with their scales, and of the result in bfloat16 (of float32: in
    float32).

    torch._int_mm writes twice as many bytes for the result, in int32; these are not counted, so
    that variants of a format can be compared.
    """
    return formulas.gemm_bytes(
        m, n, k, item=FORMATS[format][2], out=4 if format == "float32" else 2
    )


def measure_tokens(bench: Bench, *, layer: str) -> dict[str, Any]:
    """Time a layer in bfloat16 for one row and for the most rows; the series `tokens` has rows in
    between, and formats.

    The series is measured in the point's first round, with short timings that a power limit may
    affect.
    """
    import torch

    from hpml_plugins.plugins.kernels.products import operands, product

    n, k = layer_shape(layer)
    most = TOKENS[-1]
    x, w = operands(most, n, k, torch.bfloat16, bench.device, bench.seed)

    def sweep() -> list[list[Any]]:
        rows = []
        for format in SWEPT:
            if has_format(bench.node, {"format": format}):
                continue
            for tokens in TOKENS:
                bench.progress(f"{format}, {tokens} rows", 0.1)
                rows += timed_ways(bench, format, product(format, x[:tokens], w), tokens)
        return rows

    rows = bench.once("tokens", sweep)
    names = ("format", "tokens", "way", "time", "rate", "bandwidth")
    columns: dict[str, list[Any]] = dict(
        zip(names, map(list, zip(*with_rates(rows, n, k), strict=True)), strict=True)
    )
    bench.series("tokens", columns, {"time": "s", "rate": "OP/s", "bandwidth": "B/s"})

    one, all_rows = (product("bfloat16", part, w) for part in (x[:1], x))
    steps = {"decode_time": one.ways["torch.mm"](), "time": all_rows.ways["torch.mm"]()}
    error = max(
        each.error(bench.result(step()))
        for each, step in zip((one, all_rows), steps.values(), strict=True)
    )
    bench.check(error <= LARGEST_ERROR, "a product differs from float64")
    bench.work(bytes=product_bytes("bfloat16", 1, n, k), of="decode_time")
    bench.work(flop=formulas.gemm_flop(most, n, k), dtype="bfloat16")
    bench.progress("timing", 0.6)
    return {name: bench.time(step, name=name) for name, step in steps.items()} | {"error": error}


def timed_ways(bench: Bench, format: str, wanted: Product, tokens: int) -> list[list[Any]]:
    """Format, tokens, variant and time of the fastest variant; empty if none runs. A wrong result
    fails the point."""
    found: list[list[Any]] = []
    steps: dict[str, Step] = {}

    def build(way: str) -> None:
        step = wanted.ways[way]()
        error = wanted.error(bench.result(step()))
        bench.check(error <= LARGEST_ERROR, f"{format} by {way}: the product differs from float64")
        steps[way] = step

    for way in wanted.ways:
        if reason := refusal_of(partial(build, way)):
            release_memory(bench)
            bench.warn(f"{format}, {tokens} rows: {way}: {reason}")
        else:
            found.append([format, tokens, way, trial(bench, steps[way]).median])
    return [min(found, key=lambda row: row[3])] if found else []


def with_rates(rows: list[list[Any]], n: int, k: int) -> list[list[Any]]:
    """The rows with operations and bytes per second appended."""
    return [
        [
            *row,
            formulas.gemm_flop(row[1], n, k) / row[3],
            product_bytes(row[0], row[1], n, k) / row[3],
        ]
        for row in rows
    ]


ERROR = Metric(
    "error",
    "1",
    "lower",
    "against float64 of the numbers before quantisation, relative, 2-norm",
    (0, None),
)
GEMM = Benchmark(
    "kernels_gemm",
    measure,
    metrics=(
        Metric("time", "s", "lower", "of the product of quantised operands, by the fastest way"),
        Metric("rate", "OP/s", "higher", "2 m n k over time"),
        Metric("bandwidth", "B/s", "higher", "operands and result over time"),
        ERROR,
        Metric(
            "quantize_time",
            "s",
            "lower",
            "of quantising the activations, which each use of the layer needs",
        ),
        Metric(
            "speedup",
            "1",
            "higher",
            "time of torch.mm in bfloat16 (on a CPU float32) over that of the product",
        ),
        Metric(
            "net_speedup", "1", "higher", "the same over quantising the activations and the product"
        ),
    ),
    grid={"layer": ("llama-3.1-70b/up",), "tokens": (16, 8192), "format": tuple(FORMATS)[1:]},
    requires=Requires(gpus=1, gpu_memory=24e9, modules=("torch",), also=(has_format,)),
    timeout=180,
    description=(
        "A linear layer of Llama 3.1 70B, 28672 × 8192, in several number formats, for 16 and 8192"
        " tokens."
    ),
    terms={
        "tokens": "rows of the activations, M",
        "layer": "MODEL/LAYER: the weight's N and K are in models.yaml",
        "format=fp8_tensor": "float8_e4m3fn with one scale per tensor",
        "format=fp8_row": "float8_e4m3fn with one scale per row of activations and weight",
        "format=int8": "int8 with one scale per row of activations and weight",
        "format=mxfp8": "float8_e4m3fn with one power of two per 32 numbers",
        "format=nvfp4": "float4_e2m1 with one float8_e4m3fn scale per 16 numbers",
    },
)
GEMM_TOKENS = Benchmark(
    "kernels_gemm_tokens",
    measure_tokens,
    metrics=(
        Metric("time", "s", "lower", f"of the product of {TOKENS[-1]} tokens in bfloat16"),
        Metric("rate", "OP/s", "higher", "2 m n k over time"),
        Metric("decode_time", "s", "lower", "of the product of one token in bfloat16"),
        Metric("bandwidth", "B/s", "higher", "operands and result over decode_time"),
        ERROR,
    ),
    grid={"layer": ("llama-3.1-8b/down", "llama-3.1-70b/up", "mixtral-8x7b/up")},
    requires=Requires(gpus=1, gpu_memory=24e9, modules=("torch",), also=(has_format,)),
    timeout=180,
    rounds=1,  # the sweep is a series, which further rounds would not repeat
    description=(
        "Linear layers of Llama 3.1 and of an expert of Mixtral, for 1 to 16,384 tokens, in several"
        " formats."
    ),
    terms={"layer": "MODEL/LAYER: the weight's N and K are in models.yaml"},
)
GEMM_CPU = replace(
    GEMM,
    name="kernels_gemm_cpu",
    grid={"layer": ("granite-3.0-1b-a400m/qkv",), "tokens": (64,), "format": ("float32",)},
    requires=Requires(modules=("torch",)),
    description="A small linear layer, 2048 × 1024, on the CPU in float32.",
)
