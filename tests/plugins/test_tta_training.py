"""The plugin `tta`: batches, optimisers and networks, each against what it should be."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import msgspec
import pytest
import torch

from hpml_plugins import DataSet, HpmlError, Split, load_data
from hpml_plugins.plugins.tta.images import Loaded, OnDevice
from hpml_plugins.plugins.tta.networks import build, logits_over_views
from hpml_plugins.plugins.tta.optimising import Muon, Optimiser, orthogonalised
from hpml_plugins.plugins.tta.recipes import Augment, Network, Recipe, read_recipe
from hpml_plugins.plugins.tta.training import Trainer


def pictures(count: int, shape: tuple[int, int, int] = (3, 8, 8)) -> DataSet:
    drawn = torch.randint(
        256, (count, *shape), generator=torch.Generator().manual_seed(0), dtype=torch.uint8
    )
    split = Split(drawn, torch.arange(count) % 10)
    return DataSet(
        "made",
        tuple("abcdefghij"),
        split,
        split,
        (0.0,) * shape[0],
        (1 / 255,) * shape[0],
        "none",
    )


def recipe(**changes: Any) -> Recipe:
    return msgspec.structs.replace(read_recipe("fast", "digits").on("cpu"), **changes)


def test_a_batch_is_cropped_and_flipped_as_drawn() -> None:
    data = pictures(
        12
    )  # normalised with mean 0 and deviation 1 / 255: values stay what they were
    feed = OnDevice(data, recipe(batch=4, augment=Augment(2, "constant", "random")), "cpu")
    feed.start(1)
    next(feed.epoch(1, 0))
    images, labels = feed.take(torch.tensor([2]))
    assert images.is_contiguous(memory_format=torch.channels_last)
    wide = torch.nn.functional.pad(data.train.images.float(), (2, 2, 2, 2))
    for place in range(4):
        index = int(feed._order[2 * 4 + place])
        y, x = (int(feed._moves[axis][index]) for axis in (0, 1))
        by_hand = wide[index, :, y : y + 8, x : x + 8]
        by_hand = by_hand.flip(-1) if feed._flips[index] else by_hand
        assert torch.equal(images[place], by_hand)
        assert labels[place] == index % 10
    assert feed._flips.any() and not feed._flips.all()
    assert len(feed._moves.unique()) == 5


def test_an_epoch_has_each_image_once_and_ranks_share_it() -> None:
    data, plain = pictures(13), recipe(batch=3, augment=Augment())
    alone = OnDevice(data, plain, "cpu")
    next(alone.epoch(5, 0))
    assert alone.steps == 4 and len(alone._order.unique()) == 12
    pair = [OnDevice(data, plain, "cpu", index, 2) for index in range(2)]
    for feed in pair:
        next(feed.epoch(5, 0))
    assert [feed.steps for feed in pair] == [2, 2]
    assert not set(pair[0]._order.tolist()) & set(pair[1]._order.tolist())
    first = alone._order.clone()
    next(alone.epoch(5, 1))
    assert not torch.equal(alone._order, first)
    next(alone.epoch(5, 0))
    assert torch.equal(alone._order, first)


def test_alternating_flips_turn_every_image_over_from_epoch_to_epoch() -> None:
    feed = OnDevice(
        pictures(40), recipe(batch=4, augment=Augment(0, "constant", "alternating")), "cpu"
    )
    feed.start(3)
    flips = []
    for epoch in range(3):
        next(feed.epoch(3, epoch))
        flips.append(feed._flips.clone())
    assert torch.equal(flips[0], ~flips[1]) and torch.equal(flips[0], flips[2])
    assert 8 < int(flips[0].sum()) < 32


def test_the_loader_gives_normalised_batches_and_says_how_long_it_was_waited_for() -> None:
    data = load_data("digits").take(64, 64)
    feed = Loaded(data, recipe(batch=16, augment=Augment()), "cpu")
    feed.start(1)
    batches = [feed.take(None)[0].clone() for _ in feed.epoch(1, 0)]
    assert len(batches) == feed.steps == 4
    assert feed.waited > 0
    everything = torch.cat(batches)
    assert everything.sum() == pytest.approx(
        float(data.normalize(data.train.images).sum()), rel=1e-3
    )


@pytest.mark.parametrize("shape", [(2, 6, 20), (2, 20, 6)])
def test_newton_and_schulz_make_a_matrix_orthogonal_and_keep_its_directions(
    shape: tuple[int, int, int],
) -> None:
    matrices = torch.randn(shape, generator=torch.Generator().manual_seed(0))
    u, _, v = torch.linalg.svd(matrices, full_matrices=False)
    core = u.mT @ orthogonalised(matrices, 5) @ v.mT
    values = torch.diagonal(core, dim1=1, dim2=2)
    assert values.min() > 0.5 and values.max() < 1.5
    assert (core - torch.diag_embed(values)).abs().max() < 1e-3


def test_muon_keeps_the_norm_and_steps_along_the_orthogonal_momentum() -> None:
    generator = torch.Generator().manual_seed(0)
    weights = [
        torch.randn(4, 2, 3, 3, generator=generator, requires_grad=True) for _ in range(2)
    ]
    muon = Muon(weights, momentum=0.5, iterations=3, device="cpu")
    before = [weight.detach().clone() for weight in weights]
    for weight in weights:
        weight.grad = torch.randn(4, 2, 3, 3, generator=generator)
    muon.update(muon.groups, muon.gradients(), muon.buffers, torch.tensor(0.1))
    for weight, old in zip(weights, before, strict=True):
        # The first momentum is the gradient, Nesterov's 1.5 of it, which being made orthogonal
        # forgets its length.
        update = orthogonalised(1.5 * weight.grad.reshape(1, 4, 18), 3).reshape(4, 2, 3, 3)
        assert torch.allclose(
            weight.detach(), old * (2.0 / old.norm()) - 0.1 * update, atol=1e-6
        )
    assert all(buffer.any() for buffer in muon.buffers)


def test_rates_are_read_from_the_table_of_each_group() -> None:
    plain = recipe(epochs=2.0, whiten_bias_epochs=1.0)
    network = build(plain.network, (1, 8, 8), 10)
    optimiser = Optimiser(
        network,
        plain,
        steps=20,
        steps_an_epoch=10,
        device="cpu",
        compiled=lambda function: function,
    )
    for parameter in network.parameters():
        parameter.grad = torch.zeros_like(parameter)
    optimiser.step(torch.tensor([5]))
    rates = {
        len(group["params"]): float(group["lr"]) for group in optimiser.sgd.param_groups
    }
    # Step 5 of 20: ¾ of the rate; of the whitening's bias, 5 of 10: half.
    assert [
        float(group["lr"]) for group in optimiser.sgd.param_groups[:2]
    ] == pytest.approx([0.5 * 0.053, 0.75 * 0.67])
    assert rates[4] == pytest.approx(0.75 * 0.053)  # the biases of four normalisations
    # Decay times rate is that of the recipe: 2e-4.
    assert optimiser.sgd.param_groups[1]["weight_decay"] == pytest.approx(2e-4 / 0.67)
    trained = {
        id(parameter) for parameter in network.parameters() if parameter.requires_grad
    }
    by_sgd = {
        id(parameter)
        for group in optimiser.sgd.param_groups
        for parameter in group["params"]
    }
    assert optimiser.muon is not None
    by_muon = {id(weight) for group in optimiser.muon.groups for weight in group}
    assert by_sgd | by_muon == trained and not by_sgd & by_muon
    # behind the last step at which the whitening's bias is trained
    optimiser.step(torch.tensor([15]))
    assert [
        float(group["lr"]) for group in optimiser.sgd.param_groups[:2]
    ] == pytest.approx([0.0, 0.25 * 0.67])


def test_biases_and_normalisations_do_not_decay_where_the_recipe_says_so() -> None:
    modern = read_recipe("modern", "digits").on("cpu")
    network = build(modern.network, (1, 8, 8), 10)
    groups = Optimiser(
        network, modern, 10, 5, "cpu", lambda function: function
    ).sgd.param_groups
    assert [group["weight_decay"] for group in groups] == [0.0, 5e-4]
    assert all(parameter.ndim == 1 for parameter in groups[0]["params"])
    assert all(parameter.ndim > 1 for parameter in groups[1]["params"])


def test_whitened_patches_are_uncorrelated_and_of_variance_one() -> None:
    data = pictures(400)
    network = build(Network("speed", (8,), 2), (3, 8, 8), 10)
    images = data.normalize(data.train.images)
    images = (images - images.mean()) / images.std()
    network.whiten(images)
    found = (
        torch.nn.functional.conv2d(images, network.whitening.weight)
        .transpose(0, 1)
        .flatten(1)[:12]
    )
    assert torch.allclose(found @ found.T / found.shape[1], torch.eye(12), atol=2e-2)
    weight = network.whitening.weight
    assert torch.equal(weight[:12], -weight[12:])


@pytest.mark.parametrize("name", ["resnet50", "resnet50_stem3"])
@pytest.mark.parametrize("channels", [1, 3])
def test_resnet50_has_the_first_layer_that_was_asked_for(name: str, channels: int) -> None:
    network = build(Network(name), (channels, 32, 32), 10)  # type: ignore[arg-type]
    # torchvision's has 25,557,032 with 1000 classes of 2048 weights and a bias: 23,508,032 +
    # 20,490. Its stem of 64 · 3 · 7 · 7 = 9,408 shrinks to a third for one channel, or to 64 · 3 ·
    # 3 · 3 = 1,728.
    stem = 64 * channels * (9 if name == "resnet50_stem3" else 49)
    assert (
        sum(parameter.numel() for parameter in network.parameters())
        == 23_508_032 + 20_490 - 9_408 + stem
    )
    network.eval()
    with torch.no_grad():
        assert network(torch.zeros(2, channels, 32, 32)).shape == (2, 10)


def test_views_are_weighted_as_said() -> None:
    images = torch.arange(2 * 3 * 4 * 4, dtype=torch.float32).reshape(2, 3, 4, 4)

    def corner(x: Any) -> Any:
        return x[:, 0, 0, :1]

    # Upper left value 0, of the mirrored 3; moved with a reflected border: up left 5 and (its
    # mirror) 6, down right, where row 1 and column 1 come first, 5 and (mirrored, where the
    # border's 2 is) 6.
    moved = torch.nn.functional.pad(images, (1, 1, 1, 1), mode="reflect")
    by_hand = [
        corner(view) + corner(view.flip(-1))
        for view in (images, moved[:, :, :4, :4], moved[:, :, 2:, 2:])
    ]
    assert torch.equal(
        logits_over_views(images, 6, corner), by_hand[0] + 0.5 * (by_hand[1] + by_hand[2])
    )
    assert torch.equal(logits_over_views(images, 2, corner)[0], torch.tensor([3.0]))
    assert torch.equal(logits_over_views(images, 1, corner)[0], torch.tensor([0.0]))


@pytest.fixture(scope="module")
def trainer() -> Trainer:
    small = recipe(epochs=2.5, batch=20, whiten_bias_epochs=2.0)
    return Trainer(small, load_data("digits").take(200, 100), "cpu")


def test_the_bias_of_the_whitening_is_trained_for_the_epochs_of_the_schedule(
    trainer: Trainer,
) -> None:
    assert (trainer.steps_an_epoch, trainer.steps) == (10, 25)
    assert [trainer.trains_bias(step) for step in (0, 19, 20, 24)] == [
        True,
        True,
        False,
        False,
    ]


def trained(trainer: Trainer, seed: int) -> tuple[int, Any, float]:
    trainer.start(seed)
    trainer.whiten()
    for epoch in range(3):
        trainer.train_epoch(seed, epoch)
    weights = torch.cat(
        [parameter.detach().flatten() for parameter in trainer.network.parameters()]
    )
    return int(trainer.number), weights, trainer.accuracy()


def test_a_seed_gives_the_same_run_whatever_ran_before(trainer: Trainer) -> None:
    steps, weights, accuracy = trained(trainer, 1)
    assert steps == 25  # two epochs of ten and half of one
    _, others, _ = trained(trainer, 2)
    assert not torch.equal(weights, others)
    again = trained(trainer, 1)
    assert torch.equal(again[1], weights) and again[2] == accuracy
    assert trainer.plain_accuracy() == accuracy
    assert accuracy > 0.3  # a tenth is chance


def test_nothing_that_a_graph_would_know_is_replaced_between_runs(trainer: Trainer) -> None:
    def places() -> list[int]:
        feed, optimiser = trainer.feed, trainer.optimiser
        assert isinstance(feed, OnDevice) and optimiser.muon is not None
        momenta = [state["momentum_buffer"] for state in optimiser.sgd.state.values()]
        rates = [group["lr"] for group in optimiser.sgd.param_groups]
        own = [
            feed.padded,
            feed.labels,
            feed._order,
            feed._moves,
            feed._flips,
            trainer.number,
            optimiser._tables,
        ]
        network = [*trainer.network.parameters(), *trainer.network.buffers()]
        assert len(momenta) == 6  # the whitening's bias, the head, four normalisations
        return [
            tensor.data_ptr()
            for tensor in (*momenta, *rates, *own, *network, *optimiser.muon.buffers)
        ]

    before = places()
    trained(trainer, 3)
    trainer.start(4)
    assert places() == before
    assert int(trainer.number) == 0
    momenta = [state["momentum_buffer"] for state in trainer.optimiser.sgd.state.values()]
    assert trainer.optimiser.muon is not None
    assert not any(
        momentum.any() for momentum in (*momenta, *trainer.optimiser.muon.buffers)
    )


def test_the_bias_of_the_whitening_rests_once_it_is_no_longer_trained(
    trainer: Trainer,
) -> None:
    trainer.start(1)
    trainer.whiten()
    for epoch in range(2):
        trainer.train_epoch(1, epoch)
    bias, head = (
        part.detach().clone()
        for part in (trainer.network.whitening.bias, trainer.network.head.weight)
    )
    trainer.train_epoch(1, 2)
    assert torch.equal(trainer.network.whitening.bias, bias)
    assert not torch.equal(trainer.network.head.weight, head)


def test_too_few_images_for_a_batch_are_said() -> None:
    with pytest.raises(HpmlError, match="no batch of 150 for each of 2 in 200 images"):
        Trainer(
            recipe(batch=150),
            load_data("digits").take(200, 100),
            "cpu",
            SimpleNamespace(index=0, count=2),
        )  # type: ignore[arg-type]
