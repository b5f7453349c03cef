"""The benchmarks and their grids. GPUs and CPUs are benchmarks of their own: their numbers do not compare."""

from __future__ import annotations

from hpml_plugins import Benchmark, Requires
from hpml_plugins.plugins.scaling.ddp import (
    measure_ddp,
    measure_ddp_cpu,
    measure_ddp_graph,
    measure_ddp_nodes_gloo,
    measure_ddp_nodes_nccl,
    measure_ddp_strong,
    measure_vgg,
)
from hpml_plugins.plugins.scaling.dp import measure_dp, measure_dp_strong
from hpml_plugins.plugins.scaling.large_batch import (
    LARGE_METRICS,
    RECIPES,
    measure_large_batch,
    measure_large_batch_cpu,
    measure_small_batch,
)
from hpml_plugins.plugins.scaling.results import METRICS, SINGLE_METRICS
from hpml_plugins.plugins.scaling.single import measure_single, measure_single_cpu
from hpml_plugins.plugins.scaling.wire import WIRE_METRICS, measure_wire_ddp, measure_wire_dp
from hpml_plugins.plugins.scaling.workloads import DTYPES

GPUS = (2, 4, 8)
#: torch's optimizers and DDP import torch._dynamo at their first use, which takes seconds on every rank.
TORCH = ("torch", "torch._dynamo")
MODULES = (*TORCH, "torchvision")
ONE_GPU = Requires(gpus=1, modules=MODULES)
ALL_GPUS = Requires(gpus="gpus", modules=MODULES)
CPU = Requires(modules=TORCH)
CIFARS = ("cifar10", "cifar10-jpeg")

