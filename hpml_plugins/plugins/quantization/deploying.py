"""The benchmarks `quantization_deploy_cuda` and `quantization_deploy_cpu`: a network quantized by a library."""

from __future__ import annotations

import io
from typing import Any

from hpml_plugins import Bench, Benchmark, Metric, Requires, Samples
from hpml_plugins.plugins.quantization.names import CPU_METHODS, CUDA_METHODS, RUNTIMES

#: |logits − float32's| / |float32's| above which a method has done something else than quantize. float32's own copy may
#: lie otherwise in memory, and TF32 then rounds in another order.
MOST_ERROR = {"float32": 5e-3, "bfloat16": 0.1, "int8_weight_only": 0.1}
OF_OTHERS = 0.5
MODELS = ("simple", "resnet18", "resnet50")
DATA = ("digits", "cifar10", "cifar10-jpeg")


def measure(bench: Bench, *, model: str, data: str, method: str, runtime: str) -> dict[str, Any]:
    """Quantize a network after training, judge it by test images, and time it.

    model: "simple", trained; "resnet18", "resnet50", trained briefly: see
    `subjects.prepare`.  method: a name of `names`.  runtime: "eager", as torch runs it operation by operation, or
    "compile", by torch.compile.
    """
    import torch

    from hpml_plugins.plugins.quantization.energy import attach_energy
    from hpml_plugins.plugins.quantization.methods import deploy
    from hpml_plugins.plugins.quantization.running import time_batches
    from hpml_plugins.plugins.quantization.subjects import logits, prepare

    if reason := lacks(method, runtime):
        bench.skip(reason)
    subject = prepare(bench, model, data)
    wanted = logits(subject.network, subject)
    bench.progress(f"quantizing by {method}", 0.3)
    deployed = deploy(bench, subject, method)
    if deployed.left:
        columns = {"layer": list(deployed.left), "why": list(deployed.left.values())}
        bench.series("left_in_float", columns)
        bench.warn(f"{len(deployed.left)} of {deployed.layers} layers are left in floating point: {_named(columns)}")
    found = bench.result(logits(deployed.network, subject, deployed.dtype))
    error = float((found - wanted).norm() / wanted.norm())
    bench.check(
        error <= MOST_ERROR.get(method, OF_OTHERS), f"logits differ from float32's by {error:.2g} of their length"
    )
    size = size_of(deployed.network)

    timed = time_batches(bench, deployed, subject, runtime)
    if not timed:
        bench.skip(f"{method} runs no batch here: {bench.warnings[-1] if bench.warnings else ''}")
    rates: list[Samples] = [each.batch / each.time for each in timed]
    bench.series(
        "batches",
        {
            "batch": [each.batch for each in timed],
            "time": [each.time.median for each in timed],
            "throughput": [rate.median for rate in rates],
        },
        {"batch": "1", "time": "s", "throughput": "1/s"},
    )
    best = max(range(len(timed)), key=lambda number: rates[number].median)
    bench.progress("energy", 0.9)
    with torch.no_grad():
        attach_energy(bench, timed[best].step, timed[best].batch)
    return {
        "accuracy": float((found.argmax(1) == subject.labels).double().mean()),
        "agreement": float((found.argmax(1) == wanted.argmax(1)).double().mean()),
        "error": error,
        "size": size,
        "latency": timed[0].time,
        "throughput": rates[best],
        "best_batch": timed[best].batch,
    }


def lacks(method: str, runtime: str) -> str:
    """Why a method cannot be run this way; empty when it can."""
    if method == "pt2e_static" and runtime == "eager":
        return "pt2e leaves int8 kernels to torch.compile: use runtime=compile"
    if method.startswith("fx") and runtime == "compile":
        return "torch.ao's int8 operations run eagerly and are not compiled: use runtime=eager"
    return ""


def size_of(network: Any) -> int:
    """Bytes of the network's state as torch saves it: weights, scales, and what names them."""
    import torch

    file = io.BytesIO()
    torch.save(network.state_dict(), file)
    return len(file.getvalue())


def _named(columns: dict[str, list[str]], most: int = 4) -> str:
    """ "conv1 (torchao quantizes linear layers), … and 3 more" """
    pairs = [f"{name} ({why})" for name, why in zip(columns["layer"], columns["why"], strict=True)]
    return ", ".join(pairs[:most]) + (f" and {len(pairs) - most} more" if len(pairs) > most else "")


METRICS = (
    Metric("accuracy", "1", "higher", "of the test images"),
    Metric("agreement", "1", "higher", "share of the test images to which float32 gives the same class"),
    Metric("error", "1", "lower", "|logits − float32's| / |float32's|; −20 log₁₀ of it is the ratio in dB"),
    Metric("size", "B", "lower", "of the network's state, as torch saves it"),
    Metric("latency", "s", "lower", "one image, or the smallest batch that runs, launching included"),
    Metric("throughput", "1/s", "higher", "images over time at the best batch"),
    Metric("best_batch", "1", None, "of those tried"),
)
MODULES = ("torch", "torchvision", "torchao")

DEPLOY_CUDA = Benchmark(
    "quantization_deploy_cuda",
    measure,
    METRICS,
    grid={"model": MODELS, "data": DATA, "method": CUDA_METHODS, "runtime": RUNTIMES},
    requires=Requires(gpus=1, data="data", modules=(*MODULES, "pynvml")),
    version="1",
    timeout=400,
    description="Networks quantized after training by torchao on a GPU: accuracy, size, latency, throughput, energy.",
)
DEPLOY_CPU = Benchmark(
    "quantization_deploy_cpu",
    measure,
    METRICS,
    grid={"model": MODELS, "data": DATA, "method": CPU_METHODS, "runtime": RUNTIMES},
    requires=Requires(data="data", modules=MODULES),
    version="1",
    timeout=600,
    description="The same on the CPU, by torchao, torch.ao's FX mode and export (pt2e).",
)
