"""DistributedDataParallel: a process for each GPU, gradients reduced while the backward pass goes on."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any

from hpml_plugins import Bench, HpmlError, Rank, Samples
from hpml_plugins.plugins.scaling.formulas import Scaling
from hpml_plugins.plugins.scaling.results import FLOAT32, PROFILE_UNITS, Measured, metrics, profile_columns
from hpml_plugins.plugins.scaling.single import check_graph, per_step, time_alone
from hpml_plugins.plugins.scaling.workloads import CIFAR, SMALL, VGG, Dtype, Workload

Result = Mapping[str, Samples | float]


@dataclass(frozen=True)
class Job:
    """What the ranks do. batch: on each rank.  alone: the batch of the one GPU that it is held against."""

    workload: Workload
    batch: int
    alone: int
    dtype: Dtype
    graph: bool = False


def measure_ddp(bench: Bench, *, batch: int, dtype: Dtype, gpus: int) -> Result:
    """Weak scaling of ResNet18: `batch` images on each of `gpus` GPUs."""
    return measure_job(bench, Job(CIFAR, batch, batch, dtype), gpus, "weak")


def measure_ddp_graph(bench: Bench, *, batch: int, dtype: Dtype, gpus: int) -> Result:
    """The same with each step, its all-reduces included, as one CUDA graph."""
    return measure_job(bench, Job(CIFAR, batch, batch, dtype, graph=True), gpus, "weak")


def measure_ddp_strong(bench: Bench, *, batch: int, dtype: Dtype, gpus: int) -> Result:
    """Strong scaling of ResNet18: `batch` images shared out over `gpus` GPUs."""
    return measure_job(bench, Job(CIFAR, share_of(batch, gpus), batch, dtype), gpus, "strong")


def measure_ddp_cpu(bench: Bench, *, batch: int, dtype: Dtype, ranks: int, scaling: Scaling) -> Result:
    """The small model in `ranks` processes on the CPU, over gloo."""
    share = batch if scaling == "weak" else share_of(batch, ranks)
    return measure_job(bench, Job(SMALL, share, batch, dtype), ranks, scaling)


def measure_ddp_nodes_gloo(bench: Bench, *, batch: int, nodes: int, scaling: Scaling) -> Result:
    """The small model over gloo, one process on each of so many nodes of a Slurm job."""
    _skip_too_few(bench, nodes)
    share = batch if scaling == "weak" else share_of(batch, nodes)
    return measure_job(bench, Job(SMALL, share, batch, "float32"), nodes, scaling, nodes, backend="gloo")


def measure_ddp_nodes_nccl(bench: Bench, *, batch: int, dtype: Dtype, nodes: int, gpus: int) -> Result:
    """Weak scaling of ResNet18 over so many nodes with `gpus` GPUs each: `batch` images on each GPU."""
    _skip_too_few(bench, nodes)
    return measure_job(bench, Job(CIFAR, batch, batch, dtype), nodes * gpus, "weak", nodes, backend="nccl")


def _skip_too_few(bench: Bench, nodes: int) -> None:
    if bench.nodes < nodes:
        bench.skip(f"needs {nodes} nodes of a Slurm job, this run has {bench.nodes} (cluster.yaml: nodes: {nodes})")


def measure_vgg(bench: Bench, *, batch: int, dtype: Dtype, gpus: int) -> Result:
    """VGG16 on images of 224×224: `batch` on each GPU."""
    return measure_job(bench, Job(VGG, batch, batch, dtype), gpus, "weak")


def share_of(batch: int, ranks: int) -> int:
    """Each rank's images of a batch. Raises HpmlError where they cannot be shared out evenly."""
    share, left = divmod(batch, ranks)
    if left or not share:
        raise HpmlError(f"a batch of {batch} cannot be shared out evenly over {ranks}; use a multiple")
    return share


def measure_job(bench: Bench, job: Job, ranks: int, scaling: Scaling, nodes: int = 1, *, backend: Any = None) -> Result:
    """Run the job on so many ranks, shared out over the nodes, and make metrics of what they found."""
    from hpml_plugins.plugins.scaling.trace import mean_activity

    found: list[Measured] = bench.ranks(on_rank, ranks, job, nodes=nodes, backend=backend)
    activities = [one.activity for one in found]
    times = {name: [asdict(activity)[name] for activity in activities] for name in asdict(activities[0])}
    bench.series(
        "ranks",
        {"rank": list(range(ranks)), **times, "collective_share": [activity.share for activity in activities]},
        {**dict.fromkeys(times, "s"), "collective_share": "1"},
    )
    measured = replace(found[0], activity=mean_activity(activities))
    columns = profile_columns(ranks, scaling, measured)
    bench.series("profile", {name: [value] for name, value in columns.items()}, PROFILE_UNITS)
    return metrics(job.workload, job.batch, ranks, scaling, measured)


