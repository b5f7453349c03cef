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


def measure(
    bench: Bench, *, model: str, batch: int, context: int, format: str, ranks: int
) -> Mapping[str, Any]:
    """Time a decode step as `lm_decode` does, on one rank and on all of them.

    Tensor parallelism by torch's DTensor: a rank has some heads, their keys and values, and a part
    of the feed-forward block; each layer has two all-reduces: by torch's one-shot kernel if the
    GPUs can access each other's memory, else by NCCL. Source: Shoeybi et al., Megatron-LM, arXiv
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
    """The step of all ranks, only its all-reduces, and the step on rank 0 alone."""
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
        "share": shared["communication"].median / time.median,
    }


def together(rank: Rank, shape: Shape, batch: int, context: int, format: str) -> dict[str, Any]:
    """The time of a step on all ranks, the time of only its all-reduces, and their kind."""
    from hpml_plugins.plugins.language_models import inference, llama, peers

    rank.bench.progress("filling weights and cache", 0.0)
    decoder = llama.Llama(shape, context, format, rank.device, rank.bench.seed)
    step = inference.DecodeStep(decoder, batch, rank.bench.seed)
    step.read_prompt()
    whole, wanted = step.whole(), step()[0].clone()
    x = decoder.embedding(step.last)
    add_up = peers.find_sum(rank, x)
    share_layers(decoder, rank, add_up)
    keep_heads(step, rank)
    check_shared(rank.bench, step, whole, wanted, format)
    rank.bench.progress("all together", 0.2)
    time = rank.time(ready(rank.bench, step), budget=BUDGET)
    additions = addition(x, shape.layers, add_up)
    communication = rank.time(additions, budget=BUDGET / 2, name="additions alone")
    return {"time": time, "communication": communication, "peers": float(add_up is not None)}


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


def ready(bench: Bench, step: DecodeStep) -> Callable[[], object]:
    """The timed step: on a GPU compiled, one CUDA graph."""
    return step if bench.device == "cpu" else compiled(bench, step)


def share_layers(decoder: Llama, rank: Rank, add_up: Callable[[Any], Any] | None = None) -> None:
    """Keep this rank's part of every matrix. All ranks have drawn the same weights, so nothing is
    sent.

    add_up: the sum over the ranks; default: DTensor's.
    """
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor import Partial, Replicate
    from torch.distributed.tensor.parallel import (
        ColwiseParallel,
        RowwiseParallel,
        parallelize_module,
    )

    mesh = init_device_mesh(rank.device.partition(":")[0], (rank.count,))
    plan = {
        **dict.fromkeys(("qkv", "gate_up"), ColwiseParallel()),
        **dict.fromkeys(
            ("out", "down"), RowwiseParallel(output_layouts=Partial() if add_up else Replicate())
        ),
    }

    for block in decoder.blocks:
        parallelize_module(block, mesh, plan, src_data_rank=None)
        if add_up:
            for product in (block.out, block.down):
                product.register_forward_hook(lambda module, given, own: add_up(own))
    head = {"head": ColwiseParallel(output_layouts=Replicate())}
    parallelize_module(decoder.ends, mesh, head, src_data_rank=None)
    decoder.ranks = rank.count


def keep_heads(step: DecodeStep, rank: Rank) -> None:
    """Keep the keys and values of this rank's heads."""
    for layer, cache in enumerate(step.caches):
        parts = (each.chunk(rank.count, 2)[rank.index] for each in (cache.keys, cache.values))
        step.caches[layer] = type(cache)(*(part.contiguous() for part in parts))


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


def addition(
    x: Any, layers: int, add_up: Callable[[Any], Any] | None = None
) -> Callable[[], object]:
    """The all-reduces of a step: two of x in each layer; on a GPU as one CUDA graph."""
    from torch import distributed as dist

    from hpml_plugins.plugins.language_models.inference import captured

    call = add_up or dist.all_reduce

    def step() -> None:
        for _ in range(2 * layers):
            call(x)

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
        Metric("communication", "s", "lower", "of a step's all-reduces, without anything else"),
        Metric("share", "1", "lower", "communication over time"),
        Metric("peers", "1", None, "1: ranks add up by reading each other's memory; 0: NCCL, gloo"),
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
        " parallelism by DTensor, compiled, one CUDA graph."
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
