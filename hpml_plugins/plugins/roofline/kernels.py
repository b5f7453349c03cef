"""Single operations whose FLOP and bytes a formula gives, to hold the counters against.

Imports torch: imported inside `measure` only.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

from hpml_plugins.plugins.roofline import dtypes, formulas, names

#: Elements of the vectors: 512 MiB of float32, several times the L2 of any card.
ELEMENTS = 2**27
ROWS = 2**15  # of softmax, over ELEMENTS / ROWS = 4096 columns
#: Multiply-adds of each element in the kernels `fma_*`.
REPEATS = 64
FMA_ELEMENTS = 2**22


@dataclass(frozen=True)
class KernelStep:
    """One operation.

    run: does it once.  flop, nbytes: by the formulas of this module.  tolerance: by how much of `flop` the counters
    may differ, None where the formula is a convention.  error: of the last result against float64, relative.
    streams: it is bound by memory, and far larger than the L2.
    """

    run: Callable[[], Any]
    flop: float
    nbytes: float
    tolerance: float | None
    error: Callable[[], float]
    streams: bool = False


def kernel(name: str, device: str, seed: int, elements: int = ELEMENTS) -> KernelStep:
    """An operation by name: see `names.parse`.  elements: of the vectors.  Raises HpmlError for another name."""
    kind, dtype, size = names.parse(name)
    torch.manual_seed(seed)
    if kind in _STREAMING:
        return _STREAMING[kind](elements, device)
    return _matmul(dtype, size, device) if kind == "matmul" else _fma(dtype)


def _streaming(
    make: Callable[[Any, Any, Any], Any], arrays: int, flop: int, exact: bool = True
) -> Callable[[int, str], KernelStep]:
    """flop: of an element.  make(a, b, out) computes an operation into `out`; arrays: how many it reads and writes."""

    def build(elements: int, device: str) -> KernelStep:
        a, b = (torch.randn(elements, device=device).view(-1, elements // min(ROWS, elements)) for _ in range(2))
        out = torch.empty_like(a)

        def error() -> float:
            part = slice(0, 8)
            truth = make(a[part].double(), b[part].double(), None)
            return _relative(out[part], truth)

        return KernelStep(
            lambda: make(a, b, out),
            float(flop * elements),
            float(arrays * out.nbytes),
            0.02 if exact else None,
            error,
            streams=True,
        )

    return build


SCALE = 1.5
_STREAMING: dict[str, Callable[[int, str], KernelStep]] = {
    # STREAM's Scale and Triad (McCalpin): one multiplication, one multiply-add an element. STREAM's Copy is no kernel
    # in torch but a copy by the driver, which ncu does not see: `roof_copy` times it.
    "scale": _streaming(lambda a, b, out: torch.mul(a, SCALE, out=out), 2, 1),
    "triad": _streaming(lambda a, b, out: torch.add(a, b, alpha=SCALE, out=out), 3, 2),
    # A comparison is no floating-point operation, neither here nor to the counters.
    "relu": _streaming(lambda a, b, out: torch.clamp_min(a, 0, out=out), 2, 0, exact=False),
    # By convention 5 an element: compare, subtract, exponential, add, divide.
    "softmax": _streaming(lambda a, b, out: torch.softmax(a, 1, out=out), 2, 5, exact=False),
}


def _matmul(dtype: str, n: int, device: str) -> KernelStep:
    kind = dtypes.use(dtype)
    a, b = (torch.randn(n, n, device=device, dtype=kind) for _ in range(2))
    out = torch.empty_like(a)

    def error() -> float:
        return _relative(out[:8], a[:8].double() @ b.double())

    return KernelStep(
        lambda: torch.mm(a, b, out=out),
        float(formulas.matmul_flop(n)),
        float(formulas.matmul_bytes(n, out.element_size())),
        0.02,  # scaling a result by alpha is n² more; a tile that overhangs the matrix is computed whole
        error,
    )


def _fma(dtype: str) -> KernelStep:
    """x ← x · y + z, REPEATS times an element, in packed pairs: so many FLOP exactly, all outside tensor cores."""
    from hpml_plugins.plugins.roofline.packed import multiply_add

    kind = getattr(torch, dtype)
    x, y, z = (torch.rand(FMA_ELEMENTS, device="cuda").mul_(0.5).to(kind) for _ in range(3))
    out = torch.empty_like(x)

    def error() -> float:
        part = slice(0, 4096)
        truth, by, plus = (values[part].double() for values in (x, y, z))
        for _ in range(REPEATS):
            truth = truth * by + plus
        return _relative(out[part], truth)

    return KernelStep(
        lambda: multiply_add(x, y, z, out, REPEATS),
        float(formulas.FLOP_PER_MULTIPLY_ADD * REPEATS * FMA_ELEMENTS),
        float(4 * out.nbytes),
        0.0,
        error,
    )


def _relative(found: Any, truth: Any) -> float:
    return float((found.double() - truth).norm() / truth.norm())
