"""DataParallel: one process, a thread for each GPU, the model copied to all in every step."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from hpml_plugins import Bench, Benchmark
from hpml_plugins.plugins.scaling import jobs

if TYPE_CHECKING:
    from hpml_plugins.plugins.scaling import training

#: The parts of a step on the host, in order; the first four are DataParallel's parts of the forward
#: pass.
PARTS = ("scatter", "replicate", "parallel_apply", "gather", "backward", "update")
DP_UNITS = {
    **jobs.PROFILE_UNITS,
    **dict.fromkeys((*PARTS, "single_forward", "single_backward"), "s"),
}


def measure_job(bench: Bench, job: jobs.Job) -> jobs.Result:
    """Train on all GPUs, alternately with one alone, and compute the metrics of both."""
    import torch
    from torch.cuda import nccl

    from hpml_plugins.plugins.scaling import profiling, training

    # torch keeps autotuning results per thread (thread_local caches in ATen's Conv_v8.cpp), and
    # DataParallel starts new threads in every step: autotuning took 0.67 s of each step on two
    # H200s.
    torch.backends.cudnn.benchmark = False
    with training.skip_if_out_of_memory(bench, job.share * job.ranks):
        bench.progress("one alone", 0.1)
        single = training.make_single(bench, job, job.batch)
        window = training.prepare(bench, single, job)
        name = f"{job.workload.model}-batch{job.batch}-{job.dtype}-one"
        events = profiling.profiled(single.step, name, gpus=[0], host=True)
        alone = profiling.host_ranges(events, ("forward", "backward"))
        del events
        bench.progress("all together", 0.3)
        trainer, parameters = _make_parallel(bench, job)
        time = training.time_steps(bench, trainer, job, "step")
        bench.progress("in turns with one alone", 0.6)
        both = {"single": single, "together": trainer}
        counts = {"single": window, "together": int(time.info["window"])}
        turns = training.time_in_turns(both, counts)
        activity, parts = _profile(bench, job, trainer)
        del single, trainer, both
        training.free_memory()
        flat = [torch.zeros(parameters, device=f"cuda:{gpu}") for gpu in range(job.ranks)]
        reduction = bench.time(lambda: nccl.all_reduce(flat), budget=0.3, name="all-reduce alone")
    parts |= {f"single_{name}": seconds for name, seconds in alone.items()}
    return jobs.results(bench, job, time, turns, activity, parameters, reduction, **parts)


def _make_parallel(bench: Bench, job: jobs.Job) -> tuple[training.Trainer, int]:
    """The trainer on all GPUs, with its gradient checked, and the number of parameters."""
    from hpml_plugins.plugins.scaling import training

    gpus = list(range(job.ranks))
    module = training.make_module(job.workload, job.dtype, bench.device, bench.seed)
    batches = training.make_batches(job.workload, job.share * job.ranks, bench.device, bench.seed)
    trainer = training.Trainer(training.NamedParts(module, gpus), batches, job.workload.lr)
    # DataParallel's gradient must be the mean of those of its chunks, each computed on the first
    # GPU.
    images, labels = next(batches)
    found = training.gradient(trainer.module, images, labels, seed=0)
    chunks = zip(images.chunk(job.ranks), labels.chunk(job.ranks), strict=True)
    mean = sum(training.gradient(module, *chunk, seed=0) for chunk in chunks) / job.ranks
    error = training.relative_error(found, mean)
    close = error < training.TOLERANCE[job.dtype]
    bench.check(
        close, f"DataParallel's gradient is the mean of its chunks' own (off by {error:.1e})"
    )
    return trainer, int(mean.numel())


def _profile(
    bench: Bench, job: jobs.Job, trainer: training.Trainer
) -> tuple[dict[str, float], dict[str, float]]:
    """The GPUs' mean part in a step, s, and the host's time in its parts, s."""
    from hpml_plugins.plugins.scaling import profiling

    gpus = list(range(job.ranks))
    bench.progress("profiling", 0.8)
    name = f"{job.workload.model}-batch{job.share}-{job.dtype}-dp{job.ranks}"
    events = profiling.profiled(trainer.step, name, gpus=gpus, host=True)
    of_gpus = profiling.gpu_activities(events)
    bench.check(len(of_gpus) == job.ranks, "the profile holds the kernels of every GPU")
    activity = profiling.mean_activity(of_gpus.values())
    bench.check(activity["communication"] > 0, "the profile holds the communication")
    return activity, profiling.host_ranges(events, PARTS)


DP = Benchmark(
    "scaling_dp",
    jobs.over_gpus(measure_job, jobs.CIFAR),
    jobs.METRICS,
    {"gpus": jobs.GPUS, "batch": (32, 128, 512), "dtype": jobs.DTYPES},
    jobs.ALL_GPUS,
    timeout=180,
    description="DataParallel, weak scaling: ResNet18, the batch for each GPU.",
)
DP_STRONG = replace(
    DP,
    name="scaling_dp_strong",
    measure=jobs.over_gpus(measure_job, jobs.CIFAR, "strong"),
    grid={"gpus": jobs.GPUS, "batch": (128, 512), "dtype": ("float32",)},
    description="DataParallel, strong scaling: ResNet18, the batch shared out over the GPUs.",
)
