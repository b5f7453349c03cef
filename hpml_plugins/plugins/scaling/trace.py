"""What a profile says of computing and communicating: read from the Chrome trace of torch.profiler.

The trace's fields: `cat` kernel, gpu_memcpy, gpu_memset (on a GPU, `args.device`), cpu_op and user_annotation (on the
host); `ts` and `dur` in µs.  Source: pytorch/kineto, libkineto/src/output_json.cpp.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from statistics import fmean
from typing import Any

from hpml_plugins.plugins.scaling.intervals import Interval, intersection, length, union

Event = Mapping[str, Any]
_ON_GPU = ("kernel", "gpu_memcpy", "gpu_memset")


@dataclass(frozen=True)
class Activity:
    """Where the time of one step of one GPU (or process) went, s.

    span: from the first thing done to the last, over the steps.  computation, communication: at least one thing of the
    kind was running; copies from the host or within the GPU are computation, as in the exercise.  overlapped: both were
    at once.  reduction: all-reduce alone.  collectives, kernels: durations added up, whatever ran at once.
    """

    span: float
    computation: float
    communication: float
    overlapped: float
    reduction: float
    collectives: float
    kernels: float

    @property
    def exposed(self) -> float:
        """Communication with nothing being computed meanwhile: what a faster link could save at most."""
        return self.communication - self.overlapped

    @property
    def idle(self) -> float:
        """Nothing ran: the GPU waited for the host."""
        return self.span - self.computation - self.exposed

    @property
    def share(self) -> float:
        """Of all kernels' time, that of the collectives'; 0 where nothing ran."""
        return self.collectives / self.kernels if self.kernels else 0.0


def gpu_activities(events: Iterable[Event], steps: int) -> dict[int, Activity]:
    """GPU → where the time of one of the profiled `steps` went."""
    by_gpu: dict[int, list[Event]] = {}
    for event in events:
        if event.get("ph") == "X" and event.get("cat") in _ON_GPU:
            by_gpu.setdefault(_device(event), []).append(event)
    return {gpu: _activity(of_gpu, steps) for gpu, of_gpu in sorted(by_gpu.items())}


def _device(event: Event) -> int:
    """The GPU that did it. A copy from GPU to GPU names three: fromDevice, toDevice, and the one that copied."""
    told = event["args"]
    return int(told["device"] if "device" in told else told["inDevice"])


def cpu_activity(events: Iterable[Event], steps: int) -> Activity:
    """The same of one process over gloo: its operators, and the collectives of gloo's threads."""
    own = [
        event
        for event in events
        if event.get("ph") == "X" and (str(event.get("name", "")).startswith("gloo:") or _is_operator(event))
    ]
    return _activity(own, steps)


def host_ranges(events: Iterable[Event], names: Sequence[str], steps: int) -> dict[str, float]:
    """Name → s a step that the host spent in `record_function` ranges of this name; 0 where there was none."""
    spent = dict.fromkeys(names, 0.0)
    for event in events:
        if event.get("ph") == "X" and event.get("cat") == "user_annotation" and event.get("name") in spent:
            spent[event["name"]] += float(event["dur"]) * 1e-6 / steps
    return spent


def mean_activity(activities: Iterable[Activity]) -> Activity:
    """Field by field the mean over GPUs or ranks."""
    many = list(activities)
    return Activity(**{field.name: fmean(getattr(one, field.name) for one in many) for field in fields(Activity)})


def is_collective(event: Event) -> bool:
    """NCCL's kernels, gloo's ranges, and copies from GPU to GPU."""
    name = str(event["name"])
    return name.lower().startswith("nccl") or name.startswith(("gloo:", "Memcpy PtoP"))


def is_reduction(event: Event) -> bool:
    """An all-reduce or a reduce, by NCCL's or gloo's name for it."""
    name = str(event["name"]).lower().replace("_", "")
    return is_collective(event) and "reduce" in name and "reducescatter" not in name


def _activity(events: Sequence[Event], steps: int) -> Activity:
    shared = [event for event in events if is_collective(event)]
    own = [event for event in events if not is_collective(event)]
    computation, communication = _times(own), _times(shared)
    everything = union([*computation, *communication])
    span = everything[-1][1] - everything[0][0] if everything else 0.0
    kernels = [event for event in events if event.get("cat") not in ("gpu_memcpy", "gpu_memset")]
    return Activity(
        span=span / steps,
        computation=length(computation) / steps,
        communication=length(communication) / steps,
        overlapped=length(intersection(computation, communication)) / steps,
        reduction=length(_times(event for event in shared if is_reduction(event))) / steps,
        collectives=_added(event for event in kernels if is_collective(event)) / steps,
        kernels=_added(kernels) / steps,
    )


def _is_operator(event: Event) -> bool:
    return event.get("cat") == "cpu_op" and str(event["name"]).startswith("aten::")


def _times(events: Iterable[Event]) -> list[Interval]:
    return [(float(event["ts"]) * 1e-6, (float(event["ts"]) + float(event["dur"])) * 1e-6) for event in events]


def _added(events: Iterable[Event]) -> float:
    return sum(float(event["dur"]) for event in events) * 1e-6
