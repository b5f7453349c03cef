"""The memory-bound operators: inputs, the definition in torch, our Triton kernel, and the bytes.
Imports torch."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

from hpml_plugins import HpmlError
from hpml_plugins.plugins.kernels.models import Model
from hpml_plugins.plugins.kernels.variants import Step, relative_error

#: Of RMSNorm, as in Llama.
EPSILON = 1e-5
#: Numbers in a row of softmax: the scores of a query with 8192 keys, a length at which
#: `kernels_attention` is measured. It is also the hidden width of Llama 3.1 70B. A row of bfloat16
#: has 16 KiB, which one program holds in registers.
SOFTMAX_WIDTH = 8192
#: First and last rows that are compared with float64.
CHECKED = 64


@dataclass(frozen=True)
class Operator:
    """One operator over its inputs.

    define: the operator in torch's functions, of inputs of any floating dtype.  inputs: its
    arguments, the first of which has a row per token.  make: returns a call of our kernel.  nbytes:
    read and written at least. shared: the arguments without a row per token.
    """

    define: Callable[..., Any]
    inputs: tuple[Any, ...]
    make: Callable[[], Step]
    nbytes: int
    shared: frozenset[int] = frozenset()

    def eager(self) -> Any:
        """The definition, operation by operation."""
        return self.define(*self.inputs)

    def error(self, result: Any) -> float:
        """Relative error of the first and last rows against the definition in float64."""
        errors = []
        for rows in (slice(0, CHECKED), slice(-CHECKED, None)):
            few = [
                each if number in self.shared else each[rows]
                for number, each in enumerate(self.inputs)
            ]
            exact = self.define(
                *(each.double() if each.is_floating_point() else each for each in few)
            )
            errors.append(relative_error(result[rows], exact))
        return max(errors)


def build(name: str, nbytes: int, shape: Model, device: str, seed: int) -> Operator:
    """The operator "rms_norm", "rotary", "swiglu", "cross_entropy" or "softmax", whose input has
    about `nbytes`.

    bfloat16 on a GPU, float32 on a CPU. Raises HpmlError for another name.
    """
    builders = {
        "rms_norm": _rms_norm,
        "rotary": _rotary,
        "swiglu": _swiglu,
        "cross_entropy": _cross_entropy,
        "softmax": _softmax,
    }
    if name not in builders:
        raise HpmlError(f"no operator {name!r}; use one of {', '.join(builders)}")
    generator = torch.Generator(device).manual_seed(seed)
    dtype = torch.bfloat16 if device == "cuda" else torch.float32

    def draw(*size: int) -> Any:
        """A tensor with rows of this size, as many as fit."""
        row = torch.Size(size).numel() * dtype.itemsize
        return torch.empty(max(1, nbytes // row), *size, dtype=dtype, device=device).normal_(
            generator=generator
        )

    return builders[name](draw, shape, generator)


def _rms_norm(draw: Callable[..., Any], shape: Model, generator: Any) -> Operator:
    x = draw(shape.hidden)
    weight = torch.rand(shape.hidden, generator=generator, device=x.device).to(x.dtype) + 0.5
    y = torch.empty_like(x)

    def define(x: Any, weight: Any) -> Any:
        values = x if x.dtype == torch.float64 else x.float()
        factor = torch.rsqrt(values.pow(2).mean(-1, keepdim=True) + EPSILON)
        return (values * factor * weight).to(x.dtype)

    def make() -> Step:
        from hpml_plugins.plugins.kernels import triton_kernels

        return lambda: triton_kernels.rms_norm(x, weight, EPSILON, y)

    return Operator(define, (x, weight), make, 2 * x.nbytes + weight.nbytes, frozenset({1}))


def _rotary(draw: Callable[..., Any], shape: Model, generator: Any) -> Operator:
    x = draw(shape.heads + shape.kv_heads, shape.head_dim)
    half = shape.head_dim // 2
    # Source: Su et al., RoFormer, arXiv 2104.09864, with Llama 3's base of 500,000.
    frequencies = 500000.0 ** -(torch.arange(half, device=x.device) / half)
    angles = torch.arange(len(x), device=x.device)[:, None] * frequencies
    cos, sin, y = angles.cos(), angles.sin(), torch.empty_like(x)

    def define(x: Any, cos: Any, sin: Any) -> Any:
        first, second = x.chunk(2, dim=-1)
        c, s = cos[:, None], sin[:, None]
        return torch.cat([first * c - second * s, second * c + first * s], -1).to(x.dtype)

    def make() -> Step:
        from hpml_plugins.plugins.kernels import triton_kernels

        return lambda: triton_kernels.rotary(x, cos, sin, y)

    return Operator(define, (x, cos, sin), make, 2 * x.nbytes + cos.nbytes + sin.nbytes)


def _swiglu(draw: Callable[..., Any], shape: Model, generator: Any) -> Operator:
    x = draw(2 * shape.intermediate)
    y = torch.empty(len(x), shape.intermediate, dtype=x.dtype, device=x.device)

    def define(x: Any) -> Any:
        gate, up = x.chunk(2, dim=-1)
        return torch.nn.functional.silu(gate) * up

    def make() -> Step:
        from hpml_plugins.plugins.kernels import triton_kernels

        return lambda: triton_kernels.swiglu(x, y)

    return Operator(define, (x,), make, x.nbytes + y.nbytes)


def _cross_entropy(draw: Callable[..., Any], shape: Model, generator: Any) -> Operator:
    logits = draw(shape.vocabulary)
    target = torch.randint(
        shape.vocabulary, (len(logits),), generator=generator, device=logits.device
    )

    def define(logits: Any, target: Any) -> Any:
        return torch.nn.functional.cross_entropy(logits, target, reduction="none")

    def make() -> Step:
        from hpml_plugins.plugins.kernels import triton_kernels

        return triton_kernels.CrossEntropy(logits, target)

    return Operator(define, (logits, target), make, logits.nbytes + target.nbytes + 4 * len(logits))


def _softmax(draw: Callable[..., Any], shape: Model, generator: Any) -> Operator:
    del shape, generator  # the row has its own width, and there is nothing else to draw
    x = draw(SOFTMAX_WIDTH)
    y = torch.empty_like(x)

    def define(x: Any) -> Any:
        """torch computes in float32 inside and rounds the result once."""
        return torch.softmax(x, dim=-1)

    def make() -> Step:
        from hpml_plugins.plugins.kernels import triton_kernels

        return lambda: triton_kernels.softmax(x, y)

    return Operator(define, (x,), make, x.nbytes + y.nbytes)
