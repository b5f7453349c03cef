"""The benchmarks `lm_decode` and `lm_decode_cpu`: a compiled decode step over a full cache."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from hpml_plugins import Bench, Benchmark, Metric, Requires
from hpml_plugins.plugins.language_models.shapes import (
    LLAMA,
    PRODUCTS,
    check_format,
    decode_bytes,
    decode_flop,
    find_shape,
    inference_memory,
)

if TYPE_CHECKING:
    from hpml_plugins import Node

#: Largest relative difference, 2-norm, of logits between a step with the cache and a pass over all
#: tokens in the same format.
CACHE_TOLERANCE = {"float32": 1e-4, "bfloat16": 5e-2, "int8": 5e-2, "fp8": 5e-2}
#: The same between passes with quantised weights and with the original ones.
FORMAT_TOLERANCE = {"int8": 5e-2, "fp8": 0.2, "fp8_products": 0.25}
#: Largest relative difference of logits between the compiled and the uncompiled step.
COMPILED_TOLERANCE = 5e-2
#: B in addition to weights and cache: the CUDA context, workspaces, a prompt's activations.
BESIDE = 6e9
#: s of sampling, all rounds together.
BUDGET = 1.0


def measure(
    bench: Bench, *, model: str, batch: int, context: int, format: str
) -> Mapping[str, Any]:
    """Time one decode step: a token of each sequence, whose cache has `context` tokens, the new one
    included.

    On a GPU a layer is compiled and the whole step is one CUDA graph; on a CPU it runs operation by
    operation. Weights are random.

    `bandwidth` counts the matrices and the cache, each read once.

    batch: sequences.  context: tokens in the cache of each.  format: of the matrices.
    """
    check_format(format)
    shape = find_shape(model, LLAMA)

    from hpml_plugins.plugins.language_models import inference, llama

    bench.progress("filling weights and cache", 0.0)
    decoder = llama.Llama(shape, context, format, bench.device, bench.seed)
    step = inference.DecodeStep(decoder, batch, bench.seed)
    error = check_step(bench, step, format)
    timed: Callable[[], object] = step
    if bench.device == "cuda":
        bench.progress("compiling and capturing", 0.2)
        timed = compiled(bench, step)
    bench.work(
        flop=decode_flop(shape, batch, context),
        bytes=decode_bytes(shape, batch, context, format),
        dtype=PRODUCTS[format],
    )
    bench.progress("timing", 0.6)
    time = bench.time(timed, budget=BUDGET)
    energy = bench.energy(timed)
    return {
        "time": time,
        "rate": batch / time,
        "error": error if format in FORMAT_TOLERANCE else None,
        "energy": energy / batch if energy else None,
    }


def check_step(bench: Bench, step: Any, format: str) -> float:
    """Quantise the weights; compare the step with the cache with a pass over all tokens. Returns
    the relative difference of the quantised model's logits from the original's.

    step: an inference.DecodeStep whose weights are not quantised yet.
    """
    from hpml_plugins.plugins.language_models.inference import relative_error

    original = step.whole()
    step.model.quantize(format)
    step.read_prompt()
    whole = step.whole()
    found = bench.result(step()[0])[0]
    difference = relative_error(found, whole)
    bench.check(
        difference <= CACHE_TOLERANCE[format],
        f"logits with the cache differ from those of the whole text by {difference:.1e}",
    )
    error = relative_error(whole, original)
    bench.check(
        error <= FORMAT_TOLERANCE.get(format, 0.0),
        f"{format} changes the logits by {error:.1e}",
    )
    return error


def compiled(bench: Bench, step: Any) -> Callable[[], None]:
    """The step compiled, as one CUDA graph, compared with the uncompiled step."""
    import torch

    from hpml_plugins.plugins.language_models import inference

    wanted = step()[0].clone()
    step.model.compile_parts(inference.compile_options(len(wanted)))
    replay, (logits, tokens) = inference.captured(step)
    logits.zero_()
    tokens.fill_(-1)
    replay()
    torch.cuda.synchronize()
    error = inference.relative_error(bench.result(logits), wanted)
    bench.check(
        error <= COMPILED_TOLERANCE,
        f"the compiled step's logits differ from the step's by {error:.1e}",
    )
    bench.check(torch.equal(tokens, logits.argmax(-1)), "the tokens are not the likeliest ones")
    return replay


def fits(node: Node, point: Mapping[str, Any]) -> str:
    """Why weights and cache do not fit into a GPU of this node; "" if they do."""
    shape, tokens = find_shape(str(point["model"]), LLAMA), point.get("context") or point["length"]
    needed = BESIDE + inference_memory(
        shape, int(point.get("batch", 1)), int(tokens), str(point["format"])
    )
    smallest = min((gpu.memory for gpu in node.gpus), default=0.0)
    if smallest >= needed:
        return ""
    return f"needs {needed / 1e9:.0f} GB of GPU memory; there are {smallest / 1e9:.0f} GB"


def computes(node: Node, point: Mapping[str, Any]) -> str:
    """Why a GPU of this node lacks the point's format; "" if it has it."""
    needed = CAPABILITIES.get(str(point["format"]), (0, 0))
    for gpu in node.gpus:
        if gpu.capability and tuple(map(int, gpu.capability.split("."))) < needed:
            return f"{point['format']} needs compute capability {needed[0]}.{needed[1]}"
    return ""


#: The least compute capability of each format.
CAPABILITIES = {"bfloat16": (8, 0), "int8": (8, 0), "fp8": (8, 9), "fp8_products": (8, 9)}
METRICS = (
    Metric("time", "s", "lower", "of one step, in which each sequence gets a token"),
    Metric("rate", "1/s", "higher", "tokens of all sequences over time"),
    Metric("bandwidth", "B/s", "higher", "matrices and cache, each read once, over time"),
    Metric("error", "1", "lower", "relative change of the logits by the format"),
    Metric("energy", "J", "lower", "of a token, above that of the idle card"),
)
DECODE = Benchmark(
    "lm_decode",
    measure,
    metrics=METRICS,
    grid={
        "model": ("llama-3-8b",),
        "batch": (1, 64),
        "context": (2048,),
        "format": ("bfloat16", "fp8", "int8"),
    },
    requires=Requires(gpus=1, modules=("torch", "triton"), also=(computes, fits)),
    timeout=600,
    description=(
        "One compiled decode step of a decoder of Llama 3 8B's shape with random weights, one CUDA"
        " graph, on one GPU."
    ),
    terms={
        "batch": "sequences",
        "context": "tokens in the cache of each sequence",
        "format": "of the matrices; int8 and fp8 with a scale per output, multiplied as bfloat16",
    },
)
DECODE_CPU = replace(
    DECODE,
    name="lm_decode_cpu",
    grid={
        "model": ("tiny",),
        "batch": (4,),
        "context": (128,),
        "format": ("float32", "int8"),
    },
    requires=Requires(modules=("torch",)),
    timeout=60,
    description="One decode step of a tiny decoder on the CPU, operation by operation.",
)
