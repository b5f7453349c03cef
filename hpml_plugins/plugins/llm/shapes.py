"""Shapes of the decoders, and what a step of them computes and reads. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from hpml_plugins import HpmlError


@dataclass(frozen=True)
class Decoder:
    """The shape of a decoder-only transformer.

    hidden: numbers per token.  intermediate: of the feed-forward block.  heads, kv_heads: query
    heads, and heads of keys and values.  vocabulary: tokens.  positions: learnt position
    embeddings; 0 where positions are rotary.
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


#: Trained: LayerNorm, GELU, biases, learnt positions, the embedding of tokens also the head
#: ("tied"). gpt2-124m: Radford et al., Language Models are Unsupervised Multitask Learners (2019),
#: table 2, the smallest; its vocabulary of 50257 is padded to a multiple of 128.  tiny: for CPUs.
TRAINED = {
    "gpt2-124m": Decoder(12, 768, 3072, 12, 12, 50304, 1024),
    "tiny": Decoder(2, 64, 256, 4, 4, 256, 64),
}
#: Decoded: RMSNorm, SwiGLU, no biases, rotary positions, grouped queries, embedding and head of
#: their own. llama-3.1-8b: Grattafiori et al., The Llama 3 Herd of Models, arXiv 2407.21783, table
#: 3; vocabulary: config.json of meta-llama/Llama-3.1-8B.  tiny: for CPUs.
DECODED = {
    "llama-3.1-8b": Decoder(32, 4096, 14336, 32, 8, 128256),
    "tiny": Decoder(2, 64, 224, 4, 2, 256),
}


def find_decoder(model: str, known: dict[str, Decoder]) -> Decoder:
    """The shape of this name among `known`. Raises HpmlError for another name."""
    if model not in known:
        raise HpmlError(f"no model {model!r}; use one of {', '.join(known)}")
    return known[model]


def trained_parameters(shape: Decoder) -> int:
    """Numbers in all parameters of a model of TRAINED; the head shares the embedding's.

    gpt2-124m: 50304 · 768 + 1024 · 768 + 12 · 7,087,872 + 1536 = 124,475,904.
    """
    width, inner = shape.hidden, shape.intermediate
    attention = (3 * width * width + 3 * width) + (width * width + width)
    feed_forward = (width * inner + inner) + (inner * width + width)
    block = attention + feed_forward + 4 * width
    return (shape.vocabulary + shape.positions) * width + shape.layers * block + 2 * width


def training_flop_per_token(shape: Decoder, length: int) -> int:
    """Model FLOP of a training step per token: 6 N + 12 L h q T; what checkpointing computes again
    is not counted.

    N: parameters but the position embeddings, which nothing is multiplied by; the embedding of
    tokens counts once, as the head.  L layers of h heads of q numbers; length: T, of a sequence;
    attention to later tokens is counted too. gpt2-124m, 1024: 6 · 123,689,472 + 12 · 12 · 12 · 64 ·
    1024 = 855,383,040. Source: Chowdhery et al., PaLM, arXiv 2204.02311, appendix B.
    """
    multiplied = trained_parameters(shape) - shape.positions * shape.hidden
    return 6 * multiplied + 12 * shape.layers * shape.heads * shape.head_dim * length


def layer_weights(shape: Decoder) -> int:
    """Numbers in the weights of one layer of a model of DECODED. llama-3.1-8b: 218,112,000."""
    keys_and_values = 2 * shape.kv_heads * shape.head_dim
    attention = (shape.hidden + keys_and_values) * shape.hidden + shape.hidden * shape.hidden
    feed_forward = 3 * shape.hidden * shape.intermediate
    return attention + feed_forward + 2 * shape.hidden


def decode_weights(shape: Decoder) -> int:
    """Numbers in the weights that a decode step reads: layers, last norm and head, without the
    table of embeddings.

    llama-3.1-8b: 32 · 218,112,000 + 4096 + 525,336,576 = 7,504,924,672.
    """
    return shape.layers * layer_weights(shape) + shape.hidden + shape.vocabulary * shape.hidden


def cache_numbers(shape: Decoder, batch: int, context: int) -> int:
    """Numbers in the keys and values of all layers. llama-3.1-8b, 1 × 2048: 2 · 32 · 8 · 128 · 2048
    = 134,217,728."""
    return 2 * shape.layers * shape.kv_heads * shape.head_dim * batch * context


def decode_bytes(shape: Decoder, batch: int, context: int, item: int) -> int:
    """Bytes that a decode step reads: the weights, the embeddings of its tokens, the cache, each
    once.

    item: B of a number. llama-3.1-8b in bfloat16, 1 × 2048: 15,009,849,344 + 8192 + 268,435,456 =
    15,278,292,992.
    """
    numbers = decode_weights(shape) + batch * shape.hidden + cache_numbers(shape, batch, context)
    return item * numbers


def decode_flop(shape: Decoder, batch: int, context: int) -> int:
    """FLOP of a decode step: 2 per weight and sequence, and 4 · head_dim per query head and key;
    norms not counted.

    llama-3.1-8b, 1 × 2048: 2 · 7,504,658,432 + 4 · 32 · 32 · 128 · 2048 = 16,083,058,688.
    """
    norms = (2 * shape.layers + 1) * shape.hidden
    products = 2 * (decode_weights(shape) - norms) * batch
    return products + 4 * shape.layers * shape.hidden * context * batch


def decode_memory(shape: Decoder, batch: int, context: int, item: int) -> int:
    """Bytes that all weights and the cache occupy."""
    numbers = (
        decode_weights(shape)
        + shape.vocabulary * shape.hidden
        + cache_numbers(shape, batch, context)
    )
    return item * numbers
