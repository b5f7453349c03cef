"""The benchmarks and their grids. GPUs and CPUs are benchmarks of their own: their numbers do not compare."""

from __future__ import annotations

from hpml_plugins import Benchmark, Requires
from hpml_plugins.plugins.tta.ddp import measure_ddp, measure_ddp_cpu
from hpml_plugins.plugins.tta.measuring import METRICS, measure_tta
from hpml_plugins.plugins.tta.tricks import names
from hpml_plugins.plugins.tta.utilisation import (
    CORE,
    THROUGHPUT,
    TRICKS_METRICS,
    UTILISATION_METRICS,
    measure_tricks,
    measure_utilisation,
)

#: torch's optimizers import torch._dynamo at their first use, which takes seconds in every process.
TORCH = ("torch", "torch._dynamo", "torchvision", "torchvision.transforms.v2", "msgspec", "yaml")
RECIPES = ("lab", "lab_stem3", "modern", "modern_stem3", "fast")
SHARED_RECIPES = ("lab", "lab_stem3", "modern", "modern_stem3")
SMALL_RECIPES = ("fast", "modern", "lab")
CIFARS = ("cifar10", "cifar10-jpeg")
DATA = (*CIFARS, "fashion-mnist", "digits")

TTA = Benchmark(
    "tta", measure_tta, METRICS,
    {"recipe": RECIPES, "data": DATA, "runs": (5, 10, 20)},
    Requires(gpus=1, data="data", modules=TORCH), timeout=7200,
    description="Training until the target accuracy, several times, on one GPU.",
    rounds=1,
)  # fmt: skip
TTA_CPU = Benchmark(
    "tta_cpu", measure_tta, METRICS,
    {"recipe": SMALL_RECIPES, "data": ("digits",), "runs": (5,)},
    Requires(data="data", modules=TORCH), timeout=600,
    description="The same code on the CPU, with small networks on the digits.",
    rounds=1,
)  # fmt: skip
DDP = Benchmark(
    "tta_ddp", measure_ddp, METRICS,
    {"recipe": SHARED_RECIPES, "data": DATA, "runs": (5, 10), "gpus": (2, 4, 8)},
    Requires(gpus="gpus", data="data", modules=TORCH), timeout=7200,
    description="Training until the target accuracy on several GPUs, by DistributedDataParallel, the batch on each.",
    rounds=1,
)  # fmt: skip
DDP_CPU = Benchmark(
    "tta_ddp_cpu", measure_ddp_cpu, METRICS,
    {"recipe": ("modern",), "data": ("digits",), "runs": (5,), "ranks": (2,)},
    Requires(data="data", modules=TORCH), timeout=600,
    description="The same over gloo between processes on the CPU, with a small network on the digits.",
    rounds=1,
)  # fmt: skip
UTILISATION = Benchmark(
    "tta_utilisation", measure_utilisation, UTILISATION_METRICS,
    {"trick": names(), "data": CIFARS, "seconds": (20, 180)},
    Requires(gpus=1, data="data", modules=(*TORCH, "pynvml")), timeout=600,
    description="ResNet-50, batch 128, trained for some seconds: GPU core and memory utilisation, power.",
    rounds=1,
)  # fmt: skip
UTILISATION_CPU = Benchmark(
    "tta_utilisation_cpu", measure_utilisation, (THROUGHPUT, CORE),
    {"trick": ("lab", "on_device"), "data": ("digits",), "seconds": (2,)},
    Requires(data="data", modules=TORCH), timeout=120,
    description="The same code on the CPU: a small network on the digits, and the CPUs' utilisation.",
    rounds=1,
)  # fmt: skip
TRICKS = Benchmark(
    "tta_tricks", measure_tricks, TRICKS_METRICS,
    {"data": CIFARS, "seconds": (3, 10), "compiled": (False, True)},
    Requires(gpus=1, data="data", modules=(*TORCH, "pynvml")), timeout=1200,
    description="What drives the GPU's utilisation up, one trick at a time and together, each with its effect.",
    rounds=1,
)  # fmt: skip
TRICKS_CPU = Benchmark(
    "tta_tricks_cpu", measure_tricks, TRICKS_METRICS,
    {"data": ("digits",), "seconds": (0.5,), "compiled": (False,)},
    Requires(data="data", modules=TORCH), timeout=300,
    description="The same code on the CPU, as far as the tricks mean anything there.",
    rounds=1,
)  # fmt: skip

BENCHMARKS = [TTA, TTA_CPU, DDP, DDP_CPU, UTILISATION, UTILISATION_CPU, TRICKS, TRICKS_CPU]
