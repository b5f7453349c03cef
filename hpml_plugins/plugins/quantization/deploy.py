"""The benchmarks `quantization_deploy_cuda` and `quantization_deploy_cpu`: a network quantized by a
library."""

from __future__ import annotations

import io
import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from hpml_plugins import Bench, Benchmark, HpmlError, Metric, Requires, Samples

MODELS = ("simple", "resnet18", "resnet50")
DATA = ("digits", "cifar10", "cifar10-jpeg")
#: By device; all but the first two are torchao's, or, fx, torch.ao's graph mode.  pt2e: its
#: successor, in torchao.
_BOTH = ("float32", "bfloat16", "int8_weight_only", "int8_dynamic", "int8_static")
METHODS = {
    "cuda": (*_BOTH, "float8_weight_only", "float8_dynamic"),
    "cpu": (*_BOTH, "fx_dynamic", "fx_static", "pt2e_static"),
}
RUNTIMES = ("eager", "compile")
#: Batches that are tried; fewer for compiled networks, because each batch is compiled separately,
#: which takes long.
BATCHES = {
    ("cuda", "eager"): (1, 16, 64, 256),
    ("cuda", "compile"): (1, 64),
    ("cpu", "eager"): (1, 8, 32),
    ("cpu", "compile"): (1, 8),
}
#: A batch that would take longer than this, s, is left out.
LONGEST = 2.0
BUDGET = 0.4
#: |logits − float32's| / |float32's| above which a method has not merely quantized. float32's own
#: copy may have another memory layout, and TF32 then rounds in another order.
MOST_ERROR = {"float32": 5e-3, "bfloat16": 0.1, "int8_weight_only": 0.1}
MOST_ERROR_OF_OTHERS = 0.5
#: The same between compiled and plain: compiled code rounds at other points, by a step of the grid.
MOST_ERROR_COMPILED = 0.2


def measure(bench: Bench, *, model: str, data: str, method: str, runtime: str) -> dict[str, Any]:
    """Quantize a network after training, test it on the test images, and time it.

    method: of METHODS.  runtime: "eager", as torch runs it operation by operation, or "compile", by
    torch.compile.
    """
    from hpml_plugins.plugins.quantization.methods import deploy
    from hpml_plugins.plugins.quantization.networks import logits, prepare, share

    for what, name, known in (
        ("network", model, MODELS),
        ("method", method, METHODS[bench.device]),
    ):
        if name not in known:
            raise HpmlError(f"no {what} {name!r} on {bench.device}; use one of {', '.join(known)}")
    if reason := lacks(method, runtime):
        bench.skip(reason)
    subject = prepare(bench, model, data)
    wanted = logits(subject.network, subject.test)[:, : subject.classes]
    bench.progress(f"quantizing by {method}", 0.3)
    try:
        judged, timed, dtype = deploy(bench, subject, method)
    except ImportError as missing:
        bench.skip(f"{method} does not import: {missing}")
    found = bench.result(logits(judged, subject.test, dtype)[:, : subject.classes])
    error = relative_error(found, wanted)
    most = MOST_ERROR.get(method, MOST_ERROR_OF_OTHERS)
    bench.check(error <= most, f"logits differ from float32's by {error:.2g} of their length")
    size = size_of(judged)  # before it may be compiled
    batches = time_batches(bench, timed, dtype, subject.timed, runtime)
    columns: dict[str, list[float]] = {
        "batch": [each.batch for each in batches],
        "time": [each.time.median for each in batches],
        "throughput": [each.throughput.median for each in batches],
    }
    bench.series("batches", columns, {"batch": "1", "time": "s", "throughput": "1/s"})
    best = max(batches, key=lambda each: each.throughput.median)
    attach_energy(bench, best)
    return {
        "accuracy": share(found.argmax(1) == subject.labels),
        "agreement": share(found.argmax(1) == wanted.argmax(1)),
        "error": error,
        "size": size,
        "latency": batches[0].time,
        "throughput": best.throughput,
        "best_batch": best.batch,
    }


def lacks(method: str, runtime: str) -> str:
    """Why a method cannot be run this way; empty if it can."""
    if method == "pt2e_static" and runtime == "eager":
        return "pt2e leaves int8 kernels to torch.compile: use runtime=compile"
    if method.startswith("fx") and runtime == "compile":
        return "torch.ao's int8 operations run eagerly and are not compiled: use runtime=eager"
    return ""


def relative_error(found: Any, wanted: Any) -> float:
    """|found − wanted| / |wanted|."""
    return float((found - wanted).norm() / wanted.norm())


def size_of(network: Any) -> int:
    """Bytes of the network's state as torch saves it: weights, scales, and their names."""
    import torch

    file = io.BytesIO()
    torch.save(network.state_dict(), file)
    return len(file.getvalue())


class Timed(NamedTuple):
    """One batch. step: the network on it, to be repeated."""

    batch: int
    time: Samples
    throughput: Samples
    step: Callable[[], Any]


