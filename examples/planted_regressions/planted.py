"""The plugin of the exercise: three workloads of the commit's own package, on the CPU and on a GPU.

A series is one workload at one `percent`: from the commit that plants its slow-down on, the step
does so many percent more work. The series `percent=0` never changes.
"""

from __future__ import annotations

from hpml_plugins import Bench, Benchmark, Metric, Requires, Samples, hookimpl

PERCENT = [0, 3, 10, 30]


def measure_kernel(bench: Bench, *, percent: int) -> dict[str, Samples]:
    """A loop of kernels in place on one array."""
    return _measure(bench, "kernel", percent)


def measure_copy(bench: Bench, *, percent: int) -> dict[str, Samples]:
    """A kernel that streams an array; the slow-down copies a part of the array to the host."""
    return _measure(bench, "copy", percent)


def measure_data(bench: Bench, *, percent: int) -> dict[str, Samples]:
    """A batch of images is decoded on the host and copied to the device; the slow-down decodes some
    twice."""
    return _measure(bench, "data", percent)


def _measure(bench: Bench, workload: str, percent: int) -> dict[str, Samples]:
    import torch
    from planted_work import make_step  # the commit's

    torch.set_num_threads(1)
    step, result, expected = make_step(workload, percent, bench.device)
    step()
    bench.check(
        torch.allclose(bench.result(result()).double(), expected(), atol=1e-5),
        f"{workload} is wrong",
    )
    # the host decodes: its time belongs to the step
    visible = workload == "data" and bench.device == "cuda"
    return {"time": bench.time(step, launch="visible" if visible else "hidden")}


@hookimpl
def hpml_benchmarks() -> list[Benchmark]:
    """Each workload for each device."""
    measures = {"kernel": measure_kernel, "copy": measure_copy, "data": measure_data}
    devices = {
        "cpu": Requires(modules=("torch",)),
        "cuda": Requires(gpus=1, modules=("torch",)),
    }
    return [
        Benchmark(
            f"{workload}_{device}",
            measure,
            [Metric("time", "s", "lower")],
            grid={"percent": PERCENT},
            requires=requires,
            description=measure.__doc__ or "",
            timeout=120,
        )
        for workload, measure in measures.items()
        for device, requires in devices.items()
    ]
