"""DataParallel: one process, a thread for each GPU, the model copied to all in every step."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from hpml_plugins import Bench, Benchmark, Samples
from hpml_plugins.plugins.scaling.results import METRICS, PROFILE_UNITS, Measured, results
from hpml_plugins.plugins.scaling.workloads import ALL_GPUS, CIFAR, DTYPES, GPUS, Dtype, Job

if TYPE_CHECKING:
    from hpml_plugins.plugins.scaling.profiling import Activity

#: What a step does on the host, in order; the first four are DataParallel's own parts of the forward pass.
PARTS = ("scatter", "replicate", "parallel_apply", "gather", "backward", "update")
DP_UNITS = {**PROFILE_UNITS, **dict.fromkeys((*PARTS, "single_forward", "single_backward"), "s")}

Result = Mapping[str, Samples | float]


def measure_dp(bench: Bench, *, batch: int, dtype: Dtype, gpus: int) -> Result:
    """Weak scaling of ResNet18: `batch` images for each of `gpus` GPUs, scattered from the first."""
    return _measure(bench, Job(CIFAR, batch, dtype, gpus))


def measure_dp_strong(bench: Bench, *, batch: int, dtype: Dtype, gpus: int) -> Result:
    """Strong scaling of ResNet18: `batch` images shared out over `gpus` GPUs."""
    return _measure(bench, Job(CIFAR, batch, dtype, gpus, "strong"))


def _measure(bench: Bench, job: Job) -> Result:
    import torch
    from torch.cuda import nccl

    from hpml_plugins.plugins.scaling import training

    # torch keeps what was tried by thread (thread_local caches in ATen's Conv_v8.cpp), and DataParallel starts its
    # threads anew in every step: trying took 0.67 s of each on two H200s.
    torch.backends.cudnn.benchmark = False
    with training.skip_if_out_of_memory(bench, job.share * job.ranks):
        bench.progress("one alone", 0.1)
        single = training.time_alone(bench, job)
        alone = _profile_alone(bench, job)
        training.free_memory()
        bench.progress("all together", 0.4)
        time, activity, parts, parameters = _train_together(bench, job)
        training.free_memory()
        flat = [torch.zeros(parameters, device=f"cuda:{gpu}") for gpu in range(job.ranks)]
        ceiling = bench.time(lambda: nccl.all_reduce(flat), budget=0.3, name="all-reduce alone")
    metrics, profile = results(job, Measured(time, single, activity, parameters, ceiling))
    profile |= parts | {f"single_{name}": seconds for name, seconds in alone.items()}
    bench.series("profile", {name: [value] for name, value in profile.items()}, DP_UNITS)
    return metrics


def _profile_alone(bench: Bench, job: Job) -> dict[str, float]:
    """The host's time in the forward and the backward pass on one GPU."""
    from hpml_plugins.plugins.scaling import profiling, training

    trainer = training.make_trainer(bench, job, job.batch)
    name = f"{job.workload.model}-batch{job.batch}-{job.dtype}-one"
    return profiling.host_ranges(profiling.profiled(trainer.step, name, gpus=[0], host=True), ("forward", "backward"))


def _train_together(bench: Bench, job: Job) -> tuple[Samples, Activity, dict[str, float], int]:
    """The time of a step on all GPUs, their mean part in it, the host's time in its parts, and the parameters."""
    from hpml_plugins.plugins.scaling import profiling, training
    from hpml_plugins.plugins.scaling.models import NamedParts

    gpus = list(range(job.ranks))
    trainer = training.make_trainer(bench, job, job.share * job.ranks, lambda module: NamedParts(module, gpus))
    # DataParallel's gradient must be the mean of those of its chunks, each found on the first GPU alone.
    images, labels = trainer.pool.take()
    found = training.gradient(trainer.module, images, labels, seed=0)
    chunks = zip(images.chunk(job.ranks), labels.chunk(job.ranks), strict=True)
    mean = sum(training.gradient(trainer.module.module, *chunk, seed=0) for chunk in chunks) / job.ranks
    error = training.relative_error(found, mean)
    tolerance = training.tolerance(job.dtype)
    bench.check(error < tolerance, f"DataParallel's gradient is the mean of its chunks' own (off by {error:.1e})")
    parameters = int(mean.numel())
    del found, mean

    time = training.time_steps(bench, trainer, job, bench.time, name="step")
    bench.progress("profiling", 0.8)
    name = f"{job.workload.model}-batch{job.share}-{job.dtype}-dp{job.ranks}"
    events = profiling.profiled(trainer.step, name, gpus=gpus, host=True)
    of_gpus = profiling.gpu_activities(events)
    bench.check(len(of_gpus) == job.ranks, "the profile holds the kernels of every GPU")
    activity = profiling.mean_activity(of_gpus.values())
    bench.check(activity.communication > 0, "the profile holds the communication")
    return time, activity, profiling.host_ranges(events, PARTS), parameters


DP = Benchmark(
    "scaling_dp", measure_dp, METRICS,
    {"gpus": GPUS, "batch": (32, 128, 512), "dtype": DTYPES},
    ALL_GPUS, timeout=180,
    description="DataParallel, weak scaling: ResNet18, the batch for each GPU.",
)  # fmt: skip
DP_STRONG = replace(
    DP, name="scaling_dp_strong", measure=measure_dp_strong,
    grid={"gpus": GPUS, "batch": (128, 512), "dtype": ("float32",)},
    description="DataParallel, strong scaling: ResNet18, the batch shared out over the GPUs.",
)  # fmt: skip
