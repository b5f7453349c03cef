"""The feed-forward block of a trained decoder, with GELU inside its products. Imports torch.

Forward, the first product also applies GELU; backward, the product that gives GELU's gradient also
multiplies by GELU's derivative. That saves passes over the largest values of a layer. torch has no
such products, so cuBLASLt is called through nvmath-python.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import nn
from torch.nn.functional import gelu

from hpml_plugins.plugins.language_models.gpt import Gpt, Layer, attend

#: Workspace of an algorithm, B; how many algorithms are requested, and how often each runs in the
#: comparison.
WORKSPACE, ALGORITHMS, TRIALS = 64 * 2**20, 16, 10


def fuse(model: Gpt) -> None:
    """Put GELU inside the products of all layers of a model."""
    model.layers = nn.ModuleList(FusedLayer(layer) for layer in model.layers)


class FusedLayer(nn.Module):  # type: ignore[misc]  # torch is untyped to mypy here
    """A layer that computes what `layer` does, with its weights."""

    def __init__(self, layer: Layer) -> None:
        super().__init__()
        self.layer = layer

    def forward(self, x: Any) -> Any:
        """x: (batch, length, width). Returns the same, in the same dtype."""
        layer = self.layer
        x = layer.merge(x, attend(*layer.project(x)))
        normalised = layer.norm_feed_forward(x).to(x.dtype).flatten(0, 1)
        up, down = (each.weight.to(x.dtype) for each in (layer.up, layer.down))
        return x + FeedForward.apply(normalised, up, down).view_as(x)


class FeedForward(torch.autograd.Function):  # type: ignore[misc]  # torch is untyped to mypy here
    """GELU(x upᵀ) downᵀ."""

    @staticmethod
    def forward(ctx: Any, x: Any, up: Any, down: Any) -> Any:
        """x: (tokens, width).  up: (inner, width).  down: (width, inner). Returns (tokens,
        width)."""
        after, before = product_gelu(x, up)
        ctx.save_for_backward(x, up, down, after, before)
        return after @ down.t()

    @staticmethod
    def backward(ctx: Any, gradient: Any) -> tuple[Any, Any, Any]:
        """The gradients of x, up and down."""
        x, up, down, after, before = ctx.saved_tensors
        gradient = gradient.contiguous()
        of_before = gradient_before_gelu(gradient, down, before)
        return of_before @ up, of_before.t() @ x, gradient.t() @ after


@torch.library.custom_op("hpml_plugins::product_gelu", mutates_args=(), device_types="cpu")  # type: ignore[untyped-decorator]
def product_gelu(x: torch.Tensor, weight: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """GELU(x weightᵀ), and x weightᵀ, (tokens, outputs) each.

    x: (tokens, inputs).  weight: (outputs, inputs). On a GPU bfloat16, by rows.
    """
    before = x @ weight.t()
    return gelu(before, approximate="tanh"), before


@product_gelu.register_kernel("cuda")  # type: ignore[untyped-decorator]
def _product_gelu(x: torch.Tensor, weight: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    after = x.new_empty(len(x), len(weight))
    before = torch.empty_like(after)
    _multiply("GELU_AUX", x, weight, after, before)
    return after, before


@product_gelu.register_fake  # type: ignore[untyped-decorator]
def _(x: torch.Tensor, weight: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    after = x.new_empty(len(x), len(weight))
    return after, torch.empty_like(after)


@torch.library.custom_op("hpml_plugins::gradient_before_gelu", mutates_args=(), device_types="cpu")  # type: ignore[untyped-decorator]
def gradient_before_gelu(
    gradient: torch.Tensor, weight: torch.Tensor, before: torch.Tensor
) -> torch.Tensor:
    """The gradient of `before`, (tokens, inputs), whose GELU is multiplied by weightᵀ.

    gradient: of that product, (tokens, outputs).  weight: (outputs, inputs). On a GPU bfloat16, by
    rows.
    """
    found: torch.Tensor = torch.ops.aten.gelu_backward(
        gradient @ weight, before, approximate="tanh"
    )
    return found


@gradient_before_gelu.register_kernel("cuda")  # type: ignore[untyped-decorator]
def _gradient_before_gelu(
    gradient: torch.Tensor, weight: torch.Tensor, before: torch.Tensor
) -> torch.Tensor:
    found = torch.empty_like(before)
    _multiply("DGELU", gradient, weight, found, before)
    return found


@gradient_before_gelu.register_fake  # type: ignore[untyped-decorator]
def _(gradient: torch.Tensor, weight: torch.Tensor, before: torch.Tensor) -> torch.Tensor:
    return torch.empty_like(before)


#: Epilogue and shapes → the product, planned at its first call.
_PLANNED: dict[tuple[Any, ...], Callable[..., None]] = {}


def _multiply(epilogue: str, x: Any, weight: Any, out: Any, before: Any) -> None:
    """Write x weightᵀ (for DGELU x weight) into `out` by cuBLASLt on the current stream.

    epilogue: "GELU_AUX" applies GELU and writes the values before it into `before`; "DGELU"
    multiplies by GELU's derivative at `before`.
    """
    given = x, weight, out, before
    if not all(each.is_contiguous() and each.dtype == torch.bfloat16 for each in given):
        raise ValueError("all matrices must be bfloat16, by rows")
    key = epilogue, x.device, *(tuple(each.shape) for each in (x, weight))
    if key not in _PLANNED:
        _PLANNED[key] = _plan(epilogue, *given)
    _PLANNED[key](*given)


def _plan(epilogue: str, x: Any, weight: Any, out: Any, before: Any) -> Callable[..., None]:
    """The call with the fastest algorithm for matrices of these shapes. The objects passed to
    cuBLASLt live as long as the point's process."""
    import numpy as np
    from nvmath import CudaDataType
    from nvmath.bindings import cublas
    from nvmath.bindings import cublasLt as lt

    def configure(setter: Any, owner: int, attribute: Any, value: int, dtype: Any) -> None:
        told = np.array([value], dtype)
        setter(owner, attribute, told.ctypes.data, told.nbytes)

    (tokens, inner), outputs = x.shape, out.shape[1]
    handle = lt.create()
    product = lt.matmul_desc_create(cublas.ComputeType.COMPUTE_32F, CudaDataType.CUDA_R_32F)
    transposed = epilogue == "GELU_AUX"
    operation = cublas.Operation.T if transposed else cublas.Operation.N
    attributes = lt.MatmulDescAttribute
    describe = partial(configure, lt.matmul_desc_set_attribute, product)
    describe(attributes.TRANSA, operation, np.int32)
    describe(attributes.EPILOGUE, lt.Epilogue[epilogue], np.int32)
    describe(attributes.EPILOGUE_AUX_POINTER, before.data_ptr(), np.uint64)
    describe(attributes.EPILOGUE_AUX_LD, outputs, np.int64)
    # cuBLASLt's matrices are stored by columns: its first is `weight`, its second the transpose of
    # x, and its result that of `out`
    shapes = ((inner, outputs) if transposed else (outputs, inner)), (inner, tokens)
    a, b, c = (
        lt.matrix_layout_create(CudaDataType.CUDA_R_16BF, rows, columns, rows)
        for rows, columns in (*shapes, (outputs, tokens))
    )
    preference = lt.matmul_preference_create()
    most = lt.MatmulPreferenceAttribute.MAX_WORKSPACE_BYTES
    configure(lt.matmul_preference_set_attribute, preference, most, WORKSPACE, np.uint64)
    found, count = np.zeros(ALGORITHMS, lt.matmul_heuristic_result_dtype), np.zeros(1, np.int32)
    lt.matmul_algo_get_heuristic(
        handle, product, a, b, c, c, preference, ALGORITHMS, found.ctypes.data, count.ctypes.data
    )
    found = found[: int(count[0])]
    found = found[found["state"] == 0].copy()
    if not len(found):
        raise RuntimeError(f"cuBLASLt has no algorithm for a product with {epilogue}")
    workspace = torch.empty(WORKSPACE, dtype=torch.uint8, device=x.device)
    one, zero = np.ones(1, np.float32), np.zeros(1, np.float32)

    def call(algorithm: int, x: Any, weight: Any, out: Any, before: Any) -> None:
        describe(attributes.EPILOGUE_AUX_POINTER, before.data_ptr(), np.uint64)
        lt.matmul(
            handle,
            product,
            one.ctypes.data,
            weight.data_ptr(),
            a,
            x.data_ptr(),
            b,
            zero.ctypes.data,
            out.data_ptr(),
            c,
            out.data_ptr(),
            c,
            found.ctypes.data + algorithm * found.itemsize,
            workspace.data_ptr(),
            WORKSPACE,
            torch.cuda.current_stream().cuda_stream,
        )

    def seconds(algorithm: int) -> float:
        again = partial(call, algorithm, x, weight, out, before)
        again()
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record()
        for _ in range(TRIALS):
            again()
        end.record()
        end.synchronize()
        return float(begin.elapsed_time(end))

    return partial(call, min(range(len(found)), key=seconds))
