"""A Llama-shaped decoder over a static cache: prefill, decode, quantised weights. Imports torch."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import nn
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.functional import linear, scaled_dot_product_attention, silu

from hpml_plugins.plugins.language_models.shapes import Shape

#: As in Llama 3; its scaling of the frequencies for long contexts does not affect the time and is
#: left out.
EPSILON, ROTARY_BASE = 1e-5, 500000.0
#: The first available one is used.
BACKENDS = [
    SDPBackend.CUDNN_ATTENTION,
    SDPBackend.FLASH_ATTENTION,
    SDPBackend.EFFICIENT_ATTENTION,
    SDPBackend.MATH,
]
FP8 = torch.float8_e4m3fn
LINEARS = ("qkv", "out", "gate_up", "down")


@dataclass(frozen=True)
class Place:
    """The positions of a call's new tokens.

    rows: (sequences, 1), of the cache.  positions: (sequences, new), of the new tokens.  cos, sin:
    (sequences, new, 1, head_dim).  mask: (sequences, 1, 1, context), which positions of the cache a
    new token may see; None if all of them are filled, or for the tokens of a prompt.
    """

    rows: Any
    positions: Any
    cos: Any
    sin: Any
    mask: Any = None


@dataclass(frozen=True)
class Cache:
    """Keys and values of one layer, (sequences, context, kv_heads, head_dim)."""

    keys: Any
    values: Any


def rotate(heads: Any, place: Place) -> Any:
    """Rotary embedding of heads (sequences, new, heads, head_dim): halves rotated, as in Llama.

    Source: Su et al., RoFormer, arXiv 2104.09864.
    """
    swapped = heads.roll(heads.shape[-1] // 2, -1)  # the sine has the sign of the first half
    return heads * place.cos + swapped * place.sin


def attend(q: Any, k: Any, v: Any, cache: Cache, place: Place) -> Any:
    """The attention output of the new tokens, (sequences, new, heads, head_dim).

    Several new tokens are a whole prompt and see each other; a single one sees the cache.
    """
    if q.shape[1] > 1:
        q, k, v = (each.transpose(1, 2) for each in (q, k, v))
        mixed = scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)
        return mixed.transpose(1, 2)
    keys, values = cache.keys.transpose(1, 2), cache.values.transpose(1, 2)
    if place.mask is None:
        q = q.transpose(1, 2)
        mixed = scaled_dot_product_attention(q, keys, values, enable_gqa=True)
        return mixed.transpose(1, 2)
    # queries that share keys become rows: fused kernels accept a mask, but not with groups
    rows = q.view(q.shape[0], keys.shape[1], -1, q.shape[3])
    mixed = scaled_dot_product_attention(rows, keys, values, attn_mask=place.mask)
    return mixed.reshape(q.shape)


class Block(nn.Module):  # type: ignore[misc]  # torch is untyped to mypy here
    """One layer. qkv's outputs are ordered by key head: its queries, its key, its value; gate_up's
    by the same number of blocks: a block of the gate, then the same block of the gated values. So a
    range of outputs has whole heads and blocks, as tensor parallelism needs."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        width, inner = shape.hidden, shape.intermediate
        self.head_dim, self.group = shape.head_dim, shape.heads // shape.kv_heads
        self.gated = inner // shape.kv_heads
        heads = shape.kv_heads * (self.group + 2)
        self.norm_attention = nn.RMSNorm(width, eps=EPSILON)
        self.qkv = nn.Linear(width, heads * shape.head_dim, bias=False)
        self.out = nn.Linear(width, width, bias=False)
        self.norm_feed_forward = nn.RMSNorm(width, eps=EPSILON)
        self.gate_up = nn.Linear(width, 2 * inner, bias=False)
        self.down = nn.Linear(inner, width, bias=False)

    def forward(self, x: Any, cache: Cache, place: Place) -> Any:
        """x: (sequences, new, hidden). Returns the same shape, and writes keys and values into the
        cache."""
        mixed = attend(*self.project(x, cache, place), cache, place)
        x = self.merge(x, mixed)
        return self.contract(x, self.expand(x))

    def project(self, x: Any, cache: Cache, place: Place) -> tuple[Any, Any, Any]:
        """Queries, keys and values of the new tokens, (sequences, new, heads, head_dim) each; keys
        and values are in the cache too."""
        qkv = self.qkv(self.norm_attention(x))
        qkv = qkv.unflatten(2, (-1, self.group + 2, self.head_dim))
        q, k, v = qkv.split([self.group, 1, 1], dim=3)
        q, k = rotate(q.flatten(2, 3), place), rotate(k.squeeze(3), place)
        v = v.squeeze(3)
        cache.keys[place.rows, place.positions] = k
        cache.values[place.rows, place.positions] = v
        return q, k, v

    def merge(self, x: Any, mixed: Any) -> Any:
        """Add the output of attention to x."""
        return x + self.out(mixed.flatten(2))

    def expand(self, x: Any) -> Any:
        """The intermediate values of the feed-forward block, (sequences, new, intermediate)."""
        both = self.gate_up(self.norm_feed_forward(x)).unflatten(2, (-1, 2, self.gated))
        gate, up = both.unbind(3)
        return (silu(gate) * up).flatten(2)

    def contract(self, x: Any, inner: Any) -> Any:
        """Add the output of the feed-forward block to x."""
        return x + self.down(inner)


