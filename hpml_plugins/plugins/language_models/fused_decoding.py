"""The benchmark `lm_decode_fused`: the decode step by kernels of ours instead of the compiler's."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from hpml_plugins import Bench, HpmlError
from hpml_plugins.plugins.language_models.decoding import (
    BUDGET,
    COMPILED_TOLERANCE,
    DECODE,
    FORMAT_TOLERANCE,
    check_step,
)
from hpml_plugins.plugins.language_models.shapes import (
    LLAMA,
    PRODUCTS,
    decode_bytes,
    decode_flop,
    find_shape,
)

if TYPE_CHECKING:
    from hpml_plugins.plugins.language_models.inference import DecodeStep
    from hpml_plugins.plugins.language_models.kernel_step import KernelStep
    from hpml_plugins.plugins.language_models.peers import SumAndNorm

#: Of the matrices, which are multiplied as bfloat16.
FORMATS = ("bfloat16", "fp8", "int8")
#: Sequences: one, or as many as products on tensor cores take at once.
BATCHES = (1, 16, 32, 64, 128)


def measure(
    bench: Bench, *, model: str, batch: int, context: int, format: str
) -> Mapping[str, Any]:
    """Time the decode step of `lm_decode` by five kernels of ours a layer, as one CUDA graph: four
    products, which include the norms, SwiGLU and the additions, and the attention, which includes
    the rotary embedding. Each starts before the previous kernel has ended.

    One sequence: products of a matrix and a vector, which load their matrix while they wait.
    Several: products on tensor cores.
    """
    if format not in FORMATS:
        raise HpmlError(f"there are no kernels for {format}; use one of {', '.join(FORMATS)}")
    if batch not in BATCHES:
        numbers = ", ".join(map(str, BATCHES))
        raise HpmlError(f"there are no kernels for {batch} sequences; use one of {numbers}")
    shape = find_shape(model, LLAMA)

    from hpml_plugins.plugins.language_models import inference, llama

    bench.progress("filling weights and cache", 0.0)
    decoder = llama.Llama(shape, context, format, bench.device, bench.seed)
    step = inference.DecodeStep(decoder, batch, bench.seed)
    error = check_step(bench, step, format)
    fused = by_kernels(bench, kernel_step(step))
    bench.work(
        flop=decode_flop(shape, batch, context),
        bytes=decode_bytes(shape, batch, context, format),
        dtype=PRODUCTS[format],
    )
    bench.progress("timing", 0.6)
    time = bench.time(fused, budget=BUDGET)
    energy = bench.energy(fused)
    return {
        "time": time,
        "rate": batch / time,
        "error": error if format in FORMAT_TOLERANCE else None,
        "energy": energy / batch if energy else None,
    }


def kernel_step(step: DecodeStep, add_up: SumAndNorm | None = None) -> KernelStep:
    """The step by our kernels for its number of sequences.

    add_up: of ranks that share the decoder; None for a rank alone.
    """
    from hpml_plugins.plugins.language_models import batch_step, token_step

    of_one = len(step.last) == 1
    if add_up is None:
        return token_step.TokenStep(step) if of_one else batch_step.BatchStep(step)
    shared = token_step.SharedTokenStep if of_one else batch_step.SharedBatchStep
    return shared(step, add_up)


def by_kernels(bench: Bench, fused: KernelStep) -> Callable[[], object]:
    """The step, on a GPU as one CUDA graph, compared with the DecodeStep that it was made of, which
    is not compiled."""
    import torch

    from hpml_plugins.plugins.language_models import inference

    wanted = fused.step()[0]
    replay: Callable[[], object] = fused
    if bench.device == "cpu":  # in Triton's interpreter
        logits, tokens = fused()
    else:
        replay, (logits, tokens) = inference.captured(fused)
        logits.zero_()
        tokens.fill_(-1)
        replay()
        torch.cuda.synchronize()
    error = inference.relative_error(bench.result(logits), wanted)
    bench.check(
        error <= COMPILED_TOLERANCE,
        f"the logits by our kernels differ from the step's by {error:.1e}",
    )
    bench.check(torch.equal(tokens, logits.argmax(-1)), "the token is not the likeliest one")
    return replay


DECODE_FUSED = replace(
    DECODE,
    name="lm_decode_fused",
    measure=measure,
    grid={"model": ("llama-3-8b",), "batch": (1, 64), "context": (2048,), "format": FORMATS},
    description=(
        "One decode step of a decoder of Llama 3 8B's shape with random weights by five kernels of"
        " ours a layer, one CUDA graph, on one GPU."
    ),
)
