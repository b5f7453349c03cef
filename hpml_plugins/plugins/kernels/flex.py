"""FlexAttention, with masks by blocks of keys: causal with a window, and of a paged cache. Imports
torch's compiler."""

from __future__ import annotations

from typing import Any

import torch
from torch.nn.attention.flex_attention import BlockMask, flex_attention

from hpml_plugins.plugins.kernels.compiling import compile_here
from hpml_plugins.plugins.kernels.paging import PAGE, Attend


def attend(mask: BlockMask) -> Attend:
    """FlexAttention, compiled by torch.compile on a GPU; on a CPU its definition, which masks every
    pair."""
    flex = compile_here(flex_attention) if torch.cuda.is_available() else flex_attention
    return lambda q, k, v: flex(q, k, v, block_mask=mask, enable_gqa=True)


def causal_mask(length: int, window: int, device: str) -> BlockMask:
    """Each query sees the keys at or before it; with a window, the nearest ones. Made from blocks,
    not from all pairs."""
    count = -(-length // PAGE)
    query = torch.arange(count, device=device)[:, None] * PAGE
    key = torch.arange(count, device=device)[None, :] * PAGE
    reach = window or length
    seen = (key <= query + PAGE - 1) & (key + PAGE - 1 > query - reach)
    full = (key + PAGE - 1 <= query) & (key > query + PAGE - 1 - reach)

    def allowed(batch: Any, head: Any, q: Any, k: Any) -> Any:
        return (k <= q) & (k > q - reach)

    return BlockMask.from_kv_blocks(
        *_listed(seen & ~full), *_listed(full), BLOCK_SIZE=PAGE, mask_mod=allowed
    )


def _listed(blocks: Any) -> tuple[Any, Any]:
    """The number of blocks in each row, and their indices before the others: (1, 1, rows) and (1,
    1, rows, columns)."""
    order = blocks.int().argsort(dim=1, descending=True, stable=True).int()
    return blocks.sum(1, dtype=torch.int32)[None, None], order[None, None].contiguous()


def paged_mask(table: Any) -> BlockMask:
    """Each sequence's single query sees all of the sequence's own pages of the cache."""
    batch, pages = table.shape
    total = batch * pages
    places = torch.zeros(batch, 1, 1, total, dtype=torch.int32, device=table.device)
    places[:, 0, 0, :pages] = table
    owner = torch.empty(total, dtype=torch.int32, device=table.device)
    owner[table.flatten()] = torch.arange(
        batch, dtype=torch.int32, device=table.device
    ).repeat_interleave(pages)
    count = torch.full((batch, 1, 1), pages, dtype=torch.int32, device=table.device)

    def allowed(b: Any, head: Any, q: Any, k: Any) -> Any:
        return owner[k // PAGE] == b

    return BlockMask.from_kv_blocks(
        torch.zeros_like(count),
        places,
        count,
        places,
        BLOCK_SIZE=(PAGE, PAGE),
        mask_mod=allowed,
        seq_lengths=(1, total * PAGE),
    )
