"""What the torch and Triton of GPU nodes cannot do on a CPU, while the pinned ones can."""

from __future__ import annotations

import pytest


def skip_without_row_scales() -> None:
    """Skip a test of fp8 products with a scale for each row, which torch 2.11 has only on GPUs."""
    import torch

    ones = torch.ones(16, 16).to(torch.float8_e4m3fn)
    scales = torch.ones(16, 1)
    try:
        torch._scaled_mm(ones, ones.t(), scales, scales.t(), out_dtype=torch.bfloat16)
    except RuntimeError:
        pytest.skip(f"torch {torch.__version__} scales rows of fp8 products only on GPUs")
