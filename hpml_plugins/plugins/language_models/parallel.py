"""The benchmarks `lm_decode_parallel` and `lm_decode_parallel_cpu`: a decode step with its layers
split over several ranks."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from hpml_plugins import Bench, Benchmark, HpmlError, Metric, Rank, Requires, Samples
from hpml_plugins.plugins.language_models.decoding import (
    BUDGET,
    CACHE_TOLERANCE,
    COMPILED_TOLERANCE,
    compiled,
    computes,
    fits,
)
from hpml_plugins.plugins.language_models.fused_decoding import BATCHES, by_kernels, kernel_step
from hpml_plugins.plugins.language_models.shapes import (
    LLAMA,
    PRODUCTS,
    Shape,
    decode_bytes,
    decode_flop,
    find_shape,
)

if TYPE_CHECKING:
    from hpml_plugins.plugins.language_models.inference import DecodeStep
    from hpml_plugins.plugins.language_models.llama import Llama
    from hpml_plugins.plugins.language_models.peers import SumAndNorm


def measure(
    bench: Bench, *, model: str, batch: int, context: int, format: str, ranks: int
) -> Mapping[str, Any]:
    """Time a decode step as `lm_decode` does, on one rank and on all of them.

    Tensor parallelism by torch's DTensor: a rank has some heads, their keys and values, and a part
    of the feed-forward block; each layer has two sums over the ranks. If the GPUs can access each
    other's memory, a sum, the addition and the norm after it are one kernel of ours; else the sum
    is NCCL's all-reduce. On GPUs the step is that of `lm_decode_fused`, on one rank too; compiled
    in float32 and for other numbers of sequences. Source: Shoeybi et al., Megatron-LM, arXiv
    1909.08053, section 3.
    """
    shape = find_shape(model, LLAMA)
    if format not in FORMATS:
        raise HpmlError(f"ranks do not share matrices in {format}; use {' or '.join(FORMATS)}")
    if shape.kv_heads % ranks:
        raise HpmlError(f"{ranks} ranks cannot share {shape.kv_heads} heads of keys")
    found: Mapping[str, Any] = bench.ranks(
        on_rank, ranks, shape, batch, context, format, environment=NO_MULTICAST
    )[0]
    bench.work(
        flop=decode_flop(shape, batch, context),
        bytes=decode_bytes(shape, batch, context, format),
        dtype=PRODUCTS[format],
    )
    return found


def on_rank(
    rank: Rank, shape: Shape, batch: int, context: int, format: str
) -> Mapping[str, Any] | None:
    """The step of all ranks, only its sums, and the step on rank 0 alone."""
    shared = together(rank, shape, batch, context, format)
    if rank.backend == "nccl":
        release_memory()
    single = alone(rank, shape, batch, context, format) if rank.index == 0 else None
    rank.barrier()
    if single is None:
        return None
    time = shared["time"]
    return {
        **shared,
        "rate": batch / time,
        "single": single,
        "speedup": single.median / time,
        "sums_share": shared["sums"].median / time.median,
    }


def together(rank: Rank, shape: Shape, batch: int, context: int, format: str) -> dict[str, Any]:
    """The time of a step on all ranks, of only its sums, and of the rest; the kind of the sums."""
    from hpml_plugins.plugins.language_models import inference, llama, peers, sharing

    rank.bench.progress("filling weights and cache", 0.0)
    decoder = llama.Llama(shape, context, format, rank.device, rank.bench.seed)
    step = inference.DecodeStep(decoder, batch, rank.bench.seed)
    step.read_prompt()
    whole, wanted = step.whole(), step()[0].clone()
    x = decoder.embedding(step.last)
    add_up = peers.find_sum(rank, x)
    sharing.share(step, rank, add_up)
    check_shared(rank.bench, step, whole, wanted, format)
    rank.bench.progress("all together", 0.2)
    time = rank.time(ready(rank.bench, step, add_up), budget=BUDGET)
    sums = rank.time(only_sums(x, decoder, add_up), budget=BUDGET / 2, name="sums alone")
    rank.bench.progress("without the others", 0.4)
    own = rank.time(without_others(rank, step), budget=BUDGET, name="without the others")
    of_peers = float(add_up is not peers.sum_by_collective)
    return {"time": time, "sums": sums, "own": own, "peers": of_peers}


def alone(rank: Rank, shape: Shape, batch: int, context: int, format: str) -> Samples:
    """The time of the step on this rank, without the others."""
    from hpml_plugins.plugins.language_models import inference, llama

    rank.bench.progress("one alone", 0.6)
    decoder = llama.Llama(shape, context, format, rank.device, rank.bench.seed)
    step = inference.DecodeStep(decoder, batch, rank.bench.seed)
    return rank.bench.time(ready(rank.bench, step), budget=BUDGET, name="one alone")


def release_memory() -> None:
    """Free the memory that the parallel step has left in torch's cache, and its compiled code."""
    import gc

    import torch

    torch._dynamo.reset()
    gc.collect()
    torch.cuda.empty_cache()


