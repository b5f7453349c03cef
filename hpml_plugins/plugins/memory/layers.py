"""The benchmark `memory_layers`: how many layers fit, on one GPU and on two."""

from __future__ import annotations

from functools import partial
from typing import Any

from hpml_plugins import Bench, Benchmark, Metric, Requires, Samples
from hpml_plugins.plugins.memory.stack import SHAPE, Stack
from hpml_plugins.plugins.memory.trials import CARD, Trials, set_limit

MOST = 1 << 15
#: Largest error against float64, as a share of the result's norm. Convolutions may use TF32, whose 10 bits of mantissa
#: round each factor by up to 2**-11.
TOLERANCE = 5e-3
#: s of sampling a pass; a pass over a whole card takes long.
BUDGET = 1.0


def measure(bench: Bench, *, gpus: int, limit: float | str) -> dict[str, Any]:
    """The most layers, convolution and linear in turn, that can run forward with everything kept for a backward pass.

    The input is (16, 64, 112, 112) float32, and every layer keeps that shape. Only the forward pass runs, with
    gradients enabled: the report's 109 ms for 123 layers on its card are those of a forward pass.  gpus: the layers are
    split evenly, the second card going on where the first ends.  limit: GiB that torch may have of each card, or
    "card". time: of one pass at the most layers.
    """
    import torch

    from hpml_plugins.plugins.memory.search import largest_that_fits

    torch.manual_seed(bench.seed)
    devices = [f"cuda:{number}" for number in range(gpus)]
    stack = Stack(devices)
    images = torch.randn(SHAPE, device=devices[0])
    check_against_float64(bench, stack, images)
    trials = Trials(range(gpus))
    trials.survives(lambda: None)  # gives back what the check took
    allowed = set_limit(bench, limit, range(gpus))

    def run(layers: int) -> None:
        stack.resize(layers)
        stack.forward(images)

    def fits(layers: int) -> bool:
        bench.progress(f"{layers} layers")
        return trials.survives(lambda: run(layers))

    found = largest_that_fits(fits, start=1, most=MOST)
    bench.check(found.largest > 0, "not even one layer fits")
    for device in devices:
        torch.cuda.reset_peak_memory_stats(device)
    bench.check(fits(found.largest), "what fitted once does not fit again")
    peaks = [float(torch.cuda.max_memory_allocated(device)) for device in devices]
    bench.check(max(peaks) <= allowed, "more was allocated than the limit allows")
    if found.too_large is None:
        bench.warn(f"the search ended at its bound: more than {MOST} layers may fit")
    for refusal in dict.fromkeys(trials.refusals):
        bench.warn(f"a stack failed, not for want of memory: {refusal}")

    conv, linear = (sum(counts) for counts in zip(*stack.counts(), strict=True))
    whole = _time(bench, stack, images)
    bench.series("cards", _each_card(bench, stack, images), {"gpu": "1", "conv": "1", "linear": "1", "time": "s"})
    return {
        "layers": found.largest,
        "conv": conv,
        "linear": linear,
        "layer": sum(peaks) / found.largest,
        "time": whole,
    }


def check_against_float64(bench: Bench, stack: Stack, images: Any) -> None:
    """Hold the first layers, over all devices, against the same in float64 on one image."""
    import copy

    import torch

    stack.resize(4)
    one = images[:1]
    with torch.no_grad():
        ours = stack.forward(one).double().cpu()
        exact = one.double().cpu()
        for part in stack.parts():
            for layer in part:
                exact = copy.deepcopy(layer).double().cpu()(exact)
    error = float((ours - exact).norm() / exact.norm())
    bench.check(error <= TOLERANCE, "the layers' output differs from float64")


def _time(bench: Bench, stack: Stack, images: Any) -> Samples:
    import torch

    last = len(stack.devices) - 1

    def step() -> None:
        stack.forward(images)
        if last:  # the timer's events are on the first card: it cannot see when the last one is done
            torch.cuda.synchronize(last)

    bench.progress("timing a pass", 0.8)
    return bench.time(step, launch="visible" if last else "hidden", budget=BUDGET, name="time")


def _each_card(bench: Bench, stack: Stack, images: Any) -> dict[str, list[float]]:
    """Layers on each card and the time of a pass through them alone, their input already there."""
    import torch

    columns: dict[str, list[float]] = {"gpu": [], "conv": [], "linear": [], "time": []}
    for number, (conv, linear) in enumerate(stack.counts()):
        there = images.to(stack.devices[number])
        with torch.cuda.device(number):
            torch.cuda.synchronize()
            time = bench.time(partial(stack.part, number, there), budget=BUDGET, name=f"gpu {number}")
        for name, value in {"gpu": number, "conv": conv, "linear": linear, "time": time.median}.items():
            columns[name].append(value)
    return columns


MEMORY_LAYERS = Benchmark(
    "memory_layers",
    measure,
    metrics=[
        Metric("layers", "1", "higher", "that fit, convolution and linear in turn"),
        Metric("conv", "1", "higher", "convolutions among them"),
        Metric("linear", "1", "higher", "linear layers among them"),
        Metric("layer", "B", "lower", "most that torch had allocated, over the layers"),
        Metric("time", "s", "lower", "of one forward pass through all"),
    ],
    grid={"gpus": (1, 2), "limit": (10.91, CARD)},
    requires=Requires(gpus="gpus", modules=("torch",)),
    version="1",
    timeout=300,
    description="How many convolutions and linear layers fit within 10.91 GiB and on a whole card, on one GPU and two.",
    rounds=1,
)
