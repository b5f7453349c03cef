"""A Trainer: a network, its images and its steps, set up once and trained any number of times.
Imports torch."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from typing import Any

import torch
from torch.nn import functional

from hpml_plugins import DataSet, HpmlError, Rank
from hpml_plugins.plugins.tta.images import Loaded, OnDevice
from hpml_plugins.plugins.tta.networks import SpeedNet, build, in_half, logits_over_views
from hpml_plugins.plugins.tta.optimising import Optimiser
from hpml_plugins.plugins.tta.recipes import Recipe

#: DistributedDataParallel records events for its own statistics in its first ten steps, which a
#: capture must not contain.
WARM_UP_RANKS = 12
#: Enough images to estimate the covariance of patches.
WHITEN_IMAGES = 5000


@contextmanager
def training(
    recipe: Recipe, data: DataSet, device: str, *args: Any, **options: Any
) -> Iterator[Trainer]:
    """A Trainer, closed after a block without an error, and on a GPU its own stream.

    A graph cannot be captured on the default stream, and gradients are accumulated on the stream on
    which a network was first used.
    """
    stream: Any = nullcontext()
    if device.startswith("cuda"):
        own = torch.cuda.Stream()
        own.wait_stream(torch.cuda.current_stream())
        stream = torch.cuda.stream(own)
    with stream:
        trainer = Trainer(recipe, data, device, *args, **options)
        yield trainer
        trainer.close()


class Trainer:
    """Trains by a recipe, alone or as one of several ranks, which split the images and reduce the
    gradients.

    evaluates: whether accuracies will be needed. load, setup: s that loading the images, and
    compiling, warming up and capturing took; neither is in a run's time.
    """

    def __init__(
        self,
        recipe: Recipe,
        data: DataSet,
        device: str,
        rank: Rank | None = None,
        *,
        evaluates: bool = True,
    ) -> None:
        self.recipe, self.data, self.device, self.rank = recipe, data, device, rank
        index, count = (rank.index, rank.count) if rank else (0, 1)
        if device.startswith("cuda"):
            torch.backends.cudnn.benchmark = True
            # Convolutions may use TF32 by torch's default, matrix products not.
            torch.set_float32_matmul_precision("highest")
        elif recipe.threads:
            torch.set_num_threads(recipe.threads)

        started = time.perf_counter()
        self.feed = (OnDevice if recipe.on_device else Loaded)(data, recipe, device, index, count)
        self.dtype, self.layout, self.steps_an_epoch = (
            self.feed.dtype,
            self.feed.layout,
            self.feed.steps,
        )
        self.autocast = recipe.precision == "bfloat16"
        if not self.steps_an_epoch:
            raise HpmlError(
                f"recipe {recipe.name!r}: no batch of {recipe.batch} for each of {count} in"
                f" {len(data.train)} images"
            )
        self.steps = max(1, round(recipe.epochs * self.steps_an_epoch))
        part = slice(index, None, count)
        self.test = data.normalize(data.test.images[part].to(device), self.dtype).contiguous(
            memory_format=self.layout
        )
        self.test_labels = data.test.labels[part].to(device)
        self._to_whiten: Any = None
        if recipe.network.name == "speed":
            self._to_whiten = data.normalize(data.train.images[:WHITEN_IMAGES].to(device))
        self.synchronise()
        self.load = time.perf_counter() - started

        started = time.perf_counter()
        torch.manual_seed(0)
        self.network = self.shared = self._fresh()
        if rank:
            from torch.nn.parallel import DistributedDataParallel

            cards = [device] if rank.backend == "nccl" else None
            self.shared = DistributedDataParallel(
                self.network, device_ids=cards, gradient_as_bucket_view=True
            )
        # The batch grows with the ranks, and the rate with it (Goyal et al.).
        self.optimiser = Optimiser(
            self.network,
            recipe,
            self.steps,
            self.steps_an_epoch,
            device,
            self._compiled,
            float(count),
        )
        self.number = torch.zeros(1, dtype=torch.int64, device=device)
        self._loss_of = self._compiled(self._loss)
        self._prepare(evaluates)
        self.setup = time.perf_counter() - started

    # -- a run

    def start(self, seed: int) -> None:
        """Draw new weights from the seed, and reset everything else to the state before the first
        step."""
        torch.manual_seed(seed)
        with torch.no_grad():
            self.network.load_state_dict(self._fresh().state_dict())
        self.optimiser.reset()
        self.number.zero_()
        self.feed.start(seed)
        self.synchronise()

    def whiten(self) -> None:
        """Initialise a network from the images before its first step; most networks need
        nothing."""
        if self._to_whiten is not None:
            self.network.whiten(self._to_whiten)

    def train_epoch(self, seed: int, epoch: int) -> None:
        """Launch the remaining scheduled steps of this epoch. The device may still be busy
        afterwards."""
        first = epoch * self.steps_an_epoch
        for _ in self.train(
            seed, epoch, range(first, min(first + self.steps_an_epoch, self.steps))
        ):
            pass

    def train(self, seed: int, epoch: int, steps: range) -> Iterator[None]:
        """Launch these steps of the schedule one by one, on batches of this epoch."""
        for step, _ in zip(steps, self.feed.epoch(seed, epoch), strict=False):
            self._steps[self.trains_bias(step)]()
            yield

    def trains_bias(self, step: int) -> bool:
        """Whether this step trains the whitening's bias: a step without it is compiled and captured
        separately."""
        epochs = self.recipe.whiten_bias_epochs
        return self.rank is not None or not epochs or step / self.steps_an_epoch < epochs

    def accuracy(self) -> float:
        """The accuracy on the test images, over all ranks."""
        return self._share(self._evaluate(), len(self.test))

    def plain_accuracy(self, images: Any = None, labels: Any = None) -> float:
        """The accuracy without compiling or capturing; optionally on other images, normalised (N,
        C, H, W), and their labels."""
        if images is None:
            images, labels = self.test, self.test_labels
        images = images.to(self.device, self.dtype).contiguous(memory_format=self.layout)
        return self._share(self._count(images, labels.to(self.device), self._logits), len(images))

    def synchronise(self) -> None:
        """Wait until the device has finished its work."""
        if self.device.startswith("cuda"):
            torch.cuda.synchronize()

    def close(self) -> None:
        """Release all graphs, and end the loading processes."""
        self.synchronise()
        for graph in self._graphs:
            # NCCL's communicator cannot be taken down while a graph holds it.
            graph.reset()
        self.feed.close()
        if self.recipe.compile:
            # Another trainer's functions have the same code: dynamo would count them as
            # recompilations, and give up.
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
        take: Any = self.feed.take
        if self.recipe.on_device:
            self.feed.start(0)
            next(self.feed.epoch(0, 0))
            take = self._compiled(take)
        self.network.train()
        self.whiten()
        self._graphs: list[Any] = []
        self._steps: dict[bool, Callable[[], Any]] = {}
        for bias in dict.fromkeys(map(self.trains_bias, range(self.steps))):

            def step_of(bias: bool = bias) -> Any:
                images, labels = take(self.number)
                return self._step(images, labels, bias)

            self._steps[bias] = self._captured(step_of, WARM_UP_RANKS if self.rank else 3)
        if evaluates:
            logits = self._compiled(self._logits)
            self._evaluate = self._captured(
                lambda: self._count(self.test, self.test_labels, logits), 2
            )
        self.synchronise()

    def _captured(self, function: Callable[[], Any], warm_up: int) -> Callable[[], Any]:
        """The function, or a replay of it as a CUDA graph, which returns its output tensors.

        It is first called `warm_up` times: compiling, autotuning and allocation at first use must
        happen before the capture.
        """
        for _ in range(warm_up):
            function()
        if not self.recipe.graph:
            return function
        self.synchronise()
        graph = torch.cuda.CUDAGraph()
        # "thread_local": NCCL's watchdog thread may query its events during the capture.
        with torch.cuda.graph(
            graph, stream=torch.cuda.current_stream(), capture_error_mode="thread_local"
        ):
            result = function()
        self.synchronise()
        self._graphs.append(graph)

        def replay() -> Any:
            graph.replay()
            return result

        return replay

    def _step(self, images: Any, labels: Any, bias: bool) -> Any:
        self.optimiser.zero_grad()
        loss = self._loss_of(images, labels, bias)
        loss.backward()
        self.optimiser.step(self.number)
        self.number.add_(1)
        return loss.detach()

    def _share(self, right: Any, count: int) -> float:
        """The number of correctly classified images of all ranks."""
        numbers = [float(right), float(count)]
        rights, counts = zip(
            *(self.rank.gather_numbers(numbers) if self.rank else [numbers]), strict=True
        )
        return float(sum(rights) / sum(counts))

    # -- what is compiled

    def _loss(self, images: Any, labels: Any, bias: bool) -> Any:
        images = images.to(self.dtype).contiguous(memory_format=self.layout)
        # Without the cache: each weight is used once, and a captured graph may not hold what a
        # cache will free.
        with torch.autocast(
            images.device.type, torch.bfloat16, enabled=self.autocast, cache_enabled=False
        ):
            logits = (
                self.shared(images, bias)
                if isinstance(self.network, SpeedNet)
                else self.shared(images)
            )
        return functional.cross_entropy(
            logits.float(),
            labels,
            label_smoothing=self.recipe.label_smoothing,
            reduction=self.recipe.loss,
        )

    def _logits(self, images: Any) -> Any:
        with torch.autocast(
            images.device.type, torch.bfloat16, enabled=self.autocast, cache_enabled=False
        ):
            return self.network(images).float()

    @torch.no_grad()  # type: ignore[untyped-decorator]
    def _count(self, images: Any, labels: Any, logits_of: Callable[[Any], Any]) -> Any:
        """The number of correct predictions, a tensor."""
        self.network.eval()
        views, size = self.recipe.evaluate.views, self.recipe.evaluate.batch
        right = torch.zeros((), dtype=torch.int64, device=self.device)
        for part, answers in zip(images.split(size), labels.split(size), strict=True):
            right = right + (logits_over_views(part, views, logits_of).argmax(1) == answers).sum()
        self.network.train()
        return right
