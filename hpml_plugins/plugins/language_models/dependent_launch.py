"""The launch of Triton's kernels while the previous one runs (programmatic dependent launch, from
compute capability 9). Imports torch."""

from __future__ import annotations

from functools import cache
from typing import Any

import torch


@cache
def launch_options(device: torch.device) -> tuple[bool, dict[str, Any]]:
    """Whether kernels start while the previous one runs, and how they are launched then."""
    dependent = device.type == "cuda" and torch.cuda.get_device_capability(device) >= (9, 0)
    return dependent, {"launch_pdl": True} if dependent else {}
