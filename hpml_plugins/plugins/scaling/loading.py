"""The input of a step: images loaded by torch's DataLoader and copied to the GPU."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import islice
from typing import Any

from hpml_plugins import Bench, Benchmark, Metric, Rank, Requires
from hpml_plugins.plugins.scaling import jobs

#: The coursework's number of processes that load images, on each rank.
WORKERS = 2
#: Batches in a timed call: more than the workers prefetch, which is two each.
BATCHES = 8
#: Times that include loading are sampled longer than the others by this factor: their calls are
#: long and vary.
LONGER = 6


def measure(bench: Bench, *, batch: int, gpus: int = 1, ranks: int = 0) -> jobs.Result:
    """Loading, copying and training, each alone and together: ResNet18 on GPUs, otherwise the small
    model on `ranks`."""
    job = jobs.Job(jobs.CIFAR if bench.gpus else jobs.SMALL, batch, "float32", ranks or gpus)
    metrics: jobs.Result = bench.ranks(on_rank, job.ranks, job)[0]
    return metrics


def on_rank(rank: Rank, job: jobs.Job) -> jobs.Result:
    """Time a batch's loading, its copy, a step on images that are on the device, and all of it
    together."""
    import torch

    from hpml_plugins.plugins.scaling import ddp, training

    bench, batch = rank.bench, job.share
    budget = LONGER * bench.plan.budget * bench.plan.rounds
    torch.backends.cudnn.benchmark = True  # all batches have one shape
    module = training.make_module(job.workload, job.dtype, rank.device, bench.seed)
    parallel = ddp.wrapped(rank, module) if rank.count > 1 else module
    with training.skip_if_out_of_memory(bench, batch):
        on_device = training.make_batches(
            job.workload, batch, rank.device, bench.seed * 1009 + rank.index + 1
        )
        trainer = training.Trainer(parallel, on_device, job.workload.lr)
        bench.progress("training alone", 0.1)
        train = training.time_steps(bench, trainer, job, "train", rank)
        loaded = load(job.workload, batch, bench.seed * 1009 + rank.index, pin=rank.device != "cpu")
        images, labels = next(loaded)
        layout = training.layout(rank.device)

        def move(images: Any, labels: Any) -> tuple[Any, Any]:
            images = images.to(rank.device, memory_format=layout, non_blocking=True)
            return images, labels.to(rank.device, non_blocking=True)

        moved = move(images, labels)
        right = all(
            torch.equal(there.cpu(), here)
            for there, here in zip(moved, (images, labels), strict=True)
        )
        bench.check(right, "the copied batch is the loaded one")
        bench.progress("copying alone", 0.3)
        copy = rank.time(lambda: move(images, labels), over="max", name="copy")
        bench.progress("loading alone", 0.4)
        loading = rank.time(
            lambda: list(islice(loaded, BATCHES)),
            device="cpu",
            over="max",
            budget=budget,
            name="loading",
        )
        bench.progress("all together", 0.7)
        trainer.batches = (move(*each) for each in loaded)

        def steps() -> None:
            for _ in range(BATCHES):
                trainer.step()

        step = rank.time(steps, launch="visible", over="max", budget=budget, name="step")
        bench.check(bool(torch.isfinite(trainer.loss)), "the loss is finite")
    step = (step / BATCHES).note(steps=BATCHES * float(step.info["batch"]))
    whole = jobs.single_metrics(job, step)
    data = (
        f"{job.workload.data}, in host memory, cropped and flipped by {WORKERS} processes of a"
        " DataLoader per rank"
    )
    return {
        **{name: samples.note(data=data) for name, samples in whole.items()},
        "train": train,
        "copy": copy,
        "loading": loading / BATCHES,
    }


def load(workload: jobs.Workload, batch: int, seed: int, *, pin: bool) -> Iterator[tuple[Any, Any]]:
    """Endless batches, made as in the coursework's script: each image is cropped, flipped and
    normalised.

    pin: whether the batches are in pinned memory, from which the GPU copies asynchronously.
    """
    import torch
    from torch.utils.data import DataLoader, Dataset, RandomSampler
    from torchvision.transforms import v2

    class Images(Dataset):  # type: ignore[misc]  # torch is untyped to mypy here
        """Random 8-bit images in memory."""

        def __init__(self) -> None:
            generator = torch.Generator().manual_seed(seed)
            self.images = torch.randint(
                256, (workload.images, *workload.shape), generator=generator, dtype=torch.uint8
            )
            self.labels = torch.randint(workload.classes, (workload.images,), generator=generator)
            self.transform = v2.Compose(
                [
                    v2.RandomCrop(workload.shape[-1], padding=4),
                    v2.RandomHorizontalFlip(),
                    v2.ToDtype(torch.float32, scale=True),
                    v2.Normalize([0.5] * workload.shape[0], [0.25] * workload.shape[0]),
                ]
            )

        def __len__(self) -> int:
            return workload.images

        def __getitem__(self, index: int) -> tuple[Any, Any]:
            return self.transform(self.images[index]), self.labels[index]

    images = Images()
    generator = torch.Generator().manual_seed(seed)
    sampler = RandomSampler(images, replacement=True, num_samples=1 << 40, generator=generator)
    return iter(
        DataLoader(
            images, batch, sampler=sampler, num_workers=WORKERS, pin_memory=pin, drop_last=True
        )
    )


LOADING = Benchmark(
    "scaling_loading",
    measure,
    (
        Metric(
            "step",
            "s",
            "lower",
            "one step whose images are loaded and copied to the device meanwhile",
        ),
        jobs.SINGLE_METRICS[1],
        Metric("train", "s", "lower", "the same step on images that are on the device"),
        Metric("copy", "s", "lower", "a batch copied from pinned host memory, all ranks at once"),
        Metric(
            "loading",
            "s",
            "lower",
            "a batch loaded by a DataLoader of two processes per rank, alone",
        ),
    ),
    {"batch": (32, 128, 512, 2048), "gpus": (1, *jobs.GPUS)},
    Requires(gpus="gpus", modules=jobs.MODULES),
    timeout=180,
    description=(
        "ResNet18 with its data: loading by torch's DataLoader, the copy to the GPU, the step, all"
        " together."
    ),
)
LOADING_CPU = replace(
    LOADING,
    name="scaling_loading_cpu",
    grid={"batch": (32, 128), "ranks": (1, 2)},
    requires=Requires(modules=jobs.MODULES),
    description=(
        "The small model with its data, in processes on the CPU: loading, the copy, the step, all"
        " together."
    ),
)
