"""The benchmarks `vision_training` and `vision_training_cpu`: one training step of a torchvision
classifier."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from hpml_plugins import Bench, Benchmark, Metric, Requires

#: Least compute capability of a dtype; every CUDA device has float32.
NEEDS = {"bfloat16": (8, 0), "tf32": (8, 0)}
#: Width and height of an image: ImageNet's.
SIDE = 224
#: Steps before the timed ones, within which the loss must fall to this share of the first one.
WARM_UP_STEPS, FALLS_TO = 10, 0.9
#: s of sampling, all rounds together.
BUDGET = 1.0
#: Operations of a training step over those of its forward pass: backward has a product for the
#: weights' gradient and one for the inputs', each of the size of the forward one. Source: Kaplan et
#: al., arXiv 2001.08361, section 2.1.
TRAINING_OVER_FORWARD = 3


def measure(
    bench: Bench, *, model: str, batch: int, dtype: str, side: int = SIDE
) -> Mapping[str, Any]:
    """Time one training step on one batch of synthetic images, which are on the device already.

    Eager, channels_last, the algorithms that cuDNN chooses by its heuristics, cross-entropy, SGD
    with momentum 0.9, fused: torch's defaults. (`cudnn.benchmark`, version 1's, searches for 14 s
    in each process.) Every step trains on the same batch, so that its loss must fall.

    model: torchvision's name.  batch: images.  side: width and height of an image.  dtype:
    "bfloat16", by autocast over float32 weights; "tf32", float32 whose products the tensor cores
    round; "float32", TF32 off.
    """
    import torch

    on_gpu = bench.device == "cuda"
    needs = NEEDS.get(dtype, (0, 0))
    if on_gpu and (has := torch.cuda.get_device_capability()) < needs:
        bench.skip(
            f"{dtype} needs compute capability {needs[0]}.{needs[1]}, this card has"
            f" {has[0]}.{has[1]}"
        )

    from hpml_plugins.plugins.vision.trainer import Trainer, forward_flop

    bench.progress("warming up", 0.0)
    trainer = Trainer(model, batch, dtype, side, bench.device, bench.seed)
    losses = []
    for _ in range(WARM_UP_STEPS):
        trainer.step()
        losses.append(float(trainer.loss))
    last = bench.result(losses[-1])
    bench.check(is_finite(last), f"the loss after {WARM_UP_STEPS} steps is not finite")
    bench.check(
        last < FALLS_TO * losses[0],
        "the loss on one batch does not fall: the network does not train",
    )

    memory = None
    if on_gpu:
        torch.cuda.reset_peak_memory_stats()
        trainer.step()
        memory = torch.cuda.max_memory_allocated()
    flop = bench.once("forward_flop", lambda: forward_flop(model, side))
    bench.work(flop=TRAINING_OVER_FORWARD * flop * batch, dtype=dtype)
    bench.progress("timing", 0.5)
    time = bench.time(trainer.step, budget=BUDGET)
    trained = bench.result(float(trainer.loss))
    bench.check(is_finite(trained), "the loss after the timed steps is not finite")
    return {"time": time, "rate": batch / time, "memory": memory}


def is_finite(loss: float) -> bool:
    """Whether the loss is a number: neither NaN nor infinite."""
    import math

    return math.isfinite(loss)


TRAINING = Benchmark(
    "vision_training",
    measure,
    metrics=(
        Metric("time", "s", "lower", "of one training step"),
        Metric("rate", "1/s", "higher", "images over time"),
        Metric(
            "memory",
            "B",
            "lower",
            "most that a step has allocated at once, weights and images included",
        ),
    ),
    grid={"model": ("resnet50",), "batch": (128,), "dtype": ("bfloat16", "tf32", "float32")},
    requires=Requires(gpus=1, gpu_memory=24e9, modules=("torch", "torchvision")),
    version="2",
    timeout=120,
    description=(
        "One training step of ResNet-50 on synthetic images of 224 × 224, eager, on one GPU."
    ),
    terms={
        "batch": "images of one step",
        "dtype=bfloat16": "autocast over float32 weights",
        "dtype=tf32": "float32 weights, products rounded to TF32",
        "dtype=float32": "TF32 off",
    },
)
TRAINING_CPU = replace(
    TRAINING,
    name="vision_training_cpu",
    grid={"model": ("resnet18",), "batch": (8,), "dtype": ("float32",), "side": (32,)},
    requires=Requires(modules=("torch", "torchvision")),
    description=(
        "One training step of ResNet-18 on 8 synthetic images of 32 × 32, eager, on the CPU."
    ),
    terms={"batch": "images of one step", "side": "width and height of an image"},
)
