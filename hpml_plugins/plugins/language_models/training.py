"""The benchmarks `lm_training`, `lm_training_ranks` and their small ones on the CPU: one training
step of a decoder."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from hpml_plugins import Bench, Benchmark, HpmlError, Metric, Rank, Requires, Samples
from hpml_plugins.plugins.language_models.shapes import (
    GPT,
    Shape,
    find_shape,
    training_flop_per_token,
)

if TYPE_CHECKING:
    from hpml_plugins.plugins.language_models.gpt import Gpt, Trainer

#: Steps before the timed ones, within which the loss must fall.
WARM_UP_STEPS = 8
#: Largest difference of the first loss from ln(vocabulary), the loss of an untrained model.
FIRST_LOSS = 0.5
#: Largest relative difference of the first loss from that of a float32 model.
LOSS_TOLERANCE = 2e-3
#: s of sampling, all rounds together.
BUDGET = 1.5


@dataclass(frozen=True)
class Job:
    """A training configuration. batch: sequences of `length` tokens, on each rank.  way: "ddp" or
    "fsdp" if several ranks train."""

    shape: Shape
    batch: int
    length: int
    checkpointing: bool
    way: str = ""

    @property
    def tokens(self) -> int:
        """Tokens of a step of one rank."""
        return self.batch * self.length

    @property
    def flop(self) -> int:
        """Model FLOP of a step of one rank."""
        return self.tokens * training_flop_per_token(self.shape, self.length)


def measure(
    bench: Bench, *, model: str, batch: int, length: int, checkpointing: bool
) -> Mapping[str, Any]:
    """Time one training step on one batch of random tokens, which are on the device already.

    Pre-norm layers without biases, GELU, causal attention, learnt positions, embedding and head
    tied, cross-entropy whose logits exist for 16384 tokens at a time, fused AdamW. On a GPU:
    products and residual stream in bfloat16 over float32 weights, the model with its loss compiled
    as one function. On a CPU: float32, not compiled.

    `mfu` is model FLOP utilisation: (6 N + 12 L h q T) · tokens of a step / time / published dense
    bfloat16 peak. Source: Chowdhery et al., PaLM, arXiv 2204.02311, appendix B. What checkpointing
    computes again does not count.
    """
    from hpml_plugins.plugins.language_models import gpt

    job = Job(find_shape(model, GPT), batch, length, checkpointing)
    with skip_if_too_large(bench, job):
        trainer = gpt.Trainer(gpt.made(job.shape, checkpointing, bench.device, bench.seed))
        bench.progress("compiling" if bench.device == "cuda" else "warming up", 0.0)
        if bench.device == "cuda":
            trainer.compile_whole()
        text = gpt.random_text(job.shape, batch, length, bench.device, bench.seed)
        step, memory = trained(bench, trainer, trainer.model, text)
        bench.work(flop=job.flop, dtype=precision(bench))
        bench.progress("timing", 0.5)
        time = bench.time(step, budget=BUDGET)
        energy = bench.energy(step)
    check_finite(bench, trainer)
    return {
        "time": time,
        "rate": job.tokens / time,
        "mfu": utilisation(bench, job, time),
        "memory": memory,
        "energy": energy / job.tokens if energy else None,
    }


def precision(bench: Bench) -> str:
    """The precision of the products."""
    return "bfloat16" if bench.device == "cuda" else "float32"


@contextmanager
def skip_if_too_large(bench: Bench, job: Job) -> Iterator[None]:
    """Skip the point if the card runs out of memory."""
    import torch

    try:
        yield
    except torch.OutOfMemoryError:
        bench.skip(
            f"{job.batch} sequences of {job.length} tokens do not fit into this card's memory"
        )


def trained(
    bench: Bench, trainer: Trainer, model: Gpt, text: tuple[Any, Any]
) -> tuple[Callable[[], None], int | None]:
    """Check the first loss and that it falls. Returns the step on this text, and the most memory
    that a step allocates, B.

    trainer: not trained yet.  model: the Gpt in it, not wrapped.
    """
    import torch

    def step() -> None:
        trainer.step(*text)

    unknowing = math.log(model.embedding.num_embeddings)
    wanted = bench.once("reference_loss", lambda: model.reference_loss(*text))
    step()
    first = bench.result(float(trainer.loss))
    bench.check(
        abs(first / wanted - 1) <= LOSS_TOLERANCE, "the first loss is not that of a float32 model"
    )
    bench.check(
        abs(first - unknowing) <= FIRST_LOSS, f"the first loss is {first:.3g}, not ln(vocabulary)"
    )
    on_gpu = bench.device != "cpu"
    if on_gpu:
        torch.cuda.reset_peak_memory_stats()
    for _ in range(WARM_UP_STEPS - 1):
        step()
    last = bench.result(float(trainer.loss))
    bench.check(
        math.isfinite(last) and last < first,
        "the loss on one batch does not fall: the model does not train",
    )
    return step, torch.cuda.max_memory_allocated() if on_gpu else None


def check_finite(bench: Bench, trainer: Trainer) -> None:
    """Check the loss after the timed steps."""
    last = bench.result(float(trainer.loss))
    bench.check(math.isfinite(last), "the loss after the timed steps is not finite")


def utilisation(bench: Bench, job: Job, time: Samples) -> Samples | None:
    """Model FLOP over time and the published peak of one card; None if that is unknown."""
    peak = bench.peaks.bfloat16 if bench.peaks else None
    if bench.device == "cuda" and not peak:
        name = bench.node.gpus[0].name
        bench.warn(f"unknown card {name}: no published peak of bfloat16, so no mfu")
    return job.flop / time / peak if peak else None


# Several ranks


def measure_ranks(
    bench: Bench,
    *,
    model: str,
    batch: int,
    length: int,
    checkpointing: bool,
    way: str,
    ranks: int,
) -> Mapping[str, Any]:
    """Time a training step of several ranks, each with a batch of its own, and that of one alone.

    One layer is compiled, which all share; the loss is not compiled.

    way: "ddp", DistributedDataParallel: all have all weights, gradients are added up while backward
    goes on. "fsdp", FSDP2: each has a part of the weights, the gradients and the optimiser.
    """
    if way not in WAYS:
        raise HpmlError(f"no way {way!r}; use one of {', '.join(WAYS)}")
    job = Job(find_shape(model, GPT), batch, length, checkpointing, way)
    found: Mapping[str, Any] = bench.ranks(on_rank, ranks, job)[0]
    bench.work(flop=ranks * job.flop, dtype=precision(bench))
    mfu = utilisation(bench, job, found["time"])
    return {**found, "mfu": mfu}


def on_rank(rank: Rank, job: Job) -> Mapping[str, Any] | None:
    """The step of all ranks, then of rank 0 alone."""
    with skip_if_too_large(rank.bench, job):
        time, memory = train_together(rank, job)
        release_memory(rank)
        single = train_alone(rank, job) if rank.index == 0 else None
    rank.barrier()
    if single is None:
        return None
    return {
        "time": time,
        "rate": rank.count * job.tokens / time,
        "single": single,
        "speedup": rank.count * single.value / time,
        "share": 1 - single.value / time,
        "memory": memory,
    }


def prepared(rank: Rank, job: Job) -> tuple[Gpt, tuple[Any, Any]]:
    """The model, the same on all ranks, and this rank's text."""
    from hpml_plugins.plugins.language_models import gpt

    model = gpt.made(job.shape, job.checkpointing, rank.device, rank.bench.seed)
    if rank.backend == "nccl":
        model.compile_layers()
    seed = rank.bench.seed * 1009 + rank.index
    return model, gpt.random_text(job.shape, job.batch, job.length, rank.device, seed)


