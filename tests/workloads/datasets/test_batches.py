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
    return Split(
        numbers.to(torch.uint8)[:, None, None, None]
        .expand(n, channels, size, size)
        .clone(),
        numbers,
    )


def labels(batches: object) -> list[int]:
    return [label for _, part in batches for label in part.tolist()]  # type: ignore[attr-defined]


@given(n=st.integers(1, 200), ranks=st.integers(1, 9), seed=st.integers(0, 9))
def test_the_shares_of_all_ranks_are_disjoint_and_together_whole(
    n: int, ranks: int, seed: int
) -> None:
    order = torch.randperm(n, generator=torch.Generator().manual_seed(seed))
    shares = [rank_share(order, rank, ranks, even=False).tolist() for rank in range(ranks)]
    assert sorted(chain.from_iterable(shares)) == list(range(n))
    even = [rank_share(order, rank, ranks, even=True).tolist() for rank in range(ranks)]
    assert {len(share) for share in even} == {n // ranks}
    assert len(set(chain.from_iterable(even))) == n // ranks * ranks


@settings(max_examples=30, deadline=None)
@given(
    n=st.integers(8, 100),
    ranks=st.integers(1, 4),
    size=st.integers(1, 7),
    epoch=st.integers(0, 3),
)
def test_batches_of_all_ranks_cover_the_data(
    n: int, ranks: int, size: int, epoch: int
) -> None:
    data = split(n)
    seen = []
    for rank in range(ranks):
        batches = data.batches(size, seed=3, rank=rank, ranks=ranks, drop_last=False)
        batches.set_epoch(epoch)
        assert len(list(batches)) == len(batches)
        assert all(
            torch.equal(images[:, 0, 0, 0].long(), numbers) for images, numbers in batches
        )
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


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"size": 11}, "no batch of 11 can be made of the 10 images of this rank"),
        ({"size": 6, "ranks": 2}, "no batch of 6 can be made of the 5 images of this rank"),
        ({"size": 0}, "no batch of 0"),
        ({"size": 2, "rank": 2, "ranks": 2}, "rank 2 of 2 does not exist"),
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
def test_a_part_is_balanced_as_far_as_the_classes_go(
    counts: list[int], share: float, seed: int
) -> None:
    numbers = torch.tensor(
        [label for label, count in enumerate(counts) for _ in range(count)]
    )
    data = Split(torch.arange(len(numbers)), numbers)
    n = max(1, round(share * len(numbers)))
    part = data.take(n, seed)
    taken = part.labels.bincount(minlength=len(counts)).tolist()
    assert sum(taken) == n == len(set(part.images.tolist()))
    assert torch.equal(part.labels, numbers[part.images])
    # a class that has more to give has no fewer than any other, but for one
    assert all(
        have == most or have >= max(taken) - 1
        for have, most in zip(taken, counts, strict=True)
    )
    assert torch.equal(part.images, data.take(n, seed).images)


def test_more_than_there_is_cannot_be_taken() -> None:
    with pytest.raises(HpmlError, match="11 of 10 samples cannot be taken"):
        split(10).take(11)
    with pytest.raises(HpmlError, match="0 of 10"):
        split(10).take(0)
