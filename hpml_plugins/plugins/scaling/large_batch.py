"""Large batches: loss and accuracy of the fifth epoch, with and without two of Goyal's remedies, on real images."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from hpml_plugins import Bench, HpmlError, Metric, Rank
from hpml_plugins.plugins.scaling.formulas import learning_rate
from hpml_plugins.plugins.scaling.workloads import build

Recipe = Literal["plain", "linear", "zero_gamma", "both"]
RECIPES: tuple[Recipe, ...] = ("plain", "linear", "zero_gamma", "both")
EPOCHS = 5
SMALL_BATCH, SMALL_RATE = 128, 0.1
#: Goyal's is 5 of 90 epochs; of five, two.
WARM_UP = 2.0
TEST_BATCH = 1000
LARGE_METRICS = (
    Metric("train_loss", "1", "lower", "cross-entropy, mean over the images of the last epoch, as trained"),
    Metric("train_accuracy", "1", "higher", "of the last epoch, as trained"),
    Metric("test_accuracy", "1", "higher", "after the last epoch"),
)


@dataclass(frozen=True)
class Training:
    """A run. batch: on each rank.  rate: the small batch's.  warm_up: epochs, with scaled rates; else None.

    zero_gamma: residual blocks start as the identity.
    """

    model: str
    data: str
    batch: int
    scaled: bool
    zero_gamma: bool
    epochs: int = EPOCHS


def measure_small_batch(bench: Bench, *, data: str) -> Mapping[str, float]:
    """The lab's own training: ResNet18, batch 128 on one GPU."""
    return train_on(bench, Training("resnet18", data, SMALL_BATCH, scaled=False, zero_gamma=False), 1)


def measure_large_batch(bench: Bench, *, data: str, batch: int, recipe: Recipe, gpus: int) -> Mapping[str, float]:
    """The same with `batch` on each of `gpus` GPUs."""
    return train_on(bench, of_recipe("resnet18", data, batch, recipe), gpus)


def measure_large_batch_cpu(bench: Bench, *, data: str, batch: int, recipe: Recipe, ranks: int) -> Mapping[str, float]:
    """The small model over gloo."""
    return train_on(bench, of_recipe("small", data, batch, recipe), ranks)


def of_recipe(model: str, data: str, batch: int, recipe: Recipe) -> Training:
    """plain: as the small batch.  linear: the rate scaled with the batch, after a warm-up.  zero_gamma; both."""
    if recipe not in RECIPES:
        raise HpmlError(f"scaling has no recipe {recipe!r}; use one of {', '.join(RECIPES)}")
    return Training(model, data, batch, recipe in ("linear", "both"), recipe in ("zero_gamma", "both"))


def train_on(bench: Bench, training: Training, ranks: int) -> Mapping[str, float]:
    """Train on so many ranks; the last epoch's figures."""
    epochs, used = bench.ranks(train, ranks, training)[0]
    bench.used_data |= used
    bench.series("epochs", epochs, {"lr": "1", "train_loss": "1", "train_accuracy": "1", "test_accuracy": "1"})
    return {name: epochs[name][-1] for name in ("train_loss", "train_accuracy", "test_accuracy")}


class Draws:
    """An epoch's augmentation: crops of zero-padded images at random places, half of the images flipped.

    Drawn for all images on the CPU, so that an image's augmentation is the same for any number of ranks and any device.
    """

    def __init__(self, count: int, seed: int, epoch: int, pad: int, flip: bool, device: Any = "cpu") -> None:
        import torch

        generator = torch.Generator().manual_seed(seed * 100_003 + epoch)
        torch.randperm(count, generator=generator)  # the order; what follows is as in Records of earlier commits
        self.pad = pad
        self.moves = torch.randint(2 * pad + 1, (2, count), generator=generator).to(device)
        self.flips = ((torch.rand(count, generator=generator) < 0.5) & flip).to(device)

    def augment(self, images: Any, places: Any) -> Any:
        """The images (B, C, H, W) of these places in the data set, augmented."""
        import torch

        (down, right), flips = self.moves[:, places], self.flips[places]
        height, width = images.shape[2:]
        rows = down[:, None] + torch.arange(height, device=images.device)
        columns = right[:, None] + torch.arange(width, device=images.device)
        columns = torch.where(flips[:, None], columns.flip(1), columns)
        padded = torch.nn.functional.pad(images, (self.pad,) * 4)
        of_batch = torch.arange(len(images), device=images.device)[:, None, None]
        return padded.movedim(1, 3)[of_batch, rows[:, :, None], columns[:, None, :]].movedim(3, 1)


