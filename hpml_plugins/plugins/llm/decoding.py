"""The benchmarks `llm_decode` and `llm_decode_cpu`: one decode step of a decoder over a filled
cache."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from hpml_plugins import Bench, Benchmark, HpmlError, Metric, Requires
from hpml_plugins.plugins.llm.shapes import (
    DECODED,
    decode_bytes,
    decode_flop,
    decode_memory,
    find_decoder,
)

if TYPE_CHECKING:
    from hpml_plugins import Node

#: B of a number in each format.
FORMATS = {"bfloat16": 2, "float32": 4}
#: Relative difference, 2-norm, of what a layer adds to its input from float64; bfloat16 has 8 bits.
LAYER_TOLERANCE = {"bfloat16": 2e-2, "float32": 1e-5}
#: Relative difference, 2-norm, of the graph's logits from those of the same step launched kernel by
#: kernel: the kernels are the same, but libraries may choose others.
GRAPH_TOLERANCE = 1e-2
#: Sequences whose layer is compared with float64.
CHECKED = 2
#: B beside weights and cache: the CUDA context, workspaces, the layer in float64.
BESIDE = 4e9
#: s of sampling, all rounds together.
BUDGET = 1.0


def measure(
    bench: Bench, *, model: str, batch: int, context: int, format: str
) -> Mapping[str, Any]:
    """Time one decode step: a token of each sequence, whose cache has `context` tokens, the new one
    included.

    RMSNorm, grouped-query attention over a contiguous cache, rotary embedding, SwiGLU, logits and
    the most likely next token. On a GPU as one CUDA graph, not compiled. Weights and cache are
    random.

    `bandwidth` counts the weights (without the table of embeddings) and the cache, each read once.

    batch: sequences.  context: tokens in the cache of each.  format: of weights, cache and
    products.
    """
    import torch

    if format not in FORMATS:
        raise HpmlError(f"no format {format!r}; use one of {', '.join(FORMATS)}")
    on_gpu = bench.device == "cuda"
    if on_gpu and format == "bfloat16" and torch.cuda.get_device_capability() < (8, 0):
        bench.skip("bfloat16 needs compute capability 8.0")

    from hpml_plugins.plugins.llm import llama

    shape, item = find_decoder(model, DECODED), FORMATS[format]
    bench.progress("filling weights and cache", 0.0)
    decode = llama.Decode(shape, batch, context, getattr(torch, format), bench.device, bench.seed)
    check_layer(bench, decode, LAYER_TOLERANCE[format])
    step: Callable[[], object] = decode.step
    if on_gpu:
        bench.progress("capturing", 0.2)
        step = capture(bench, decode)
    bench.work(
        flop=decode_flop(shape, batch, context),
        bytes=decode_bytes(shape, batch, context, item),
        dtype=format,
    )
    bench.progress("timing", 0.5)
    time = bench.time(step, budget=BUDGET)
    return {"time": time, "rate": batch / time}


def check_layer(bench: Bench, decode: Any, tolerance: float) -> None:
    """Hold what the first layer adds to its input against float64."""
    import torch

    layer = decode.layers[0]
    with torch.no_grad():
        x = decode.embedding[decode.tokens]
        found = bench.result(decode.layer(layer, x))
        few = x[:CHECKED].double()
        added, wanted = found[:CHECKED].double() - few, decode.exact_layer(layer, x[:CHECKED]) - few
        error = float((added - wanted).norm() / wanted.norm())
    bench.check(error <= tolerance, f"a layer differs from float64 by {error:.1e}")


def capture(bench: Bench, decode: Any) -> Callable[[], None]:
    """The step as one CUDA graph, held against the step as it is."""
    import torch

    wanted = decode.step()[0].double()
    replay: Callable[[], None]
    replay, (logits, tokens) = decode.captured()
    logits.zero_()
    tokens.fill_(-1)
    replay()
    torch.cuda.synchronize()
    found = bench.result(logits).double()
    error = float((found - wanted).norm() / wanted.norm())
    bench.check(
        error <= GRAPH_TOLERANCE, f"the graph's logits differ from the step's by {error:.1e}"
    )
    bench.check(
        torch.equal(tokens, logits.argmax(-1)), "the graph's tokens are not the most likely ones"
    )
    return replay


def fits(node: Node, point: Mapping[str, Any]) -> str:
    """Why weights and cache do not fit into a GPU of this node; "" where they do."""
    shape = find_decoder(str(point["model"]), DECODED)
    held = decode_memory(
        shape, int(point["batch"]), int(point["context"]), FORMATS[str(point["format"])]
    )
    needed = held + BESIDE
    smallest = min((gpu.memory for gpu in node.gpus), default=0.0)
    if smallest >= needed:
        return ""
    return (
        f"needs {needed / 1e9:.0f} GB of GPU memory for weights and cache; there are"
        f" {smallest / 1e9:.0f} GB"
    )


DECODE = Benchmark(
    "llm_decode",
    measure,
    metrics=(
        Metric("time", "s", "lower", "of one step, in which each sequence gets a token"),
        Metric("rate", "1/s", "higher", "tokens of all sequences over time"),
        Metric("bandwidth", "B/s", "higher", "weights and cache, each read once, over time"),
    ),
    grid={
        "model": ("llama-3.1-8b",),
        "batch": (1, 64),
        "context": (2048,),
        "format": ("bfloat16",),
    },
    requires=Requires(gpus=1, modules=("torch",), also=(fits,)),
    timeout=120,
    description=(
        "One decode step of a decoder of Llama 3.1 8B's shape with random weights, one CUDA graph,"
        " on one GPU."
    ),
    terms={
        "batch": "sequences",
        "context": "tokens in the cache of each sequence",
        "format": "of weights, cache and products",
    },
)
DECODE_CPU = replace(
    DECODE,
    name="llm_decode_cpu",
    grid={"model": ("tiny",), "batch": (4,), "context": (256,), "format": ("float32",)},
    requires=Requires(modules=("torch",)),
    description="One decode step of a tiny decoder in float32 on the CPU, operation by operation.",
)