def train_together(rank: Rank, job: Job) -> tuple[Samples, int | None]:
    """The time of a step of all ranks, and the most memory that a step allocates here, B."""
    from hpml_plugins.plugins.language_models import gpt

    rank.bench.progress("compiling", 0.0)
    model, text = prepared(rank, job)
    wanted = model.reference_loss(*text)
    trainer = gpt.Trainer(WAYS[job.way](rank, model))
    trainer.step(*text)
    first = rank.bench.result(float(trainer.loss))
    rank.bench.check(
        abs(first / wanted - 1) <= LOSS_TOLERANCE, "the first loss is not that of a float32 model"
    )
    # the other ranks' texts count too: this rank's loss alone proves nothing
    firsts, memory = rank.gather(first), None
    if rank.backend == "nccl":
        import torch

        torch.cuda.reset_peak_memory_stats()
    for _ in range(WARM_UP_STEPS - 1):
        trainer.step(*text)
    lasts = rank.gather(rank.bench.result(float(trainer.loss)))
    rank.bench.check(
        all(last < first for last, first in zip(lasts, firsts, strict=True)),
        "the loss on one batch does not fall: the model does not train",
    )
    if rank.backend == "nccl":
        memory = torch.cuda.max_memory_allocated()
    rank.bench.progress("all together", 0.3)
    time = rank.time(lambda: trainer.step(*text), budget=BUDGET)
    check_finite(rank.bench, trainer)
    return time, memory


