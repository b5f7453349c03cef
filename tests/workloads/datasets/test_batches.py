from __future__ import annotations

from itertools import chain

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from hpml_plugins import HpmlError, Split
from hpml_plugins.workloads.datasets.batches import epoch_seed, rank_share


def split(n: int, size: int = 6, channels: int = 2) -> Split:
    """Images that carry their own number in every pixel, labelled by it."""
    numbers = torch.arange(n)
    return Split(numbers.to(torch.uint8)[:, None, None, None].expand(n, channels, size, size).clone(), numbers)


def labels(batches: object) -> list[int]:
    return [label for _, part in batches for label in part.tolist()]  # type: ignore[attr-defined]


@given(n=st.integers(1, 200), ranks=st.integers(1, 9), seed=st.integers(0, 9))
def test_the_shares_of_all_ranks_are_disjoint_and_together_whole(n: int, ranks: int, seed: int) -> None:
    order = torch.randperm(n, generator=torch.Generator().manual_seed(seed))
    shares = [rank_share(order, rank, ranks, even=False).tolist() for rank in range(ranks)]
    assert sorted(chain.from_iterable(shares)) == list(range(n))
    even = [rank_share(order, rank, ranks, even=True).tolist() for rank in range(ranks)]
    assert {len(share) for share in even} == {n // ranks}
    assert len(set(chain.from_iterable(even))) == n // ranks * ranks


@settings(max_examples=30, deadline=None)
@given(n=st.integers(8, 100), ranks=st.integers(1, 4), size=st.integers(1, 7), epoch=st.integers(0, 3))
def test_batches_of_all_ranks_cover_the_data(n: int, ranks: int, size: int, epoch: int) -> None:
    data = split(n)
    seen = []
    for rank in range(ranks):
        batches = data.batches(size, seed=3, rank=rank, ranks=ranks, drop_last=False)
        batches.set_epoch(epoch)
        assert len(list(batches)) == len(batches)
        assert all(torch.equal(images[:, 0, 0, 0].long(), numbers) for images, numbers in batches)
        seen += labels(batches)
    assert sorted(seen) == list(range(n))


def test_two_seeds_have_no_epoch_in_common() -> None:
    assert epoch_seed(0, 1) != epoch_seed(1, 0)


def test_without_set_epoch_every_epoch_is_the_same_and_with_it_each_is_another() -> None:
    batches = split(40).batches(8, seed=1)
    assert labels(batches) == labels(batches)
    first = labels(batches)
    batches.set_epoch(1)
    assert labels(batches) != first
    batches.set_epoch(0)
    assert labels(batches) == first
    assert labels(split(40).batches(8, seed=2)) != first


def test_training_ranks_make_the_same_number_of_steps() -> None:
    # 43 images on 4 ranks: 10 each, 2 batches of 4
    counts = [len(list(split(43).batches(4, rank=rank, ranks=4))) for rank in range(4)]
    assert counts == [2, 2, 2, 2]


def test_an_image_is_augmented_alike_for_any_number_of_ranks() -> None:
    data = Split(torch.rand(24, 3, 8, 8), torch.arange(24))
    whole = {
        number: image
        for images, numbers in data.batches(24, pad=2, flip=True)
        for image, number in zip(images, numbers.tolist(), strict=True)
    }
    for rank in range(3):
        for images, numbers in data.batches(4, rank=rank, ranks=3, pad=2, flip=True):
            assert all(
                torch.equal(image, whole[number]) for image, number in zip(images, numbers.tolist(), strict=True)
            )


def test_a_padded_crop_is_one_of_torchs_own_pad_flipped_or_not() -> None:
    data = Split(torch.rand(64, 2, 5, 7), torch.arange(64))
    padded = torch.nn.functional.pad(data.images, (2, 2, 2, 2))
    places, turned = set(), set()
    for images, numbers in data.batches(16, pad=2, flip=True):
        assert images.shape[1:] == (2, 5, 7)
        for image, number in zip(images, numbers.tolist(), strict=True):
            found = [
                (down, right, flip)
                for down in range(5)
                for right in range(5)
                for flip in (False, True)
                if torch.equal(image.flip(2) if flip else image, padded[number, :, down : down + 5, right : right + 7])
            ]
            assert len(found) == 1
            places.add(found[0][:2])
            turned.add(found[0][2])
    assert len(places) > 15  # of 25
    assert turned == {False, True}


def test_augmented_bytes_stay_bytes() -> None:
    ((images, _),) = split(8).batches(8, pad=1, flip=True)
    assert images.dtype == torch.uint8


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"size": 11}, "no batch of 11 can be made of the 10 images of this rank"),
        ({"size": 6, "ranks": 2}, "no batch of 6 can be made of the 5 images of this rank"),
        ({"size": 0}, "no batch of 0"),
        ({"size": 2, "rank": 2, "ranks": 2}, "rank 2 of 2 does not exist"),
        ({"size": 2, "pad": 6}, "pad 6 is not from 0 to below the image's 6 pixels"),
        ({"size": 2, "pad": -1}, "pad -1 is not"),
    ],
)
def test_what_cannot_be_batched_is_said(options: dict[str, int], message: str) -> None:
    with pytest.raises(HpmlError, match=message):
        split(10).batches(**options)


@settings(max_examples=50, deadline=None)
@given(
    counts=st.lists(st.integers(0, 12), min_size=1, max_size=6).filter(any),
    share=st.floats(0, 1),
    seed=st.integers(0, 5),
)
def test_a_part_is_balanced_as_far_as_the_classes_go(counts: list[int], share: float, seed: int) -> None:
    numbers = torch.tensor([label for label, count in enumerate(counts) for _ in range(count)])
    data = Split(torch.arange(len(numbers)), numbers)
    n = max(1, round(share * len(numbers)))
    part = data.take(n, seed)
    taken = part.labels.bincount(minlength=len(counts)).tolist()
    assert sum(taken) == n == len(set(part.images.tolist()))
    assert torch.equal(part.labels, numbers[part.images])
    # a class that has more to give has no fewer than any other, but for one
    assert all(have == most or have >= max(taken) - 1 for have, most in zip(taken, counts, strict=True))
    assert torch.equal(part.images, data.take(n, seed).images)


def test_more_than_there_is_cannot_be_taken() -> None:
    with pytest.raises(HpmlError, match="11 of 10 samples cannot be taken"):
        split(10).take(11)
    with pytest.raises(HpmlError, match="0 of 10"):
        split(10).take(0)
