"""The benchmarks and their grids. GPUs and CPUs are benchmarks of their own: their numbers do not compare."""

from __future__ import annotations

from hpml_plugins import Benchmark, Requires
from hpml_plugins.plugins.mlp import learning_benchmarks as learning
from hpml_plugins.plugins.mlp import model_benchmark as model
from hpml_plugins.plugins.mlp import overlap_benchmark as overlap
from hpml_plugins.plugins.mlp import phase_benchmark as phases
from hpml_plugins.plugins.mlp import split_benchmark as split
from hpml_plugins.plugins.mlp.gemm import GEMM

PRODUCTS = ("own", "torch")
DTYPES = ("float32", "float64")
RANKS = (1, 2, 4, 8)
SEVERAL = RANKS[1:]
SWEEPS = ("rate", "hidden", "epochs")
MODULES = ("numba.cuda", "torch")

#: Points over MPI are skipped by `bench.ranks` where the node has no mpirun or no mpi4py.
GPUS = Requires(gpus="ranks", modules=MODULES)
ONE_GPU = Requires(gpus=1, modules=MODULES)
CPU = Requires(modules=("torch",))

WEIGHTS = Benchmark(
    "mlp_weights", learning.measure_weights, learning.WEIGHT_METRICS,
    {"data": learning.DATA, "dtype": DTYPES, "product": PRODUCTS},
    ONE_GPU, timeout=180,
    description="Weights of the two-layer network on a GPU against NumPy in float64, over learning rates and steps.",
    rounds=1,
)  # fmt: skip
WEIGHTS_CPU = Benchmark(
    "mlp_weights_cpu", learning.measure_weights, learning.WEIGHT_METRICS,
    {"data": learning.DATA, "dtype": DTYPES, "product": ("torch",)},
    CPU, timeout=180,
    description="Weights of the two-layer network in torch on the CPU against NumPy in float64.",
    rounds=1,
)  # fmt: skip
LEARNING = Benchmark(
    "mlp_learning", learning.measure_learning, learning.LEARNING_METRICS,
    {"data": learning.DATA, "sweep": SWEEPS},
    ONE_GPU, timeout=300,
    description="Precision of the two-layer network over learning rate, hidden size or epochs, trained on a GPU.",
    rounds=1,
)  # fmt: skip
LEARNING_CPU = Benchmark(
    "mlp_learning_cpu", learning.measure_learning, learning.LEARNING_METRICS,
    {"data": learning.DATA, "sweep": SWEEPS},
    CPU, timeout=300,
    description="Precision of the two-layer network over learning rate, hidden size or epochs, trained on the CPU.",
    rounds=1,
)  # fmt: skip
PHASES = Benchmark(
    "mlp_phases", phases.measure_phases, phases.METRICS,
    {"ranks": RANKS, "way": ("mpi", "cuda_mpi", "nccl", "gloo"), "hidden": (512,), "batch": (3000, 12000),
     "dtype": DTYPES, "product": PRODUCTS},
    GPUS, timeout=180,
    description="A batch of data-parallel training on GPUs, whole and phase by phase, gradients added up in four ways.",
)  # fmt: skip
PHASES_CPU = Benchmark(
    "mlp_phases_cpu", phases.measure_phases, phases.METRICS,
    {"ranks": (2, 4), "way": ("mpi", "gloo"), "hidden": (128,), "batch": (800,), "dtype": DTYPES,
     "product": ("torch",)},
    CPU, timeout=120,
    description="A batch of data-parallel training between processes on the CPU, whole and phase by phase.",
)  # fmt: skip
MODEL = Benchmark(
    "mlp_model", model.measure_model, model.METRICS,
    {"ranks": SEVERAL, "way": ("mpi", "gloo"), "product": PRODUCTS},
    GPUS, timeout=240, version="3",
    description="Batches over hidden sizes and batch sizes on GPUs, against the exercise's roofline and fitted lines.",
    rounds=1,
)  # fmt: skip
MODEL_CPU = Benchmark(
    "mlp_model_cpu", model.measure_model, model.METRICS,
    {"ranks": (2, 4), "way": ("mpi", "gloo"), "product": ("torch",)},
    CPU, timeout=180, version="3",
    description="The same between processes on the CPU, smaller.",
    rounds=1,
)  # fmt: skip
OVERLAP = Benchmark(
    "mlp_overlap", overlap.measure_overlap, overlap.METRICS,
    {"ranks": SEVERAL, "way": ("mpi", "cuda_mpi", "nccl", "gloo"), "hidden": (512, 2048), "batch": (12000,),
     "product": PRODUCTS},
    GPUS, timeout=180, version="3",
    description="A batch with pinned memory, gradients in pieces and images ahead of time, against the plain one.",
)  # fmt: skip
OVERLAP_CPU = Benchmark(
    "mlp_overlap_cpu", overlap.measure_overlap, overlap.METRICS,
    {"ranks": (2, 4), "way": ("mpi", "gloo"), "hidden": (128,), "batch": (800,), "product": ("torch",)},
    CPU, timeout=120, version="3",
    description="A batch between processes on the CPU with gradients in pieces, against the plain one.",
)  # fmt: skip
SPLIT = Benchmark(
    "mlp_split", split.measure_split, split.METRICS,
    {"ranks": SEVERAL, "way": ("mpi", "cuda_mpi", "nccl", "gloo"), "hidden": (512, 2048), "batch": (3000,),
     "product": PRODUCTS},
    GPUS, timeout=180,
    description="Model parallel (W1 by rows, W2 by columns) against data parallel on GPUs: bytes and time.",
)  # fmt: skip
SPLIT_CPU = Benchmark(
    "mlp_split_cpu", split.measure_split, split.METRICS,
    {"ranks": (2, 4), "way": ("mpi", "gloo"), "hidden": (128,), "batch": (800,), "product": ("torch",)},
    CPU, timeout=120,
    description="Model parallel against data parallel between processes on the CPU.",
)  # fmt: skip

BENCHMARKS = [
    GEMM, WEIGHTS, LEARNING, PHASES, MODEL, OVERLAP, SPLIT,
    WEIGHTS_CPU, LEARNING_CPU, PHASES_CPU, MODEL_CPU, OVERLAP_CPU, SPLIT_CPU,
]  # fmt: skip
