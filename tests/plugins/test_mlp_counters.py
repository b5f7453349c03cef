"""The plugin `mlp` under Nsight Compute: whose a kernel is, and its counters as shares."""

from __future__ import annotations

from hpml_plugins.plugins.mlp.counters import NUMBERS, SHARES, STALLS, owners, row
from hpml_plugins.plugins.mlp.tiles import Tile


def test_kernels_are_ours_in_the_order_launched_and_then_torchs() -> None:
    assert owners(2, Tile(32, 32, 16, 4, 4)) == ["own", "torch"]
    # cuBLAS too may launch two kernels for a product in parts.
    assert owners(4, Tile(32, 32, 16, 4, 4, parts=8)) == [
        "own",
        "own, adding up",
        "torch",
        "torch",
    ]


def test_counters_become_shares_and_numbers() -> None:
    found = row(
        "own",
        "multiply",
        {SHARES["occupancy"]: 12.5, NUMBERS["blocks"]: 16.0, NUMBERS["time"]: 4.2e-5},
    )
    assert (found["occupancy"], found["blocks"], found["time"]) == (0.125, 16.0, 4.2e-5)
    assert found["compute"] == 0.0  # a counter that the card or this ncu lacks
    assert len({*SHARES.values(), *NUMBERS.values(), *STALLS.values()}) == len(
        SHARES
    ) + len(NUMBERS) + len(STALLS)
