"""Operations and bytes of the kernels, their limiting roof, and the distribution of tokens to
experts. Pure."""

from __future__ import annotations

from collections.abc import Sequence

#: Operations of a training step of attention over those of its forward pass: two products forward,
#: five backward, of which one computes the scores again. Source: Dao, FlashAttention-2, arXiv
#: 2307.08691, section 4.1.
TRAINING = 3.5


def gemm_flop(m: int, n: int, k: int) -> int:
    """FLOP of an (m, k) times a (k, n) matrix: 2 m n k. 16 × 28672 × 8192: 7.516 GFLOP."""
    return 2 * m * n * k


def gemm_bytes(m: int, n: int, k: int, *, item: float, out: float) -> float:
    """Bytes of the product, each matrix read or written once.  item: B of a number of the operands;
    out: of the result.

    16 × 28672 × 8192 with item=1, out=2: 131,072 + 234,881,024 + 917,504.
    """
    return item * (m * k + n * k) + out * m * n


def attention_pairs(length: int, window: int = 0) -> int:
    """Pairs of a query and a key at or before it.  window: the most keys of a query; 0: all.

    8192: 8192 · 8193 / 2 = 33,558,528. A window of 4096 leaves 8192 · 4096 − 4096 · 4095 / 2 =
    25,167,872.
    """
    window = min(window or length, length)
    return length * window - window * (window - 1) // 2


def attention_flop(batch: int, heads: int, head_dim: int, pairs: int) -> int:
    """FLOP of the forward pass: two products of 2 · head_dim for each pair of each query head;
    softmax not counted."""
    return 4 * batch * heads * head_dim * pairs


def attention_bytes(
    batch: int, queries: int, keys: int, heads: int, kv_heads: int, head_dim: int, item: int
) -> int:
    """Bytes of the forward pass: queries, keys and values read once, the result written.  item: B
    of a number."""
    return item * batch * head_dim * 2 * (queries * heads + keys * kv_heads)


def ridge(peak: float, bandwidth: float) -> float:
    """The arithmetic intensity from which on the compute roof binds, FLOP/B.

    H200 in bfloat16, 989.4e12 FLOP/s and 4.8e12 B/s: 206.
    """
    return peak / bandwidth


def bound(flop: float, nbytes: float, peak: float | None, bandwidth: float | None) -> str:
    """The roof that binds: "compute" if the operations take longer at peak rate than the bytes,
    else "memory".

    Empty if unknown. Source: Williams, Waterman, Patterson, Roofline, Commun. ACM 52 (2009).
    """
    if not flop or not nbytes:
        return "compute" if flop else "memory" if nbytes else ""
    if not peak or not bandwidth:
        return ""
    return "compute" if flop / nbytes > ridge(peak, bandwidth) else "memory"


def loads(kind: str, tokens: int, experts: int, top: int) -> list[int]:
    """The number of tokens of each expert: `tokens` · `top` in total, and at most `tokens` per
    expert.

    kind: "balanced", as even as possible, or "skewed", in proportion to 1, 1/2, 1/3, … (Zipf's
    law). 4096 tokens, 8 experts, top 2: 1024 each, or 3014, 1507, 1005, 754, 603, 502, 431, 376
    (the first rounded up).
    """
    weights = (
        [1.0] * experts if kind == "balanced" else [1 / rank for rank in range(1, experts + 1)]
    )
    rows = tokens * top
    found = [min(tokens, int(rows * weight / sum(weights))) for weight in weights]
    place = 0
    # the remainder after rounding and the cap goes to the first experts with room
    while sum(found) < rows:
        found[place % experts] += found[place % experts] < tokens
        place += 1
    return found


def assignment(counts: Sequence[int], tokens: int) -> list[list[int]]:
    """For each token, its experts, all different, such that the experts get these counts.

    Row j of all experts' rows in order goes to token j mod tokens: an expert with at most `tokens`
    rows meets no token twice. Source: McNaughton, Scheduling with deadlines and loss functions,
    Management Science 6 (1959), wrap-around.
    """
    rows = [expert for expert, count in enumerate(counts) for _ in range(count)]
    return [rows[token::tokens] for token in range(tokens)]
