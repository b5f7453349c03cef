"""Attention by torch's back ends and FlashAttention 3; its definition in float64. Imports torch.

Queries are (batch, heads, queries, head_dim), keys and values (batch, kv_heads, keys, head_dim);
each group of heads / kv_heads query heads shares a head of keys and values.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.functional import scaled_dot_product_attention

from hpml_plugins.plugins.kernels.paging import PAGE, Attend
from hpml_plugins.plugins.kernels.variants import Step

BACKENDS = {
    "flash": SDPBackend.FLASH_ATTENTION,
    "cuDNN": SDPBackend.CUDNN_ATTENTION,
    "efficient": SDPBackend.EFFICIENT_ATTENTION,
    "math": SDPBackend.MATH,
}


def make_inputs(
    batch: int,
    length: int,
    heads: int,
    kv_heads: int,
    dim: int,
    device: str,
    seed: int,
    *,
    queries: int = 0,
) -> tuple[Any, Any, Any]:
    """Normal queries, keys and values; bfloat16 on a GPU, float32 on a CPU. queries: per sequence;
    0: `length`.

    The heads of a token are adjacent in memory, as a model's linear layer writes them.
    """
    generator = torch.Generator(device).manual_seed(seed)
    dtype = torch.bfloat16 if device == "cuda" else torch.float32

    def draw(tokens: int, count: int) -> Any:
        drawn = torch.empty(batch, tokens, count, dim, dtype=dtype, device=device).normal_(
            generator=generator
        )
        return drawn.transpose(1, 2)

    return draw(queries or length, heads), draw(length, kv_heads), draw(length, kv_heads)


def by_torch(backend: str, *, causal: bool, repeat: bool = False) -> Attend:
    """`scaled_dot_product_attention` by one back end. repeat: copy keys and values for each query
    head of a group."""

    def attend(q: Any, k: Any, v: Any) -> Any:
        if repeat:
            k, v = (each.repeat_interleave(q.shape[1] // k.shape[1], dim=1) for each in (k, v))
        with sdpa_kernel(BACKENDS[backend]):
            return scaled_dot_product_attention(q, k, v, is_causal=causal, enable_gqa=not repeat)

    return attend


def windowed_flash(window: int) -> Attend:
    """torch's FlashAttention with a sliding window, which `scaled_dot_product_attention` has no
    argument for."""

    def attend(q: Any, k: Any, v: Any) -> Any:
        q, k, v = (each.transpose(1, 2) for each in (q, k, v))
        length = q.shape[1]
        result = torch.ops.aten._flash_attention_forward(
            q,
            k,
            v,
            None,
            None,
            length,
            length,
            0.0,
            True,
            False,
            window_size_left=window - 1,
            window_size_right=0,
        )
        return result[0].transpose(1, 2)

    return attend


def by_flash_attention_3(window: int = 0, *, causal: bool = True) -> Attend:
    """FlashAttention 3, of the package `flash_attn_interface`. Raises ImportError if it is not
    installed."""
    from flash_attn_interface import flash_attn_func  # type: ignore[import-not-found]

    sides = (window - 1, 0) if window else (-1, -1)

    def attend(q: Any, k: Any, v: Any) -> Any:
        result = flash_attn_func(
            *(each.transpose(1, 2) for each in (q, k, v)), causal=causal, window_size=sides
        )
        return (result[0] if isinstance(result, tuple) else result).transpose(1, 2)

    return attend


def by_flex(mask: str, *arguments: Any) -> Attend:
    """FlexAttention with a mask of the module `flex`, which is imported on use: torch's part of it
    takes seconds."""
    from hpml_plugins.plugins.kernels import flex

    return flex.attend(getattr(flex, mask)(*arguments))


def page_table(batch: int, length: int, device: str, seed: int) -> Any:
    """The positions of each sequence's pages in the cache, (batch, pages): all positions, in random
    order."""
    pages = length // PAGE
    order = torch.randperm(batch * pages, generator=torch.Generator().manual_seed(seed))
    return order.reshape(batch, pages).to(device)


def to_pages(values: Any, table: Any) -> Any:
    """Keys or values (batch, kv_heads, length, dim) as a paged cache, (1, kv_heads, batch · length,
    dim)."""
    batch, heads, length, dim = values.shape
    pages = (
        values.reshape(batch, heads, -1, PAGE, dim)
        .permute(1, 0, 2, 3, 4)
        .reshape(heads, -1, PAGE, dim)
    )
    cache = torch.empty_like(pages, memory_format=torch.contiguous_format)
    cache[:, table.flatten()] = pages
    return cache.reshape(1, heads, batch * length, dim)


def gather_pages(cache: Any, table: Any) -> Any:
    """The inverse of `to_pages`: one copy of the cache, with the sequences as second dimension in
    memory."""
    _, heads, _, dim = cache.shape
    pages = cache.reshape(heads, -1, PAGE * dim).index_select(1, table.flatten())
    return pages.reshape(heads, len(table), -1, dim).transpose(0, 1)


def training_step(attend: Attend, q: Any, k: Any, v: Any, gradient: Any) -> Step:
    """Forward and backward: the result, and the gradients of queries, keys and values."""
    leaves = [each.detach().requires_grad_() for each in (q, k, v)]

    def step() -> list[Any]:
        result = attend(*leaves)
        return [result.detach(), *torch.autograd.grad(result, leaves, gradient)]

    return step


def exact(q: Any, k: Any, v: Any, window: int, causal: bool, rows: Any) -> Any:
    """The result in float64 for these rows of one sequence and one head of keys.

    q: (group, queries, dim).  k, v: (keys, dim).  window: keys that a query sees; 0: all.
    """
    return _exact_rows(q.double(), k.double(), v.double(), window, causal, rows)[1]


def _exact_rows(q: Any, k: Any, v: Any, window: int, causal: bool, rows: Any) -> tuple[Any, Any]:
    scores = q[:, rows] @ k.T / q.shape[-1] ** 0.5
    if causal:
        place = torch.arange(len(k), device=k.device)
        hidden = place > rows[:, None]
        if window:
            hidden |= place <= rows[:, None] - window
        scores.masked_fill_(hidden, -torch.inf)
    weights = scores.softmax(-1)
    return weights, weights @ v


def exact_gradients(
    q: Any, k: Any, v: Any, gradient: Any, chunk: int = 1024
) -> tuple[Any, Any, Any, Any]:
    """Result and gradients of queries, keys and values of causal attention, in float64, a chunk of
    queries at a time.

    With s = q kᵀ / √d, p = softmax(s) and the result's gradient g: dv = pᵀ g, ds = p ∘ (g vᵀ −
    rowsum(p ∘ g vᵀ)), dq = ds k / √d, dk = dsᵀ q / √d.
    """
    q, k, v, gradient = (each.double() for each in (q, k, v, gradient))
    scale = q.shape[-1] ** -0.5
    results, of_queries = [], []
    of_keys, of_values = torch.zeros_like(k), torch.zeros_like(v)
    for rows in torch.arange(q.shape[1], device=q.device).split(chunk):
        weights, result = _exact_rows(q, k, v, 0, True, rows)
        part = gradient[:, rows]
        of_weights = part @ v.T
        of_scores = weights * (of_weights - (weights * of_weights).sum(-1, keepdim=True)) * scale
        results.append(result)
        of_queries.append(of_scores @ k)
        of_keys += (of_scores.transpose(1, 2) @ q[:, rows]).sum(0)
        of_values += (weights.transpose(1, 2) @ part).sum(0)
    return torch.cat(results, 1), torch.cat(of_queries, 1), of_keys, of_values


def some_rows(length: int, count: int = 128) -> Any:
    """The first and the last rows, `count` of each, or all."""
    if length <= 2 * count:
        return torch.arange(length)
    return torch.cat([torch.arange(count), torch.arange(length - count, length)])


def not_tried(reason: str) -> Attend:
    """Placeholder for a back end that this plugin leaves out: raises NotImplementedError with the
    reason."""
    raise NotImplementedError(f"not tried: {reason}")


def prefill_ways(
    window: int, length: int, device: str, *, training: bool = False
) -> dict[str, Callable[[], Attend]]:
    """Name → function that returns causal attention by one back end, and raises if the back end is
    missing.

    training: whether to compute the backward pass too.
    """
    if device == "cpu":
        return {name: partial(by_torch, name, causal=True) for name in ("flash", "math")}
    flex = partial(by_flex, "causal_mask", length, window, device)
    third = partial(by_flash_attention_3, window)
    if window:
        masked = partial(not_tried, "torch gives it a window only as a mask of all pairs")
        return {
            "flash": partial(windowed_flash, window),
            "Flex": flex,
            "FlashAttention 3": third,
            "cuDNN": masked,
            "efficient": masked,
        }
    return {
        "flash": partial(by_torch, "flash", causal=True),
        "cuDNN": partial(by_torch, "cuDNN", causal=True),
        "efficient, keys repeated": partial(by_torch, "efficient", causal=True, repeat=True),
        **({} if training else {"Flex": flex}),
        "FlashAttention 3": third,
        **(
            {"Flex": partial(not_tried, "its backward pass takes too long to compile")}
            if training
            else {}
        ),
    }


def decode_ways(device: str) -> dict[str, Callable[[], Attend]]:
    """The same for one query per sequence over a contiguous cache."""
    if device == "cpu":
        return {name: partial(by_torch, name, causal=False) for name in ("flash", "math")}
    return {
        "flash": partial(by_torch, "flash", causal=False),
        "cuDNN": partial(by_torch, "cuDNN", causal=False),
        "FlashAttention 3": partial(by_flash_attention_3, causal=False),
        "efficient": partial(
            not_tried, "it needs the cache's keys and values repeated for each query head"
        ),
        "Flex": partial(
            not_tried, "without a mask by blocks it does not divide the keys of one sequence"
        ),
    }


def paged_ways(table: Any) -> dict[str, Callable[[], Attend]]:
    """The same over a paged cache: gathered into a contiguous one first, or read in place by
    FlexAttention."""
    backend = by_torch("flash", causal=False)

    def gathered(q: Any, k: Any, v: Any) -> Any:
        return backend(q, gather_pages(k, table), gather_pages(v, table))

    return {"gathered, flash": lambda: gathered, "Flex": partial(by_flex, "paged_mask", table)}
