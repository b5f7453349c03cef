"""The precisions: how wide, which published peak they are held against, and what a node must have for them."""

from __future__ import annotations

from typing import Any

from hpml_plugins import Bench, GpuType, HpmlError, published_figures

#: Precision → B of a number in memory. tf32 is float32 in memory, rounded on its way into a tensor core.
WIDTH = {"float64": 8, "float32": 4, "tf32": 4, "bfloat16": 2, "float16": 2}
#: Precision → the least compute capability (its first number) that computes it in hardware.
_LEAST_CAPABILITY = {"float64": 2, "float32": 0, "tf32": 8, "bfloat16": 8, "float16": 5}
#: Relative error (2-norm) of logits against float64 up to which they count as right.
TOLERANCE = {"float64": 1e-9, "float32": 1e-3, "tf32": 2.5e-2, "float16": 5e-2, "bfloat16": 2e-1}


def require_precision(dtype: str) -> None:
    """Raise HpmlError, naming the known ones, for a precision that is none."""
    if dtype not in WIDTH:
        raise HpmlError(f"no precision {dtype!r}; use one of {', '.join(WIDTH)}")


def published_peak(gpu: GpuType, dtype: str) -> tuple[str, float] | None:
    """The field of gpus.yaml that a precision is held against, and its peak in FLOP/s; None where nothing is published.

    float64 is held against the tensor cores' where the card has them: the libraries use them.
    """
    fields = ("float64_tensor", "float64") if dtype == "float64" else (dtype,)
    return next(((field, peak) for field in fields if (peak := gpu.peak(field))), None)


def default_ppp(of: str) -> float:
    """PALEO's own default, of "compute" or "communication": hpml_plugins/data/published.yaml."""
    (figure,) = published_figures("platform_percent_of_peak", of)
    return figure.value


def lacks(dtype: str, device: str, capability: str) -> str:
    """Why a precision cannot be measured there; empty when it can.  capability: "9.0", empty where not known."""
    require_precision(dtype)
    if device == "cpu":
        return "" if dtype in ("float32", "float64") else f"{dtype} is measured on GPUs only"
    least = _LEAST_CAPABILITY[dtype]
    if capability and int(capability.partition(".")[0]) < least:
        return f"{dtype} needs compute capability {least}.0, this card has {capability}"
    return ""


def use(dtype: str) -> Any:
    """Tell torch whether float32 may be rounded to TF32, and return the torch.dtype of tensors in this precision."""
    import torch

    allowed = dtype == "tf32"
    torch.set_float32_matmul_precision("high" if allowed else "highest")
    torch.backends.cudnn.allow_tf32 = allowed
    return torch.float32 if allowed else getattr(torch, dtype)


def say_which_peak(bench: Bench, dtype: str) -> None:
    """Warn where the measured rate has no published peak to be held against."""
    if bench.device == "cpu":
        bench.warn("no platform percent of peak: no published peak of a CPU")
    elif not (gpu := bench.peaks):
        bench.warn(f"no platform percent of peak: unknown card {bench.node.gpu}: no published peak")
    elif not published_peak(gpu, dtype):
        bench.warn(f"no platform percent of peak: {gpu.name} has no published {dtype} peak")
