"""The benchmark `memory_layers`: how many layers fit, on one GPU and on two."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from functools import partial
from typing import Any

from hpml_plugins import Bench, Benchmark, Metric, Requires
from hpml_plugins.plugins.memory.search import CARD, Trials, set_limit

#: (images, channels, height, width): the input in the report that introduced this search.
SHAPE = (16, 64, 112, 112)
#: Bytes of one activation in single precision: 16 · 64 · 112 · 112 · 4 = 51,380,224.
ACTIVATION = 51_380_224
MOST = 1 << 15
#: Largest error against float64, as a share of the result's norm. Convolutions may use TF32, whose
#: 10 bits of mantissa round each factor by up to 2**-11.
TOLERANCE = 5e-3
#: s of sampling a pass; a pass over a whole card takes long.
BUDGET = 1.0


def measure(bench: Bench, *, gpus: int, limit: float | str) -> dict[str, Any]:
    """The most layers, alternately convolution and linear, that run forward with all kept for a
    backward pass.

    gpus: the layers are split evenly, the second card continuing after the first.  limit: see
    `set_limit`.
    """
    import torch

    torch.manual_seed(bench.seed)
    stack = Stack([f"cuda:{number}" for number in range(gpus)])
    images = torch.randn(SHAPE, device="cuda:0")
    check_against_float64(bench, stack, images)
    trials = Trials(range(gpus))
    trials.survives(lambda: None)  # frees the memory of the check
    allowed = set_limit(bench, limit, range(gpus))

    def run(layers: int) -> None:
        stack.resize(layers)
        stack.forward(images)

    found, peaks = trials.largest(bench, run, "layers", allowed, most=MOST)

    def step() -> None:
        stack.forward(images)
        # the timer's events are on the first card, so they do not show when the last one is done
        if gpus > 1:
            torch.cuda.synchronize(gpus - 1)

    bench.progress("timing a pass", 0.8)
    whole = bench.time(step, launch="visible" if gpus > 1 else "hidden", budget=BUDGET)
    conv, linear = zip(*stack.counts(), strict=True)
    times = []
    for number, part in enumerate(stack.parts):
        there = images.to(stack.devices[number])
        with torch.cuda.device(number):
            torch.cuda.synchronize()
            times.append(
                bench.time(partial(part, there), budget=BUDGET, name=f"gpu {number}").median
            )
    columns = {"gpu": list(range(gpus)), "conv": conv, "linear": linear, "time": times}
    bench.series("cards", columns, {"gpu": "1", "conv": "1", "linear": "1", "time": "s"})
    return {
        "layers": found.largest,
        "conv": sum(conv),
        "linear": sum(linear),
        "layer": sum(peaks) / found.largest,
        "time": whole,
    }


def shares(layers: int, devices: int) -> list[int]:
    """Numbers of layers on each device: equal, or one more on the first ones."""
    return [layers // devices + (number < layers % devices) for number in range(devices)]


class Stack:
    """Any number of layers that keep the input's shape, on each device alternately convolutions and
    linear layers."""

    def __init__(self, devices: Sequence[str]) -> None:
        import torch

        self.devices = devices
        self.parts = [torch.nn.Sequential() for _ in devices]

    def resize(self, layers: int) -> None:
        """Resize it to `layers` layers over all devices; existing ones are kept."""
        import torch

        for part, device, wanted in zip(
            self.parts, self.devices, shares(layers, len(self.devices)), strict=True
        ):
            del part[wanted:]
            with torch.device(device):
                for place in range(len(part), wanted):
                    part.append(
                        torch.nn.Linear(112, 112)
                        if place % 2
                        else torch.nn.Conv2d(64, 64, 3, padding=1)
                    )

    def counts(self) -> list[tuple[int, int]]:
        """(convolutions, linear layers) on each device."""
        return [((len(part) + 1) // 2, len(part) // 2) for part in self.parts]

    def forward(self, values: Any) -> Any:
        """A forward pass through all layers, from device to device."""
        for part, device in zip(self.parts, self.devices, strict=True):
            values = part(values.to(device))
        return values


def check_against_float64(bench: Bench, stack: Stack, images: Any) -> None:
    """Compare the first layers, over all devices, with the same in float64 on one image."""
    import torch

    stack.resize(4)
    with torch.no_grad():
        ours = stack.forward(images[:1]).double().cpu()
        exact = images[:1].double().cpu()
        for part in stack.parts:
            exact = copy.deepcopy(part).double().cpu()(exact)
    error = float((ours - exact).norm() / exact.norm())
    bench.check(error <= TOLERANCE, "the layers' output differs from float64")


MEMORY_LAYERS = Benchmark(
    "memory_layers",
    measure,
    metrics=[
        Metric("layers", "1", "higher", "that fit, alternately convolution and linear"),
        Metric("conv", "1", "higher", "convolutions among them"),
        Metric("linear", "1", "higher", "linear layers among them"),
        Metric("layer", "B", "lower", "most that torch had allocated, over the layers"),
        Metric("time", "s", "lower", "of one forward pass through all"),
    ],
    grid={"gpus": (1, 2), "limit": (10.91, CARD)},
    requires=Requires(gpus="gpus", modules=("torch",)),
    timeout=300,
    description=(
        "How many convolutions and linear layers fit within 10.91 GiB and on a whole card, on one"
        " GPU and two."
    ),
    rounds=1,
)