class Ends(nn.Module):  # type: ignore[misc]  # torch is untyped to mypy here
    """The last norm and the head."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.norm = nn.RMSNorm(shape.hidden, eps=EPSILON)
        self.head = nn.Linear(shape.hidden, shape.vocabulary, bias=False)

    def forward(self, x: Any) -> tuple[Any, Any]:
        """x: (sequences, hidden). Logits (sequences, vocabulary), and the most likely token of
        each."""
        logits = self.head(self.norm(x))
        return logits, logits.argmax(-1)


class Llama(nn.Module):  # type: ignore[misc]  # torch is untyped to mypy here
    """The decoder with random weights.

    context: the most tokens of a sequence.  ranks: how many share the heads.
    """

    def __init__(self, shape: Shape, context: int, format: str, device: str, seed: int) -> None:
        super().__init__()
        dtype = torch.float32 if format == "float32" else torch.bfloat16
        torch.manual_seed(seed)
        with torch.device(device):
            self.embedding = nn.Embedding(shape.vocabulary, shape.hidden, dtype=dtype)
            self.blocks = nn.ModuleList(Block(shape).to(dtype) for _ in range(shape.layers))
            self.ends = Ends(shape).to(dtype)
        self.requires_grad_(False)
        self.shape, self.context, self.dtype = shape, context, dtype
        self.ranks = 1
        half = shape.head_dim // 2
        exponents = torch.arange(half, dtype=torch.float64, device=device) / half
        places = torch.arange(context, dtype=torch.float64, device=device)
        angles = places[:, None] * ROTARY_BASE**-exponents
        cos, sin = angles.cos(), angles.sin()
        self.cos = torch.cat([cos, cos], 1).to(dtype)
        self.sin = torch.cat([-sin, sin], 1).to(dtype)
        self.places = torch.arange(context, device=device)

    def caches(self, sequences: int) -> list[Cache]:
        """Empty caches of all layers, of this rank's heads."""
        heads = self.shape.kv_heads // self.ranks
        size = (sequences, self.context, heads, self.shape.head_dim)
        made = [
            torch.zeros(size, dtype=self.dtype, device=self.cos.device)
            for _ in range(2 * self.shape.layers)
        ]
        return [Cache(*made[2 * layer : 2 * layer + 2]) for layer in range(self.shape.layers)]

    def place(self, rows: Any, positions: Any, *, masked: bool = False) -> Place:
        """rows: (sequences,).  positions: (sequences, new).  masked: a token only sees the cache up
        to itself."""
        cos, sin = self.cos[positions][:, :, None], self.sin[positions][:, :, None]
        mask = None
        if masked:
            mask = (self.places <= positions)[:, None, None]
        return Place(rows[:, None], positions, cos, sin, mask)

    def forward(self, tokens: Any, caches: list[Cache], place: Place) -> tuple[Any, Any]:
        """tokens: (sequences, new). Logits of each sequence's last token, (sequences, vocabulary),
        and the most likely next one."""
        with torch.no_grad(), sdpa_kernel(BACKENDS, set_priority=True):
            x = self.embedding(tokens)
            for block, cache in zip(self.blocks, caches, strict=True):
                x = block(x, cache, place)
            logits, most_likely = self.ends(x[:, -1])
            return logits, most_likely

    def prompt(self, tokens: Any, caches: list[Cache], row: int = 0) -> tuple[Any, Any]:
        """Read prompts, (sequences, length), into the rows of the cache from `row` on."""
        rows = torch.arange(row, row + len(tokens), device=tokens.device)
        positions = self.places[: tokens.shape[1]].expand(len(tokens), -1)
        found: tuple[Any, Any] = self(tokens, caches, self.place(rows, positions))
        return found

    def quantize(self, format: str) -> None:
        """Convert all matrices to "int8", "fp8" or "fp8_products"; no change for other formats."""
        kinds = {"int8": WeightOnly, "fp8": WeightOnly, "fp8_products": Fp8Products}
        if format not in kinds:
            return
        dtype = torch.int8 if format == "int8" else FP8
        for block in self.blocks:
            for name in LINEARS:
                setattr(block, name, kinds[format](getattr(block, name).weight, dtype))
        self.ends.head = kinds[format](self.ends.head.weight, dtype)

    def compile_parts(self, options: dict[str, Any], backend: str = "inductor") -> None:
        """Compile one layer, shared by all, and the last norm with the head."""
        import torch._inductor.config

        torch._inductor.config.compile_threads = 1  # a pool of processes takes seconds to start
        more = {"options": options} if backend == "inductor" else {}
        for part in (*self.blocks, self.ends):
            part.compile(dynamic=False, backend=backend, **more)


