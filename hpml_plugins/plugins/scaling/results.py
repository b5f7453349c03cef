"""From measured times to the metrics of a point, the same for every way of training."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from hpml_plugins import HpmlError, Metric, Samples
from hpml_plugins.plugins.scaling.workloads import Job, Scaling

if TYPE_CHECKING:
    from hpml_plugins.plugins.scaling.profiling import Activity

FLOAT32 = 4  # B: gradients are float32 under autocast too

SINGLE_METRICS = (
    Metric("step", "s", "lower", "one step of SGD: forward, backward, update"),
    Metric("epoch", "s", "lower", "step times images of an epoch over images of a step"),
)
METRICS = (
    *SINGLE_METRICS,
    Metric("speedup", "1", "higher", "how many times sooner the work of an epoch is done than by one GPU"),
    Metric("efficiency", "1", "higher", "speed-up over the number of GPUs"),
    Metric("computation", "s", "lower", "of a profiled step: something was computed or copied from the host"),
    Metric("communication", "s", "lower", "of a profiled step: a collective or a copy between GPUs ran"),
    Metric("exposed", "s", "lower", "communication while nothing was computed"),
    Metric("bus_bandwidth", "B/s", "higher", "ring bytes of the gradients over the profiled time of their reduction"),
    Metric("ceiling", "B/s", "higher", "ring bytes over the time of one all-reduce of as many bytes, alone"),
)
#: Units of the series `profile`, of one row: what is no metric, since asv runs a process for each metric.
PROFILE_UNITS = {"single": "s", "subtracted": "s", "idle": "s", "collective_share": "1", "utilization": "1"}


def speedup(scaling: Scaling, single: Any, several: Any, ranks: int) -> Any:
    """How many times sooner `ranks` GPUs have done the work of an epoch than one.

    single, several: seconds of a step on one GPU and on `ranks`, numbers or Samples.  A step of weak scaling does
    `ranks` times the work of one GPU's.
    """
    return single / several * (ranks if scaling == "weak" else 1)


def ring_bandwidth(nbytes: float, seconds: Any, ranks: int) -> Any:
    """Bandwidth of each link, one way, of a ring all-reduce of `nbytes` in so many seconds: 2 (n − 1) / n · S / t, B/s.

    Raises HpmlError for fewer than two ranks, where nothing crosses a link.
    Source: Patarasuk & Yuan, Bandwidth optimal all-reduce algorithms for clusters of workstations, J. Parallel Distrib.
    Comput. 69 (2009), 117–124, section 4.
    """
    if ranks < 2:
        raise HpmlError(f"{ranks} rank reduces nothing over a link; use two or more")
    return 2 * (ranks - 1) * nbytes / ranks / seconds


def single_metrics(job: Job, time: Samples) -> dict[str, Any]:
    """Step and epoch. The steps of an epoch are not rounded, so that it is the same work for every batch."""
    steps = job.workload.images / (job.share * job.ranks)
    measured = len(time) * float(time.info["steps"])
    time = time.note(
        workload=str(job.workload),
        data=f"{job.workload.data}, on the device",
        epoch_steps=steps,
        measured_steps=measured,
        epoch="measured whole" if measured >= steps else "from a part of its steps",
    )
    return {"step": time, "epoch": steps * time}


@dataclass(frozen=True)
class Measured:
    """What training on several GPUs was found to take.

    time, single: seconds a step on all, and of the same code on one alone.  activity: of a profiled step, mean over
    GPUs.  parameters: of the model.  ceiling: seconds of an all-reduce of that many float32.
    """

    time: Samples
    single: Samples
    activity: Activity
    parameters: int
    ceiling: Samples


def results(job: Job, measured: Measured) -> tuple[dict[str, Samples | float], dict[str, float]]:
    """All of METRICS, and the row of the series `profile`.

    subtracted: the step minus a perfectly scaled one, communication as the coursework calculates it.  collective_share:
    of the collectives' kernels in all kernels' time.  utilization: bus bandwidth over its ceiling.
    """
    activity, nbytes = measured.activity, FLOAT32 * measured.parameters
    # Cut to equal length: they were taken one after the other, so any pairing is as good.
    count = min(len(measured.single), len(measured.time))
    single, several = (replace(each, values=each.values[:count]) for each in (measured.single, measured.time))
    faster = speedup(job.scaling, single, several, job.ranks)
    achieved = ring_bandwidth(nbytes, activity.reduction, job.ranks) if activity.reduction else 0.0
    ceiling = ring_bandwidth(nbytes, measured.ceiling.note(parameters=measured.parameters), job.ranks)
    metrics = {
        **single_metrics(job, measured.time),
        "speedup": faster,
        "efficiency": faster / job.ranks,
        "computation": activity.computation,
        "communication": activity.communication,
        "exposed": activity.exposed,
        "bus_bandwidth": achieved,
        "ceiling": ceiling,
    }
    alone = measured.single.median
    profile = {
        "single": alone,
        "subtracted": measured.time.median - alone / (1 if job.scaling == "weak" else job.ranks),
        "idle": activity.idle,
        "collective_share": activity.share,
        "utilization": achieved / ceiling.median,
    }
    return metrics, profile
