"""The breakdown of a step's time: a few steps under torch.profiler, read from its Chrome trace.

The trace's fields: `cat` kernel, gpu_memcpy, gpu_memset (on a GPU, `args.device`), cpu_op and
user_annotation (on the host); `ts` and `dur` in µs.  Source: pytorch/kineto,
libkineto/src/output_json.cpp.
"""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from statistics import fmean
from typing import Any

Event = Mapping[str, Any]
Interval = tuple[int, int]
#: The breakdown of the time of one step on one GPU (or process), s. span: from the first event to
#: the last, over the steps.  computation, communication: at least one event of the kind was
#: running; copies from the host or within the GPU are computation, as in the coursework.
#: overlapped: both were at once.  exposed: only communication.  idle: nothing ran, the GPU waited
#: for the host.  reduction: only all-reduce. collectives, kernels: sums of durations, including
#: concurrent ones.
Activity = dict[str, float]

WARM_UP, ACTIVE = 2, 5
#: A folder that keeps the Chrome traces, for chrome://tracing or Perfetto; none is kept without it.
KEEP_TRACE = "HPML_SCALING_TRACES"
_ON_GPU = ("kernel", "gpu_memcpy", "gpu_memset")


def profiled(
    step: Callable[[], None], name: str, *, gpus: Sequence[int], host: bool
) -> list[Event]:
    """Complete events of `ACTIVE` steps, after `WARM_UP` profiled steps that are discarded. All
    ranks call it in the same way.

    name: of the trace's file, if it is kept.  gpus: that the process uses.  host: whether to
    profile the host, at some cost.
    """
    from torch.cuda import synchronize
    from torch.profiler import ProfilerActivity, profile, schedule

    activities = [ProfilerActivity.CUDA] * bool(gpus) + [ProfilerActivity.CPU] * host
    with tempfile.TemporaryDirectory(prefix="hpml-trace-") as folder:
        path = Path(os.environ.get(KEEP_TRACE) or folder, f"{name}.json")
        path.parent.mkdir(parents=True, exist_ok=True)
        with profile(
            activities=activities,
            schedule=schedule(wait=0, warmup=WARM_UP, active=ACTIVE, repeat=1),
            on_trace_ready=lambda profiler: profiler.export_chrome_trace(str(path)),
        ) as profiler:
            for number in range(WARM_UP + ACTIVE):
                step()
                if number in (WARM_UP - 1, WARM_UP + ACTIVE - 1):
                    for gpu in gpus:
                        synchronize(gpu)  # no step's work may cross the bounds of the kept steps
                profiler.step()
        return [
            event for event in json.loads(path.read_text())["traceEvents"] if event.get("ph") == "X"
        ]


def gpu_activities(events: Iterable[Event], steps: int = ACTIVE) -> dict[int, Activity]:
    """GPU → breakdown of the time of one of the profiled `steps`."""
    by_gpu: dict[int, list[Event]] = {}
    for event in events:
        if event.get("cat") in _ON_GPU:
            # A copy from GPU to GPU names three: fromDevice, toDevice, and inDevice, the one that
            # copied.
            args = event["args"]
            by_gpu.setdefault(int(args.get("device", args.get("inDevice"))), []).append(event)
    return {gpu: _activity(of_gpu, steps) for gpu, of_gpu in sorted(by_gpu.items())}


