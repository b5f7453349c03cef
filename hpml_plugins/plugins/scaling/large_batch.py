"""Large batches: loss and accuracy of the fifth epoch, with and without two of Goyal's remedies, on
real images; and how far the ranks' running statistics drift apart if each rank keeps its own.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Literal

from hpml_plugins import Bench, Benchmark, HpmlError, Metric, Rank, Requires, Split
from hpml_plugins.plugins.scaling import ddp
from hpml_plugins.plugins.scaling.jobs import GPUS, MODULES, TORCH

Recipe = Literal["plain", "linear", "zero_gamma", "both"]
RECIPES: tuple[Recipe, ...] = ("plain", "linear", "zero_gamma", "both")
TERMS = {
    "recipe=plain": "trained as the small batch is",
    "recipe=linear": "the learning rate scaled with the batch, after a warm-up",
    "recipe=zero_gamma": "residual blocks start as the identity",
    "recipe=both": "linear and zero_gamma",
}
EPOCHS = 5
BASE_BATCH, BASE_RATE = 128, 0.1
#: Goyal's is 5 of 90 epochs; here 2 of 5.
WARM_UP = 2.0
TEST_BATCH = 1000


def measure(
    bench: Bench,
    *,
    data: str,
    batch: int = BASE_BATCH,
    recipe: Recipe = "plain",
    gpus: int = 1,
    ranks: int = 0,
) -> Mapping[str, float]:
    """ResNet18 with `batch` on each of `gpus` GPUs; without GPUs the small model in `ranks`
    processes, over gloo."""
    if recipe not in RECIPES:
        raise HpmlError(f"scaling has no recipe {recipe!r}; use one of {', '.join(RECIPES)}")
    model = "resnet18" if bench.gpus else "small"
    epochs = bench.ranks(train, ranks or gpus, model, data, batch, recipe)[0]
    columns = {name: [epoch[name] for epoch in epochs] for name in epochs[0]}
    reached = [metric.name for metric in LARGE_METRICS]
    bench.series("epochs", columns, dict.fromkeys(("lr", *reached), "1"))
    return {name: epochs[-1][name] for name in reached}


def measure_statistics(
    bench: Bench, *, data: str, batch: int, gpus: int = 1, ranks: int = 0
) -> Mapping[str, float]:
    """The same training with only gradients exchanged: each rank keeps its own running statistics.

    Metrics are the largest of the ranks'; `spread` is that of their test accuracies.
    """
    count, images = ranks or gpus, len(bench.data(data).train)
    if batch * count > images:
        bench.skip(
            f"{count} ranks with {batch} images each need {batch * count} images, {data} has"
            f" {images}"
        )
    found = bench.ranks(train_apart, count, "resnet18" if bench.gpus else "small", data, batch)[0]
    bench.series("ranks", {"rank": list(range(count)), **found}, dict.fromkeys(found, "1"))
    accuracies = found["test_accuracy"]
    drifts = {name: max(found[name]) for name in ("mean_drift", "variance_drift")}
    return {**drifts, "test_accuracy": accuracies[0], "spread": max(accuracies) - min(accuracies)}


def train_apart(rank: Rank, model: str, data: str, batch: int) -> dict[str, list[float]]:
    """For each rank its drift from the ranks' mean, and its test accuracy by its own statistics.

    batch: on each rank.
    """
    import torch
    from torch import distributed as dist

    from hpml_plugins.plugins.scaling import training

    module, _ = _trained(rank, model, data, batch, "plain", lean=True)
    buffers = dict(module.named_buffers())
    kinds = ("running_mean", "running_var")
    mean, variance = (
        torch.cat([buffers[name] for name in buffers if name.endswith(kind)]).double()
        for kind in kinds
    )
    centre, width = mean.clone(), variance.clone()
    for total in (centre, width):
        dist.all_reduce(total)
        total /= rank.count
    test = rank.bench.data(data).to(rank.device).normalized().test
    mine = {
        **statistics_drift(mean, variance, centre, width),
        "test_accuracy": _accuracy(module, test, training.layout(rank.device)),
    }
    return {name: [each[name] for each in rank.gather(mine)] for name in mine}


def statistics_drift(mean: Any, variance: Any, centre: Any, width: Any) -> dict[str, float]:
    """How far one rank's running statistics are from the mean of all ranks', root mean square over
    the channels.

    mean, variance: (channels) of one rank.  centre, width: the means of these over the ranks.
    mean_drift: in standard deviations, √width.  variance_drift: relative.
    """
    return {
        "mean_drift": float(((mean - centre).square() / width).mean().sqrt()),
        "variance_drift": float((variance / width - 1).square().mean().sqrt()),
    }


def learning_rate(epoch: float, *, base: float, factor: float, warm_up: float) -> float:
    """Goyal's linear scaling with gradual warm-up.

    epoch: epochs done so far, with fractions.  base: the rate of the small batch.  factor: the
    large batch over the small one.  warm_up: epochs over which the rate rises linearly from base to
    base · factor; 0: no warm-up. Source: Goyal et al., Accurate, Large Minibatch SGD: Training
    ImageNet in 1 Hour (2017), sections 2.1 and 2.2.
    """
    risen = min(1.0, epoch / warm_up) if warm_up > 0 else 1.0
    return base * (1 + (factor - 1) * risen)


class Draws:
    """An epoch's augmentation: random crops of zero-padded images, with half of the images flipped.

    Drawn for all images on the CPU, so that an image's augmentation is the same for any number of
    ranks and any device.
    """

    def __init__(
        self, count: int, seed: int, epoch: int, pad: int, flip: bool, device: Any = "cpu"
    ) -> None:
        import torch

        generator = torch.Generator().manual_seed(seed * 100_003 + epoch)
        # unused: keeps the following numbers the same as in Records of earlier commits
        torch.randperm(count, generator=generator)
        self.pad = pad
        self.moves = torch.randint(2 * pad + 1, (2, count), generator=generator).to(device)
        self.flips = ((torch.rand(count, generator=generator) < 0.5) & flip).to(device)

    def augment(self, images: Any, places: Any) -> Any:
        """The images (B, C, H, W) at these indices of the data set, augmented."""
        import torch

        (down, right), flips = self.moves[:, places], self.flips[places]
        height, width = images.shape[2:]
        rows = down[:, None] + torch.arange(height, device=images.device)
        columns = right[:, None] + torch.arange(width, device=images.device)
        columns = torch.where(flips[:, None], columns.flip(1), columns)
        padded = torch.nn.functional.pad(images, (self.pad,) * 4)
        of_batch = torch.arange(len(images), device=images.device)[:, None, None]
        return padded.movedim(1, 3)[of_batch, rows[:, :, None], columns[:, None, :]].movedim(3, 1)


def train(rank: Rank, model: str, data: str, batch: int, recipe: Recipe) -> list[dict[str, float]]:
    """Loss and accuracy of each epoch.  batch: on each rank."""
    return _trained(rank, model, data, batch, recipe)[1]


def _trained(
    rank: Rank, model: str, data: str, batch: int, recipe: Recipe, *, lean: bool = False
) -> tuple[Any, list[dict[str, float]]]:
    """The trained module, and the results of each epoch. lean: running statistics are not
    broadcast."""
    import torch

    from hpml_plugins.plugins.scaling import training

    bench = rank.bench
    torch.backends.cudnn.benchmark = True  # all batches have one shape
    layout = training.layout(rank.device)
    images = bench.data(data).to(rank.device).normalized()
    places = torch.arange(len(images.train), device=rank.device)
    batches = Split(places, images.train.labels).batches(
        batch, seed=bench.seed, rank=rank.index, ranks=rank.count
    )
    torch.manual_seed(bench.seed)
    module = training.build(
        model, images.shape, len(images.classes), zero_gamma=recipe in ("zero_gamma", "both")
    )
    module = module.to(rank.device, memory_format=layout)
    parallel = ddp.wrapped(rank, module, lean=lean) if rank.count > 1 else module
    trainer = training.Trainer(parallel, iter(()), BASE_RATE)  # gets its batches by call
    sgd = trainer.optimizer.param_groups[0]
    factor = batch * rank.count / BASE_BATCH
    epochs: list[dict[str, float]] = []
    with training.skip_if_out_of_memory(bench, batch):
        for epoch in range(EPOCHS):
            batches.set_epoch(epoch)
            module.train()
            totals = torch.zeros(3, dtype=torch.float64, device=rank.device)
            draws = Draws(
                len(places),
                bench.seed,
                epoch,
                images.shape[1] // 8,
                data.startswith("cifar"),
                rank.device,
            )
            for number, (place, y) in enumerate(batches):
                x = draws.augment(images.train.images[place], place)
                if recipe in ("linear", "both"):
                    done = epoch + number / len(batches)
                    sgd["lr"] = learning_rate(done, base=BASE_RATE, factor=factor, warm_up=WARM_UP)
                trainer.train_on(x.contiguous(memory_format=layout), y)
                right = (trainer.logits.argmax(1) == y).sum()
                totals += torch.stack(
                    [trainer.loss.detach() * len(y), right, torch.full_like(right, len(y))]
                )
            torch.distributed.all_reduce(totals)
            total_loss, right, count = totals.tolist()
            # DDP broadcasts rank 0's running statistics, which a checkpoint would contain.
            accuracy = rank.share(
                _accuracy(module, images.test, layout) if rank.index == 0 else None
            )
            bench.check(
                math.isfinite(total_loss), "the loss is finite: the training has not diverged"
            )
            epochs.append(
                {
                    "epoch": epoch + 1,
                    "steps": (epoch + 1) * len(batches),
                    "lr": sgd["lr"],
                    "train_loss": total_loss / count,
                    "train_accuracy": right / count,
                    "test_accuracy": accuracy,
                }
            )
            bench.progress(f"epoch {epoch + 1}, accuracy {accuracy:.3f}", (epoch + 1) / EPOCHS)
    ddp.check_same_everywhere(rank, module)
    return module, epochs


def _accuracy(model: Any, split: Split, layout: Any) -> float:
    import torch

    model.eval()
    right = 0
    with torch.no_grad():
        for x, y in split.batches(TEST_BATCH, shuffle=False, drop_last=False):
            right += int((model(x.contiguous(memory_format=layout)).argmax(1) == y).sum())
    return right / len(split)


LARGE_METRICS = (
    Metric(
        "train_loss",
        "1",
        "lower",
        "cross-entropy, mean over the images of the last epoch, as trained",
    ),
    Metric("train_accuracy", "1", "higher", "of the last epoch, as trained", (0, 1)),
    Metric("test_accuracy", "1", "higher", "after the last epoch", (0, 1)),
)
LARGE_BATCH = Benchmark(
    "scaling_large_batch",
    measure,
    LARGE_METRICS,
    {"gpus": GPUS, "data": ("cifar10", "cifar10-jpeg"), "batch": (512, 8192), "recipe": RECIPES},
    Requires(gpus="gpus", data="data", modules=MODULES),
    timeout=300,
    description=(
        "Five epochs of ResNet18 with large batches on all GPUs, with and without Goyal's remedies."
    ),
    rounds=1,
    terms=TERMS,
)
SMALL_BATCH = replace(
    LARGE_BATCH,
    name="scaling_small_batch",
    grid={"data": ("cifar10", "cifar10-jpeg")},
    terms={},
    requires=Requires(gpus=1, data="data", modules=MODULES),
    description="Five epochs of ResNet18 with batch 128 on one GPU.",
)
LARGE_BATCH_CPU = replace(
    LARGE_BATCH,
    name="scaling_large_batch_cpu",
    grid={"ranks": (2,), "data": ("digits",), "batch": (64, 512), "recipe": RECIPES},
    requires=Requires(data="data", modules=TORCH),
    timeout=120,
    description=(
        "Five epochs of a small model on the digits over gloo, with and without Goyal's remedies."
    ),
)
STATISTICS = Benchmark(
    "scaling_statistics",
    measure_statistics,
    (
        Metric(
            "mean_drift",
            "1",
            "lower",
            "of a rank's running means from those of all, in standard deviations",
        ),
        Metric(
            "variance_drift",
            "1",
            "lower",
            "of a rank's running variances from those of all, relative",
        ),
        Metric(
            "test_accuracy", "1", "higher", "after five epochs, by the statistics of rank 0", (0, 1)
        ),
        Metric(
            "spread",
            "1",
            "lower",
            "largest less smallest test accuracy by the statistics of the ranks",
            (0, 1),
        ),
    ),
    {"gpus": GPUS, "data": ("cifar10", "cifar10-jpeg"), "batch": (512,)},
    LARGE_BATCH.requires,
    timeout=300,
    description=(
        "Drift of the ranks' running statistics in five epochs of ResNet18 where only gradients are"
        " exchanged."
    ),
    rounds=1,
)
STATISTICS_CPU = replace(
    STATISTICS,
    name="scaling_statistics_cpu",
    grid={"ranks": (4,), "data": ("digits", "cifar10-jpeg"), "batch": (64, 512)},
    requires=LARGE_BATCH_CPU.requires,
    timeout=900,
    description="Drift of the ranks' running statistics in five epochs of a small model over gloo.",
)
