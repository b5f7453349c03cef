"""C = alpha · op(A) op(B) + beta · C by torch: cuBLAS on a GPU. Imports torch: imported on use only."""

from __future__ import annotations

from typing import Any

import torch

from hpml_plugins.plugins.mlp.tiles import Variant


def by_torch(c: Any, a: Any, b: Any, variant: Variant, alpha: float = 1.0, beta: float = 0.0) -> None:
    """C = alpha · op(A) op(B) + beta · C, in place."""
    left = a.T if variant[0] == "t" else a
    right = b.T if variant[1] == "t" else b
    if beta == 0.0:
        torch.mm(left, right, out=c)
        if alpha != 1.0:
            c.mul_(alpha)
    else:
        torch.addmm(c, left, right, beta=beta, alpha=alpha, out=c)
