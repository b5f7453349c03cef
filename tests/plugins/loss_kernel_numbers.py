"""The kernel of the fused loss, in Triton's interpreter, which needs no GPU.
test_language_models.py runs this in a process of its own."""

from __future__ import annotations

import torch

from hpml_plugins.plugins.language_models import gpt, loss_kernel

for tokens, vocabulary, width in ((136, 520, 72), (256, 256, 64)):
    torch.manual_seed(tokens)
    x, weight = (torch.randn(rows, width).bfloat16() / 4 for rows in (tokens, vocabulary))
    targets = torch.randint(vocabulary, (tokens,))
    logits = (x.float() * weight[targets].float()).sum(1, keepdim=True)
    found, sums = loss_kernel.exponentials(x, weight, targets, logits)
    wanted, wanted_sums = gpt.exponentials(x.float(), weight.float(), targets, logits)
    # the interpreter cuts bits off where a GPU rounds
    assert torch.allclose(found.float(), wanted, rtol=2**-7, atol=0), "exponentials"
    assert torch.allclose(sums, wanted_sums, rtol=1e-5, atol=0), "sums"
    assert (found == 0).sum(1).tolist() == tokens * [1], "targets"
    print(tokens, vocabulary, width)