def quantize_rows(x: Any, dtype: Any) -> tuple[Any, Any]:
    """x (rows, numbers) as int8 or fp8 with one scale per row, (rows, 1), float32: a row's largest
    number becomes the format's largest."""
    most = 127.0 if dtype == torch.int8 else torch.finfo(dtype).max
    scales = x.abs().amax(1, keepdim=True).float().clamp(min=1e-12) / most
    scaled = x.float() / scales
    return (scaled.round() if dtype == torch.int8 else scaled).to(dtype), scales


class WeightOnly(nn.Module):  # type: ignore[misc]  # torch is untyped to mypy here
    """A product whose weight is int8 or fp8 with a scale per output; it is multiplied as bfloat16.

    Compiled, the conversion is part of the product's kernel and the weight is read in its stored
    format.
    """

    def __init__(self, weight: Any, dtype: Any) -> None:
        super().__init__()
        values, scales = quantize_rows(weight, dtype)
        self.register_buffer("weight", values)
        self.register_buffer("scales", scales[:, 0].to(weight.dtype))

    def forward(self, x: Any) -> Any:
        """x: (…, inputs). Returns (…, outputs)."""
        return linear(x, self.weight.to(x.dtype)) * self.scales


class Fp8Products(nn.Module):  # type: ignore[misc]  # torch is untyped to mypy here
    """A product of fp8 numbers, scaled by rows on both sides; activations are quantised at each
    call."""

    def __init__(self, weight: Any, dtype: Any) -> None:
        super().__init__()
        values, scales = quantize_rows(weight, dtype)
        self.register_buffer("weight", values)
        self.register_buffer("scales", scales)

    def forward(self, x: Any) -> Any:
        """x: (…, inputs), bfloat16. Returns (…, outputs)."""
        rows, scales = quantize_rows(x.flatten(0, -2), FP8)
        product = torch._scaled_mm(
            rows,
            self.weight.t(),
            scale_a=scales,
            scale_b=self.scales.t(),
            out_dtype=x.dtype,
            use_fast_accum=True,
        )
        return product.view(*x.shape[:-1], -1)
