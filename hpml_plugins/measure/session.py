"""Session: the state with which one process measures a point, and what it collects for the
Record."""

from __future__ import annotations

import math
import os
import shutil
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar, get_args

from hpml_plugins import clocks
from hpml_plugins.errors import DefinitionError, Skipped
from hpml_plugins.measure.sampling import Cache, Launch, SamplingPlan, noise, remarks
from hpml_plugins.model.benchmark import Params
from hpml_plugins.model.checking import check_value
from hpml_plugins.model.node import Node
from hpml_plugins.model.record import Series
from hpml_plugins.model.samples import Samples, as_number
from hpml_plugins.model.work import DeclaredWork

if TYPE_CHECKING:
    from hpml_plugins.measure.telemetry import Telemetry

T = TypeVar("T")
#: Receives progress: a text, and the completed share if known.
Progress = Callable[[str, float | None], None]


@dataclass
class Collected:
    """What a Bench collects for the Record; the fields are the Record's."""

    checks: list[str] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)
    noise: list[str] = field(default_factory=list)
    series: dict[str, Series] = field(default_factory=dict)
    data: dict[str, dict[str, str | float]] = field(default_factory=dict)
    work: dict[str, DeclaredWork] = field(default_factory=dict)

    def remark(self, samples: Samples, plan: SamplingPlan, name: str) -> None:
        """Add warnings about samples whose median needs caution."""
        self.warnings += remarks(samples, name)
        self.noise += noise(samples, plan, name)


