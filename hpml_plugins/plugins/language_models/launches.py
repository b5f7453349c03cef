"""The benchmarks `lm_launches` and `lm_launches_cpu`: how many kernels the parts of a step launch,
and the time that launching as many takes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from hpml_plugins import Bench, HpmlError, Metric
from hpml_plugins.plugins.language_models.explanation import (
    EXPLAINED,
    EXPLAINED_CPU,
    RUNGS,
    with_inference,
    with_training,
)

#: Kernels that do next to nothing, one after another; their mean is the time of one.
TINY_KERNELS = 1000
#: Calls of a step before its kernels are counted: they compile and initialise libraries.
CALLS_BEFORE = 2
#: s of sampling, all rounds together.
BUDGET = 0.5
#: Events on a GPU that are not launched.
WAITING = ("Context Sync",)


def measure(bench: Bench, *, rung: str) -> Mapping[str, Any]:
    """Count the kernels of a step and of its parts, and time a tiny kernel among others.

    torch's profiler counts: kernels, copies and fills on a GPU; on a CPU, operations that no other
    operation calls.

    `gap` is the time of one of 1000 additions to a single number, on a GPU in one CUDA graph. It
    includes the addition itself, and a kernel that starts while the previous one ends waits less:
    `gaps` is the most that launching contributes to the sum of the parts' times.
    """
    if rung not in RUNGS:
        raise HpmlError(f"no rung {rung!r}; use one of {', '.join(RUNGS)}")
    wanted = RUNGS[rung]
    bench.progress("filling and compiling", 0.0)
    build = with_training if wanted.kind == "training" else with_inference
    whole = build(bench, wanted)
    launches = count_launches(bench, whole.step)
    counts: dict[str, int] = {}
    for number, part in enumerate(whole.parts):
        bench.progress(part.name, 0.3 + 0.6 * number / len(whole.parts))
        counts[part.name] = part.count * count_launches(bench, part.step)
    gap = bench.time(tiny_kernels(bench), budget=BUDGET, name="gap") / TINY_KERNELS
    columns: dict[str, list[float | str]] = {
        "part": list(counts),
        "launches": [float(count) for count in counts.values()],
    }
    bench.series("launches", columns, {"launches": "1"})
    of_parts = sum(counts.values())
    return {
        "launches": launches,
        "of_parts": of_parts,
        "gap": gap,
        "gaps": of_parts * gap,
    }


def count_launches(bench: Bench, step: Callable[[], Any]) -> int:
    """What one call of the step launches. Raises HpmlError if the profiler sees nothing."""
    import torch
    from torch.autograd import DeviceType
    from torch.profiler import ProfilerActivity, profile

    on_gpu = bench.device != "cpu"
    for _ in range(CALLS_BEFORE):
        step()
    if on_gpu:
        torch.cuda.synchronize()
    activity = ProfilerActivity.CUDA if on_gpu else ProfilerActivity.CPU
    with profile(activities=[activity]) as profiler:
        step()
        if on_gpu:
            torch.cuda.synchronize()
    events = profiler.events()
    if on_gpu:
        launched = [
            each
            for each in events
            if each.device_type == DeviceType.CUDA and each.name not in WAITING
        ]
    else:
        launched = [each for each in events if each.cpu_parent is None]
    if not launched:
        raise HpmlError("torch's profiler sees no kernels; another profiler may be using the GPU")
    return len(launched)


def tiny_kernels(bench: Bench) -> Callable[[], Any]:
    """A step of TINY_KERNELS additions to one number, each after the previous one."""
    import torch

    number = torch.zeros(1, device=bench.device)

    def step() -> None:
        for _ in range(TINY_KERNELS):
            number.add_(1)

    step()
    bench.check(float(bench.result(number)[0]) == TINY_KERNELS, "the number of additions is wrong")
    if bench.device == "cpu":
        return step
    from hpml_plugins.plugins.language_models.inference import captured

    return captured(step)[0]


LAUNCHES = replace(
    EXPLAINED,
    name="lm_launches",
    measure=measure,
    metrics=(
        Metric("launches", "1", "lower", "kernels of a step"),
        Metric("of_parts", "1", "lower", "kernels of its parts, each by itself"),
        Metric("gap", "s", "lower", "of a kernel that does next to nothing, among others"),
        Metric("gaps", "s", "lower", "of_parts times gap: the most that launching contributes"),
    ),
    description=(
        "The kernels of a decode step, a prompt and a training step, and the time of as many that"
        " do nothing, on one GPU."
    ),
)
LAUNCHES_CPU = replace(
    EXPLAINED_CPU,
    name="lm_launches_cpu",
    measure=measure,
    metrics=LAUNCHES.metrics,
    description="The operations of the steps of tiny decoders on the CPU, and the time of calls.",
)
