"""One GPU: the time of an epoch over batch sizes, until memory ends. What everything else is compared with."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from hpml_plugins import Bench, Benchmark, Requires, Samples
from hpml_plugins.plugins.scaling import jobs


def measure_single(bench: Bench, *, batch: int, dtype: jobs.Dtype) -> Mapping[str, Samples]:
    """ResNet18 on one GPU, or the small model on the CPU."""
    import torch

    from hpml_plugins.plugins.scaling import training

    job = jobs.Job(jobs.CIFAR if bench.gpus else jobs.SMALL, batch, dtype)
    torch.backends.cudnn.benchmark = True  # all batches have one shape
    with training.skip_if_out_of_memory(bench, batch):
        return jobs.single_metrics(job, training.train_alone(bench, job)[0])


SINGLE = Benchmark(
    "scaling_single", measure_single, jobs.SINGLE_METRICS,
    {"batch": (32, 128, 512, 2048, 8192, 32768), "dtype": jobs.DTYPES},
    Requires(gpus=1, modules=jobs.MODULES), timeout=120,
    description="ResNet18 on images of 32×32, one GPU, over the batch until memory ends.",
)  # fmt: skip
SINGLE_CPU = replace(
    SINGLE, name="scaling_single_cpu",
    grid={"batch": (32, 128, 512), "dtype": ("float32",)},
    requires=jobs.CPU,
    description="A small model on images of 8×8, one process on the CPU.",
)  # fmt: skip
