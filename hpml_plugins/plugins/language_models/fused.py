"""The benchmark `lm_training_fused`: a training step with fewer passes over memory, beside the step
of `lm_training`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from hpml_plugins import Bench, Metric
from hpml_plugins.plugins.language_models.shapes import GPT, find_shape
from hpml_plugins.plugins.language_models.training import (
    TRAINING,
    Job,
    check_finite,
    precision,
    skip_if_too_large,
    trained,
    utilisation,
)

if TYPE_CHECKING:
    from hpml_plugins.plugins.language_models.gpt import Gpt, Trainer

#: Largest relative difference, 2-norm, of a gradient of the fused model from that of the other one,
#: in bfloat16. On a CPU it is up to 1.9 % if the fused products round once less.
GRADIENT_TOLERANCE = 5e-2
#: Sequences by which the gradients are compared.
FEW = 4
#: s of sampling, all rounds together: the fused step alone, and both in turn.
BUDGET, TURNS_BUDGET = 1.5, 3.0


@dataclass(frozen=True)
class Prepared:
    """A training step.  memory: the most that it allocates, B, without what others had allocated
    before; None on a CPU."""

    trainer: Trainer
    step: Callable[[], None]
    memory: int | None


def measure(
    bench: Bench, *, model: str, batch: int, length: int, checkpointing: bool
) -> Mapping[str, Any]:
    """Time the training step of `lm_training` with fewer passes over its largest values: products
    apply GELU and its derivative, add to the residual stream (cuBLASLt's, through nvmath-python, as
    torch has none) and give the loss its exponentials (a Triton kernel).

    `speedup`: the time of the step of `lm_training` over that of this one, timed in turn in one
    process. The other metrics are as there.
    """
    job = Job(find_shape(model, GPT), batch, length, checkpointing)
    with skip_if_too_large(bench, job):
        check_gradients(bench, job)
        # the first one's loss in float32 is the reference of both: `trained` computes it once
        plain, fused = (prepared(bench, job, fused=each) for each in (False, True))
        bench.work(flop=job.flop, dtype=precision(bench))
        bench.progress("timing", 0.6)
        time = bench.time(fused.step, budget=BUDGET)
        both = {"plain": lambda: plain.step, "fused": lambda: fused.step}
        speedup = bench.time_alternately(both, budget=TURNS_BUDGET).ratio("plain", "fused")
        energy = bench.energy(fused.step)
    for each in (plain, fused):
        check_finite(bench, each.trainer)
    return {
        "time": time,
        "rate": job.tokens / time,
        "speedup": speedup,
        "mfu": utilisation(bench, job, time),
        "memory": fused.memory,
        "energy": energy / job.tokens if energy else None,
    }


def check_gradients(bench: Bench, job: Job) -> None:
    """Compare the gradients of all parameters with those of the model that is not fused, neither of
    them compiled."""
    from hpml_plugins.plugins.language_models import gpt
    from hpml_plugins.plugins.language_models.inference import relative_error

    text = gpt.random_text(job.shape, FEW, job.length, bench.device, bench.seed)
    plain, fused = (built(bench, job, fused=each) for each in (False, True))
    for model in (plain, fused):
        model(*text).backward()
    errors = [
        relative_error(bench.result(found.grad), wanted.grad)
        for found, wanted in zip(fused.parameters(), plain.parameters(), strict=True)
    ]
    bench.check(
        max(errors) <= GRADIENT_TOLERANCE,
        f"the fused products change a gradient by {max(errors):.1e}",
    )


def built(bench: Bench, job: Job, *, fused: bool) -> Gpt:
    """The model, from the same weights in both cases."""
    from hpml_plugins.plugins.language_models import fused_layers, gpt

    model = gpt.made(job.shape, job.checkpointing, bench.device, bench.seed)
    if fused:
        fused_layers.fuse(model)
    return model


def prepared(bench: Bench, job: Job, *, fused: bool) -> Prepared:
    """The step, compiled and checked as `lm_training` does."""
    import torch

    from hpml_plugins.plugins.language_models import gpt

    held = torch.cuda.memory_allocated() if bench.device == "cuda" else 0
    model = built(bench, job, fused=fused)
    trainer = gpt.Trainer(model)
    bench.progress("compiling" if bench.device == "cuda" else "warming up", 0.3 * fused)
    if bench.device == "cuda":
        trainer.compile_whole()
    text = gpt.random_text(job.shape, job.batch, job.length, bench.device, bench.seed)
    step, memory = trained(bench, trainer, model, text)
    return Prepared(trainer, step, memory - held if memory is not None else None)


TRAINING_FUSED = replace(
    TRAINING,
    name="lm_training_fused",
    measure=measure,
    metrics=(
        *TRAINING.metrics,
        Metric("speedup", "1", "higher", "time of the step of `lm_training` over that of this one"),
    ),
    grid={"model": ("gpt2-124m",), "batch": (64,), "length": (1024,), "checkpointing": (False,)},
    requires=replace(TRAINING.requires, modules=("torch", "triton", "nvmath")),
    description=(
        "One training step of a GPT-shaped decoder with fewer passes over memory, beside the"
        " step without, on one GPU."
    ),
)
