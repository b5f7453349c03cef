"""The benchmarks `lm_serving` and `lm_serving_cpu`: latencies of requests that arrive at random."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from hpml_plugins import Bench, Benchmark, Metric, Requires
from hpml_plugins.plugins.language_models.decoding import computes, fits
from hpml_plugins.plugins.language_models.server import Request, arrivals, percentile, serve
from hpml_plugins.plugins.language_models.shapes import LLAMA, check_format, find_shape

if TYPE_CHECKING:
    from hpml_plugins import Node
    from hpml_plugins.plugins.language_models.llama import Llama

#: Requests whose last token is recomputed as a check.
CHECKED = 3
#: Tokens of a block of the cache.
BLOCK = 64
#: Largest distance of a token's logit from the largest logit, in deviations of the logits: the most
#: likely tokens may be equally likely.
SLACK = 0.3


def measure(
    bench: Bench,
    *,
    model: str,
    format: str,
    arrival: float,
    prompt: int,
    output: int,
    slots: int,
    seconds: float,
) -> Mapping[str, Any]:
    """Answer requests that arrive at random by continuous batching: latencies and rate.

    A prompt is read as soon as a slot is free, before the next step; the tokens are read back after
    each step. On a GPU, reading a prompt is compiled, a step is by the kernels of
    `lm_decode_fused`, or compiled where there are none for the format or the number of slots, and
    each is a CUDA graph. Weights and prompts are random, arrivals and lengths seeded.

    arrival: requests per second on average.  prompt: tokens of each.  output: average number of
    requested tokens.  slots: sequences that are decoded at a time.  seconds: in which requests
    arrive.
    """
    check_format(format)
    shape = find_shape(model, LLAMA)

    import torch

    from hpml_plugins.plugins.language_models import llama
    from hpml_plugins.plugins.language_models.slots import LlamaEngine, has_kernels

    bench.progress("filling weights", 0.0)
    requests = arrivals(arrival, seconds, output, bench.seed)
    decoder = llama.Llama(shape, context_of(prompt, output), format, bench.device, bench.seed)
    decoder.quantize(format)
    size = (len(requests), prompt)
    prompts = torch.randint(shape.vocabulary, size, device=bench.device)
    on_gpu = bench.device == "cuda"
    by_kernels = on_gpu and has_kernels(format, slots)
    engine = LlamaEngine(decoder, slots, prompts, by_kernels=by_kernels)
    if on_gpu:
        bench.progress("compiling and capturing", 0.1)
        engine.capture()

    def progress(done: int) -> None:
        text = f"{done} of {len(requests)} requests"
        bench.progress(text, 0.3 + 0.7 * done / len(requests))

    with bench.meter() as meter:
        took = serve(engine, requests, progress)
    check_tokens(bench, decoder, requests, prompts)
    attach(bench, requests)
    return metrics_of(requests, took, meter.energy)


def context_of(prompt: int, output: int) -> int:
    """Positions for the most tokens of a request, in whole blocks, because kernels read masks by
    blocks."""
    return -(-(prompt + output * 3 // 2 + 1) // BLOCK) * BLOCK


def check_tokens(bench: Bench, decoder: Llama, requests: Sequence[Request], prompts: Any) -> None:
    """Compare the last tokens of some requests with uncompiled passes over their whole text."""
    import torch

    for request in requests:
        bench.check(len(request.tokens) == request.wanted, "a request got as much as it asked for")
    step = max(1, len(requests) // CHECKED)
    for number in range(0, len(requests), step):
        *before, last = requests[number].tokens
        given = torch.tensor(before, device=prompts.device)
        text = torch.cat([prompts[number], given])[None]
        with torch.compiler.set_stance("force_eager"):
            logits = decoder.prompt(text, decoder.caches(1))[0][0].float()
        token = bench.result(torch.tensor(float(last)))
        possible = bool(token.isfinite()) and 0 <= int(token) < len(logits)
        bench.check(possible, "a token is one of the vocabulary")
        below = float((logits.max() - logits[int(token)]) / logits.std())
        bench.check(
            below <= SLACK, f"a token's logit is {below:.2g} deviations below the likeliest one's"
        )


def attach(bench: Bench, requests: Sequence[Request]) -> None:
    """The series of all requests."""
    columns = {
        "arrival": [request.arrival for request in requests],
        "first": [request.times[0] - request.arrival for request in requests],
        "end": [request.times[-1] for request in requests],
        "tokens": [float(request.wanted) for request in requests],
    }
    bench.series("requests", columns, dict.fromkeys(("arrival", "first", "end"), "s"))


def metrics_of(
    requests: Sequence[Request], took: float, energy: float | None
) -> dict[str, float | None]:
    """The metrics of the answers.  took: s.  energy: J of all."""
    firsts = [request.times[0] - request.arrival for request in requests]
    gaps = [gap for request in requests for gap in request.gaps()]
    tokens = sum(request.wanted for request in requests)
    return {
        "first_token": percentile(firsts, 0.5),
        "first_token_p99": percentile(firsts, 0.99),
        "output_token": percentile(gaps, 0.5),
        "output_token_p99": percentile(gaps, 0.99),
        "rate": tokens / took,
        "energy": energy / tokens if energy is not None else None,
    }


def fits_slots(node: Node, point: Mapping[str, Any]) -> str:
    """Why weights and cache of all slots do not fit into a GPU of this node; "" if they do."""
    context = context_of(int(point["prompt"]), int(point["output"]))
    return fits(node, {**point, "batch": point["slots"], "context": context})


SERVING = Benchmark(
    "lm_serving",
    measure,
    metrics=(
        Metric("first_token", "s", "lower", "from a request's arrival to its first token, median"),
        Metric("first_token_p99", "s", "lower", "the same, 99th percentile"),
        Metric("output_token", "s", "lower", "between two tokens of a request, median"),
        Metric("output_token_p99", "s", "lower", "the same, 99th percentile"),
        Metric("rate", "1/s", "higher", "tokens of all answers over time"),
        Metric("energy", "J", "lower", "of a token of an answer: the whole card, idle part too"),
    ),
    grid={
        "model": ("llama-3-8b",),
        "format": ("bfloat16", "fp8"),
        "arrival": (4.0, 12.0, 20.0),
        "prompt": (512,),
        "output": (128,),
        "slots": (64,),
        "seconds": (30.0,),
    },
    requires=Requires(gpus=1, modules=("torch", "triton"), also=(computes, fits_slots)),
    timeout=600,
    rounds=1,
    description=(
        "Requests that arrive at random, answered by continuous batching with a decoder of Llama 3"
        " 8B's shape, on one GPU."
    ),
    terms={
        "format": "of the matrices",
        "arrival": "requests per second on average",
        "prompt": "tokens of a request's prompt",
        "output": "tokens that a request asks for on average",
        "slots": "sequences that are decoded at a time",
        "seconds": "in which requests arrive",
    },
)
SERVING_CPU = replace(
    SERVING,
    name="lm_serving_cpu",
    grid={
        "model": ("tiny",),
        "format": ("float32",),
        "arrival": (5.0, 20.0),
        "prompt": (16,),
        "output": (8,),
        "slots": (4,),
        "seconds": (2.0,),
    },
    requires=Requires(modules=("torch",)),
    timeout=120,
    description="The same with a tiny decoder on the CPU.",
)
