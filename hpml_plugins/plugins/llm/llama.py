"""A Llama-shaped decoder that generates one token per sequence. Imports torch: imported on use
only."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.functional import linear, rms_norm, scaled_dot_product_attention, silu

from hpml_plugins.plugins.llm.shapes import Decoder

#: As in Llama 3.1; its scaling of the frequencies for long contexts is left out, for it changes no
#: time.
EPSILON, ROTARY_BASE = 1e-5, 500000.0
#: Standard deviation of the weights; keys and values of the cache are normal with 1.
DEVIATION = 0.02
#: The first that can is used: in `kernels_decode` cuDNN is the fastest over a contiguous cache.
BACKENDS = [
    SDPBackend.CUDNN_ATTENTION,
    SDPBackend.FLASH_ATTENTION,
    SDPBackend.EFFICIENT_ATTENTION,
    SDPBackend.MATH,
]
#: Steps before a capture: what libraries set up in their first calls must not be captured.
STEPS_BEFORE_CAPTURE = 3


@dataclass(frozen=True)
class Layer:
    """The weights of a layer, (outputs, inputs) each, and its cache.

    qkv: queries, keys and values in one product.  gate_up: both in one.  keys, values: (batch,
    kv_heads, context, head_dim).
    """

    norm_attention: Any
    qkv: Any
    out: Any
    norm_feed_forward: Any
    gate_up: Any
    down: Any
    keys: Any
    values: Any


class Decode:
    """One decode step of `batch` sequences, of which each has `context` tokens with the new one,
    which is the last.

    Weights and cache are random. Each call computes the same: keys and values of the new token take
    the cache's last place.  tokens: the new token of each sequence.
    """

    def __init__(
        self, shape: Decoder, batch: int, context: int, dtype: Any, device: str, seed: int
    ) -> None:
        generator = torch.Generator(device).manual_seed(seed)

        def normal(*size: int, deviation: float = DEVIATION) -> Any:
            empty = torch.empty(size, dtype=dtype, device=device)
            return empty.normal_(std=deviation, generator=generator)

        def ones() -> Any:
            return torch.ones(shape.hidden, dtype=dtype, device=device)

        self.shape = shape
        cache = (batch, shape.kv_heads, context, shape.head_dim)
        width_of_qkv = shape.hidden + 2 * shape.kv_heads * shape.head_dim
        self.layers = [
            Layer(
                norm_attention=ones(),
                qkv=normal(width_of_qkv, shape.hidden),
                out=normal(shape.hidden, shape.hidden),
                norm_feed_forward=ones(),
                gate_up=normal(2 * shape.intermediate, shape.hidden),
                down=normal(shape.hidden, shape.intermediate),
                keys=normal(*cache, deviation=1.0),
                values=normal(*cache, deviation=1.0),
            )
            for _ in range(shape.layers)
        ]
        self.embedding = normal(shape.vocabulary, shape.hidden)
        self.norm = ones()
        self.head = normal(shape.vocabulary, shape.hidden)
        self.tokens = torch.randint(shape.vocabulary, (batch,), generator=generator, device=device)
        self.position = context - 1
        cos, sin = self._rotation(device)
        self._cos = torch.cat([cos, cos]).to(dtype)
        self._sin = torch.cat([-sin, sin]).to(dtype)

    def _rotation(self, device: str) -> tuple[Any, Any]:
        """Cosine and sine of the new token's angles, float64, (head_dim / 2,).

        Source: Su et al., RoFormer, arXiv 2104.09864; halves rotated as in Llama.
        """
        half = self.shape.head_dim // 2
        frequencies = ROTARY_BASE ** -(
            torch.arange(half, dtype=torch.float64, device=device) / half
        )
        angles = self.position * frequencies
        return angles.cos(), angles.sin()

    def step(self) -> tuple[Any, Any]:
        """Logits, (batch, vocabulary), and the most likely next token of each sequence,
        (batch,)."""
        with torch.no_grad(), sdpa_kernel(BACKENDS, set_priority=True):
            x = self.embedding[self.tokens]
            for layer in self.layers:
                x = self.layer(layer, x)
            logits = linear(self._normalise(x, self.norm), self.head)
            return logits, logits.argmax(dim=-1)

    def layer(self, layer: Layer, x: Any) -> Any:
        """x: (batch, hidden). Returns the same, and writes the new keys and values into the
        cache."""
        shape, batch = self.shape, len(x)
        rotated = shape.heads + shape.kv_heads
        qkv = linear(self._normalise(x, layer.norm_attention), layer.qkv).view(
            batch, -1, shape.head_dim
        )
        qk, v = qkv[:, :rotated], qkv[:, rotated:]
        # the halves of each head swapped; the sine has the sign of the first half
        qk = torch.addcmul(qk * self._cos, qk.roll(shape.head_dim // 2, -1), self._sin)
        layer.keys[:, :, self.position] = qk[:, shape.heads :]
        layer.values[:, :, self.position] = v
        q = qk[:, : shape.heads, None]
        mixed = scaled_dot_product_attention(q, layer.keys, layer.values, enable_gqa=True)
        x = x + linear(mixed.reshape(batch, shape.hidden), layer.out)
        gate, up = linear(self._normalise(x, layer.norm_feed_forward), layer.gate_up).chunk(
            2, dim=-1
        )
        return x + linear(silu(gate) * up, layer.down)

    def _normalise(self, x: Any, weight: Any) -> Any:
        return rms_norm(x, (self.shape.hidden,), weight, EPSILON)

    def captured(self) -> tuple[Callable[[], None], tuple[Any, Any]]:
        """A call that replays the step as one CUDA graph, and what it writes: logits and tokens, as
        `step` returns."""
        stream = torch.cuda.Stream()
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            for _ in range(STEPS_BEFORE_CAPTURE):
                self.step()
        torch.cuda.current_stream().wait_stream(stream)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            written = self.step()
        return graph.replay, written

    def exact_layer(self, layer: Layer, x: Any) -> Any:
        """What `layer` returns, in float64, each operation written out: queries head by head, no
        fused function.

        x: (batch, hidden), of a few sequences: the first ones of the cache, whose last place must
        have been written.
        """
        shape, few = self.shape, len(x)
        weight = {
            name: value.double()
            for name, value in vars(layer).items()
            if name not in ("keys", "values")
        }
        x = x.double()

        def normalised(values: Any, scale: Any) -> Any:
            return values / (values.pow(2).mean(-1, keepdim=True) + EPSILON).sqrt() * scale

        qkv = normalised(x, weight["norm_attention"]) @ weight["qkv"].T
        q, k, v = qkv.view(few, -1, shape.head_dim).split(
            [shape.heads, shape.kv_heads, shape.kv_heads], dim=1
        )
        q, k = self._exact_rotary(q), self._exact_rotary(k)
        mixed = []
        for head in range(shape.heads):
            group = head * shape.kv_heads // shape.heads
            keys = torch.cat([layer.keys[:few, group, :-1].double(), k[:, group, None]], dim=1)
            values = torch.cat([layer.values[:few, group, :-1].double(), v[:, group, None]], dim=1)
            scores = torch.einsum("bd,bkd->bk", q[:, head], keys) / shape.head_dim**0.5
            mixed.append(torch.einsum("bk,bkd->bd", scores.softmax(-1), values))
        x = x + torch.cat(mixed, dim=-1) @ weight["out"].T
        gate, up = (normalised(x, weight["norm_feed_forward"]) @ weight["gate_up"].T).chunk(
            2, dim=-1
        )
        return x + (gate / (1 + torch.exp(-gate)) * up) @ weight["down"].T

    def _exact_rotary(self, heads: Any) -> Any:
        """Each pair of a number of the first half and its partner in the second, turned as a
        complex number."""
        first, second = heads.chunk(2, dim=-1)
        turned = torch.complex(first, second) * torch.complex(*self._rotation(str(heads.device)))
        return torch.cat([turned.real, turned.imag], dim=-1)