def time_batches(
    bench: Bench, network: Any, dtype: Any, shape: Sequence[int], runtime: str
) -> list[Timed]:
    """Time, in the point's first round, every batch that runs and is not too long; in others the
    first of them and the best.

    The time includes launching.  dtype, shape: of an input image. A warning names batches that
    raise; the point is skipped if none runs.
    """
    import torch

    from hpml_plugins.plugins.quantization.networks import memory_format

    run = compiled(network, bench.device) if runtime == "compile" else network
    timed: list[Timed] = []

    def time_each(batches: Sequence[int], longest: float = math.inf) -> None:
        problem = ""
        for number, batch in enumerate(batches):
            if timed and timed[-1].time.median * batch / timed[-1].batch > longest:
                break
            bench.progress(f"{runtime}, batch {batch}", 0.4 + 0.5 * number / len(batches))
            generator = torch.Generator(bench.device).manual_seed(bench.seed)
            images = torch.randn(batch, *shape, generator=generator, device=bench.device)
            images = images.to(dtype=dtype, memory_format=memory_format(bench.device))

            def step(images: Any = images) -> Any:
                with torch.no_grad():
                    return run(images)

            try:
                found = step().float()
            except Exception as error:
                problem = (
                    f"batch {batch} does not run: {type(error).__name__}:"
                    f" {str(error).splitlines()[0][:200]}"
                )
                bench.warn(problem)
                continue
            if runtime == "compile":
                with torch.no_grad():
                    close = relative_error(found, network(images).float()) < MOST_ERROR_COMPILED
                bench.check(close, "the compiled network's logits differ from the plain one's")
            time = bench.time(step, launch="visible", budget=BUDGET, name=f"batch {batch}")
            timed.append(Timed(batch, time, batch / time, step))
        if not timed:
            bench.skip(f"no batch runs here: {problem}")

    def find_best() -> list[int]:
        time_each(BATCHES[bench.device, runtime], LONGEST)
        return sorted({timed[0].batch, max(timed, key=lambda each: each.throughput.median).batch})

    batches = bench.once("batches", find_best)
    if not timed:
        time_each(batches)
    return timed


def attach_energy(bench: Bench, timed: Timed) -> None:
    """The series `energy`, of the point's first round: J per image and mean power of the whole card
    or CPU packages."""

    def measure_energy() -> dict[str, list[float]]:
        bench.progress("energy", 0.9)
        if (found := bench.energy(timed.step)) is None:
            return {}
        joules, power, calls = (float(found.info[name]) for name in ("gross", "power", "calls"))
        return {"energy": [joules / timed.batch], "power": [power], "images": [calls * timed.batch]}

    if columns := bench.once("energy", measure_energy):
        bench.series("energy", columns, {"energy": "J", "power": "W", "images": "1"})


def compiled(network: Any, device: str) -> Any:
    """By torch.compile, on CUDA replaying a CUDA graph."""
    import torch._inductor.config

    if device == "cuda":
        return torch.compile(network, mode="reduce-overhead", dynamic=False)
    # Weights become constants, which pt2e's fusions need. As an option of torch.compile it does not
    # apply everywhere.
    torch._inductor.config.freezing = True
    return torch.compile(network, dynamic=False)


DEPLOY_CUDA = Benchmark(
    "quantization_deploy_cuda",
    measure,
    metrics=[
        Metric("accuracy", "1", "higher", "of the test images", (0, 1)),
        Metric(
            "agreement",
            "1",
            "higher",
            "share of the test images to which float32 gives the same class",
            (0, 1),
        ),
        Metric(
            "error",
            "1",
            "lower",
            "|logits − float32's| / |float32's|; −20 log₁₀ of it is the ratio in dB",
        ),
        Metric("size", "B", "lower", "of the network's state, as torch saves it"),
        Metric(
            "latency",
            "s",
            "lower",
            "one image, or the smallest batch that runs, launching included",
        ),
        Metric("throughput", "1/s", "higher", "images over time at the best batch"),
        Metric("best_batch", "1", None, "of those tried"),
    ],
    grid={"model": MODELS, "data": DATA, "method": METHODS["cuda"], "runtime": RUNTIMES},
    requires=Requires(gpus=1, data="data", modules=("torch", "torchvision", "torchao")),
    timeout=400,
    description=(
        "Networks quantized after training by torchao on a GPU: accuracy, size, latency,"
        " throughput, energy."
    ),
)
DEPLOY_CPU = replace(
    DEPLOY_CUDA,
    name="quantization_deploy_cpu",
    grid={**DEPLOY_CUDA.grid, "method": METHODS["cpu"]},
    requires=replace(DEPLOY_CUDA.requires, gpus=0),
    timeout=600,
    description="The same on the CPU, by torchao, torch.ao's FX mode and export (pt2e).",
)
