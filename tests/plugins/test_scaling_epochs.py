"""What a sampler's `set_epoch` changes: torch's DistributedSampler, DataLoader's own shuffling, and `Split.batches`."""

from __future__ import annotations

from itertools import chain
from typing import Any

import pytest


@pytest.fixture
def indices() -> Any:
    import torch
    from torch.utils.data import TensorDataset

    return TensorDataset(torch.arange(100))


def shares(sampler: Any) -> list[int]:
    return list(sampler)


def samplers(data: Any, ranks: int = 4) -> list[Any]:
    from torch.utils.data.distributed import DistributedSampler

    return [DistributedSampler(data, num_replicas=ranks, rank=rank, shuffle=True, seed=7) for rank in range(ranks)]


def test_without_set_epoch_every_epoch_has_the_same_order(indices: Any) -> None:
    for sampler in samplers(indices):
        assert shares(sampler) == shares(sampler)


def test_with_set_epoch_the_order_changes_and_the_ranks_still_share_all_of_it(indices: Any) -> None:
    ranks = samplers(indices)
    before = [shares(sampler) for sampler in ranks]
    for sampler in ranks:
        sampler.set_epoch(1)
    after = [shares(sampler) for sampler in ranks]
    assert all(one != other for one, other in zip(before, after, strict=True))
    # Not only the order within a rank: each rank gets other images.
    assert any(set(one) != set(other) for one, other in zip(before, after, strict=True))
    assert sorted(chain(*after)) == list(range(100))


def test_ranks_that_disagree_on_the_epoch_see_some_images_twice_and_others_never(indices: Any) -> None:
    ranks = samplers(indices)
    ranks[0].set_epoch(1)
    seen = list(chain(*(shares(sampler) for sampler in ranks)))
    assert len(seen) == 100
    assert len(set(seen)) < 100


def test_one_process_s_loader_needs_no_epoch(indices: Any) -> None:
    import torch
    from torch.utils.data import DataLoader

    loader = DataLoader(indices, batch_size=100, shuffle=True, generator=torch.Generator().manual_seed(7))
    (first,), (second,) = next(iter(loader)), next(iter(loader))
    assert first.tolist() != second.tolist()  # its generator moves on by itself; ranks have none in common


def test_the_batches_that_the_plugin_trains_on_mean_the_same_by_it(indices: Any) -> None:
    import torch

    from hpml_plugins import Split

    split = Split(torch.zeros(100, 1, 4, 4), torch.arange(100))
    batches = [split.batches(25, seed=7, rank=rank, ranks=4) for rank in range(4)]

    def epoch(number: int) -> list[list[int]]:
        for one in batches:
            one.set_epoch(number)
        return [next(iter(one))[1].tolist() for one in batches]

    first, again, second = epoch(0), epoch(0), epoch(1)
    assert first == again
    assert first != second
    assert sorted(chain(*second)) == list(range(100))
