"""Timing a deployed network over batches, as it is or compiled. Imports torch: imported on use only."""

from __future__ import annotations

import importlib
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from hpml_plugins import Bench, Samples
from hpml_plugins.plugins.quantization.methods import Deployed
from hpml_plugins.plugins.quantization.subjects import Subject

#: Batches that are tried. Each is compiled anew, which takes long: fewer there.
BATCHES = {
    ("cuda", "eager"): (1, 16, 64, 256),
    ("cuda", "compile"): (1, 64),
    ("cpu", "eager"): (1, 8, 32),
    ("cpu", "compile"): (1, 8),
}
#: A batch that would take longer than this, s, is left out.
LONGEST = 2.0
BUDGET = 0.4


@dataclass(frozen=True)
class Timed:
    """One batch. step: the network on it, to be repeated."""

    batch: int
    time: Samples
    step: Callable[[], Any]


def prepared(network: Any, device: str, runtime: str) -> Any:
    """The network as it will be called. "compile": by torch.compile, on CUDA replaying a CUDA graph."""
    if runtime == "eager":
        return network
    if device == "cuda":
        return torch.compile(network, mode="reduce-overhead", dynamic=False)
    # Weights become constants, which pt2e's fusions need. As an option of torch.compile it does not reach all of it.
    inductor: Any = importlib.import_module("torch._inductor.config")
    inductor.freezing = True
    return torch.compile(network, dynamic=False)


def images_of(batch: int, subject: Subject, dtype: Any, device: str, seed: int) -> Any:
    """Random images for timing, laid out as the network is."""
    generator = torch.Generator(device).manual_seed(seed)
    images = torch.randn(batch, *subject.timed, generator=generator, device=device).to(dtype)
    return images.to(memory_format=torch.channels_last) if device == "cuda" else images


def time_batches(bench: Bench, deployed: Deployed, subject: Subject, runtime: str) -> list[Timed]:
    """Every batch that runs and is not too long; the launching counts, as it does for who waits for an answer.

    That is in the point's first round; the others time the first of them and the best.
    Compiled results are held against the plain network's. A batch that raises is named in a warning.
    """
    timed: list[Timed] = []

    def find_best() -> list[int]:
        timed.extend(_time_each(bench, deployed, subject, runtime, BATCHES[bench.device, runtime], LONGEST))
        best = max(timed, key=lambda each: each.batch / each.time.median, default=None)
        return sorted({timed[0].batch, best.batch}) if best else []

    batches = bench.once("batches", find_best)
    return timed or _time_each(bench, deployed, subject, runtime, batches)


def _time_each(
    bench: Bench,
    deployed: Deployed,
    subject: Subject,
    runtime: str,
    batches: Sequence[int],
    longest: float = math.inf,
) -> list[Timed]:
    plainly = deployed.timed or deployed.network
    run = prepared(plainly, bench.device, runtime)
    timed: list[Timed] = []
    for number, batch in enumerate(batches):
        if timed and timed[-1].time.median * batch / timed[-1].batch > longest:
            break
        bench.progress(f"{runtime}, batch {batch}", 0.4 + 0.5 * number / len(batches))
        images = images_of(batch, subject, deployed.dtype, bench.device, bench.seed)

        def step(images: Any = images) -> Any:
            with torch.no_grad():
                return run(images)

        try:
            found = step().float()
        except Exception as error:
            bench.warn(f"batch {batch} does not run: {type(error).__name__}: {str(error).splitlines()[0][:200]}")
            continue
        if runtime == "compile":
            with torch.no_grad():
                plain = plainly(images).float()
            bench.check(_apart(found, plain) < _MAY_DIFFER, "the compiled network's logits differ from the plain one's")
        timed.append(Timed(batch, bench.time(step, launch="visible", budget=BUDGET, name=f"batch {batch}"), step))
    return timed


#: Compiled code rounds in other places, and a rounding apart is a step of the grid.
_MAY_DIFFER = 0.2


def _apart(found: Any, wanted: Any) -> float:
    return float((found - wanted).norm() / wanted.norm())
