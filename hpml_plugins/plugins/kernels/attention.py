"""The benchmarks of attention: prefill forward, with backward, with a sliding window, and decoding
over a cache."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import Any

from hpml_plugins import Bench, Benchmark, HpmlError, Metric, Requires
from hpml_plugins.plugins.kernels import formulas
from hpml_plugins.plugins.kernels.models import model
from hpml_plugins.plugins.kernels.variants import Step, relative_error, speedup, survey

#: The heads are those of this model; the window is that of another one.
MODEL, WINDOW_MODEL = "llama-3.1-8b", "mistral-7b"
#: Tokens of a batch, in more sequences if these are shorter. Tokens of a cache, over all its
#: sequences.
TOKENS = {"cuda": 16384, "cpu": 512}
CACHED = {"cuda": 131072, "cpu": 4096}
#: Relative error against float64: bfloat16 rounds the softmax's weights, and gradients twice.
TOLERANCE = {"cuda": 1e-2, "cpu": 1e-5}
GRADIENT_TOLERANCE = 2e-2


def measure(bench: Bench, *, length: int, window: int = 0) -> dict[str, Any]:
    """Time causal attention of `length` tokens, forward, by the fastest back end.  window: keys of
    a query; 0: all."""
    from hpml_plugins.plugins.kernels import attention_ways as ways

    batch, heads, kv_heads, dim = sizes(length, bench.device)
    q, k, v = ways.make_inputs(batch, length, heads, kv_heads, dim, bench.device, bench.seed)
    group = heads // kv_heads
    rows = ways.some_rows(length).to(bench.device)
    expected = ways.exact(q[-1, -group:], k[-1, -1], v[-1, -1], window, True, rows)
    pairs = formulas.attention_pairs(length, window)
    bench.work(
        flop=formulas.attention_flop(batch, heads, dim, pairs),
        bytes=formulas.attention_bytes(
            batch, length, length, heads, kv_heads, dim, q.element_size()
        ),
        dtype=q.dtype,
    )

    builders = builders_of(ways.prefill_ways(window, length, bench.device), q, k, v)
    return timed(
        bench, builders, lambda result: relative_error(result[-1, -group:, rows], expected), "flash"
    )


def measure_training(bench: Bench, *, length: int) -> dict[str, Any]:
    """Time causal attention of `length` tokens, forward and backward, by the fastest back end."""
    import torch

    from hpml_plugins.plugins.kernels import attention_ways as ways

    batch, heads, kv_heads, dim = sizes(length, bench.device)
    q, k, v = ways.make_inputs(batch, length, heads, kv_heads, dim, bench.device, bench.seed)
    generator = torch.Generator(bench.device).manual_seed(bench.seed + 1)
    gradient = torch.empty_like(q).normal_(generator=generator)
    group = heads // kv_heads
    expected = ways.exact_gradients(q[-1, -group:], k[-1, -1], v[-1, -1], gradient[-1, -group:])
    pairs = formulas.attention_pairs(length)
    forward = formulas.attention_flop(batch, heads, dim, pairs)
    bench.work(flop=formulas.TRAINING * forward, dtype=q.dtype)

    def builder(attend: Callable[[], Any]) -> Callable[[], Step]:
        return lambda: ways.training_step(attend(), q, k, v, gradient)

    def error(results: Any) -> float:
        checked = [each[-1, -group:] for each in results[:2]] + [
            each[-1, -1] for each in results[2:]
        ]
        return max(
            relative_error(found, wanted) for found, wanted in zip(checked, expected, strict=True)
        )

    attends = ways.prefill_ways(0, length, bench.device, training=True)
    builders = {name: builder(attend) for name, attend in attends.items()}
    return timed(bench, builders, error, "flash", tolerance=GRADIENT_TOLERANCE)


def measure_decode(bench: Bench, *, context: int, cache: str) -> dict[str, Any]:
    """Time one query for each sequence over `context` cached tokens.

    cache: "contiguous", or "paged", in pages of 128 tokens in random places. Raises HpmlError for
    another value.
    """
    from hpml_plugins.plugins.kernels import attention_ways as ways

    if cache not in ("contiguous", "paged"):
        raise HpmlError(f"no cache {cache!r}; use contiguous or paged")
    shape = model(MODEL)
    batch = CACHED[bench.device] // context
    q, k, v = ways.make_inputs(
        batch,
        context,
        shape.heads,
        shape.kv_heads,
        shape.head_dim,
        bench.device,
        bench.seed,
        queries=1,
    )
    k, v = k.contiguous(), v.contiguous()  # of each head, the tokens side by side
    group = shape.heads // shape.kv_heads
    import torch

    rows = torch.zeros(1, dtype=torch.long, device=bench.device)
    expected = ways.exact(q[-1, -group:], k[-1, -1], v[-1, -1], 0, False, rows)
    nbytes = formulas.attention_bytes(
        batch, 1, context, shape.heads, shape.kv_heads, shape.head_dim, q.element_size()
    )
    flop = formulas.attention_flop(batch, shape.heads, shape.head_dim, context)
    bench.work(flop=flop, bytes=nbytes, dtype=q.dtype)
    if cache == "paged":
        table = ways.page_table(batch, context, bench.device, bench.seed)
        k, v = ways.to_pages(k, table), ways.to_pages(v, table)
        attends, baseline = ways.paged_ways(table), "gathered, flash"
    else:
        attends, baseline = ways.decode_ways(bench.device), "flash"

    builders = builders_of(attends, q, k, v)
    return timed(
        bench, builders, lambda result: relative_error(result[-1, -group:], expected), baseline
    )


def builders_of(
    attends: Mapping[str, Callable[[], Any]], q: Any, k: Any, v: Any
) -> dict[str, Callable[[], Step]]:
    """Name → function that returns the step, one forward pass of these inputs.  attends: name →
    function that returns the back end."""

    def builder(attend: Callable[[], Any]) -> Callable[[], Step]:
        return lambda: partial(attend(), q, k, v)

    return {name: builder(attend) for name, attend in attends.items()}


def sizes(length: int, device: str) -> tuple[int, int, int, int]:
    """Sequences, query heads, heads of keys and values, and numbers per head of MODEL.

    A sequence longer than two batches has only a share of the heads, as on each of several GPUs
    that share a model.
    """
    shape, tokens = model(MODEL), TOKENS[device]
    gpus = max(1, length // (2 * tokens))
    return max(1, tokens // length), shape.heads // gpus, shape.kv_heads // gpus, shape.head_dim


def timed(
    bench: Bench,
    builders: dict[str, Callable[[], Step]],
    error: Callable[[Any], float],
    baseline: str,
    tolerance: float = 0.0,
) -> dict[str, Any]:
    """The metrics of the fastest variant, with its speed-up over the baseline if that is another
    one."""
    found = survey(bench, builders, error, tolerance or TOLERANCE[bench.device], always=(baseline,))
    step = found.steps[found.fastest]
    bench.progress("timing", 0.6)
    time = bench.time(step).note(way=found.fastest)
    ratio = None
    if baseline in found.steps and baseline != found.fastest:
        ratio = speedup(bench, found.steps[baseline], {"speedup": step})["speedup"]
    return {"time": time, "error": found.errors[found.fastest], "speedup": ratio}


ERROR = Metric(
    "error", "1", "lower", "against float64 of the same inputs, relative, 2-norm", (0, None)
)
SPEEDUP = Metric(
    "speedup", "1", "higher", "time of torch's FlashAttention over that of the fastest back end"
)
PREFILL = Benchmark(
    "kernels_attention",
    measure,
    metrics=(
        Metric("time", "s", "lower", "of one forward pass by the fastest back end"),
        Metric(
            "rate",
            "FLOP/s",
            "higher",
            "4 · head_dim for each pair of a query and a key that it sees, over time",
        ),
        ERROR,
        SPEEDUP,
    ),
    grid={"length": (512, 8192, 131072)},
    requires=Requires(gpus=1, gpu_memory=40e9, modules=("torch",)),
    timeout=240,
    description=(
        "Causal attention, forward, with the heads of Llama 3.1 8B: the fastest of the installed"
        " back ends."
    ),
    terms={
        "length": (
            "tokens of a sequence; a batch has 16,384, or one sequence: of 131,072 with a quarter"
            " of the heads"
        )
    },
)
TRAINING = replace(
    PREFILL,
    name="kernels_attention_training",
    measure=measure_training,
    metrics=(
        Metric("time", "s", "lower", "of one forward and backward pass by the fastest back end"),
        Metric("rate", "FLOP/s", "higher", "3.5 times the forward pass's operations, over time"),
        ERROR,
        SPEEDUP,
    ),
    grid={"length": (16384,)},
    description="Causal attention, forward and backward, with the heads of Llama 3.1 8B.",
)
WINDOW = replace(
    PREFILL,
    name="kernels_attention_window",
    grid={"length": (16384,), "window": (4096,)},
    description="Causal attention with the sliding window of Mistral 7B, forward.",
    terms={**PREFILL.terms, "window": "keys that a query sees, itself included"},
)
DECODE = Benchmark(
    "kernels_decode",
    measure_decode,
    metrics=(
        Metric("time", "s", "lower", "of one token of each sequence by the fastest back end"),
        Metric(
            "bandwidth",
            "B/s",
            "higher",
            "keys and values of the cache, queries and results, over time",
        ),
        ERROR,
        Metric(
            "speedup",
            "1",
            "higher",
            "time of torch's FlashAttention, behind a gathering copy if paged, over time",
        ),
    ),
    grid={"context": (2048, 131072), "cache": ("contiguous", "paged")},
    requires=PREFILL.requires,
    timeout=240,
    description=(
        "Attention of one new token per sequence over 131,072 cached tokens, with the heads of"
        " Llama 3.1 8B."
    ),
    terms={
        "context": (
            "cached tokens of a sequence; all sequences have 131,072 together, on a CPU 4,096"
        ),
        "cache=paged": "pages of 128 tokens in random places",
    },
)
PREFILL_CPU = replace(
    PREFILL,
    name="kernels_attention_cpu",
    grid={"length": (512,)},
    requires=Requires(modules=("torch",)),
    description="Causal attention, forward, on the CPU in float32.",
    terms={"length": "tokens of the only sequence"},
)
DECODE_CPU = replace(
    DECODE,
    name="kernels_decode_cpu",
    grid={"context": (1024,), "cache": ("contiguous",)},
    requires=Requires(modules=("torch",)),
    description=(
        "Attention of one new token per sequence over 4,096 cached tokens on the CPU, in float32."
    ),
)
