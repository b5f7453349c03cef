"""The benchmark `lm_decode_fused`: the decode step of one sequence by kernels of ours instead of
the compiler's."""

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
    from hpml_plugins.plugins.language_models.token_step import TokenStep

#: Of the matrices, which are multiplied as bfloat16.
FORMATS = ("bfloat16", "fp8", "int8")


def measure(
    bench: Bench, *, model: str, batch: int, context: int, format: str
) -> Mapping[str, Any]:
    """Time the decode step of `lm_decode` for one sequence by five kernels of ours a layer, as one
    CUDA graph: four products of a matrix and a vector, which include the norms, SwiGLU and the
    additions, and the attention, which includes the rotary embedding. Each loads its matrix or
    its cache before the previous kernel has ended.
    """
    if batch != 1 or format not in FORMATS:
        raise HpmlError(
            f"the kernels are for one sequence in {', '.join(FORMATS)}, not for {batch} in {format}"
        )
    shape = find_shape(model, LLAMA)

    from hpml_plugins.plugins.language_models import inference, llama, token_step

    bench.progress("filling weights and cache", 0.0)
    decoder = llama.Llama(shape, context, format, bench.device, bench.seed)
    step = inference.DecodeStep(decoder, batch, bench.seed)
    error = check_step(bench, step, format)
    fused = by_kernels(bench, token_step.TokenStep(step))
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


def by_kernels(bench: Bench, fused: TokenStep) -> Callable[[], object]:
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
    grid={"model": ("llama-3-8b",), "batch": (1,), "context": (2048,), "format": FORMATS},
    description=(
        "One decode step of a decoder of Llama 3 8B's shape with random weights by five kernels of"
        " ours a layer, one CUDA graph, on one GPU."
    ),
)
