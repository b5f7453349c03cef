"""The kernels' names. Pure: figures read Records by them where there is no torch."""

from __future__ import annotations

from hpml_plugins import HpmlError
from hpml_plugins.plugins.roofline import dtypes

STREAMING = ("scale", "triad", "relu", "softmax")


def parse(name: str) -> tuple[str, str, int]:
    """(kind, precision, size) of a kernel's name: `scale`, `triad`, `relu`, `softmax` (float32), `matmul_PRECISION_N`,
    `fma_float16` or `fma_bfloat16`. "matmul_tf32_8192" is ("matmul", "tf32", 8192).

    Raises HpmlError for another name.
    """
    kind, _, rest = name.partition("_")
    if name in STREAMING:
        return name, "float32", 0
    dtype, _, size = rest.rpartition("_")
    if kind == "matmul" and size.isdigit() and dtype in dtypes.LEAST_CAPABILITY:
        return kind, dtype, int(size)
    if kind == "fma" and rest in ("float16", "bfloat16"):
        return kind, rest, 0
    raise HpmlError(
        f"no kernel {name!r}; use {', '.join(STREAMING)}, matmul_PRECISION_N with a precision of "
        f"{', '.join(dtypes.LEAST_CAPABILITY)}, fma_float16 or fma_bfloat16"
    )
