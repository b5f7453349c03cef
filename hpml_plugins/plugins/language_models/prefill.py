"""The benchmarks `lm_prefill` and `lm_prefill_cpu`: reading a prompt, over its length."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from hpml_plugins import Bench, Benchmark, Metric, Requires
from hpml_plugins.plugins.language_models.decoding import (
    BUDGET,
    COMPILED_TOLERANCE,
    FORMAT_TOLERANCE,
    computes,
    fits,
)
from hpml_plugins.plugins.language_models.shapes import (
    LLAMA,
    PRODUCTS,
    check_format,
    find_shape,
    prefill_flop,
)

#: COMPILED_TOLERANCE if activations are quantised at each call: compiled, they are rounded one time
#: less before that, and a number that falls on the next fp8 value is 1/16 off. 0.054 on an H100.
FP8_TOLERANCE = 0.1


def measure(bench: Bench, *, model: str, length: int, format: str) -> Mapping[str, Any]:
    """Time reading one prompt into an empty cache: all layers of all tokens, logits of the last.

    On a GPU a layer is compiled, and products of all tokens are cuBLAS's. Weights are random.

    length: tokens of the prompt.  format: of the matrices.
    """
    check_format(format)
    shape = find_shape(model, LLAMA)

    import torch

    from hpml_plugins.plugins.language_models import inference, llama

    bench.progress("filling weights", 0.0)
    decoder = llama.Llama(shape, length, format, bench.device, bench.seed)
    caches = decoder.caches(1)
    tokens = torch.randint(shape.vocabulary, (1, length), device=bench.device)
    original = decoder.prompt(tokens, caches)[0]
    decoder.quantize(format)
    written = decoder.prompt(tokens, caches)[0]
    error = inference.relative_error(written, original)
    bench.check(
        error <= FORMAT_TOLERANCE.get(format, 0.0),
        f"{format} changes the logits by {error:.1e}",
    )
    if bench.device == "cuda":
        bench.progress("compiling", 0.2)
        decoder.compile_parts(inference.compile_options(length))
    found = bench.result(decoder.prompt(tokens, caches)[0])
    difference = inference.relative_error(found, written)
    bench.check(
        difference <= (FP8_TOLERANCE if format == "fp8_products" else COMPILED_TOLERANCE),
        f"the compiled pass differs from the pass as it is written by {difference:.1e}",
    )
    bench.work(flop=prefill_flop(shape, 1, length), dtype=PRODUCTS[format])

    def step() -> None:
        decoder.prompt(tokens, caches)

    bench.progress("timing", 0.6)
    time = bench.time(step, budget=BUDGET)
    energy = bench.energy(step)
    return {
        "time": time,
        "rate": length / time,
        "error": error if format in FORMAT_TOLERANCE else None,
        "energy": energy / length if energy else None,
    }


PREFILL = Benchmark(
    "lm_prefill",
    measure,
    metrics=(
        Metric("time", "s", "lower", "of one prompt"),
        Metric("rate", "1/s", "higher", "tokens of the prompt over time"),
        Metric("flop_rate", "FLOP/s", "higher", "of products and attention to earlier tokens"),
        Metric("error", "1", "lower", "relative change of the logits by the format"),
        Metric("energy", "J", "lower", "of a token, above that of the idle card"),
    ),
    grid={
        "model": ("llama-3-8b",),
        "length": (512, 2048, 8192, 32768),
        "format": ("bfloat16", "fp8_products"),
    },
    requires=Requires(gpus=1, modules=("torch", "triton"), also=(computes, fits)),
    timeout=300,
    description=(
        "Reading a prompt by a decoder of Llama 3 8B's shape with random weights, compiled, on one"
        " GPU."
    ),
    terms={
        "length": "tokens of the prompt",
        "format": "of the matrices; fp8_products: activations in fp8 too, scaled by rows",
    },
)
PREFILL_CPU = replace(
    PREFILL,
    name="lm_prefill_cpu",
    grid={"model": ("tiny",), "length": (128,), "format": ("float32",)},
    requires=Requires(modules=("torch",)),
    timeout=60,
    description="Reading a prompt by a tiny decoder on the CPU, operation by operation.",
)