def gpu_use(events: Iterable[Event]) -> dict[str, float]:
    """How well the kernels used one GPU, as estimated by torch's profiler, each from 0 to 1.

    utilisation: share of the time from the first event to the last in which any ran. sm_efficiency:
    the time of kernels, each weighted with its blocks per multiprocessor up to 1, over the same
    time.  occupancy: warps resident on a multiprocessor over the most that it can hold, mean over
    the kernels' time. Source: pytorch/kineto, tb_plugin/docs/gpu_utilization.md.
    """
    on_gpu = [event for event in events if event.get("cat") in _ON_GPU]
    times = _times(on_gpu)
    span = max(end for _, end in times) - min(start for start, _ in times)
    kernels = [event for event in on_gpu if event["cat"] == "kernel"]
    took = [end - start for start, end in _times(kernels)]

    def weighted(name: str, most: float) -> float:
        return sum(
            min(float(event["args"].get(name, 0.0)), most) / most * time
            for event, time in zip(kernels, took, strict=True)
        )

    return {
        "utilisation": length(times) / span,
        "sm_efficiency": weighted("blocks per SM", 1.0) / span,
        "occupancy": weighted("est. achieved occupancy %", 100.0) / sum(took),
    }


def cpu_activity(events: Sequence[Event], steps: int = ACTIVE) -> Activity:
    """The breakdown for one process over gloo: its operators, and the collectives of gloo's
    threads."""
    operators = [
        event
        for event in events
        if event.get("cat") == "cpu_op" and event["name"].startswith("aten::")
    ]
    return _activity(
        operators + [event for event in events if event["name"].startswith("gloo:")], steps
    )


def host_ranges(
    events: Iterable[Event], names: Sequence[str], steps: int = ACTIVE
) -> dict[str, float]:
    """Name → s per step that the host spent in `record_function` ranges of this name; 0 if there
    was none."""
    spent = dict.fromkeys(names, 0.0)
    for event in events:
        if event.get("cat") == "user_annotation" and event.get("name") in spent:
            spent[event["name"]] += float(event["dur"]) * 1e-6 / steps
    return spent


def mean_activity(activities: Iterable[Activity]) -> Activity:
    """The mean over GPUs or ranks, of each time."""
    many = list(activities)
    return {name: fmean(one[name] for one in many) for name in many[0]}


def _activity(events: Sequence[Event], steps: int) -> Activity:
    times = _times(events)
    collectives = [event for event in events if _is_collective(event)]
    kernels = [event for event in events if event.get("cat") not in ("gpu_memcpy", "gpu_memset")]
    span = max((end for _, end in times), default=0) - min((start for start, _ in times), default=0)
    busy = length(times)
    computation = length(_times(event for event in events if not _is_collective(event)))
    communication = length(_times(collectives))
    nanoseconds = {
        "span": span,
        "computation": computation,
        "communication": communication,
        "overlapped": computation + communication - busy,
        "exposed": busy - computation,
        "idle": span - busy,
        "reduction": length(_times(event for event in collectives if _is_reduction(event))),
        "collectives": sum(end - start for start, end in _times(filter(_is_collective, kernels))),
        "kernels": sum(end - start for start, end in _times(kernels)),
    }
    return {name: value * 1e-9 / steps for name, value in nanoseconds.items()}


def _is_collective(event: Event) -> bool:
    """NCCL's kernels, gloo's ranges, and copies from GPU to GPU."""
    name = str(event["name"])
    return name.lower().startswith("nccl") or name.startswith(("gloo:", "Memcpy PtoP"))


def _is_reduction(collective: Event) -> bool:
    """An all-reduce or a reduce, by NCCL's or gloo's name for it."""
    name = str(collective["name"]).lower().replace("_", "")
    return "reduce" in name and "reducescatter" not in name


def _times(events: Iterable[Event]) -> list[Interval]:
    """Start and end, ns: whole numbers, so that sums and differences are exact."""
    return [
        (round(event["ts"] * 1e3), round((event["ts"] + event["dur"]) * 1e3)) for event in events
    ]


def length(intervals: Iterable[Interval]) -> int:
    """Their total length; overlaps count once.

    Raises ValueError for an interval that ends before it starts.
    """
    total, reached = 0, None
    for start, end in sorted(intervals):
        if end < start:
            raise ValueError(f"interval ({start}, {end}) ends before it starts")
        reached = start if reached is None else max(reached, start)
        total += max(0, end - reached)
        reached = max(reached, end)
    return total
