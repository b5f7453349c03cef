"""From measured times to the metrics of a point, the same for every way of training."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from hpml_plugins import Metric, Samples
from hpml_plugins.plugins.scaling.formulas import Scaling, efficiency, ring_bandwidth, speedup, steps_in_epoch
from hpml_plugins.plugins.scaling.trace import Activity
from hpml_plugins.plugins.scaling.workloads import Workload

FLOAT32 = 4  # B: gradients are float32 under autocast too

SINGLE_METRICS = (
    Metric("step", "s", "lower", "one step of SGD: forward, backward, update"),
    Metric("epoch", "s", "lower", "step times images of an epoch over images of a step"),
    Metric("throughput", "1/s", "higher", "images a second"),
)
METRICS = (
    *SINGLE_METRICS,
    Metric("single", "s", "lower", "a step of the same code on one GPU alone, measured in the same point"),
    Metric("speedup", "1", "higher", "how many times sooner the work of an epoch is done than by one GPU"),
    Metric("efficiency", "1", "higher", "speed-up over the number of GPUs"),
    Metric("computation", "s", "lower", "of a profiled step: something was computed or copied from the host"),
    Metric("communication", "s", "lower", "of a profiled step: a collective or a copy between GPUs ran"),
    Metric("exposed", "s", "lower", "communication while nothing was computed"),
    Metric("idle", "s", "lower", "of a profiled step: nothing ran"),
    Metric(
        "subtracted",
        "s",
        "lower",
        "step less a perfectly scaled one (single; strong: single / GPUs): communication by subtraction",
    ),
    Metric("collective_share", "1", "lower", "the collectives' kernels in all kernels' time, mean over GPUs"),
    Metric("bus_bandwidth", "B/s", "higher", "ring bytes of the gradients over the profiled time of their reduction"),
    Metric("ceiling", "B/s", "higher", "ring bytes over the time of one all-reduce of as many bytes, alone"),
    Metric("utilization", "1", "higher", "bus_bandwidth over ceiling"),
)


def single_metrics(workload: Workload, batch: int, ranks: int, time: Samples) -> dict[str, Samples]:
    """Step, epoch and throughput of `ranks` times `batch` images a step."""
    steps = steps_in_epoch(workload.images, batch, ranks)
    measured = len(time) * float(time.info["steps"])
    about: Mapping[str, str | float] = {
        "workload": str(workload),
        "data": f"{workload.data}, on the device",
        "epoch_steps": steps,
        "measured_steps": measured,
        "epoch": "measured whole" if measured >= steps else "from a part of its steps",
    }
    time = replace(time, info={**time.info, **about})
    return {"step": time, "epoch": steps * time, "throughput": ranks * batch / time}


def metrics(
    workload: Workload,
    batch: int,
    ranks: int,
    scaling: Scaling,
    *,
    time: Samples,
    single: Samples,
    activity: Activity,
    parameters: int,
    ceiling: Samples,
) -> dict[str, Samples | float]:
    """All metrics of a point on several GPUs.

    batch: on each.  time, single: seconds a step on all, and on one alone.  parameters: of the model.  ceiling: seconds
    of an all-reduce of that many float32.
    """
    alone, together = _as_many(single, time)
    nbytes = FLOAT32 * parameters
    achieved = ring_bandwidth(nbytes, activity.reduction, ranks) if activity.reduction else 0.0
    highest = ring_bandwidth(nbytes, replace(ceiling, info={**ceiling.info, "parameters": parameters}), ranks)
    return {
        **single_metrics(workload, batch, ranks, time),
        "single": single,
        "speedup": speedup(scaling, alone, together, ranks),
        "efficiency": efficiency(scaling, alone, together, ranks),
        "computation": activity.computation,
        "communication": activity.communication,
        "exposed": activity.exposed,
        "idle": activity.idle,
        "subtracted": time.median - single.median / (1 if scaling == "weak" else ranks),
        "collective_share": activity.share,
        "bus_bandwidth": achieved,
        "ceiling": highest,
        "utilization": achieved / highest.median,
    }


def _as_many(first: Samples, second: Samples) -> tuple[Samples, Samples]:
    """Both cut to the length of the shorter: they were taken one after the other, so any pairing is as good."""
    count = min(len(first), len(second))
    return _cut(first, count), _cut(second, count)


def _cut(samples: Samples, count: int) -> Samples:
    return replace(samples, values=samples.values[:count], at=samples.at[:count])