def on_rank(rank: Rank, job: Job) -> Measured:
    """Time the step on rank 0 alone, then on all; profile it; time an all-reduce of its gradients' size."""
    from hpml_plugins.plugins.scaling import training

    training.prepare()
    with training.memory_is_the_question(rank.bench, max(job.batch, job.alone)), training.stream_for(job.graph):
        rank.bench.progress("one alone", 0.1)
        single = None
        if rank.index == 0:
            single = time_alone(rank.bench, job.workload, job.alone, job.dtype, graph=job.graph)
            _free_memory(rank)
        single = rank.share(single)
        rank.bench.progress("all together", 0.4)
        return _together(rank, job, single)


def _together(rank: Rank, job: Job, single: Samples) -> Measured:
    import torch
    from torch import distributed as dist

    from hpml_plugins.plugins.scaling import training
    from hpml_plugins.plugins.scaling.profiling import ACTIVE, profiled
    from hpml_plugins.plugins.scaling.trace import cpu_activity, gpu_activities, mean_activity

    synchronize = training.synchronizer(rank.device)
    on_gpu = rank.backend == "nccl"
    plain = training.make_module(job.workload, job.dtype, rank.device, rank.bench.seed)
    # Every rank has images of its own.
    pool = training.Pool(job.workload, job.batch, rank.device, rank.bench.seed * 1009 + rank.index + 1)
    wanted = training.gradient(plain, *pool.take(), seed=rank.index)
    parallel = wrapped(rank, plain, lean=job.graph)
    pool = training.Pool(job.workload, job.batch, rank.device, rank.bench.seed * 1009 + rank.index + 1)
    check_gradient(rank, parallel, pool.take(), wanted, training.tolerance(job.dtype))
    parameters = int(wanted.numel())
    del wanted

    trainer = training.Trainer(parallel, pool, job.workload.lr)
    captured = training.Captured(trainer) if job.graph else None
    step = captured.step if captured else trainer.step
    if captured:
        check_graph(rank.bench, captured, job.dtype)
    count = training.window_of_all(rank, step)
    time = per_step(rank.time(training.repeated(step, count), launch="visible", over="max", name="step"), count)
    rank.bench.progress("profiling", 0.8)
    name = f"{job.workload.model}-batch{job.batch}-{job.dtype}-rank{rank.index}of{rank.count}"
    events = profiled(step, synchronize, on_gpu=on_gpu, host=not on_gpu, name=name)
    if on_gpu:
        of_gpus = gpu_activities(events, ACTIVE)
        rank.bench.check(of_gpus, "the profile holds the GPU's kernels")
        activity = mean_activity(of_gpus.values())
    else:
        activity = cpu_activity(events, ACTIVE)
    rank.bench.check(activity.reduction > 0, "the profile holds the reduction of the gradients")
    check_same_everywhere(rank, parallel)
    rank.bench.check(bool(torch.isfinite(trainer.loss)), "the loss is finite")
    if captured:
        captured.drop()
    del trainer, pool, captured, step
    _free_memory(rank)
    flat = torch.zeros(parameters, device=rank.device)
    assert flat.nbytes == FLOAT32 * parameters
    ceiling = rank.time(lambda: dist.all_reduce(flat), budget=0.3, name="all-reduce alone")
    return Measured(time, single, activity, parameters, ceiling)


def wrapped(rank: Rank, module: Any, *, lean: bool = False) -> Any:
    """The module under DistributedDataParallel, as one would use it.

    lean: what a short step gains by. All gradients in one bucket: cuDNN's batch norm in channels-last wants every
    multiprocessor at once and waits for a running all-reduce, so three of them only add their latencies. And batch-norm
    statistics that stay each rank's own, where DDP copies the first rank's to all before each step.
    """
    from torch.nn.parallel import DistributedDataParallel

    cards = [rank.device] if rank.backend == "nccl" else None
    more: dict[str, Any] = {}
    if lean:
        nbytes = sum(parameter.nbytes for parameter in module.parameters())
        more = {"broadcast_buffers": False, "bucket_cap_mb": nbytes / 2**20 + 1}
    # Gradients live in the buckets that are reduced: without it each is copied there and back.
    return DistributedDataParallel(module, device_ids=cards, gradient_as_bucket_view=True, **more)


def check_gradient(rank: Rank, parallel: Any, batch: tuple[Any, Any], own: Any, tolerance: float) -> None:
    """DDP's gradient must be the mean over ranks of what each finds alone.  own: that of this rank, a vector."""
    from torch import distributed as dist

    from hpml_plugins.plugins.scaling.training import gradient, relative_error

    dist.all_reduce(own)
    own /= rank.count
    error = relative_error(gradient(parallel, *batch, seed=rank.index), own)
    rank.bench.check(
        error < tolerance,
        f"DDP's gradient is the mean of the ranks' own (off by {error:.1e})",
    )


def check_same_everywhere(rank: Rank, module: Any) -> None:
    """After any number of steps all ranks must have the same parameters, to the bit."""
    import torch

    with torch.no_grad():
        sums = [float(parameter.double().sum()) for parameter in module.parameters()]
    rank.bench.check(all(other == sums for other in rank.gather(sums)), "all ranks have the same parameters")


def _free_memory(rank: Rank) -> None:
    if rank.backend == "nccl":
        import gc

        import torch

        gc.collect()
        torch.cuda.empty_cache()
