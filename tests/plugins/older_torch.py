"""What the torch and Triton of GPU nodes cannot do on a CPU, while the pinned ones can."""

from __future__ import annotations

import importlib.metadata

import pytest
from packaging.version import Version

#: From here on a failure is one.
COMPLETE = {"torch": Version("2.15"), "triton": Version("3.9")}


def is_older(package: str) -> bool:
    """Whether an installed package is older than the one that can do all."""
    return Version(importlib.metadata.version(package)) < COMPLETE[package]


def skip_without_row_scales() -> None:
    """Skip a test of fp8 products with a scale for each row, which torch 2.11 has only on GPUs."""
    import torch

    ones = torch.ones(16, 16).to(torch.float8_e4m3fn)
    scales = torch.ones(16, 1)
    try:
        torch._scaled_mm(ones, ones.t(), scales, scales.t(), out_dtype=torch.bfloat16)
    except RuntimeError:
        if not is_older("torch"):
            raise
        pytest.skip(f"torch {torch.__version__} scales rows of fp8 products only on GPUs")
