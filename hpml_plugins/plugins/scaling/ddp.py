"""DistributedDataParallel: a process for each GPU, gradients reduced during the backward pass."""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from hpml_plugins import Bench, Benchmark, Rank, Samples
from hpml_plugins.plugins.scaling import jobs

if TYPE_CHECKING:
    from hpml_plugins.plugins.scaling import training


def measure_ddp(
    bench: Bench,
    *,
    batch: int,
    dtype: jobs.Dtype = "float32",
    ranks: int = 0,
    nodes: int = 1,
    gpus: int = 1,
    scaling: jobs.Scaling = "weak",
) -> jobs.Result:
    """ResNet18 on `gpus` GPUs of each of `nodes` nodes; without GPUs the small model in `ranks`
    processes, over gloo.

    ranks: default: one per node.
    """
    workload = jobs.CIFAR if bench.gpus else jobs.SMALL
    return measure_job(
        bench, jobs.Job(workload, batch, dtype, ranks or nodes * gpus, scaling), nodes
    )


def measure_job(bench: Bench, job: jobs.Job, nodes: int = 1) -> jobs.Result:
    """Run the job on its ranks, distributed over the nodes."""
    if bench.nodes < nodes:
        bench.skip(
            f"needs {nodes} nodes of a Slurm job, this run has {bench.nodes} (cluster.yaml: nodes:"
            f" {nodes})"
        )
    metrics: jobs.Result = bench.ranks(on_rank, job.ranks, job, nodes=nodes)[0]
    return metrics


def on_rank(rank: Rank, job: jobs.Job) -> jobs.Result | None:
    """Time the step on all ranks, also alternately with rank 0 alone; profile it; time an
    all-reduce of the size of its gradients.

    Rank 0 attaches the series and returns the metrics.
    """
    import torch
    from torch import distributed as dist

    from hpml_plugins.plugins.scaling import profiling, training

    torch.backends.cudnn.benchmark = True  # all batches have the same shape
    # the default one is not captured
    stream = torch.cuda.stream(torch.cuda.Stream()) if job.graph else nullcontext()
    with training.skip_if_out_of_memory(rank.bench, job.batch), stream:
        rank.bench.progress("all together", 0.1)
        time, turns, activity, use, parameters = _train_together(rank, job)
        training.free_memory()
        flat = torch.zeros(parameters, device=rank.device)
        reduction = rank.time(lambda: dist.all_reduce(flat), budget=0.3, name="all-reduce alone")
    activities = rank.gather(activity)
    uses = rank.gather(use)
    if rank.index:
        return None
    times = {name: [each[name] for each in activities] for name in activity}
    shares = [jobs.collective_share(each) for each in activities]
    used = {name: [each[name] for each in uses] for name in use}
    columns = {"rank": list(range(rank.count)), **times, "collective_share": shares, **used}
    rank.bench.series(
        "ranks", columns, {**dict.fromkeys(columns, "1"), **dict.fromkeys(times, "s")}
    )
    return jobs.results(
        rank.bench, job, time, turns, profiling.mean_activity(activities), parameters, reduction
    )


def _train_together(
    rank: Rank, job: jobs.Job
) -> tuple[Samples, dict[str, Samples], dict[str, float], dict[str, float], int]:
    """The time of a step of all ranks, the times of the alternating steps, this rank's part in a
    step, its use of the GPU, and the number of parameters."""
    from torch import distributed as dist

    from hpml_plugins.plugins.scaling import profiling, training

    bench = rank.bench
    module = training.make_module(job.workload, job.dtype, rank.device, bench.seed)
    # Every rank has its own images.
    batches = training.make_batches(
        job.workload, job.share, rank.device, bench.seed * 1009 + rank.index + 1
    )
    batch = next(batches)
    mean = training.gradient(module, *batch, seed=rank.index)
    parallel = wrapped(rank, module, lean=job.graph)
    dist.all_reduce(mean)
    mean /= rank.count
    error = training.relative_error(training.gradient(parallel, *batch, seed=rank.index), mean)
    close = error < training.TOLERANCE[job.dtype]
    bench.check(close, f"DDP's gradient is the mean of the ranks' own (off by {error:.1e})")
    parameters = int(mean.numel())
    del mean

    trainer = training.Trainer(parallel, batches, job.workload.lr)
    time = training.time_steps(bench, trainer, job, "step", rank)
    bench.progress("in turns with one alone", 0.4)
    turns = _take_turns(rank, job, trainer, time)
    bench.progress("profiling", 0.8)
    name = f"{job.workload.model}-batch{job.share}-{job.dtype}-rank{rank.index}of{rank.count}"
    if rank.backend == "nccl":
        events = profiling.profiled(trainer.step, name, gpus=[rank.local], host=False)
        of_gpus = profiling.gpu_activities(events)
        bench.check(of_gpus, "the profile holds the GPU's kernels")
        activity = profiling.mean_activity(of_gpus.values())
        use = profiling.gpu_use(events)
    else:
        use = {}
        activity = profiling.cpu_activity(
            profiling.profiled(trainer.step, name, gpus=[], host=True)
        )
    bench.check(activity["reduction"] > 0, "the profile holds the reduction of the gradients")
    check_same_everywhere(rank, parallel)
    trainer.drop_graph()
    return time, turns, activity, use, parameters


