"""What of a collective's size crosses a link, by hand."""

from __future__ import annotations

import pytest

from hpml_plugins import HpmlError
from hpml_plugins.workloads.collectives import bus_factor


@pytest.mark.parametrize(
    ("collective", "ranks", "factor"),
    [
        ("all_reduce", 2, 1.0),  # 2 · 1 / 2
        ("all_reduce", 4, 1.5),  # 2 · 3 / 4
        ("all_reduce", 8, 1.75),  # 2 · 7 / 8
        ("all_gather", 2, 0.5),  # 1 / 2
        ("all_gather", 8, 0.875),  # 7 / 8
        ("reduce_scatter", 4, 0.75),  # 3 / 4
        ("broadcast", 2, 1.0),
        ("broadcast", 8, 1.0),
    ],
)
def test_the_bus_factors_by_hand(collective: str, ranks: int, factor: float) -> None:
    assert bus_factor(collective, ranks) == factor


def test_one_rank_and_an_unknown_collective_have_no_bus_bandwidth() -> None:
    with pytest.raises(HpmlError, match="nothing crosses a link"):
        bus_factor("all_reduce", 1)
    with pytest.raises(
        HpmlError, match="all_reduce, all_gather, reduce_scatter, broadcast"
    ):
        bus_factor("all_to_all", 2)