class Session:
    """The device of a point, its timers, telemetry and limits, and what it collects.

    All measuring modules (`energy`, `program`, `alternating`, `ranks`) use a session. Plugins get
    one with more methods, `bench.Bench`.

    device: "cuda" if the benchmark requires a GPU (and did not fall back), else "cpu".  node: facts
    of this machine.  params: the point.  seed: for random inputs, so that a run can be repeated.
    deadline: when the point will be terminated, s of the monotonic clock.  telemetry: of the
    point's GPUs, None if they are not monitored.  shared: a folder shared by the rounds of the
    point, None for a single round.  starts_ranks: False on a rank.  collected: what goes into the
    Record besides the metrics.
    """

    def __init__(
        self,
        node: Node,
        params: Params,
        *,
        gpus: int = 0,
        seed: int = 0,
        plan: SamplingPlan | None = None,
        report: Progress | None = None,
        deadline: float | None = None,
        telemetry: Telemetry | None = None,
        shared: Path | None = None,
        starts_ranks: bool = True,
    ) -> None:
        self.node = node
        self.params = dict(params)
        self.gpus = gpus
        self.device = "cuda" if gpus else "cpu"
        self.seed = seed
        self.plan = plan or SamplingPlan()
        self.deadline = deadline
        self.telemetry = telemetry
        self._shared = shared
        self._starts_ranks = starts_ranks
        self.collected = Collected()
        self.corrupt: Callable[[Any], Any] | None = None
        self._report = report or (lambda text, share: None)

    def time(
        self,
        step: Callable[[], object],
        *,
        setup: Callable[[], object] | None = None,
        cache: Cache = "hot",
        launch: Launch = "hidden",
        device: str | None = None,
        budget: float | None = None,
        name: str = "time",
        plan: SamplingPlan | None = None,
        quiet: bool = False,
    ) -> Samples:
        """Samples of the time of one call of `step`, s.

        The step is warmed up until it is stable, then sampled until the 95 % interval of the median
        is narrow enough or the budget ends. The samples' info says which, and an unstable
        measurement adds a warning to the Record. Short steps are batched. On "cuda" the time is the
        GPU's own, between events on the current stream; the timer synchronises, the step need not.
        A step that the GPU's power regulator slows down is measured in two regimes: the samples are
        those at settled clocks (`sustained`), and `Samples.boost` has those before the regulator
        acts.

        setup: called before each call of `step`, untimed: prepares the input of a step that changes
        it. Each sample is then a single call.  cache: on "cuda", "hot" repeats the step back to
        back, "cold" clears the L2 cache before each call, "dirty" leaves it full of unrelated lines
        that must be written back.  launch: on "cuda", "hidden" excludes the host's launching,
        "visible" includes it.  device: "cpu" or "cuda"; by default the bench's.  budget: s, wall
        clock, for the samples of all rounds together.  name: used in warnings.  plan: replaces the
        bench's plan, from which it is made: `bench.plan.but(warm_up=0.1)`.  quiet: for a time that
        is not itself a metric, such as that of a candidate in a search: no warnings, and a
        throttled step is not measured in two regimes.
        """
        # on a CPU too, so that a plugin's author sees it before a GPU does
        for what, given, known in (
            ("cache", cache, get_args(Cache)),
            ("launch", launch, get_args(Launch)),
        ):
            if given not in known:
                raise DefinitionError(f"{what}={given!r}; use one of {', '.join(known)}")
        plan = (plan or self.plan).but(budget=budget)
        telemetry = None if quiet else self.telemetry
        kind, _, number = (device or self.device).partition(":")
        if kind == "cuda":
            from hpml_plugins.measure.gpu_timer import time_on_gpu
            from hpml_plugins.measure.regimes import Regulator

            regulator = Regulator(telemetry, int(number or 0))
            samples = time_on_gpu(
                step, plan, setup=setup, cache=cache, launch=launch, regulator=regulator
            )
        else:
            from hpml_plugins.measure.cpu_timer import time_on_cpu

            samples = time_on_cpu(step, plan, setup)
        if setup:
            samples = samples.note(setup="every call")
        if not quiet:
            self.collected.remark(samples, plan, name)
        return samples

    def warn_if_imprecise(self, samples: Samples, name: str = "time") -> None:
        """Warn of samples not taken by `time` if `time` would have: imprecise, unstable or with
        many outliers.

        samples: their info may say why sampling `stopped`.  name: used in warnings.
        """
        self.collected.remark(samples, self.plan, name)

    @property
    def nodes(self) -> int:
        """The number of nodes over which this run may distribute ranks: those of its Slurm job,
        else one."""
        count = os.environ.get("SLURM_JOB_NUM_NODES", "")
        return int(count) if count.isdigit() and shutil.which("srun") else 1

    @property
    def remaining(self) -> float:
        """Seconds until the point is terminated; infinite without a limit."""
        return math.inf if self.deadline is None else self.deadline - clocks.monotonic()

    def result(self, value: T) -> T:
        """Return the value unchanged. Under `hpml check` return an altered copy, for which `check`
        must then fail.

        value: a number, text, an array, a tensor, or a list, tuple or mapping of these. Apply it
        where a result is compared: `bench.check(allclose(bench.result(y), reference), …)`.
        """
        return self.corrupt(value) if self.corrupt else value

    def once(self, name: str, compute: Callable[[], T]) -> T:
        """Return what `compute` returned in the first round of this point; it is not called in
        later rounds.

        Use it for what later rounds would only repeat: hardware counters, a search for the best
        configuration, a series. Do not use it for a timed metric, whose rounds show how much it
        varies.  name: of the value, unique in the point.  The value must be plain JSON: numbers,
        text, lists, and mappings with text keys.
        """
        import msgspec

        from hpml_plugins.store import atomic_write

        file = self._shared / f"{name}.json" if self._shared else None
        if file and file.exists():
            value: T = msgspec.json.decode(file.read_bytes())
            return value
        value = compute()
        # also for a single round, which nobody reads: the value must be encodable
        encoded = msgspec.json.encode(value)
        if file:
            atomic_write(file, encoded, durable=False)
        return value

    def skip(self, reason: str) -> NoReturn:
        """End this point as skipped, with the reason."""
        raise Skipped(check_value(reason, str, "skip's reason"))

    def warn(self, text: str) -> None:
        """Add a warning to the Record: the number is valid, but readers should know this."""
        self.collected.warnings.append(check_value(text, str, "warn's text"))

    def progress(self, text: str, share: float | None = None) -> None:
        """Report the progress of a long point. share: the completed share, if known, clipped to 0
        to 1."""
        number = None if share is None else as_number(share, "progress' share")
        shown = None if number is None or math.isnan(number) else min(max(number, 0.0), 1.0)
        self._report(check_value(text, str, "progress' text"), shown)
