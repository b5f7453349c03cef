"""Shapes of the decoders, and the operations and bytes of their steps. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from hpml_plugins import HpmlError


@dataclass(frozen=True)
class Shape:
    """The shape of a decoder-only transformer.

    hidden: numbers per token.  intermediate: of the feed-forward block.  heads, kv_heads: query
    heads, and heads of keys and values.  vocabulary: tokens.  positions: learnt position
    embeddings; 0 for rotary positions.
    """

    layers: int
    hidden: int
    intermediate: int
    heads: int
    kv_heads: int
    vocabulary: int
    positions: int = 0

    @property
    def head_dim(self) -> int:
        """Numbers per head."""
        return self.hidden // self.heads


#: Trained: LayerNorm, GELU, no biases, learnt positions, embedding and head tied. gpt2-124m:
#: Radford et al., Language Models are Unsupervised Multitask Learners (2019), table 2, vocabulary
#: padded to a multiple of 128, without GPT-2's biases as nanoGPT trains it.  gpt-1b: 18 of the 24
#: layers of GPT-3 XL: Brown et al., arXiv 2005.14165, table 2.1; 1.01 B parameters.  bytes-86m:
#: gpt2-124m's layers over the 256 values of a byte.
GPT = {
    "gpt2-124m": Shape(12, 768, 3072, 12, 12, 50304, 1024),
    "gpt-1b": Shape(18, 2048, 8192, 16, 16, 50304, 1024),
    "bytes-86m": Shape(12, 768, 3072, 12, 12, 256, 1024),
    "tiny": Shape(2, 64, 256, 4, 4, 256, 64),
}
#: Inference: RMSNorm, SwiGLU, no biases, rotary positions, grouped queries, a head of its own.
#: llama-3-8b: Grattafiori et al., The Llama 3 Herd of Models, arXiv 2407.21783, table 3;
#: vocabulary: config.json of meta-llama/Llama-3.1-8B.
LLAMA = {
    "llama-3-8b": Shape(32, 4096, 14336, 32, 8, 128256),
    "tiny": Shape(2, 64, 224, 4, 2, 256),
}
#: B of a weight in each format. int8 and fp8: of the weights alone, products in bfloat16.
#: fp8_products: activations are quantised too, and multiplied in fp8.
WEIGHT_BYTES = {"float32": 4, "bfloat16": 2, "int8": 1, "fp8": 1, "fp8_products": 1}
#: Format → precision of its products, as for `Bench.work`.
PRODUCTS = {
    "float32": "float32",
    "bfloat16": "bfloat16",
    "int8": "bfloat16",
    "fp8": "bfloat16",
    "fp8_products": "fp8",
}


def find_shape(model: str, known: dict[str, Shape]) -> Shape:
    """The shape of this name among `known`. Raises HpmlError for another name."""
    if model not in known:
        raise HpmlError(f"no model {model!r}; use one of {', '.join(known)}")
    return known[model]


def check_format(format: str) -> None:
    """Raises HpmlError for a format that is not in WEIGHT_BYTES."""
    if format not in WEIGHT_BYTES:
        raise HpmlError(f"no format {format!r}; use one of {', '.join(WEIGHT_BYTES)}")


def number_bytes(format: str) -> int:
    """B of a number of activations, cache and embeddings."""
    return 4 if format == "float32" else 2


def trained_parameters(shape: Shape) -> int:
    """Numbers in all parameters of a model of GPT; the head shares the embedding's.

    gpt2-124m: 50304 · 768 + 1024 · 768 + 12 · 7,079,424 + 768 = 124,373,760.
    """
    width, inner = shape.hidden, shape.intermediate
    matrices = 4 * width * width + 2 * width * inner
    norms = 2 * width
    tables = (shape.vocabulary + shape.positions) * width
    return tables + shape.layers * (matrices + norms) + width


def training_flop_per_token(shape: Shape, length: int) -> int:
    """Model FLOP of a training step per token: 6 N + 12 L h q T; recomputation by checkpointing is
    not counted.

    N: parameters without the position embeddings; the embedding of tokens counts once, as the
    head.  L layers of h heads of q numbers; T: `length` of a sequence; attention to later tokens
    counts. gpt2-124m, 1024: 6 · 123,587,328 + 12 · 12 · 12 · 64 · 1024 = 854,770,176.
    Source: Chowdhery et al., PaLM, arXiv 2204.02311, appendix B.
    """
    multiplied = trained_parameters(shape) - shape.positions * shape.hidden
    return 6 * multiplied + 12 * shape.layers * shape.hidden * length


def layer_matrices(shape: Shape) -> dict[str, tuple[int, int]]:
    """Name → (outputs, inputs) of each product of one layer of a model of LLAMA."""
    keys_and_values = 2 * shape.kv_heads * shape.head_dim
    return {
        "qkv": (shape.hidden + keys_and_values, shape.hidden),
        "out": (shape.hidden, shape.hidden),
        "gate_up": (2 * shape.intermediate, shape.hidden),
        "down": (shape.hidden, shape.intermediate),
    }


def multiplied_weights(shape: Shape) -> int:
    """Numbers in all matrices of a model of LLAMA, the head included, the embedding not.

    llama-3-8b: 32 · 218,103,808 + 128256 · 4096 = 7,504,658,432.
    """
    layer = sum(outputs * inputs for outputs, inputs in layer_matrices(shape).values())
    return shape.layers * layer + shape.vocabulary * shape.hidden


def cache_numbers(shape: Shape, batch: int, context: int) -> int:
    """Numbers in the keys and values of all layers. llama-3-8b, 1 × 2048: 134,217,728."""
    return 2 * shape.layers * shape.kv_heads * shape.head_dim * batch * context


def decode_bytes(shape: Shape, batch: int, context: int, format: str) -> int:
    """Bytes that a decode step reads: matrices and cache, each once. Norms, scales and embeddings,
    under 0.1 %, are not counted.

    llama-3-8b in bfloat16, 1 × 2048: 15,009,316,864 + 268,435,456 = 15,277,752,320.
    """
    weights = multiplied_weights(shape) * WEIGHT_BYTES[format]
    return weights + cache_numbers(shape, batch, context) * number_bytes(format)


def decode_flop(shape: Shape, batch: int, context: int) -> int:
    """FLOP of a decode step: 2 per weight and sequence, 4 · head_dim per query head and key.

    llama-3-8b, 1 × 2048: 2 · 7,504,658,432 + 4 · 32 · 4096 · 2048 = 16,083,058,688.
    """
    attention = 4 * shape.layers * shape.hidden * context
    return batch * (2 * multiplied_weights(shape) + attention)


def prefill_flop(shape: Shape, batch: int, length: int) -> int:
    """FLOP of reading `length` tokens of each sequence: products of all tokens, the head only for
    the last ones, attention to earlier tokens and the token itself.

    llama-3-8b, 1 × 8192: 2 · (6,979,321,856 · 8192 + 525,336,576) + 2 · 32 · 4096 · 8192 · 8193.
    """
    head = shape.vocabulary * shape.hidden
    products = 2 * ((multiplied_weights(shape) - head) * length + head)
    attention = 2 * shape.layers * shape.hidden * length * (length + 1)
    return batch * (products + attention)


def inference_memory(shape: Shape, batch: int, context: int, format: str) -> int:
    """Peak bytes of weights, embedding and cache, including construction, when all weights are not
    yet quantised."""
    item = number_bytes(format)
    weights = (multiplied_weights(shape) + shape.vocabulary * shape.hidden) * item
    return weights + cache_numbers(shape, batch, context) * item
