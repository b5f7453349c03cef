"""DataParallel: one process, a thread for each GPU, the model copied to all in every step."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from hpml_plugins import Bench, Samples
from hpml_plugins.plugins.scaling.ddp import share_of
from hpml_plugins.plugins.scaling.formulas import Scaling
from hpml_plugins.plugins.scaling.results import PROFILE_UNITS, Measured, metrics, profile_columns
from hpml_plugins.plugins.scaling.single import per_step, time_alone
from hpml_plugins.plugins.scaling.workloads import CIFAR, Dtype

#: What a step does on the host, in order; the first four are DataParallel's own parts of the forward pass.
PARTS = ("scatter", "replicate", "parallel_apply", "gather", "backward", "update")
DP_UNITS = {**PROFILE_UNITS, **dict.fromkeys((*PARTS, "single_forward", "single_backward"), "s")}

Result = Mapping[str, Samples | float]


def measure_dp(bench: Bench, *, batch: int, dtype: Dtype, gpus: int) -> Result:
    """Weak scaling of ResNet18: `batch` images for each of `gpus` GPUs, scattered from the first."""
    return _measure(bench, batch, batch, dtype, gpus, "weak")


def measure_dp_strong(bench: Bench, *, batch: int, dtype: Dtype, gpus: int) -> Result:
    """Strong scaling of ResNet18: `batch` images shared out over `gpus` GPUs."""
    return _measure(bench, share_of(batch, gpus), batch, dtype, gpus, "strong")


def _measure(bench: Bench, batch: int, alone: int, dtype: Dtype, gpus: int, scaling: Scaling) -> Result:
    import torch
    from torch.cuda import nccl

    from hpml_plugins.plugins.scaling import training
    from hpml_plugins.plugins.scaling.profiling import ACTIVE, profiled
    from hpml_plugins.plugins.scaling.trace import gpu_activities, host_ranges, mean_activity

    # torch keeps what was tried by thread (thread_local caches in ATen's Conv_v8.cpp), and DataParallel starts its
    # threads anew in every step: trying took 0.67 s of each on two H200s.
    training.prepare(by_trial=False)
    with training.memory_is_the_question(bench, max(batch * gpus, alone)):
        bench.progress("one alone", 0.1)
        single = time_alone(bench, CIFAR, alone, dtype, graph=False)
        one = trainer_of(bench, alone, dtype)
        events = profiled(one.step, synchronize_all, on_gpu=True, host=True, name=f"resnet18-batch{alone}-{dtype}-one")
        forward = host_ranges(events, ("forward", "backward"), ACTIVE)
        del one
        torch.cuda.empty_cache()

        bench.progress("all together", 0.4)
        trainer = trainer_of(bench, batch * gpus, dtype, gpus)
        check_gradient(bench, trainer, gpus, dtype)
        count = training.window_of(trainer.step, bench.device)
        time = per_step(bench.time(training.repeated(trainer.step, count), launch="visible", name="step"), count)
        bench.progress("profiling", 0.8)
        events = profiled(
            trainer.step, synchronize_all, on_gpu=True, host=True, name=f"resnet18-batch{batch}-{dtype}-dp{gpus}"
        )
        of_gpus = gpu_activities(events, ACTIVE)
        bench.check(len(of_gpus) == gpus, "the profile holds the kernels of every GPU")
        activity = mean_activity(of_gpus.values())
        bench.check(activity.communication > 0, "the profile holds the communication")
        bench.check(bool(torch.isfinite(trainer.loss)), "the loss is finite")
        parameters = sum(parameter.numel() for parameter in trainer.module.parameters())
        del trainer
        torch.cuda.empty_cache()
        flat = [torch.zeros(parameters, device=f"cuda:{gpu}") for gpu in range(gpus)]
        ceiling = bench.time(lambda: nccl.all_reduce(flat), budget=0.3, name="all-reduce alone")
    measured = Measured(time, single, activity, parameters, ceiling)
    columns = {
        **profile_columns(gpus, scaling, measured),
        **host_ranges(events, PARTS, ACTIVE),
        "single_forward": forward["forward"],
        "single_backward": forward["backward"],
    }
    bench.series("profile", {name: [value] for name, value in columns.items()}, DP_UNITS)
    return metrics(CIFAR, batch, gpus, scaling, measured)


def trainer_of(bench: Bench, batch: int, dtype: Dtype, gpus: int = 0) -> Any:
    """A trainer on the first GPU, over DataParallel on `gpus` of them where there are any."""
    from hpml_plugins.plugins.scaling import training
    from hpml_plugins.plugins.scaling.named_parts import NamedParts

    module = training.make_module(CIFAR, dtype, "cuda:0", bench.seed)
    pool = training.Pool(CIFAR, batch, "cuda:0", bench.seed)
    return training.Trainer(NamedParts(module, list(range(gpus))) if gpus else module, pool, CIFAR.lr)


def check_gradient(bench: Bench, trainer: Any, gpus: int, dtype: Dtype) -> None:
    """DataParallel's gradient must be the mean of those of its chunks, each found on the first GPU alone."""
    from hpml_plugins.plugins.scaling.training import gradient, relative_error, tolerance

    images, labels = trainer.pool.take()
    found = gradient(trainer.module, images, labels, seed=0)
    chunks = zip(images.chunk(gpus), labels.chunk(gpus), strict=True)
    wanted = sum(gradient(trainer.module.module, *chunk, seed=0) for chunk in chunks) / gpus
    error = relative_error(found, wanted)
    bench.check(
        error < tolerance(dtype),
        f"DataParallel's gradient is the mean of its chunks' own (off by {error:.1e})",
    )


def synchronize_all() -> None:
    """Wait for every GPU."""
    import torch

    for gpu in range(torch.cuda.device_count()):
        torch.cuda.synchronize(gpu)
