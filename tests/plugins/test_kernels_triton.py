"""The Triton kernels of the plugin `kernels`, by Triton's interpreter: no GPU is needed."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest
from older_torch import is_older

#: Triton decides when it is imported whether kernels are interpreted: hence another process.
CODE = """
import torch
from torch.nn.functional import cross_entropy, silu
from hpml_plugins.plugins.kernels import triton_kernels as t
from hpml_plugins.plugins.kernels.variants import relative_error

torch.manual_seed(0)

def close(name, result, exact, most=6e-3):
    error = relative_error(result, exact)
    assert error < most, f"{name}: {error}"
    print(name)

x, w = torch.randn(3, 100).bfloat16(), torch.rand(100).bfloat16()
exact = x.double() * torch.rsqrt(x.double().pow(2).mean(1, keepdim=True) + 1e-5) * w.double()
close("rms_norm", t.rms_norm(x, w, 1e-5, torch.empty_like(x)), exact)

x, angle = torch.randn(5, 3, 16).bfloat16(), 6 * torch.rand(5, 8)
a, b = x.double().chunk(2, -1)
c, s = angle.double().cos()[:, None], angle.double().sin()[:, None]
exact = torch.cat([a * c - b * s, b * c + a * s], -1)
close("rotary", t.rotary(x, angle.cos(), angle.sin(), torch.empty_like(x)), exact)

x = torch.randn(3, 200).bfloat16()
gate, up = x.double().chunk(2, -1)
close("swiglu", t.swiglu(x, x.new_empty(3, 100), block=64), silu(gate) * up)

for width in (128, 100):
    x = 3 * torch.randn(3, width).bfloat16()
    close(f"softmax {width}", t.softmax(x, torch.empty_like(x)), torch.softmax(x.double(), -1))

logits, target = 3 * torch.randn(3, 500).bfloat16(), torch.tensor([0, 250, 499])
for splits in (1, 4):
    step = t.CrossEntropy(logits, target, splits=splits, deep=2, lanes=64)
    step()  # the second call must find the counters as the first did
    close(f"cross_entropy {splits}", step(), cross_entropy(logits.double(), target, reduction="none"), 1e-6)

q, scales = t.quantize_rows(torch.randn(3, 100).bfloat16(), torch.int8)
assert int(q.abs().max()) == 127 and scales.shape == (3, 1)

for dtype in (torch.float16, torch.float8_e4m3fn, torch.int8):  # the interpreter does not multiply bfloat16
    for splits, weights_first in ((1, True), (2, False)):
        x, w = torch.randn(5, 128).half(), torch.randn(64, 128).half()
        scales = (None, None)
        if dtype != torch.float16:
            (x, x_scale), (w, w_scale) = (t.quantize_rows(each.bfloat16(), dtype) for each in (x, w))
            scales = (x_scale, w_scale)
        exact = x.double() @ w.double().T
        if dtype != torch.float16:
            exact = exact * x_scale.double() * w_scale.double().T
        step = t.StreamedProduct(x, w, *scales, t.Tiling(32, 64, splits, weights_first=weights_first))
        step()
        close(f"streamed {dtype} {splits}", step(), exact)

try:
    t.StreamedProduct(x, w, *scales, t.Tiling(48, 64, 1))
except NotImplementedError as error:
    print(error)

t.LARGEST = w.numel() - 1
try:
    t.StreamedProduct(x, w, *scales, t.Tiling(32, 64, 1))
except NotImplementedError as error:
    print(error)
"""  # noqa: E501


def test_kernels_agree_with_float64() -> None:
    pytest.importorskip("triton")
    done = subprocess.run(
        [sys.executable, "-c", CODE],
        env={**os.environ, "TRITON_INTERPRET": "1", "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    if is_older("triton") and "only 0-dimensional arrays can be converted" in done.stderr:
        pytest.skip("the interpreter of this Triton fails with this NumPy")
    assert done.returncode == 0, done.stderr[-2000:]
    assert done.stdout.count("\n") == 3 + 2 + 2 + 6 + 2
    assert "does not fit 5 × 64 × 128" in done.stdout
    assert "64 × 128 is more than 8191 numbers" in done.stdout
