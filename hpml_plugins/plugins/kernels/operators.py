"""The benchmark `kernels_operators`: memory-bound operators, eager, compiled, and as one small
Triton kernel each."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from hpml_plugins import Bench, Benchmark, Metric, Requires
from hpml_plugins.plugins.kernels.models import model
from hpml_plugins.plugins.kernels.variants import BUDGET, Step, prepared, survey

MODEL = "llama-3.1-8b"
OPERATORS = ("rms_norm", "rotary", "swiglu", "cross_entropy", "softmax")
MEBIBYTE = 2**20
#: Relative error against float64, of results in bfloat16 and in float32.
TOLERANCE = {"cuda": 1e-2, "cpu": 1e-5}


def measure(bench: Bench, *, operator: str, mebibytes: int) -> dict[str, Any]:
    """Time an operator over an input of `mebibytes` MiB: our kernel on a GPU, torch's operations on
    a CPU.

    On a GPU it is timed alternately with torch's operations and with a copy that reads and writes
    as many bytes. What torch.compile makes of the operations is timed in the point's first round.
    """
    from hpml_plugins.plugins.kernels import operator_variants

    built = operator_variants.build(
        operator, mebibytes * MEBIBYTE, model(MODEL), bench.device, bench.seed
    )
    builders: dict[str, Callable[[], Step]] = {"eager": lambda: built.eager}
    if bench.device == "cuda":
        builders |= {"compiled": lambda: compiled(built), "Triton": built.make}
    found = survey(
        bench, builders, built.error, TOLERANCE[bench.device], always=("eager", "Triton")
    )
    chosen = "Triton" if bench.device == "cuda" else "eager"
    if chosen in found.reasons:  # another variant must not be reported under this name
        bench.skip(f"our Triton kernel does not run here: {found.reasons[chosen]}")
    bench.work(bytes=built.nbytes)
    bench.progress("timing", 0.5)
    time = bench.time(found.steps[chosen], budget=1.0).note(way=chosen)
    times: dict[str, Any] = {
        "time": time,
        "error": found.errors[chosen],
        "copy_share": None,
        "speedup": None,
    }
    if bench.device == "cuda":
        steps = {
            "copy": copy_of(built.nbytes, bench.device, bench.seed),
            **{name: found.steps[name] for name in ("eager", chosen)},
        }
        alternating = bench.time_alternately(
            {name: prepared(step) for name, step in steps.items()}, budget=BUDGET
        )
        times |= {
            name: alternating.ratio(to, chosen)
            for name, to in {"copy_share": "copy", "speedup": "eager"}.items()
        }
    return times


def compiled(built: Any) -> Step:
    """The definition by torch.compile."""
    from hpml_plugins.plugins.kernels.compiling import compile_here

    function = compile_here(built.define)
    return lambda: function(*built.inputs)


def copy_of(nbytes: int, device: str, seed: int) -> Step:
    """A copy that reads nbytes / 2 and writes the same amount."""
    import torch

    generator = torch.Generator(device).manual_seed(seed)
    source = torch.randint(
        256, (nbytes // 2,), generator=generator, dtype=torch.uint8, device=device
    )
    target = torch.empty_like(source)
    return lambda: target.copy_(source)


OPERATORS_CUDA = Benchmark(
    "kernels_operators",
    measure,
    metrics=(
        Metric("time", "s", "lower", "of our Triton kernel, on a CPU of torch's operations"),
        Metric("bandwidth", "B/s", "higher", "the least that must be read and written, over time"),
        Metric(
            "copy_share",
            "1",
            "higher",
            "time of a copy of as many bytes over that of our kernel",
            (0, None),
        ),
        Metric(
            "error", "1", "lower", "against float64 of the same inputs, relative, 2-norm", (0, None)
        ),
        Metric("speedup", "1", "higher", "time of torch's operations over that of our kernel"),
    ),
    grid={"operator": OPERATORS, "mebibytes": (64, 1024)},
    requires=Requires(gpus=1, gpu_memory=16e9, modules=("torch",)),
    timeout=180,
    description=(
        "RMSNorm, rotary, SwiGLU, cross-entropy, softmax: Triton, eager and compiled, against a"
        " copy."
    ),
    terms={
        "mebibytes": "size of the input, MiB",
        "operator=cross_entropy": "the loss of each row, without gradients",
        "operator=softmax": "of rows of 8192 numbers, as of the scores of 8192 keys",
    },
)
OPERATORS_CPU = replace(
    OPERATORS_CUDA,
    name="kernels_operators_cpu",
    grid={"operator": ("rms_norm", "swiglu", "softmax"), "mebibytes": (8,)},
    requires=Requires(modules=("torch",)),
    description="RMSNorm, SwiGLU and softmax by torch's operations on the CPU in float32.",
    terms={},
)