SINGLE = Benchmark(
    "scaling_single", measure_single, SINGLE_METRICS,
    {"batch": (32, 128, 512, 2048, 8192, 32768), "dtype": DTYPES},
    ONE_GPU, timeout=120,
    description="ResNet18 on images of 32×32, one GPU, over the batch until memory ends.",
)  # fmt: skip
DDP = Benchmark(
    "scaling_ddp", measure_ddp, METRICS,
    {"gpus": GPUS, "batch": (32, 128, 512, 2048, 8192), "dtype": DTYPES},
    ALL_GPUS, timeout=180,
    description="DistributedDataParallel, weak scaling: ResNet18, the batch on each GPU.",
)  # fmt: skip
DDP_GRAPH = Benchmark(
    "scaling_ddp_graph", measure_ddp_graph, METRICS,
    {"gpus": GPUS, "batch": (32, 512, 2048), "dtype": DTYPES},
    ALL_GPUS, timeout=180,
    description="DistributedDataParallel, weak scaling, each step one CUDA graph, also on the one GPU beside it.",
)  # fmt: skip
DDP_STRONG = Benchmark(
    "scaling_ddp_strong", measure_ddp_strong, METRICS,
    {"gpus": GPUS, "batch": (512, 2048), "dtype": DTYPES},
    ALL_GPUS, timeout=180,
    description="DistributedDataParallel, strong scaling: ResNet18, the batch shared out over the GPUs.",
)  # fmt: skip
DP = Benchmark(
    "scaling_dp", measure_dp, METRICS,
    {"gpus": GPUS, "batch": (32, 128, 512), "dtype": DTYPES},
    ALL_GPUS, timeout=180,
    description="DataParallel, weak scaling: ResNet18, the batch for each GPU.",
)  # fmt: skip
DP_STRONG = Benchmark(
    "scaling_dp_strong", measure_dp_strong, METRICS,
    {"gpus": GPUS, "batch": (128, 512), "dtype": ("float32",)},
    ALL_GPUS, timeout=180,
    description="DataParallel, strong scaling: ResNet18, the batch shared out over the GPUs.",
)  # fmt: skip
VGG16 = Benchmark(
    "scaling_vgg16", measure_vgg, METRICS,
    {"gpus": GPUS, "batch": (64,), "dtype": DTYPES},
    ALL_GPUS, timeout=240,
    description="VGG16 on images of 224×224, one GPU against DistributedDataParallel; an epoch is 8192 images.",
)  # fmt: skip
WIRE_DDP = Benchmark(
    "scaling_wire_ddp", measure_wire_ddp, WIRE_METRICS,
    {"ranks": (2, 4), "model": ("resnet18",)},
    Requires(modules=MODULES), timeout=120,
    description="Bytes that DistributedDataParallel hands over in a step, by kind, counted over gloo.",
    rounds=1,
)  # fmt: skip
WIRE_DP = Benchmark(
    "scaling_wire_dp", measure_wire_dp, WIRE_METRICS,
    {"gpus": GPUS, "model": ("resnet18",)},
    ALL_GPUS, timeout=120,
    description="Bytes that DataParallel moves between GPUs in a step, by kind, counted.",
    rounds=1,
)  # fmt: skip
SMALL_BATCH = Benchmark(
    "scaling_small_batch", measure_small_batch, LARGE_METRICS,
    {"data": CIFARS},
    Requires(gpus=1, data="data", modules=MODULES), timeout=300,
    description="Five epochs of ResNet18 with batch 128 on one GPU.",
    rounds=1,
)  # fmt: skip
LARGE_BATCH = Benchmark(
    "scaling_large_batch", measure_large_batch, LARGE_METRICS,
    {"gpus": GPUS, "data": CIFARS, "batch": (512, 8192), "recipe": RECIPES},
    Requires(gpus="gpus", data="data", modules=MODULES), timeout=300,
    description="Five epochs of ResNet18 with large batches on all GPUs, with and without Goyal's remedies.",
    rounds=1,
)  # fmt: skip
SINGLE_CPU = Benchmark(
    "scaling_single_cpu", measure_single_cpu, SINGLE_METRICS,
    {"batch": (32, 128, 512), "dtype": ("float32",)},
    CPU, timeout=120,
    description="A small model on images of 8×8, one process on the CPU.",
)  # fmt: skip
DDP_CPU = Benchmark(
    "scaling_ddp_cpu", measure_ddp_cpu, METRICS,
    {"ranks": (2, 4), "batch": (32, 128, 512), "dtype": ("float32",), "scaling": ("weak", "strong")},
    CPU, timeout=120,
    description="DistributedDataParallel over gloo between processes on the CPU: the same code, a small model.",
)  # fmt: skip
DDP_NODES_NCCL = Benchmark(
    "scaling_ddp_nodes_nccl", measure_ddp_nodes_nccl, METRICS,
    {"nodes": (2, 4), "gpus": (1, 8), "batch": (128, 512, 2048), "dtype": DTYPES},
    ALL_GPUS, timeout=300,
    description="DistributedDataParallel over several nodes of a Slurm job, weak scaling: ResNet18.",
)  # fmt: skip
DDP_NODES_GLOO = Benchmark(
    "scaling_ddp_nodes_gloo", measure_ddp_nodes_gloo, METRICS,
    {"nodes": (2, 4), "batch": (32, 128, 512), "scaling": ("weak", "strong")},
    CPU, timeout=180,
    description="DistributedDataParallel over gloo between nodes of a Slurm job, one process on each: a small model.",
)  # fmt: skip
LARGE_BATCH_CPU = Benchmark(
    "scaling_large_batch_cpu", measure_large_batch_cpu, LARGE_METRICS,
    {"ranks": (2,), "data": ("digits",), "batch": (64, 512), "recipe": RECIPES},
    Requires(data="data", modules=TORCH), timeout=120,
    description="Five epochs of a small model on the digits over gloo, with and without Goyal's remedies.",
    rounds=1,
)  # fmt: skip

BENCHMARKS = [
    SINGLE, DDP, DDP_GRAPH, DDP_STRONG, DP, DP_STRONG, VGG16, WIRE_DDP, WIRE_DP, SMALL_BATCH, LARGE_BATCH,
    SINGLE_CPU, DDP_CPU, LARGE_BATCH_CPU, DDP_NODES_NCCL, DDP_NODES_GLOO,
]  # fmt: skip
