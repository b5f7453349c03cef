"""The benchmarks `lm_time_to_loss` and `lm_time_to_loss_cpu`: training until a validation loss,
several times."""

from __future__ import annotations

import statistics
import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from hpml_plugins import Bench, Benchmark, HpmlError, Metric, Requires, Samples
from hpml_plugins.plugins.language_models.shapes import GPT, find_shape
from hpml_plugins.plugins.language_models.text import Text, as_tokens, chosen, read_text

if TYPE_CHECKING:
    from hpml_plugins.plugins.language_models.gpt import Gpt, Trainer

#: Steps until the learning rate reaches its full value.
WARM_UP = 50
#: Steps between two evaluations, and sequences of one.
EVERY, EVALUATED = 20, 256
#: Largest relative difference of the validation loss from that of the float32 model.
TOLERANCE = 1e-2
#: Another run starts only if this multiple of the longest run so far is left of the point's time.
ROOM = 1.3


@dataclass(frozen=True)
class Run:
    """A training. time: s, evaluations included.  loss: of the last evaluation.  plain: the same in
    float32.  energy: J; None if unknown."""

    seed: int
    reached: bool
    time: float
    steps: int
    loss: float
    plain: float
    curve: list[tuple[int, float, float]]
    energy: float | None = None


class Course:
    """Trains one model repeatedly, each time from new weights on other pieces of the text."""

    def __init__(self, bench: Bench, model: Gpt, text: Text, batch: int, length: int) -> None:
        import torch

        self.device, self.model, self.batch, self.length = bench.device, model, batch, length
        self.tokens = as_tokens(text.train, bench.device)
        validation = as_tokens(text.validation, bench.device)
        count = min(EVALUATED, len(validation) // (length + 1))
        starts = torch.arange(count, device=bench.device) * (length + 1)
        self.validation = [
            chosen(validation, some, length) for some in starts.split(batch) if len(some) == batch
        ]

    def start(self, seed: int) -> None:
        """New weights, a new optimiser."""
        import torch

        from hpml_plugins.plugins.language_models.gpt import Trainer

        torch.manual_seed(seed)
        self.model.initialise()
        self.trainer: Trainer = Trainer(self.model)
        self.generator = torch.Generator(self.device).manual_seed(seed)
        if self.device == "cuda":
            self.trainer.compile_whole()

    def step(self, number: int) -> None:
        """Train on pieces chosen at random.  number: from 1."""
        import torch

        from hpml_plugins.plugins.language_models.gpt import LEARNING_RATE

        for group in self.trainer.optimizer.param_groups:
            group["lr"] = LEARNING_RATE * min(1.0, number / WARM_UP)
        last = len(self.tokens) - self.length
        starts = torch.randint(last, (self.batch,), generator=self.generator, device=self.device)
        self.trainer.step(*chosen(self.tokens, starts, self.length))

    def loss(self) -> float:
        """The loss on the validation text, nats per byte."""
        import torch

        with torch.no_grad():
            parts = [self.trainer.evaluate(*piece) for piece in self.validation]
            return float(sum(parts) / len(parts))

    def plain_loss(self) -> float:
        """The same in float32, by torch's cross-entropy."""
        parts = [self.model.reference_loss(*piece) for piece in self.validation]
        return statistics.fmean(parts)

    def run(self, bench: Bench, seed: int, target: float, steps: int) -> Run:
        """Train until the loss is at most `target`, or for `steps` steps."""
        self.start(seed)
        curve: list[tuple[int, float, float]] = []
        started = time.perf_counter()
        with bench.meter() as meter:
            for number in range(1, steps + 1):
                self.step(number)
                if number % EVERY and number < steps:
                    continue
                loss = self.loss()  # waits for the device
                curve.append((number, time.perf_counter() - started, loss))
                if loss <= target:
                    break
        count, spent, loss = curve[-1]
        plain = self.plain_loss()
        return Run(seed, loss <= target, spent, count, loss, plain, curve, meter.energy)


def measure(
    bench: Bench, *, model: str, batch: int, length: int, target: float, steps: int, runs: int
) -> Mapping[str, Any]:
    """Train a decoder on the standard library's bytes until a validation loss, from `runs` seeds.

    A token is a byte. Every tenth file is for validation. The learning rate rises over 50 steps and
    stays. Compiling is not in the time; every evaluation is.

    target: nats per byte.  steps: after which a run has missed it.
    """
    from hpml_plugins.plugins.language_models import gpt

    text = read_text()
    bench.progress("compiling" if bench.device == "cuda" else "warming up", 0.0)
    started = time.perf_counter()
    course = Course(
        bench, gpt.made(find_shape(model, GPT), False, bench.device, 0), text, batch, length
    )
    course.start(0)
    course.step(1)
    course.loss()
    setup = time.perf_counter() - started
    found: list[Run] = []
    for number in range(runs):
        longest = max((run.time for run in found), default=0.0)
        if bench.remaining < ROOM * longest:
            raise HpmlError(f"{number} of {runs} runs are done and time is over")
        bench.progress(f"run {number + 1} of {runs}", number / runs)
        found.append(course.run(bench, bench.seed * 1000 + number + 1, target, steps))
    attach(bench, text, found)
    return metrics_of(bench, found, target, text) | {"setup": setup}


def attach(bench: Bench, text: Text, runs: list[Run]) -> None:
    """The series: the text, the runs, the loss of each over its steps."""
    about: dict[str, list[float | str]] = {
        "digest": [text.digest],
        "python": [text.python],
        "files": [float(text.files)],
        "train": [float(len(text.train))],
        "validation": [float(len(text.validation))],
    }
    bench.series("text", about, {"train": "B", "validation": "B"})
    names = ("seed", "reached", "time", "steps", "loss")
    columns = {name: [float(getattr(run, name)) for run in runs] for name in names}
    bench.series("runs", columns, {"time": "s", "loss": "1"})
    rows = [(number, *point) for number, run in enumerate(runs) for point in run.curve]
    axes = ("run", "step", "time", "loss")
    curves = {name: [float(row[place]) for row in rows] for place, name in enumerate(axes)}
    bench.series("curves", curves, {"time": "s", "loss": "1"})


def metrics_of(bench: Bench, runs: list[Run], target: float, text: Text) -> dict[str, Any]:
    """The metrics of the runs; times and energies are of those that reached the target. Raises
    HpmlError if none did."""
    for run in runs:
        bench.check(
            abs(bench.result(run.loss) / run.plain - 1) <= TOLERANCE,
            "the validation loss is that of a float32 model, which is not compiled",
        )
    counted = [run for run in runs if run.reached]
    if not counted:
        best = min(run.loss for run in runs)
        raise HpmlError(f"none of {len(runs)} runs reached {target:g}; the best has {best:.4g}")
    if len(counted) < len(runs):
        missed = len(runs) - len(counted)
        bench.warn(f"{missed} of {len(runs)} runs missed the target; times are of the others")
    times = Samples.of([run.time for run in counted], "s")
    several = len(counted) > 1
    deviation = statistics.stdev(times.values) if several else None
    energies = [run.energy for run in counted if run.energy is not None]
    return {
        "time": times.note(target=target, text=text.digest, python=text.python),
        "mean_time": times.mean,
        "deviation": deviation,
        "variation": deviation / times.mean if deviation is not None else None,
        "success": len(counted) / len(runs),
        "loss": Samples.of([run.loss for run in runs], "1"),
        "steps": Samples.of([float(run.steps) for run in counted], "1"),
        "energy": Samples.of(energies, "J") if len(energies) == len(counted) else None,
    }


TIME_TO_LOSS = Benchmark(
    "lm_time_to_loss",
    measure,
    metrics=(
        Metric("time", "s", "lower", "to the target loss, a sample for each run that reached it"),
        Metric("mean_time", "s", "lower", "mean of these"),
        Metric("deviation", "s", "lower", "standard deviation of these (n − 1)"),
        Metric("variation", "1", "lower", "coefficient of variation: deviation over mean"),
        Metric("success", "1", "higher", "share of the runs that reached the target", (0, 1)),
        Metric("loss", "1", "lower", "nats per byte of the validation text when a run ended"),
        Metric("steps", "1", "lower", "until the target was reached"),
        Metric("energy", "J", "lower", "of a run that reached it: the whole card, idle part too"),
        Metric("setup", "s", "lower", "reading and compiling before all runs, not in the time"),
    ),
    grid={
        "model": ("bytes-86m",),
        "batch": (64,),
        "length": (1024,),
        "target": (1.3,),
        "steps": (1000,),
        "runs": (3, 10),
    },
    requires=Requires(gpus=1, gpu_memory=30e9, modules=("torch", "triton")),
    timeout=3600,
    rounds=1,
    description=(
        "Training GPT-2's smallest decoder on the bytes of Python's standard library until a"
        " validation loss, from several seeds, on one GPU."
    ),
    terms={
        "batch": "sequences of one step",
        "length": "bytes of a sequence",
        "target": "validation loss, nats per byte",
        "steps": "after which a run has missed the target",
        "runs": "trainings from different seeds",
    },
)
TIME_TO_LOSS_CPU = replace(
    TIME_TO_LOSS,
    name="lm_time_to_loss_cpu",
    grid={
        "model": ("tiny",),
        "batch": (8,),
        "length": (64,),
        "target": (3.5,),
        "steps": (200,),
        "runs": (3,),
    },
    requires=Requires(modules=("torch",)),
    timeout=300,
    description="The same with a tiny decoder on the CPU.",
)
