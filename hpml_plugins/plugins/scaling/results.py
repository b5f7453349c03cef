"""From measured times to the metrics of a point, the same for every way of training."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from hpml_plugins import Metric, Samples
from hpml_plugins.plugins.scaling.formulas import Scaling, efficiency, ring_bandwidth, speedup, steps_in_epoch
from hpml_plugins.plugins.scaling.workloads import Workload

if TYPE_CHECKING:
    from hpml_plugins.plugins.scaling.trace import Activity

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
#: What else a point says, once: in the series `profile`. A metric each would be a process each for asv.
PROFILE_UNITS = {"single": "s", "subtracted": "s", "idle": "s", "collective_share": "1", "utilization": "1"}


def single_metrics(workload: Workload, batch: int, ranks: int, time: Samples) -> dict[str, Samples]:
    """Step and epoch of `ranks` times `batch` images a step."""
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
    return {"step": time, "epoch": steps * time}


@dataclass(frozen=True)
class Measured:
    """What a way of training on several GPUs was found to take.

    time, single: seconds a step on all, and of the same code on one alone.  activity: of a profiled step, mean over
    GPUs.  parameters: of the model.  ceiling: seconds of an all-reduce of that many float32.
    """

    time: Samples
    single: Samples
    activity: Activity
    parameters: int
    ceiling: Samples


def metrics(
    workload: Workload, batch: int, ranks: int, scaling: Scaling, measured: Measured
) -> dict[str, Samples | float]:
    """All of METRICS. batch: on each GPU."""
    alone, together = _as_many(measured.single, measured.time)
    activity = measured.activity
    ceiling = replace(measured.ceiling, info={**measured.ceiling.info, "parameters": measured.parameters})
    return {
        **single_metrics(workload, batch, ranks, measured.time),
        "speedup": speedup(scaling, alone, together, ranks),
        "efficiency": efficiency(scaling, alone, together, ranks),
        "computation": activity.computation,
        "communication": activity.communication,
        "exposed": activity.exposed,
        "bus_bandwidth": _achieved(measured, ranks),
        "ceiling": ring_bandwidth(FLOAT32 * measured.parameters, ceiling, ranks),
    }


def profile_columns(ranks: int, scaling: Scaling, measured: Measured) -> dict[str, float]:
    """What else is to be said; PROFILE_UNITS.

    subtracted: the step less a perfectly scaled one, communication as the exercise calculates it.  single: median.
    idle: of a profiled step, nothing ran.  collective_share: collectives' kernels in all kernels' time.  utilization:
    bus bandwidth over its ceiling.
    """
    single = measured.single.median
    ceiling = ring_bandwidth(FLOAT32 * measured.parameters, measured.ceiling.median, ranks)
    return {
        "single": single,
        "subtracted": measured.time.median - single / (1 if scaling == "weak" else ranks),
        "idle": measured.activity.idle,
        "collective_share": measured.activity.share,
        "utilization": _achieved(measured, ranks) / ceiling,
    }


def _achieved(measured: Measured, ranks: int) -> float:
    seconds = measured.activity.reduction
    return float(ring_bandwidth(FLOAT32 * measured.parameters, seconds, ranks)) if seconds else 0.0


def _as_many(first: Samples, second: Samples) -> tuple[Samples, Samples]:
    """Both cut to the length of the shorter: they were taken one after the other, so any pairing is as good."""
    count = min(len(first), len(second))
    return _cut(first, count), _cut(second, count)


def _cut(samples: Samples, count: int) -> Samples:
    return replace(samples, values=samples.values[:count])