def train_alone(rank: Rank, job: Job) -> Samples:
    """The time of the same step without the others."""
    from hpml_plugins.plugins.language_models import gpt

    rank.bench.progress("one alone", 0.6)
    model, text = prepared(rank, job)
    trainer = gpt.Trainer(model)
    return rank.bench.time(lambda: trainer.step(*text), budget=BUDGET, name="one alone")


def with_ddp(rank: Rank, model: Gpt) -> Any:
    """The model under DistributedDataParallel."""
    from torch.nn.parallel import DistributedDataParallel

    cards = [rank.local] if rank.backend == "nccl" else None
    return DistributedDataParallel(
        model, device_ids=cards, gradient_as_bucket_view=True, static_graph=True
    )


def with_fsdp(rank: Rank, model: Gpt) -> Any:
    """The model under FSDP2: each layer, and the rest; gathered in the products' dtype, reduced in
    float32."""
    import torch
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard

    mesh = init_device_mesh(rank.device.partition(":")[0], (rank.count,))
    policy = MixedPrecisionPolicy(param_dtype=model.dtype, reduce_dtype=torch.float32)
    for layer in model.layers:
        fully_shard(layer, mesh=mesh, mp_policy=policy)
    return fully_shard(model, mesh=mesh, mp_policy=policy)


def release_memory(rank: Rank) -> None:
    """Free the memory that the step of all ranks has left in torch's cache."""
    if rank.backend != "nccl":
        return
    import gc

    import torch

    torch._dynamo.reset()
    gc.collect()
    torch.cuda.empty_cache()


#: Way → function that wraps the model.
WAYS: dict[str, Callable[[Rank, Gpt], Any]] = {"ddp": with_ddp, "fsdp": with_fsdp}
RATE = Metric("rate", "1/s", "higher", "tokens of all ranks over time")
MFU = Metric("mfu", "1", "higher", "model FLOP over time and published bfloat16 peak", (0, None))
MEMORY = Metric(
    "memory", "B", "lower", "most that a step has allocated at once, weights and optimiser included"
)
TERMS = {
    "batch": "sequences of one step of one rank",
    "length": "tokens of a sequence",
    "checkpointing": "activations of each layer computed again in backward",
}
TRAINING = Benchmark(
    "lm_training",
    measure,
    metrics=(
        Metric("time", "s", "lower", "of one training step"),
        RATE,
        MFU,
        MEMORY,
        Metric("energy", "J", "lower", "of a token, above that of the idle card"),
    ),
    grid={
        "model": ("gpt2-124m", "gpt-1b"),
        "batch": (16, 64),
        "length": (1024,),
        "checkpointing": (False, True),
    },
    requires=Requires(gpus=1, gpu_memory=16e9, modules=("torch", "triton")),
    timeout=600,
    description=(
        "One training step of a GPT-shaped decoder, bfloat16, the whole model compiled, on one GPU."
    ),
    terms=TERMS,
)
TRAINING_CPU = replace(
    TRAINING,
    name="lm_training_cpu",
    grid={"model": ("tiny",), "batch": (4,), "length": (64,), "checkpointing": (False, True)},
    requires=Requires(modules=("torch",)),
    timeout=60,
    description="One training step of a tiny decoder in float32 on the CPU, not compiled.",
)
RANKS = Benchmark(
    "lm_training_ranks",
    measure_ranks,
    metrics=(
        Metric("time", "s", "lower", "of one training step"),
        RATE,
        Metric("single", "s", "lower", "of a step of one rank alone on its batch"),
        Metric("speedup", "1", "higher", "tokens over time, over those of one alone"),
        Metric("share", "1", "lower", "of the time, by which it is longer than one alone's"),
        MFU,
        MEMORY,
    ),
    grid={
        "model": ("gpt2-124m", "gpt-1b"),
        "batch": (16,),
        "length": (1024,),
        "checkpointing": (False,),
        "way": ("ddp", "fsdp"),
        "ranks": (2, 4, 8),
    },
    requires=Requires(gpus="ranks", gpu_memory=16e9, modules=("torch", "triton")),
    timeout=600,
    description="One training step of a GPT-shaped decoder on several GPUs, by DDP and by FSDP2.",
    terms={
        **TERMS,
        "way": "ddp: all weights on all ranks; fsdp: a part of them on each",
        "ranks": "GPUs",
    },
)
RANKS_CPU = replace(
    RANKS,
    name="lm_training_ranks_cpu",
    grid={
        "model": ("tiny",),
        "batch": (4,),
        "length": (64,),
        "checkpointing": (False,),
        "way": ("ddp", "fsdp"),
        "ranks": (2,),
    },
    requires=Requires(modules=("torch",)),
    timeout=120,
    description="One training step of a tiny decoder in processes on the CPU, over gloo.",
)
