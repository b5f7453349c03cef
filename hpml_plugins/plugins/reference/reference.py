"""The benchmark `reference`: a copy, a float32 product, and a bfloat16 product at boost and at
settled clocks.

Cards of one type differ mostly by one factor for memory-bound and one for compute-bound steps. With
both factors, a comparison of two cards detects differences that the factors would hide. The steps
are the simplest of their kind, by torch's own functions, and take about 7 s together; a single
process is enough, because a card repeats them within 0.1 %.
"""

from __future__ import annotations

from typing import Any

from hpml_plugins import Bench, Benchmark, Metric, Requires, Samples

#: B that are copied: far more than the size of any cache.
COPIED = 4 * 2**30
#: Sides of the square matrices. A float32 product of this size stays below the power limit of
#: data-centre cards, and a bfloat16 product of its size does not.
FLOAT32_SIDE, BFLOAT16_SIDE = 4096, 8192
#: s of sampling of each step.
BUDGET = 0.5
#: Rows of a product that are compared with float64.
CHECKED = 8
#: Relative error (2-norm) of those rows: bfloat16 rounds the result to 8 bits.
TOLERANCE = {"float32": 1e-5, "bfloat16": 1e-2}


def measure(bench: Bench) -> dict[str, Samples]:
    """Time each step on one GPU. The bfloat16 product has both regimes if the card throttles."""
    import torch

    torch.backends.cuda.matmul.allow_tf32 = False
    found = {}
    bench.progress("copy", 0.0)
    found["copy"] = _copy(bench)
    torch.cuda.empty_cache()
    bench.progress("float32 product", 0.2)
    found["float32"] = _product(bench, "float32", FLOAT32_SIDE)
    bench.progress("bfloat16 product", 0.4)
    found["bfloat16"] = _product(bench, "bfloat16", BFLOAT16_SIDE)
    return found


def _copy(bench: Bench) -> Samples:
    import torch

    generator = torch.Generator("cuda").manual_seed(bench.seed)
    source = torch.randint(256, (COPIED,), generator=generator, dtype=torch.uint8, device="cuda")
    target = torch.zeros_like(source)
    target.copy_(source)
    bench.check(torch.equal(bench.result(target), source), "the copy differs from the original")
    bench.work(bytes=2 * COPIED, of="copy")
    return bench.time(lambda: target.copy_(source), budget=BUDGET, name="copy")


def _product(bench: Bench, dtype: str, side: int) -> Samples:
    import torch

    generator = torch.Generator("cuda").manual_seed(bench.seed)
    kind = getattr(torch, dtype)
    a, b = (torch.randn(side, side, generator=generator, device="cuda").to(kind) for _ in range(2))
    result = torch.empty_like(a)

    def step() -> None:
        torch.mm(a, b, out=result)

    step()
    error = _relative_error(bench.result(result)[:CHECKED], a[:CHECKED].double() @ b.double())
    wrong = f"the {dtype} product differs from float64's by {error:.1e}"
    bench.check(error <= TOLERANCE[dtype], wrong)
    bench.work(flop=2 * side**3, dtype=dtype, of=dtype)
    return bench.time(step, budget=BUDGET, name=dtype)


def _relative_error(found: Any, exact: Any) -> float:
    """|found − exact| / |exact|, by the 2-norm."""
    return float((found.double() - exact).norm() / exact.norm())


REFERENCE_STEPS = Benchmark(
    "reference",
    measure,
    [
        Metric("copy", "s", "lower", "of a copy of 4 GiB within the card's memory"),
        Metric("float32", "s", "lower", "of a float32 product of 4096 × 4096 matrices, TF32 off"),
        Metric("bfloat16", "s", "lower", "of a bfloat16 product of 8192 × 8192 matrices"),
    ],
    requires=Requires(gpus=1, gpu_memory=11e9, modules=("torch",)),
    rounds=1,
    description=(
        "Three plain steps that each visit to a GPU measures first: how fast this card is within"
        " its type."
    ),
)
