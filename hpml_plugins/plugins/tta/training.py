"""A Trainer: a network, its images and its steps, set up once and trained any number of times. Imports torch."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch.nn import functional

from hpml_plugins import DataSet, HpmlError
from hpml_plugins.plugins.tta.images import Loaded, OnDevice
from hpml_plugins.plugins.tta.networks import SpeedNet, build, in_half
from hpml_plugins.plugins.tta.optimising import Optimiser
from hpml_plugins.plugins.tta.recipes import Recipe
from hpml_plugins.plugins.tta.replaying import Replay, synchronise
from hpml_plugins.plugins.tta.views import seen
from hpml_plugins.plugins.tta.workers import ALONE, Crew

#: DistributedDataParallel takes events for its own statistics in its first ten steps, which a capture must not hold.
WARM_UP_RANKS = 12
#: So many images tell the covariance of patches well enough.
WHITEN_IMAGES = 5000
DTYPES = {"float16": torch.float16, "bfloat16": torch.bfloat16, "float32": torch.float32, "tf32": torch.float32}


@dataclass(frozen=True)
class Phase:
    """What a step is compiled and captured for. bias: whether the whitening's bias is trained.  side: of the images."""

    bias: bool
    side: int


class Trainer:
    """Trains by a recipe. Must be made and used inside of `replaying.own_stream`.

    evaluates: whether it will be asked for accuracies.
    load, setup: s that loading the images, and compiling, warming up and capturing took; neither is in a run's time.
    """

    def __init__(
        self, recipe: Recipe, data: DataSet, device: str, crew: Crew = ALONE, *, evaluates: bool = True
    ) -> None:  # fmt: skip
        self.recipe, self.data, self.device, self.crew = recipe, data, device, crew
        on_gpu = device.startswith("cuda")
        if on_gpu:
            torch.backends.cudnn.benchmark = True
            # Convolutions may use TF32 by torch's default, matrix products not.
            torch.set_float32_matmul_precision("high" if recipe.precision == "tf32" else "highest")
        elif recipe.threads:
            torch.set_num_threads(recipe.threads)
        self.dtype = DTYPES[recipe.precision]
        self.layout = torch.channels_last if recipe.channels_last else torch.contiguous_format
        self.autocast = recipe.precision == "bfloat16"

        started = time.perf_counter()
        place = (crew.index, crew.count)
        self.on_device = OnDevice(data, recipe, device, self.dtype, *place) if recipe.on_device else None
        self.loaded = None if recipe.on_device else Loaded(data, recipe, device, *place)
        feed = self.on_device or self.loaded
        assert feed is not None
        self.steps_an_epoch = feed.steps
        if not feed.steps:
            raise HpmlError(
                f"recipe {recipe.name!r}: no batch of {recipe.batch} for each of {crew.count} in "
                f"{len(data.train)} images"
            )
        self.steps = max(1, round(recipe.epochs * feed.steps))
        part = slice(crew.index, None, crew.count)
        self.test = data.normalize(data.test.images[part].to(device), self.dtype).contiguous(memory_format=self.layout)
        self.test_labels = data.test.labels[part].to(device)
        synchronise(device)
        self.load = time.perf_counter() - started

        started = time.perf_counter()
        torch.manual_seed(0)
        self.network = self._fresh()
        self.wrapped = crew.wrap(self.network)
        rate_for = float(crew.count)  # the batch grows with the ranks, and the rate with it (Goyal et al.)
        self.optimiser = Optimiser(
            self.network, recipe, self.steps, feed.steps, device, self._compiled, 1.0 if recipe.muon else rate_for
        )
        self.number = torch.zeros(1, dtype=torch.int64, device=device)
        self._take: Any = self._compiled(self.on_device.take) if self.on_device else None
        self._loss_of = self._compiled(self._loss)
        self._logits_of = self._compiled(self._logits)
        self._slots: tuple[Any, Any] | None = None
        self._steps: dict[Phase, Replay] = {}
        self._evaluate: Replay | None = None
        self._prepare(evaluates)
        self.setup = time.perf_counter() - started

    # -- a run

    def start(self, seed: int) -> None:
        """New weights, drawn from the seed, and everything else as it was before the first step."""
        torch.manual_seed(seed)
        with torch.no_grad():
            self.network.load_state_dict(self._fresh().state_dict())
        self.optimiser.reset()
        self.number.zero_()
        (self.on_device or self.loaded).start(seed)  # type: ignore[union-attr]
        synchronise(self.device)

    def whiten(self) -> None:
        """What a network takes from the images before its first step; nothing for most."""
        if isinstance(self.network, SpeedNet):
            images = self.data.train.images
            if self.on_device:
                self.network.whiten(self.on_device.images[:WHITEN_IMAGES])
            else:
                self.network.whiten(self.data.normalize(images[:WHITEN_IMAGES].to(self.device)))

    def train_epoch(self, seed: int, epoch: int) -> None:
        """The steps of this epoch, as many as the schedule has left. The device may be busy with them afterwards."""
        first = epoch * self.steps_an_epoch
        count = min(self.steps_an_epoch, self.steps - first)
        if self.on_device:
            self.on_device.start_epoch(seed, epoch)
            self.run_steps(first, count)
            return
        assert self.loaded is not None
        batches = self.loaded.epoch(seed, epoch)
        for step, (images, labels) in zip(range(first, first + count), batches, strict=False):
            self.train_on(images, labels, step)

    def run_steps(self, first: int, count: int) -> None:
        """Steps of images that are on the device, by number."""
        step = first
        while step < first + count:
            replay = self._steps[self.phase(step)]
            for _ in range(replay.times):
                step += 1
            replay()

    def train_on(self, images: Any, labels: Any, step: int) -> None:
        """One step on a batch that was loaded."""
        replay = self._steps[self.phase(step)]
        if self._slots is not None:
            self._slots[0].copy_(images, non_blocking=True)
            self._slots[1].copy_(labels, non_blocking=True)
            replay()
        else:
            self._step_on(images, labels, self.phase(step))

    def phase(self, step: int) -> Phase:
        """What this step is like."""
        epoch = step / self.steps_an_epoch
        bias = self.crew.count > 1 or not self.recipe.whiten_bias_epochs or epoch < self.recipe.whiten_bias_epochs
        side = self.data.shape[1]
        for start, smaller in self.recipe.sizes:
            side = smaller if epoch >= start else side
        return Phase(bias, side)

    def accuracy(self) -> float:
        """On the test images, over all ranks."""
        assert self._evaluate is not None
        right = float(self._evaluate())
        total = self.crew.total([right, float(len(self.test_labels))])
        return total[0] / total[1]

    def accuracy_apart(self, images: Any = None, labels: Any = None) -> float:
        """The same neither compiled nor captured; or on other images, normalised (N, C, H, W), and their labels."""
        apart = images is not None
        images = (
            self.test if images is None else images.to(self.device, self.dtype).contiguous(memory_format=self.layout)
        )
        labels = self.test_labels if labels is None else labels.to(self.device)
        right = float(self._count(images, labels, self._logits))
        if apart:
            return right / len(labels)
        total = self.crew.total([right, float(len(labels))])
        return total[0] / total[1]

    def close(self) -> None:
        """Let go of all graphs, and end the processes that load."""
        for replay in (*self._steps.values(), *filter(None, [self._evaluate])):
            replay.drop()
        if self.loaded:
            self.loaded.close()
        if self.recipe.compile:
            # Another trainer's functions are of the same code: dynamo would count them as recompilations, and give up.
            torch._dynamo.reset()

    # -- set-up

    def _fresh(self) -> Any:
        with torch.device(self.device):
            network = build(self.recipe.network, self.data.shape, len(self.data.classes))
        network = in_half(network) if self.recipe.precision == "float16" else network
        return network.to(memory_format=self.layout)

    def _compiled(self, function: Any) -> Any:
        if not self.recipe.compile:
            return function
        return torch.compile(function, mode=self.recipe.compile, dynamic=False)

    def _prepare(self, evaluates: bool) -> None:
        recipe = self.recipe
        phases = list(dict.fromkeys(self.phase(step) for step in range(self.steps)))
        if self.on_device:
            self.on_device.start(0)
            self.on_device.start_epoch(0, 0)
        batch = (recipe.batch, *self.data.shape)
        if not self.on_device:
            images = torch.randn(batch, device=self.device).contiguous(memory_format=self.layout)
            self._slots = (images, torch.zeros(recipe.batch, dtype=torch.int64, device=self.device))
        self.network.train()
        self.whiten()
        warm_up = WARM_UP_RANKS if self.crew.count > 1 else 3
        for phase in phases:
            self._steps[phase] = Replay(
                self._step_of(phase), graph=recipe.graph, warm_up=warm_up, times=self._times(phase)
            )
        if not recipe.graph:
            self._slots = None
        if evaluates:
            self._evaluate = Replay(
                lambda: self._count(self.test, self.test_labels, self._logits_of), graph=recipe.graph, warm_up=2
            )
        synchronise(self.device)

    def _times(self, phase: Phase) -> int:
        """As many steps a graph as asked, where every part of the schedule is a multiple of that."""
        times = self.recipe.steps_per_graph
        counts = [
            sum(self.phase(step) == phase for step in range(first, min(first + self.steps_an_epoch, self.steps)))
            for first in range(0, self.steps, self.steps_an_epoch)
        ]
        return times if self.on_device and not any(count % times for count in counts) else 1

    def _step_of(self, phase: Phase) -> Callable[[], Any]:
        def on_device() -> Any:
            images, labels = self._take(self.number.remainder(self.steps_an_epoch))
            return self._step_on(images, labels, phase)

        def loaded() -> Any:
            assert self._slots is not None
            return self._step_on(*self._slots, phase)

        return on_device if self.on_device else loaded

    def _step_on(self, images: Any, labels: Any, phase: Phase) -> Any:
        self.optimiser.zero_grad()
        loss = self._loss_of(images, labels, phase.bias, phase.side)
        loss.backward()
        self.optimiser.step(self.number)
        self.number.add_(1)
        return loss.detach()

    # -- what is compiled

    def _loss(self, images: Any, labels: Any, bias: bool, side: int) -> Any:
        if side != images.shape[-1]:
            images = functional.interpolate(images, size=(side, side), mode="bilinear")
        images = images.to(self.dtype).contiguous(memory_format=self.layout)
        # Without the cache: each weight is used once, and a captured graph may not hold what a cache will free.
        with torch.autocast(images.device.type, torch.bfloat16, enabled=self.autocast, cache_enabled=False):
            logits = self.wrapped(images, bias) if isinstance(self.network, SpeedNet) else self.wrapped(images)
        return functional.cross_entropy(
            logits.float(), labels, label_smoothing=self.recipe.label_smoothing, reduction=self.recipe.loss
        )

    def _logits(self, images: Any) -> Any:
        with torch.autocast(images.device.type, torch.bfloat16, enabled=self.autocast, cache_enabled=False):
            return self.network(images).float()

    @torch.no_grad()  # type: ignore[untyped-decorator]
    def _count(self, images: Any, labels: Any, logits_of: Callable[[Any], Any]) -> Any:
        """How many are right, a tensor."""
        self.network.eval()
        views, size = self.recipe.evaluate.views, self.recipe.evaluate.batch
        right = torch.zeros((), dtype=torch.int64, device=self.device)
        for part, answers in zip(images.split(size), labels.split(size), strict=True):
            right = right + (seen(part, views, logits_of).argmax(1) == answers).sum()
        self.network.train()
        return right
