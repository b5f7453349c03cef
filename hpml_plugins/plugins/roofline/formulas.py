"""The roofline model's formulas, the precisions, and the names of kernels. Pure.

Source: Williams, Waterman, Patterson, "Roofline: An Insightful Visual Performance Model for Multicore Architectures",
CACM 52(4), 2009, pp. 65-76.
"""

from __future__ import annotations

from hpml_plugins import Bench, HpmlError

#: Precision, as gpus.yaml names its peak → the least compute capability that computes it in hardware.
LEAST_CAPABILITY = {"float32": 0.0, "tf32": 8.0, "bfloat16": 8.0, "float16": 5.0}
#: Relative error (2-norm) up to which a result counts as right: some multiples of the unit roundoff.
TOLERANCE = {"float32": 1e-4, "tf32": 5e-3, "float16": 5e-3, "bfloat16": 4e-2}
STREAMING = ("scale", "triad", "relu", "softmax")


def attainable(intensity: float, peak: float, bandwidth: float) -> float:
    """The roof over an intensity, FLOP/s: min(peak, intensity · bandwidth).  bandwidth: of the memory, B/s.

    A100 (19.5 TFLOP/s, 1555 GB/s) at 4 FLOP/B: 4 · 1555e9 = 6.22 TFLOP/s.
    """
    return min(peak, intensity * bandwidth)


def ridge_point(peak: float, bandwidth: float) -> float:
    """The least intensity at which the peak can be reached, FLOP/B. V100: 15.7e12 / 900e9 = 17.44 FLOP/B."""
    return peak / bandwidth


def share_of_roof(rate: float, intensity: float, peak: float, bandwidth: float) -> float | None:
    """Achieved rate over what is attainable at its intensity; None without FLOP, where the roof is at 0."""
    roof = attainable(intensity, peak, bandwidth)
    return rate / roof if roof > 0 else None


def matmul_flop(n: int) -> int:
    """FLOP of the product of two n × n matrices: 2 n³."""
    return 2 * n**3


def parse(name: str) -> tuple[str, str, int]:
    """(kind, precision, size) of a kernel's name: "matmul_tf32_8192" is ("matmul", "tf32", 8192), "relu" is
    ("relu", "float32", 0), "fma_float16" is ("fma", "float16", 0). Raises HpmlError for another name.
    """
    kind, _, rest = name.partition("_")
    if name in STREAMING:
        return name, "float32", 0
    dtype, _, size = rest.rpartition("_")
    if kind == "matmul" and size.isdigit() and dtype in LEAST_CAPABILITY:
        return kind, dtype, int(size)
    if name == "fma_float16":
        return kind, rest, 0
    raise HpmlError(
        f"no kernel {name!r}; use {', '.join(STREAMING)}, matmul_PRECISION_N with a precision of "
        f"{', '.join(LEAST_CAPABILITY)}, or fma_float16"
    )


def capability(bench: Bench) -> str:
    """The compute capability of the first GPU; empty on a CPU and where it is not known."""
    return bench.node.gpus[0].capability if bench.gpus and bench.node.gpus else ""


def require_precision(bench: Bench, dtype: str) -> None:
    """Skip the point, with the reason, where this node lacks the precision. Raises HpmlError for an unknown one."""
    if dtype not in LEAST_CAPABILITY:
        raise HpmlError(f"no precision {dtype!r}; use one of {', '.join(LEAST_CAPABILITY)}")
    if bench.device == "cpu" and dtype != "float32":
        bench.skip(f"{dtype} is measured on GPUs only")
    if (has := capability(bench)) and float(has) < (least := LEAST_CAPABILITY[dtype]):
        bench.skip(f"{dtype} needs compute capability {least}, this card has {has}")
