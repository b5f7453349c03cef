"""The trained models, numbers of GPUs or processes, and the metrics of every way of training."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal

from hpml_plugins import Bench, HpmlError, Metric, Requires, Samples
from hpml_plugins.workloads import bus_factor

Dtype = Literal["float32", "bf16"]
Scaling = Literal["weak", "strong"]
Result = Mapping[str, Samples | float]
DTYPES: tuple[Dtype, ...] = ("float32", "bf16")
#: Tolerance between an epoch and the sum of its parts, as a share.
CLOSE = 0.05
FLOAT32 = 4  # B: gradients are float32 under autocast too
GPUS = (2, 4, 8)
#: torch's optimizers and DDP import torch._dynamo at their first use, which takes seconds on every
#: rank.
TORCH = ("torch", "torch._dynamo")
MODULES = (*TORCH, "torchvision")
ALL_GPUS = Requires(gpus="gpus", modules=MODULES)
CPU = Requires(modules=TORCH)


@dataclass(frozen=True)
class Workload:
    """A model and the images that it is trained on.

    data: the name of the images.  shape: (channels, height, width).  images: in an epoch.  lr:
    learning rate.
    """

    model: str
    data: str
    shape: tuple[int, int, int]
    classes: int
    images: int
    lr: float = 0.1


#: The coursework's: ResNet18 for CIFAR-10's images. They are random: times do not depend on their
#: contents.
CIFAR = Workload("resnet18", "synthetic-cifar10", (3, 32, 32), 10, 50_000)
#: VGG16 has no normalisation: random images and labels at the usual rate would soon be NaN.
VGG = Workload("vgg16", "synthetic-224", (3, 224, 224), 1000, 8192, lr=1e-3)
#: For machines without a GPU.
SMALL = Workload("small", "synthetic-8", (3, 8, 8), 10, 1024)


@dataclass(frozen=True)
class Job:
    """Training on several ranks, and on one for comparison.

    batch: images on each rank (weak scaling) or on all of them (strong), and on the one rank alone.
    graph: each step is one CUDA graph. Raises HpmlError if a batch cannot be split evenly.
    """

    workload: Workload
    batch: int
    dtype: Dtype
    ranks: int = 1
    scaling: Scaling = "weak"
    graph: bool = False

    def __post_init__(self) -> None:
        if self.scaling == "strong" and self.batch % self.ranks:
            raise HpmlError(
                f"a batch of {self.batch} cannot be shared out evenly over {self.ranks}; use a"
                " multiple"
            )

    @property
    def share(self) -> int:
        """Images on each rank."""
        return self.batch if self.scaling == "weak" else self.batch // self.ranks


def over_gpus(
    run: Callable[[Bench, Job], Result],
    workload: Workload,
    scaling: Scaling = "weak",
    *,
    graph: bool = False,
) -> Callable[..., Result]:
    """The `measure` of a benchmark that runs this workload over GPUs, batches and dtypes."""

    def measure(bench: Bench, *, batch: int, dtype: Dtype, gpus: int) -> Result:
        return run(bench, Job(workload, batch, dtype, gpus, scaling, graph))

    return measure


SINGLE_METRICS = (
    Metric("step", "s", "lower", "one step of SGD: forward, backward, update"),
    Metric("epoch", "s", "lower", "step times images of an epoch over images of a step"),
)
METRICS = (
    *SINGLE_METRICS,
    Metric(
        "speedup",
        "1",
        "higher",
        "how many times sooner the work of an epoch is done than by one GPU",
    ),
    Metric("efficiency", "1", "higher", "speed-up over the number of GPUs", (0, 2)),
    Metric(
        "computation",
        "s",
        "lower",
        "of a profiled step: something was computed or copied from the host",
    ),
    Metric(
        "communication", "s", "lower", "of a profiled step: a collective or a copy between GPUs ran"
    ),
    Metric("exposed", "s", "lower", "communication while nothing was computed"),
    Metric(
        "bus_bandwidth",
        "B/s",
        "higher",
        "ring bytes of the gradients over the profiled time of their reduction",
    ),
    Metric(
        "ceiling",
        "B/s",
        "higher",
        "ring bytes over the time of one all-reduce of as many bytes, alone",
    ),
)
#: Without an upper bound of the efficiency: other processes on the CPUs may slow the turn of one
#: rank and not that of all, which is noise, not an impossible result.
CPU_METRICS = tuple(
    replace(metric, possible=(0, None)) if metric.name == "efficiency" else metric
    for metric in METRICS
)
#: Units of the series `profile`, of one row: values that are not metrics, because asv runs a
#: process for each metric.
PROFILE_UNITS = {
    "single": "s",
    "together": "s",
    "apart": "s",
    "subtracted": "s",
    "idle": "s",
    "collective_share": "1",
    "utilization": "1",
}


def ring_bandwidth(nbytes: float, seconds: Any, ranks: int) -> Any:
    """Bandwidth of each link, one way, of a ring all-reduce of `nbytes` in `seconds` s: 2 (n − 1) /
    n · S / t, B/s.

    Raises HpmlError for fewer than two ranks.
    """
    return bus_factor("all_reduce", ranks) * nbytes / seconds


def warn_if_apart(bench: Bench, time: Samples, together: Samples) -> None:
    """Warn if alternating steps are not as long as separately timed ones."""
    difference = together.median / time.median - 1
    if abs(difference) > CLOSE:
        bench.warn(
            f"steps in turns with one GPU's take {difference:+.0%} of those timed for themselves"
        )


def collective_share(activity: Mapping[str, float]) -> float:
    """The collectives' share of all kernels' time; 0 if nothing ran."""
    return activity["collectives"] / activity["kernels"] if activity["kernels"] else 0.0


def single_metrics(job: Job, time: Samples) -> dict[str, Any]:
    """Step and epoch. The steps of an epoch are not rounded, so that an epoch is the same work for
    every batch."""
    workload = job.workload
    steps = workload.images / (job.share * job.ranks)
    measured = len(time) * float(time.info["steps"])
    time = time.note(
        workload=f"{workload.model} {'×'.join(str(side) for side in workload.shape)}",
        data=f"{workload.data}, on the device",
        epoch_steps=steps,
        measured_steps=measured,
        epoch="measured whole" if measured >= steps else "from a part of its steps",
    )
    return {"step": time, "epoch": steps * time}


def results(
    bench: Bench,
    job: Job,
    time: Samples,
    turns: Mapping[str, Samples],
    activity: Mapping[str, float],
    parameters: int,
    reduction: Samples,
    **more: float,
) -> dict[str, Any]:
    """All of METRICS. Attaches the series `profile`, of one row.

    time: s of a step on all ranks.  turns: s of alternating steps: `single` on one rank alone,
    `together` on all, and `apart`, if measured, on all ranks at once without an exchange. activity:
    of a profiled step, mean over ranks.  parameters: of the model.  reduction: s of an all-reduce
    of that many float32.  more: further columns of the series, s. subtracted: the step minus a
    perfectly scaled one, the coursework's estimate of communication.
    """
    nbytes = FLOAT32 * parameters
    single, together = turns["single"], turns["together"]
    # The work of a step on all GPUs as a multiple of a step on one.
    work = job.ranks if job.scaling == "weak" else 1
    speedup = single / together * work
    scaled = single * (work / job.ranks)
    warn_if_apart(bench, time, together)
    achieved = (
        ring_bandwidth(nbytes, activity["reduction"], job.ranks) if activity["reduction"] else 0.0
    )
    ceiling = ring_bandwidth(nbytes, reduction.note(parameters=parameters), job.ranks)
    profile = {
        "single": single.median,
        "together": together.median,
        "apart": turns.get("apart", scaled).median,
        "subtracted": (together - scaled).median,
        "idle": activity["idle"],
        "collective_share": collective_share(activity),
        "utilization": achieved / ceiling.median,
        **more,
    }
    units = {**dict.fromkeys(more, "s"), **PROFILE_UNITS}
    bench.series("profile", {name: [value] for name, value in profile.items()}, units)
    return {
        **single_metrics(job, time),
        "speedup": speedup,
        "efficiency": speedup / job.ranks,
        **{name: activity[name] for name in ("computation", "communication", "exposed")},
        "bus_bandwidth": achieved,
        "ceiling": ceiling,
    }
