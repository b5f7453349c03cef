"""The benchmarks and their grids. GPUs and CPUs are benchmarks of their own: their numbers do not compare."""

from __future__ import annotations

from hpml_plugins import Benchmark, Requires
from hpml_plugins.plugins.tta.measuring import METRICS, measure_tta

#: torch's optimizers import torch._dynamo at their first use, which takes seconds in every process.
TORCH = ("torch", "torch._dynamo", "torchvision", "torchvision.transforms.v2")
RECIPES = ("lab", "lab_stem3", "modern", "modern_stem3", "fast")
SMALL_RECIPES = ("lab", "modern", "fast")
DATA = ("cifar10", "cifar10-jpeg", "fashion-mnist", "digits")

TTA = Benchmark(
    "tta", measure_tta, METRICS,
    {"recipe": RECIPES, "data": DATA, "runs": (5, 10, 20)},
    Requires(gpus=1, data="data", modules=TORCH), timeout=7200,
    description="Training until the target accuracy, several times, on one GPU.",
)  # fmt: skip
TTA_CPU = Benchmark(
    "tta_cpu", measure_tta, METRICS,
    {"recipe": SMALL_RECIPES, "data": ("digits",), "runs": (5,)},
    Requires(data="data", modules=TORCH), timeout=600,
    description="The same code on the CPU, with small networks on the digits.",
)  # fmt: skip

BENCHMARKS = [TTA, TTA_CPU]
