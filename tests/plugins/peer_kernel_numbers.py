"""The kernel that adds up over ranks, in Triton's interpreter, which needs no GPU: one rank runs,
the words of the others are written by hand. test_language_models.py runs this in a process of its
own."""

from __future__ import annotations

import torch
from torch.nn.functional import rms_norm

from hpml_plugins.plugins.language_models.peer_kernel import buffer_size, sum_and_norm

EPSILON = 1e-5


def words(numbers: torch.Tensor, call: int) -> torch.Tensor:
    """What a rank sends: pairs of 16-bit numbers, (rows, width), and the number of the call."""
    bits = numbers.view(torch.int16).long() & 0xFFFF
    return (call << 32) | (bits[:, 1::2] << 16) | bits[:, ::2]


def check(ranks: int, own: int, rows: int, width: int) -> None:
    torch.manual_seed(own)
    buffers = [
        torch.zeros(buffer_size(ranks, rows, width), dtype=torch.int64)
        for _ in range(ranks)
    ]
    slots = [each[:-rows].view(2, ranks, rows, width // 2) for each in buffers]
    addresses = torch.tensor([each.data_ptr() for each in buffers])
    weight = torch.randn(width).bfloat16()
    for call in (1, 2, 3):
        partials = torch.randn(ranks, rows, width).bfloat16()
        x = torch.randn(rows, width).bfloat16()
        for peer in range(ranks):
            if peer != own:
                slots[own][call % 2, peer] = words(partials[peer], call)
        sums, normed = sum_and_norm(
            partials[own], x, weight, buffers[own], addresses, own, EPSILON
        )

        # the interpreter cuts bits off where a GPU rounds
        exact = x.double() + partials.double().sum(0)
        assert torch.allclose(sums.double(), exact, rtol=2**-7, atol=0), "sums"
        wanted = rms_norm(sums.double(), (width,), weight.double(), EPSILON)
        assert torch.allclose(normed.double(), wanted, rtol=2**-6, atol=0), "norms"
        for peer in range(ranks):
            sent = words(partials[own], call)
            assert peer == own or torch.equal(slots[peer][call % 2, own], sent), "sent"
        assert buffers[own][-rows:].tolist() == [call] * rows, "calls"


for ranks, own, rows, width in ((2, 0, 1, 16), (2, 1, 3, 24), (4, 2, 2, 10)):
    check(ranks, own, rows, width)
    print(ranks, own, rows, width)
