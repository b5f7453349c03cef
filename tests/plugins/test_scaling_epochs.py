"""What a sampler's `set_epoch` changes: torch's DistributedSampler, DataLoader's own shuffling, and
`Split.batches`."""

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

    return [
        DistributedSampler(data, num_replicas=ranks, rank=rank, shuffle=True, seed=7)
        for rank in range(ranks)
    ]


def test_without_set_epoch_every_epoch_has_the_same_order(indices: Any) -> None:
    for sampler in samplers(indices):
        assert shares(sampler) == shares(sampler)


def test_with_set_epoch_the_order_changes_and_the_ranks_still_share_all_of_it(
    indices: Any,
) -> None:
    ranks = samplers(indices)
    before = [shares(sampler) for sampler in ranks]
    for sampler in ranks:
        sampler.set_epoch(1)
    after = [shares(sampler) for sampler in ranks]
    assert all(one != other for one, other in zip(before, after, strict=True))
    # Not only the order within a rank: each rank gets other images.
    assert any(set(one) != set(other) for one, other in zip(before, after, strict=True))
    assert sorted(chain(*after)) == list(range(100))


def test_ranks_that_disagree_on_the_epoch_see_some_images_twice_and_others_never(
    indices: Any,
) -> None:
    ranks = samplers(indices)
    ranks[0].set_epoch(1)
    seen = list(chain(*(shares(sampler) for sampler in ranks)))
    assert len(seen) == 100
    assert len(set(seen)) < 100


def test_one_process_s_loader_needs_no_epoch(indices: Any) -> None:
    import torch
    from torch.utils.data import DataLoader

    loader = DataLoader(
        indices, batch_size=100, shuffle=True, generator=torch.Generator().manual_seed(7)
    )
    (first,), (second,) = next(iter(loader)), next(iter(loader))
    # its generator moves on by itself; ranks have none in common
    assert first.tolist() != second.tolist()


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


def test_a_padded_crop_is_one_of_torchs_own_pad_flipped_or_not() -> None:
    import torch

    from hpml_plugins.plugins.scaling.large_batch import Draws

    images = torch.rand(64, 2, 5, 7)
    padded = torch.nn.functional.pad(images, (2, 2, 2, 2))
    draws = Draws(64, seed=0, epoch=0, pad=2, flip=True)
    crops, turned = set(), set()
    for number, image in enumerate(draws.augment(images, torch.arange(64))):
        found = [
            (down, right, flip)
            for down in range(5)
            for right in range(5)
            for flip in (False, True)
            if torch.equal(
                image.flip(2) if flip else image,
                padded[number, :, down : down + 5, right : right + 7],
            )
        ]
        assert len(found) == 1
        crops.add(found[0][:2])
        turned.add(found[0][2])
    assert len(crops) > 15  # of 25
    assert turned == {False, True}


def test_an_image_is_augmented_alike_in_any_batch_and_otherwise_in_another_epoch() -> None:
    import torch

    from hpml_plugins.plugins.scaling.large_batch import Draws

    images = torch.rand(24, 3, 8, 8)
    first, second = (Draws(24, seed=1, epoch=epoch, pad=2, flip=True) for epoch in (0, 1))
    everything, places = first.augment(images, torch.arange(24)), torch.tensor([3, 20, 7])
    assert torch.equal(first.augment(images[places], places), everything[places])
    assert not torch.equal(second.augment(images, torch.arange(24)), everything)