def ready(bench: Bench, step: DecodeStep, add_up: SumAndNorm | None = None) -> Callable[[], object]:
    """The timed step: on a GPU by kernels of ours or compiled, as one CUDA graph.

    add_up: as `share` got it; None for a rank that adds up its own part alone.
    """
    import torch

    if bench.device == "cpu":
        return step
    if len(step.last) not in BATCHES or step.model.dtype != torch.bfloat16:
        return compiled(bench, step)
    return by_kernels(bench, kernel_step(step, add_up))


def without_others(rank: Rank, step: DecodeStep) -> Callable[[], object]:
    """The timed step with sums of this rank's part only. Its logits are not those of the model."""
    from hpml_plugins.plugins.language_models import peers

    if rank.backend == "nccl":
        release_memory()
    for block in step.model.blocks:
        block.add_up = peers.sum_of_own
    return ready(rank.bench, step)


def check_shared(bench: Bench, step: DecodeStep, whole: Any, wanted: Any, format: str) -> None:
    """Compare the ranks' logits with those of a single rank.

    whole: of the first sequence, by a pass over all of its tokens.  wanted: of all sequences.
    """
    from hpml_plugins.plugins.language_models.inference import relative_error

    found = bench.result(step()[0])
    difference = relative_error(found, wanted)
    bench.check(
        difference <= COMPILED_TOLERANCE,
        f"the ranks' logits differ from those of one alone by {difference:.1e}",
    )
    difference = relative_error(found[0], whole)
    bench.check(
        difference <= CACHE_TOLERANCE[format],
        f"logits with the cache differ from those of the whole text by {difference:.1e}",
    )


def only_sums(x: Any, decoder: Llama, add_up: SumAndNorm) -> Callable[[], object]:
    """The sums of a step with the norms after them: two of x in each layer; on a GPU as one CUDA
    graph."""
    from hpml_plugins.plugins.language_models.inference import captured

    def step() -> None:
        for block in decoder.blocks:
            add_up(add_up(x, x, block.weight)[1], x, block.next_weight)

    return captured(step)[0] if x.is_cuda else step


#: Disables NVLink's multicast, and its set-up by torch's symmetric memory.
NO_MULTICAST = {"TORCH_SYMM_MEM_DISABLE_MULTICAST": "1"}
#: The formats of DTensor's linear layers, which quantised matrices are not.
FORMATS = ("float32", "bfloat16")
PARALLEL = Benchmark(
    "lm_decode_parallel",
    measure,
    metrics=(
        Metric("time", "s", "lower", "of one step, in which each sequence gets a token"),
        Metric("rate", "1/s", "higher", "tokens of all sequences over time"),
        Metric("single", "s", "lower", "of the same step on one GPU"),
        Metric("speedup", "1", "higher", "single over time"),
        Metric("sums", "s", "lower", "of a step's sums and the norms after them, alone"),
        Metric("own", "s", "lower", "of the step if each rank adds up only its own part"),
        Metric("sums_share", "1", "lower", "sums over time"),
        Metric("peers", "1", None, "1: ranks add up in each other's memory; 0: by NCCL or gloo"),
    ),
    grid={
        "model": ("llama-3-8b",),
        "batch": (1, 64),
        "context": (2048,),
        "format": ("bfloat16",),
        "ranks": (2, 4, 8),
    },
    requires=Requires(gpus="ranks", modules=("torch", "triton"), also=(computes, fits)),
    timeout=600,
    description=(
        "One decode step of a decoder of Llama 3 8B's shape, shared by several GPUs: tensor"
        " parallelism by DTensor, one CUDA graph, by the kernels of `lm_decode_fused`."
    ),
    terms={
        "batch": "sequences",
        "context": "tokens in the cache of each sequence",
        "format": "of the matrices",
        "ranks": "GPUs",
    },
)
PARALLEL_CPU = replace(
    PARALLEL,
    name="lm_decode_parallel_cpu",
    grid={
        "model": ("tiny",),
        "batch": (2,),
        "context": (64,),
        "format": ("float32",),
        "ranks": (2,),
    },
    requires=Requires(modules=("torch",)),
    timeout=120,
    description="One decode step of a tiny decoder in processes on the CPU, over gloo.",
)