def _take_turns(
    rank: Rank, job: jobs.Job, trainer: training.Trainer, time: Samples
) -> dict[str, Samples]:
    """Steps on rank 0 alone, on all ranks without an exchange, and on all together, s.

    Without an exchange each rank trains its own model, with the same computations.
    """
    from hpml_plugins.plugins.scaling import training

    apart = training.make_single(rank.bench, job, job.share)
    counts = {"apart": training.prepare(rank.bench, apart, job)}
    trainers = {"apart": apart, "together": trainer}
    if rank.index == 0:
        shared = job.share == job.batch
        single = apart if shared else training.make_single(rank.bench, job, job.batch)
        counts["single"] = counts["apart"] if shared else training.prepare(rank.bench, single, job)
        trainers["single"] = single
    counts = rank.share(counts)
    counts["together"] = int(time.info["window"])
    turns = training.time_in_turns(trainers, counts, rank)
    for each in {id(each): each for each in trainers.values() if each is not trainer}.values():
        each.drop_graph()
    return turns


def wrapped(rank: Rank, module: Any, *, lean: bool = False) -> Any:
    """The module under DistributedDataParallel, with common settings.

    lean: settings for short steps. All gradients in one bucket: cuDNN's batch norm in channels-last
    needs all multiprocessors at once and waits for a running all-reduce, so three of them only add
    their latencies. And separate batch-norm statistics on each rank; otherwise DDP copies the first
    rank's to all before each step.
    """
    from torch.nn.parallel import DistributedDataParallel

    cards = [rank.device] if rank.backend == "nccl" else None
    more: dict[str, Any] = {}
    if lean:
        nbytes = sum(parameter.nbytes for parameter in module.parameters())
        more = {"broadcast_buffers": False, "bucket_cap_mb": nbytes / 2**20 + 1}
    # Gradients are views of the reduced buckets; otherwise each is copied there and back.
    return DistributedDataParallel(module, device_ids=cards, gradient_as_bucket_view=True, **more)


def check_same_everywhere(rank: Rank, module: Any) -> None:
    """After any number of steps all ranks must have the same parameters, to the bit."""
    sums = [float(parameter.detach().double().sum()) for parameter in module.parameters()]
    rank.bench.check(
        all(other == sums for other in rank.gather(sums)), "all ranks have the same parameters"
    )


DDP = Benchmark(
    "scaling_ddp",
    measure_ddp,
    jobs.METRICS,
    {"gpus": jobs.GPUS, "batch": (32, 128, 512, 2048, 8192), "dtype": jobs.DTYPES},
    jobs.ALL_GPUS,
    timeout=180,
    description="DistributedDataParallel, weak scaling: ResNet18, the batch on each GPU.",
)
DDP_GRAPH = replace(
    DDP,
    name="scaling_ddp_graph",
    measure=jobs.over_gpus(measure_job, jobs.CIFAR, graph=True),
    grid={"gpus": jobs.GPUS, "batch": (32, 512, 2048), "dtype": jobs.DTYPES},
    description=(
        "DistributedDataParallel, weak scaling, each step one CUDA graph, also on the one GPU"
        " beside it."
    ),
)
DDP_STRONG = replace(
    DDP,
    name="scaling_ddp_strong",
    measure=jobs.over_gpus(measure_job, jobs.CIFAR, "strong"),
    grid={"gpus": jobs.GPUS, "batch": (512, 2048), "dtype": jobs.DTYPES},
    description=(
        "DistributedDataParallel, strong scaling: ResNet18, the batch shared out over the GPUs."
    ),
)
VGG16 = replace(
    DDP,
    name="scaling_vgg16",
    measure=jobs.over_gpus(measure_job, jobs.VGG),
    grid={"gpus": jobs.GPUS, "batch": (64,), "dtype": jobs.DTYPES},
    timeout=240,
    description=(
        "VGG16 on images of 224×224, one GPU against DistributedDataParallel; an epoch is 8192"
        " images."
    ),
)
DDP_CPU = replace(
    DDP,
    name="scaling_ddp_cpu",
    metrics=jobs.CPU_METRICS,
    grid={
        "ranks": (2, 4),
        "batch": (32, 128, 512),
        "dtype": ("float32",),
        "scaling": ("weak", "strong"),
    },
    requires=jobs.CPU,
    timeout=120,
    description=(
        "DistributedDataParallel over gloo between processes on the CPU: the same code, a small"
        " model."
    ),
)
DDP_NODES_NCCL = replace(
    DDP,
    name="scaling_ddp_nodes_nccl",
    grid={"nodes": (2, 4), "gpus": (1, 8), "batch": (128, 512, 2048), "dtype": jobs.DTYPES},
    timeout=300,
    description=(
        "DistributedDataParallel over several nodes of a Slurm job, weak scaling: ResNet18."
    ),
)
DDP_NODES_GLOO = replace(
    DDP,
    name="scaling_ddp_nodes_gloo",
    metrics=jobs.CPU_METRICS,
    grid={"nodes": (2, 4), "batch": (32, 128, 512), "scaling": ("weak", "strong")},
    requires=jobs.CPU,
    description=(
        "DistributedDataParallel over gloo between nodes of a Slurm job, one process on each: a"
        " small model."
    ),
)
