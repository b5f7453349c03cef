"""One run: from weights just drawn to the target, by the clock."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING

import msgspec

from hpml_plugins.plugins.tta.energy import Counter

if TYPE_CHECKING:
    from hpml_plugins.plugins.tta.training import Trainer

#: (epoch, epochs, accuracy or None, seconds so far)
Say = Callable[[int, int, float | None, float], None]


class Run(msgspec.Struct, frozen=True, kw_only=True):
    """What a run gave. time: s, to the end of the evaluation that reached the target, else of the whole run.

    load: s the host waited for batches.  train, evaluate: s.  epochs: until then, parts count.  energy: J;
    None where nobody tells.  curve_*: after each evaluation.  apart: accuracy by a plain evaluation.  elsewhere: on
    images from elsewhere, by name.
    """

    seed: int
    reached: bool
    time: float
    epochs: float
    accuracy: float
    load: float
    train: float
    evaluate: float
    apart: float = 0.0
    energy: float | None = None
    curve_epochs: list[float] = []
    curve_times: list[float] = []
    curve_accuracies: list[float] = []
    elsewhere: dict[str, float] = {}


def run(trainer: Trainer, seed: int, counter: Counter, say: Say = lambda *_: None) -> Run:
    """Train from this seed's weights until the target is reached, or the schedule ends.

    The clock starts with the weights drawn, the images loaded and everything compiled; it includes every evaluation.
    """
    from hpml_plugins.plugins.tta.replaying import synchronise

    recipe = trainer.recipe
    trainer.start(seed)
    if trainer.loaded:
        trainer.loaded.waited = 0.0
    epochs = -(-trainer.steps // trainer.steps_an_epoch)
    curve: list[tuple[float, float, float]] = []
    evaluating = 0.0
    reached = False
    joules = counter.read()
    started = time.perf_counter()
    trainer.whiten()
    for epoch in range(epochs):
        trainer.train_epoch(seed, epoch)
        done = min((epoch + 1) * trainer.steps_an_epoch, trainer.steps)
        every = recipe.evaluate.every
        if done == trainer.steps or (every and (epoch + 1) % every == 0):
            synchronise(trainer.device)
            before = time.perf_counter()
            accuracy = trainer.accuracy()
            now = time.perf_counter()
            evaluating += now - before
            curve.append((done / trainer.steps_an_epoch, now - started, accuracy))
            say(epoch + 1, epochs, accuracy, now - started)
            reached = accuracy >= recipe.target
            if reached and recipe.target_of == "each":
                break
    spent = curve[-1][1]
    after = counter.read()
    waited = trainer.loaded.waited if trainer.loaded else 0.0
    return Run(
        seed=seed,
        reached=reached,
        time=spent,
        epochs=curve[-1][0],
        accuracy=curve[-1][2],
        load=waited,
        train=spent - waited - evaluating,
        evaluate=evaluating,
        apart=trainer.accuracy_apart(),
        energy=None if joules is None or after is None else after - joules,
        curve_epochs=[point[0] for point in curve],
        curve_times=[point[1] for point in curve],
        curve_accuracies=[point[2] for point in curve],
    )
