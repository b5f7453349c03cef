"""The precisions, by the names that gpus.yaml's peaks have: what a card must be, and how torch is told."""

from __future__ import annotations

from typing import Any

from hpml_plugins import Bench, HpmlError

#: Precision → the least compute capability (its first number) that computes it in hardware.
LEAST_CAPABILITY = {"float32": 0, "tf32": 8, "bfloat16": 8, "float16": 5}
#: Relative error (2-norm) up to which a result counts as right: some multiples of the unit roundoff.
TOLERANCE = {"float32": 1e-4, "tf32": 5e-3, "float16": 5e-3, "bfloat16": 4e-2}


def lacks(dtype: str, device: str, capability: str) -> str:
    """Why a precision cannot be measured there; empty when it can.  capability: "9.0", empty where not known.

    Raises HpmlError for an unknown precision.
    """
    from hpml_plugins.plugins.roofline.counters import major

    if dtype not in LEAST_CAPABILITY:
        raise HpmlError(f"no precision {dtype!r}; use one of {', '.join(LEAST_CAPABILITY)}")
    if device == "cpu":
        return "" if dtype == "float32" else f"{dtype} is measured on GPUs only"
    least = LEAST_CAPABILITY[dtype]
    if capability and major(capability) < least:
        return f"{dtype} needs compute capability {least}.0, this card has {capability}"
    return ""


def capability(bench: Bench) -> str:
    """The compute capability of the first GPU; empty on a CPU and where NVML did not tell."""
    return bench.node.gpus[0].capability if bench.gpus and bench.node.gpus else ""


def require(bench: Bench, dtype: str) -> None:
    """Skip the point, with the reason, where this node lacks the precision."""
    if reason := lacks(dtype, bench.device, capability(bench)):
        bench.skip(reason)


def use(dtype: str) -> Any:
    """Tell torch how to compute float32, and return the torch.dtype that tensors have in this precision.

    torch lets cuDNN round float32 convolutions to TF32 unless told not to; "float32" here is float32.
    """
    import torch

    allowed = dtype == "tf32"
    torch.set_float32_matmul_precision("high" if allowed else "highest")
    torch.backends.cudnn.allow_tf32 = allowed
    return torch.float32 if allowed else getattr(torch, dtype)
