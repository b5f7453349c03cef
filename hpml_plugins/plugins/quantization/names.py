"""The methods by name, known without torch: the grids need them."""

from __future__ import annotations

#: Both: torchao's, but for the first two.
CUDA_METHODS = (
    "float32",
    "bfloat16",
    "int8_weight_only",
    "int8_dynamic",
    "int8_static",
    "float8_weight_only",
    "float8_dynamic",
)
#: fx: torch.ao's graph mode; pt2e: what came after it, in torchao.
CPU_METHODS = (
    "float32",
    "bfloat16",
    "int8_weight_only",
    "int8_dynamic",
    "int8_static",
    "fx_dynamic",
    "fx_static",
    "pt2e_static",
)
RUNTIMES = ("eager", "compile")
