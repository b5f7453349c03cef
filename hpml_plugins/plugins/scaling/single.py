"""One GPU: the time of an epoch over batch sizes, until memory is full. The baseline of all other
benchmarks."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from hpml_plugins import Bench, Benchmark, Metric, Requires, Samples
from hpml_plugins.plugins.scaling import jobs


def measure_single(bench: Bench, *, batch: int, dtype: jobs.Dtype) -> Mapping[str, Samples]:
    """ResNet18 on one GPU, or the small model on the CPU."""
    import torch

    from hpml_plugins.plugins.scaling import training

    job = jobs.Job(jobs.CIFAR if bench.gpus else jobs.SMALL, batch, dtype)
    torch.backends.cudnn.benchmark = True  # all batches have one shape
    with training.skip_if_out_of_memory(bench, batch):
        return jobs.single_metrics(job, training.train_alone(bench, job)[0])


def measure_use(
    bench: Bench, *, model: str, batch: int, dtype: jobs.Dtype
) -> Mapping[str, Samples | float]:
    """How well a training step fills one GPU, by torch's profiler."""
    import torch

    from hpml_plugins.plugins.scaling import profiling, training

    job = jobs.Job(USED[model], batch, dtype)
    torch.backends.cudnn.benchmark = True
    with training.skip_if_out_of_memory(bench, batch):
        time, trainer = training.train_alone(bench, job)
        events = profiling.profiled(
            trainer.step, f"{model}-batch{batch}-{dtype}", gpus=[0], host=False
        )
    activities = profiling.gpu_activities(events)
    bench.check(activities, "the profile holds the GPU's kernels")
    activity = profiling.mean_activity(activities.values())
    bench.series(
        "profile", {name: [value] for name, value in activity.items()}, dict.fromkeys(activity, "s")
    )
    return {**jobs.single_metrics(job, time), **profiling.gpu_use(events)}


#: The models that `scaling_use` profiles.
USED = {"vgg16": jobs.VGG, "resnet18": jobs.CIFAR}
USE = Benchmark(
    "scaling_use",
    measure_use,
    (
        *jobs.SINGLE_METRICS,
        Metric(
            "utilisation",
            "1",
            "higher",
            "share of the profiled time in which any kernel or copy ran",
            (0, 1),
        ),
        Metric(
            "sm_efficiency",
            "1",
            "higher",
            "time of kernels, each weighted with its blocks per multiprocessor up to 1, over the"
            " profiled time",
        ),
        Metric(
            "occupancy",
            "1",
            "higher",
            "warps resident on a multiprocessor over those it can hold, estimated by the profiler,"
            " mean over time",
            (0, 1),
        ),
    ),
    {"model": tuple(USED), "batch": (64, 512), "dtype": jobs.DTYPES},
    Requires(gpus=1, modules=jobs.MODULES),
    timeout=120,
    description=(
        "How far training VGG16 and ResNet18 fills one GPU: utilisation, SM efficiency, occupancy."
    ),
)
SINGLE = Benchmark(
    "scaling_single",
    measure_single,
    jobs.SINGLE_METRICS,
    {"batch": (32, 128, 512, 2048, 8192, 32768), "dtype": jobs.DTYPES},
    Requires(gpus=1, modules=jobs.MODULES),
    timeout=120,
    description="ResNet18 on images of 32×32, one GPU, over the batch until memory ends.",
)
SINGLE_CPU = replace(
    SINGLE,
    name="scaling_single_cpu",
    grid={"batch": (32, 128, 512), "dtype": ("float32",)},
    requires=jobs.CPU,
    description="A small model on images of 8×8, one process on the CPU.",
)
