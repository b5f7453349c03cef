"""The benchmarks `llm_training` and `llm_training_cpu`: one training step of a decoder."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from hpml_plugins import Bench, Benchmark, Metric, Requires
from hpml_plugins.plugins.llm.shapes import TRAINED, find_decoder, training_flop_per_token

#: Steps before the timed ones, within which the loss must fall.
WARM_UP_STEPS = 8
#: How far the first loss may be from ln(vocabulary), which a model that knows nothing has.
FIRST_LOSS = 0.5
#: How far the compiled model may be from the one that was not compiled, relative: of the mean loss,
#: and of what the blocks add to the embeddings (2-norm) in bfloat16, whose numbers have 8 bits.
LOSS_TOLERANCE, HIDDEN_TOLERANCE = 2e-3, 2e-2
#: Sequences whose result is compared, and first and last tokens of each: the first ones attend to
#: few, and so depend much on attention, the last ones to all.
CHECKED, EDGE = 2, 32
#: s of sampling, all rounds together.
BUDGET = 1.0


def measure(
    bench: Bench, *, model: str, batch: int, length: int, checkpointing: bool
) -> Mapping[str, Any]:
    """Time one training step on one batch of random tokens, which are on the device already.

    Pre-norm blocks, GELU, causal scaled_dot_product_attention, learnt positions, embedding and head
    tied, cross-entropy of all tokens, AdamW, fused. On a GPU: bfloat16 by autocast over float32
    weights (residual stream, norms and loss in float32), each block and the head with the loss
    compiled. On a CPU: float32, eager.

    `mfu` is model FLOP utilisation: (6 N + 12 L h q T) · tokens of a step / time / published dense
    bfloat16 peak. Source: Chowdhery et al., PaLM, arXiv 2204.02311, appendix B. What checkpointing
    computes again does not count.

    batch: sequences.  length: tokens of one.  checkpointing: each block's activations are computed
    again in backward.
    """
    import torch

    on_gpu = bench.device == "cuda"
    if on_gpu and torch.cuda.get_device_capability() < (8, 0):
        bench.skip("bfloat16 needs compute capability 8.0")

    from hpml_plugins.plugins.llm import gpt

    shape = find_decoder(model, TRAINED)
    bench.progress("compiling" if on_gpu else "warming up", 0.0)
    trainer = gpt.Trainer(shape, batch, length, checkpointing, bench.device, bench.seed)
    memory = None
    try:
        check_training(bench, trainer, math.log(shape.vocabulary))
        if on_gpu:
            torch.cuda.reset_peak_memory_stats()
            trainer.step()
            memory = torch.cuda.max_memory_allocated()
    except torch.OutOfMemoryError:
        bench.skip(f"{batch} sequences of {length} tokens do not fit into this card's memory")
    flop = batch * length * training_flop_per_token(shape, length)
    bench.work(flop=flop, dtype="bfloat16" if on_gpu else "float32")
    bench.progress("timing", 0.5)
    time = bench.time(trainer.step, budget=BUDGET)
    bench.check(
        math.isfinite(bench.result(float(trainer.loss))),
        "the loss after the timed steps is not finite",
    )
    peak = bench.peaks.bfloat16 if bench.peaks else None
    if on_gpu and not peak:
        bench.warn(
            f"unknown card {bench.node.gpus[0].name}: no published peak of bfloat16, so no mfu"
        )
    mfu = flop / time / peak if peak else None
    return {"time": time, "rate": batch * length / time, "mfu": mfu, "memory": memory}


def check_training(bench: Bench, trainer: Any, unknowing: float) -> None:
    """Hold the first step against the model that is not compiled, and see that the loss falls.

    trainer: a gpt.Trainer that has not trained yet.  unknowing: the loss of a model that knows
    nothing.
    """
    wanted_loss = bench.once("eager_loss", trainer.eager_loss)
    embedded = trainer.embedded(CHECKED).double()
    wanted = trainer.eager_hidden(CHECKED).double()
    found = bench.result(trainer.train(keep=CHECKED))
    first = bench.result(float(trainer.loss))
    difference, added = found.double() - wanted, wanted - embedded
    error = 0.0
    for edge in (slice(None, EDGE), slice(-EDGE, None)):
        error = max(error, float(difference[:, edge].norm() / added[:, edge].norm()))
    bench.check(
        error <= HIDDEN_TOLERANCE, f"the compiled blocks differ from the eager ones by {error:.1e}"
    )
    bench.check(
        abs(first / wanted_loss - 1) <= LOSS_TOLERANCE,
        "the compiled loss differs from the eager one",
    )
    bench.check(
        abs(first - unknowing) <= FIRST_LOSS, f"the first loss is {first:.3g}, not ln(vocabulary)"
    )
    for _ in range(WARM_UP_STEPS - 1):
        trainer.step()
    last = bench.result(float(trainer.loss))
    bench.check(
        math.isfinite(last) and last < first,
        "the loss on one batch does not fall: the model does not train",
    )


TRAINING = Benchmark(
    "llm_training",
    measure,
    metrics=(
        Metric("time", "s", "lower", "of one training step"),
        Metric("rate", "1/s", "higher", "tokens over time"),
        Metric("mfu", "1", "higher", "model FLOP over time and published bfloat16 peak", (0, None)),
        Metric(
            "memory",
            "B",
            "lower",
            "most that a step has allocated at once, weights and optimiser included",
        ),
    ),
    grid={
        "model": ("gpt2-124m",),
        "batch": (16, 64),
        "length": (1024,),
        "checkpointing": (False, True),
    },
    requires=Requires(gpus=1, gpu_memory=16e9, modules=("torch", "triton")),
    timeout=180,
    description=(
        "One training step of a GPT-2-shaped decoder of 124 M parameters, bfloat16, compiled, on"
        " one GPU."
    ),
    terms={
        "batch": "sequences of one step",
        "length": "tokens of a sequence",
        "checkpointing": "activations of each block computed again in backward",
    },
)
TRAINING_CPU = replace(
    TRAINING,
    name="llm_training_cpu",
    grid={"model": ("tiny",), "batch": (4,), "length": (64,), "checkpointing": (False,)},
    requires=Requires(modules=("torch",)),
    description="One training step of a tiny decoder in float32, eager, on the CPU.",
)
