"""One timed run, from initial weights to the target, and sets of runs that can be interrupted."""

from __future__ import annotations

import hashlib
import os
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from hpml_plugins.store import atomic_write
from hpml_plugins.workloads.datasets import cache

if TYPE_CHECKING:
    from hpml_plugins.plugins.tta.training import Trainer

#: The variable for the folder of interrupted sets; default: the user's cache.
VARIABLE = "HPML_TTA_RUNS"
#: Called with epoch, epochs, accuracy, and seconds so far.
Progress = Callable[[int, int, float, float], None]


class Run(msgspec.Struct, kw_only=True):
    """The result of a run.  time: s, until the end of the evaluation that reached the target, else
    of the whole run.

    load: s the host waited for batches.  train, evaluate: s.  epochs: until then, with fractions.
    curve: epochs, s and accuracy after each evaluation.  plain_accuracy: by an evaluation that is
    neither compiled nor captured.  energy: J; None if unknown.  out_of_distribution: accuracy on
    other images, by name.
    """

    seed: int
    reached: bool
    time: float
    epochs: float
    accuracy: float
    load: float
    train: float
    evaluate: float
    curve: list[tuple[float, float, float]] = []
    plain_accuracy: float = 0.0
    energy: float | None = None
    out_of_distribution: dict[str, float] = {}


def run(trainer: Trainer, seed: int, progress: Progress = lambda *_: None) -> Run:
    """Train until the target is reached, or the schedule ends. Call `trainer.start(seed)` before.

    The clock starts after initialising the weights, loading the images and compiling; it includes
    every evaluation.
    """
    recipe = trainer.recipe
    epochs = -(-trainer.steps // trainer.steps_an_epoch)
    curve: list[tuple[float, float, float]] = []
    evaluating = 0.0
    reached = False
    started = time.perf_counter()
    trainer.whiten()
    for epoch in range(epochs):
        trainer.train_epoch(seed, epoch)
        done = min((epoch + 1) * trainer.steps_an_epoch, trainer.steps)
        every = recipe.evaluate.every
        if done == trainer.steps or (every and (epoch + 1) % every == 0):
            trainer.synchronise()
            before = time.perf_counter()
            accuracy = trainer.accuracy()
            now = time.perf_counter()
            evaluating += now - before
            curve.append((done / trainer.steps_an_epoch, now - started, accuracy))
            progress(epoch + 1, epochs, accuracy, now - started)
            reached = accuracy >= recipe.target
            if reached and recipe.target_of == "each":
                break
    done_epochs, spent, accuracy = curve[-1]
    waited = trainer.feed.waited
    return Run(
        seed=seed,
        reached=reached,
        time=spent,
        epochs=done_epochs,
        accuracy=accuracy,
        load=waited,
        train=spent - waited - evaluating,
        evaluate=evaluating,
        curve=curve,
    )


class RunSet:
    """The finished runs of one set, kept in a file until the set is complete, so that an
    interrupted set can be resumed.

    about: everything that two runs of one set must have in common: recipe, data, code, versions,
    card. Other facts give another file.
    """

    def __init__(self, about: Mapping[str, str]) -> None:
        digest = hashlib.sha256(msgspec.json.encode(about, order="sorted")).hexdigest()[:20]
        self.path = Path(os.environ.get(VARIABLE) or cache() / "tta") / f"{digest}.json"
        self.runs: list[Run] = []
        self.problem = ""
        with suppress(OSError, msgspec.DecodeError):
            self.runs = msgspec.json.decode(self.path.read_bytes(), type=list[Run])

    def add(self, run: Run, *, write: bool = True) -> None:
        """Store a run atomically. If it cannot be written, `problem` has the reason and the set
        continues."""
        self.runs.append(run)
        if not write:
            return
        try:
            atomic_write(self.path, msgspec.json.encode(self.runs))
        except OSError as error:
            self.problem = f"an interrupted set will not be resumed: {error}"

    def finish(self) -> None:
        """The set is complete: the next measurement starts from the beginning."""
        with suppress(OSError):
            self.path.unlink(missing_ok=True)
