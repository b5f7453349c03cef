"""What a column of the pages stands for: a GPU type and how many of them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, order=True)
class GpuType:
    """What a column stands for.

    kind: 0 a GPU, 1 no GPU, 2 unknown; columns stand in this order.  gpu, num_gpu: asv's machine parameters.
    cpu: told apart only where there is no GPU, for then the CPU is what computes.
    """

    kind: int
    gpu: str
    num_gpu: str
    cpu: str = ""

    @property
    def label(self) -> str:
        """`NVIDIA H200 ×2`, `no GPU (CPU name)` or `unknown`."""
        if self.kind == 1:
            return f"no GPU ({self.cpu or 'unknown CPU'})"
        return f"{self.gpu} ×{self.num_gpu}" if self.num_gpu else self.gpu


def gpu_type(params: Mapping[str, Any]) -> GpuType:
    """The GPU type of a machine, by the parameters of its results. One that says nothing is `unknown`."""
    gpu = _text(params.get("gpu"))
    if not gpu or gpu == "unknown":
        return GpuType(2, "unknown", _text(params.get("num_gpu")))
    if gpu == "none":
        return GpuType(1, gpu, "", _text(params.get("cpu")))
    return GpuType(0, gpu, _text(params.get("num_gpu")))


def _text(value: Any) -> str:
    return "" if value is None else str(value).strip()