def train(rank: Rank, training: Training) -> tuple[dict[str, list[float]], dict[str, Any]]:
    """Columns over epochs, and what data was used."""
    import torch
    from torch.nn.functional import cross_entropy

    from hpml_plugins.plugins.scaling.ddp import check_same_everywhere, wrapped
    from hpml_plugins.plugins.scaling.training import MOMENTUM, WEIGHT_DECAY, memory_is_the_question, prepare

    prepare()
    on_gpu = rank.backend == "nccl"
    layout = torch.channels_last if on_gpu else torch.contiguous_format
    images = rank.bench.data(training.data).to(rank.device).normalized()
    flip = training.data.startswith("cifar")
    places = torch.arange(len(images.train), device=rank.device)
    batches = type(images.train)(places, images.train.labels).batches(
        training.batch, seed=rank.bench.seed, rank=rank.index, ranks=rank.count
    )
    torch.manual_seed(rank.bench.seed)
    model = build(training.model, images.shape, len(images.classes), zero_gamma=training.zero_gamma)
    model = model.to(rank.device, memory_format=layout)
    parallel = wrapped(rank, model) if rank.count > 1 else model
    optimizer = torch.optim.SGD(
        parallel.parameters(), lr=SMALL_RATE, momentum=MOMENTUM, weight_decay=WEIGHT_DECAY, fused=on_gpu
    )
    factor = training.batch * rank.count / SMALL_BATCH
    columns: dict[str, list[float]] = {
        name: [] for name in ("epoch", "steps", "lr", "train_loss", "train_accuracy", "test_accuracy")
    }
    steps = 0
    with memory_is_the_question(rank.bench, training.batch):
        for epoch in range(training.epochs):
            batches.set_epoch(epoch)
            model.train()
            totals = torch.zeros(3, dtype=torch.float64, device=rank.device)
            draws = Draws(len(places), rank.bench.seed, epoch, images.shape[1] // 8, flip, rank.device)
            for number, (place, y) in enumerate(batches):
                x = draws.augment(images.train.images[place], place)
                if training.scaled:
                    done = epoch + number / len(batches)
                    rate = learning_rate(done, base=SMALL_RATE, factor=factor, warm_up=WARM_UP)
                    optimizer.param_groups[0]["lr"] = rate
                optimizer.zero_grad(set_to_none=True)
                logits = parallel(x.contiguous(memory_format=layout))
                loss = cross_entropy(logits, y)
                loss.backward()
                optimizer.step()
                right = (logits.detach().argmax(1) == y).sum()
                totals += torch.stack([loss.detach() * len(y), right, torch.full_like(right, len(y))])
                steps += 1
            of_all = [sum(column) for column in zip(*rank.gather_numbers(totals.tolist()), strict=True)]
            found = {
                "epoch": epoch + 1,
                "steps": steps,
                "lr": optimizer.param_groups[0]["lr"],
                "train_loss": of_all[0] / of_all[2],
                "train_accuracy": of_all[1] / of_all[2],
                # Rank 0's running statistics are those that DDP broadcasts, and that would be saved.
                "test_accuracy": rank.share(_accuracy(model, images.test, layout) if rank.index == 0 else None),
            }
            rank.bench.check(_finite(found["train_loss"]), "the loss is finite: the training has not diverged")
            for name, value in found.items():
                columns[name].append(float(value))
            done = (epoch + 1) / training.epochs
            rank.bench.progress(f"epoch {epoch + 1}, accuracy {found['test_accuracy']:.3f}", done)
    check_same_everywhere(rank, model)
    return columns, rank.bench.used_data


def _accuracy(model: Any, split: Any, layout: Any) -> float:
    import torch

    model.eval()
    right = 0
    with torch.no_grad():
        for x, y in split.batches(TEST_BATCH, shuffle=False, drop_last=False):
            right += int((model(x.contiguous(memory_format=layout)).argmax(1) == y).sum())
    return right / len(split)


def _finite(value: float) -> bool:
    import math

    return math.isfinite(value)
