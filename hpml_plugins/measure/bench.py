"""Bench: what a plugin's `measure` is handed."""

from __future__ import annotations

import math
import os
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar

from hpml_plugins import clocks
from hpml_plugins.errors import CheckFailed, DefinitionError, ResultError, Skipped, UsageError
from hpml_plugins.measure.sampling import SamplingPlan, remarks
from hpml_plugins.model.benchmark import Params
from hpml_plugins.model.data_source import available_sources, why_no_data
from hpml_plugins.model.declaring import check_value
from hpml_plugins.model.node import Node
from hpml_plugins.model.record import Series
from hpml_plugins.model.samples import Samples, as_number
from hpml_plugins.model.work import DeclaredWork
from hpml_plugins.published import GpuType, find_gpu

if TYPE_CHECKING:
    from hpml_plugins.measure.alternating import Alternating
    from hpml_plugins.measure.gpu_monitor import Telemetry
    from hpml_plugins.measure.gpu_timer import Cache, Launch
    from hpml_plugins.measure.meter import Meter
    from hpml_plugins.measure.ranks.group import Backend, Launcher
    from hpml_plugins.model.program_output import ProgramOutput

T = TypeVar("T")
#: Receives progress: a text, and the share that is done where known.
Progress = Callable[[str, float | None], None]


@dataclass
class Collected:
    """What a Bench collects for the Record; the fields are the Record's."""

    checks: list[str] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)
    series: dict[str, Series] = field(default_factory=dict)
    data: dict[str, dict[str, str | float]] = field(default_factory=dict)
    work: dict[str, DeclaredWork] = field(default_factory=dict)


class Bench:
    """The services of one point: time a step, check a result, skip, warn, attach a series, show
    progress.

    device: "cuda" where the benchmark requires a GPU (and did not fall back), else "cpu".  node:
    this machine as facts.  params: the point.  seed: what random inputs are made from, so that a
    run can be repeated.  deadline: when the point will be ended, s of the monotonic clock.
    telemetry: of the point's GPUs, None where nobody watches them. shared: a folder of the point
    that its rounds share, None where there is one round.  starts_ranks: False on a rank. collected:
    what goes into the Record beside the metrics.
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
        is narrow enough or the budget ends; the samples' info says which, and an unstable
        measurement puts a warning into the Record. Short steps are batched. On "cuda" the time is
        the GPU's own, between events on the current stream; the timer synchronises, the step need
        not. A step that the GPU's power regulator holds down is measured in two regimes: the
        samples are those at settled clocks (`sustained`), and `Samples.boost` has those before the
        regulator acts.

        setup: called before each call of `step`, outside the time: prepares the input of a step
        that changes it. Each sample is then one call.
        cache: on "cuda", "hot" repeats the step back to back, "cold" empties the L2 cache before
        each, "dirty" leaves it full of foreign lines to be written back.  launch: on "cuda",
        "hidden" keeps the host's launching out, "visible" lets it show.  device: "cpu" or "cuda";
        the bench's when left out.  budget: s, wall clock, for the samples of all rounds together.
        name: what warnings call it.  plan: what replaces the bench's, made from it:
        `bench.plan.but(warm_up=0.1)`.  quiet: for a time that is not a metric itself, such as one
        of a candidate in a search: nothing is warned of, and a throttled step is not measured in
        two regimes.
        """
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
            self.collected.warnings += remarks(samples, plan, name)
        return samples

    def time_alternately(
        self,
        steps: Mapping[str, Callable[[], Callable[[], object]]],
        *,
        seconds: float = 0.0,
        budget: float = 1.5,
    ) -> Alternating:
        """Time some steps in alternating turns, so that what disturbs the machine meanwhile
        disturbs all of them.

        steps: name → what prepares and returns the step; called before each turn.  seconds: about
        how long a call of a step takes, where it takes seconds: then there are fewer turns.
        budget: s, of all turns of all rounds together.
        """
        from hpml_plugins.measure.alternating import time_alternately

        return time_alternately(self, steps, seconds, budget)

    def run_program(
        self,
        command: Sequence[str],
        outputs: Mapping[str, ProgramOutput],
        *,
        environment: Mapping[str, str] | None = None,
    ) -> dict[str, Samples]:
        """Samples of numbers that an external program prints, one of each output per run.

        The program is run until its duration is stable, then again until the 95 % interval of the
        first output's median is narrow enough or the budget ends, as `time` samples a step; each
        output gets the warnings that `time` gives.

        command: the program and its arguments; no shell takes part.  outputs: name → how to find
        the number. environment: variables for the program beside this process's; it runs in the C
        locale. Raises HpmlError with the end of its output where it cannot be run, fails or prints
        something else.
        """
        from hpml_plugins.measure.program import run_program

        return run_program(self, command, outputs, environment or {})

    def energy(self, step: Callable[[], object]) -> Samples | None:
        """Samples of the energy of one call of `step`, J; None with a warning where no counter
        tells.

        The step runs under settled load for some seconds: on "cuda" by the energy counter of this
        bench's GPU, on "cpu" by those of all CPU packages, whatever else runs there. The power of
        the idle device is measured before and subtracted; the info has it (`idle_power`, W), the
        mean `power` under load, W, and the energy of a call with the idle part, `gross`, J. The
        step need not synchronise.
        """
        from hpml_plugins.measure.energy import measure_energy

        return measure_energy(self, step)

    @contextmanager
    def power_limit(self, watts: float) -> Iterator[None]:
        """Limit the power of this bench's GPU while the block runs; its own limit is restored
        whatever happens.

        Skips the point with the reason where this user may not set it, where another process is on
        the GPU, and without a GPU.  watts: W; 0 leaves the limit alone.
        """
        from hpml_plugins.measure.power_limit import hold_limit

        if not watts:
            yield
            return
        if self.telemetry is None or not self.telemetry.read():
            self.skip("the GPUs are not watched here, so no power limit is set")
        with hold_limit(self.telemetry, int(self.device.partition(":")[2] or 0), watts) as refusal:
            if refusal:
                self.skip(refusal)
            yield

    def meter(self, interval: float = 0.2) -> Meter:
        """A context manager that measures energy, power, clocks, utilisation and memory while its
        block runs.

        Of all GPUs of the point, or, without GPUs, of this process (utilisation) and of the CPU
        packages (energy). interval: s between two rows of `Meter.columns`.
        """
        from hpml_plugins.measure.meter import Meter

        return Meter(self.telemetry, gpus=self.gpus, interval=interval)

    def work(
        self,
        *,
        flop: float = 0.0,
        bytes: float = 0.0,
        dtype: object = "float32",
        of: str = "time",
        roof: bool = False,
    ) -> None:
        """Declare the work of one call of what the metric `of` times.

        A metric in FLOP/s, OP/s or B/s that `measure` does not return is then work over time;
        tables and pages show the arithmetic intensity and the shares of the card's published peak
        and of the measured roof.

        flop: operations, 2 a multiply-add, on all GPUs of the point.  bytes: read from and written
        to their memory. dtype: the precision, as `GpuType.peak` takes it.  roof: whether the step
        looks for the machine's highest rate.
        """
        flop, bytes = as_number(flop, "work's flop"), as_number(bytes, "work's bytes")
        if not (0 <= flop < math.inf and 0 <= bytes < math.inf):
            raise DefinitionError(
                f"work of flop={flop:g}, bytes={bytes:g}: both must be finite and not below 0"
            )
        dtype = str(dtype).removeprefix("torch.")
        self.collected.work[check_value(of, str, "work's of")] = DeclaredWork(
            flop, bytes, dtype, self.gpus, bool(roof)
        )

    def warn_if_imprecise(self, samples: Samples, name: str = "time") -> None:
        """Warn of samples that `time` did not take where it would have: imprecise, unstable, many
        outliers.

        samples: their info may say why sampling `stopped`.  name: what warnings call them.
        """
        self.collected.warnings += remarks(samples, self.plan, name)

    def ranks(
        self,
        function: Callable[..., Any],
        count: int,
        *args: Any,
        backend: Backend | None = None,
        environment: Mapping[str, str] | None = None,
        nodes: int = 1,
        launcher: Launcher = "torch",
    ) -> list[Any]:
        """Run `function(rank, *args)` in `count` processes of one torch.distributed group; what
        each returned.

        Each is handed a `Rank`, whose process group is up and which has a Bench of its own: what is
        checked, warned of and attached there goes into the Record. Start ranks before this process
        touches CUDA or computes with torch: they are then forked, which takes milliseconds;
        afterwards they are spawned, which imports everything again, and what they run must pickle
        (as it must with `nodes` and `launcher`).

        backend: "nccl", rank i on GPU i, or "gloo", all on the CPU; what fits the bench's device
        when left out. environment: variables for the ranks, set before their group is made. nodes:
        over how many nodes of this run's Slurm job to share the ranks out evenly; rank i of a node
        gets its GPU i. Skip what has too few: `bench.nodes`.  launcher: "mpi" has mpirun start them
        on this node, each an MPI process that may use mpi4py too; where there is no mpirun or no
        mpi4py the point is skipped with the reason. Returned values travel by pickle; leave tensors
        on the CPU.  Raises HpmlError naming the rank that died, raised or hung, and how;
        CheckFailed or Skipped where a rank's `check` or `skip` did.
        """
        from hpml_plugins.measure.ranks.launch import run_ranks

        if not self._starts_ranks:
            raise UsageError(
                "a rank cannot start ranks; start them from the function that `measure` is"
            )
        return run_ranks(
            self,
            function,
            count,
            args,
            backend=backend,
            environment=dict(environment or {}),
            nodes=nodes,
            launcher=launcher,
        )

    @property
    def nodes(self) -> int:
        """How many nodes this run may spread ranks over: those of its Slurm job, else one."""
        count = os.environ.get("SLURM_JOB_NUM_NODES", "")
        return int(count) if count.isdigit() and shutil.which("srun") else 1

    def check(self, ok: object, message: str) -> None:
        """Hold a result against the truth. Raises CheckFailed with the message when it is not ok.

        The message says what would be wrong ("sum differs from NumPy"). Checks that passed are kept
        in the Record.
        """
        text = check_value(message, str, "check's message")
        if not ok:
            raise CheckFailed(f"check failed: {text}")
        self.collected.checks.append(text)

    def result(self, value: T) -> T:
        """The value as it is. Under `hpml check` an altered copy of it, for which `check` must then
        fail.

        value: a number, text, an array, a tensor, or a list, tuple or mapping of them; on its way
        into a comparison: `bench.check(allclose(bench.result(y), reference), …)`.
        """
        return self.corrupt(value) if self.corrupt else value

    def once(self, name: str, compute: Callable[[], T]) -> T:
        """What `compute` returned in the first round of this point; it is not called in the others.

        For what further rounds would only repeat: hardware counters, a search for the best
        configuration, a series. Not for a timed metric, whose rounds show how far it varies.
        name: of the value, unique in the point.  The value must be plain JSON: numbers, text,
        lists, mappings by text.
        """
        import msgspec

        from hpml_plugins.store import atomic_write

        file = self._shared / f"{name}.json" if self._shared else None
        if file and file.exists():
            value: T = msgspec.json.decode(file.read_bytes())
            return value
        value = compute()
        # of a single round too, where nobody reads it: the value must fit
        encoded = msgspec.json.encode(value)
        if file:
            atomic_write(file, encoded, durable=False)
        return value

    def skip(self, reason: str) -> NoReturn:
        """End this point as skipped, with the reason."""
        raise Skipped(check_value(reason, str, "skip's reason"))

    def warn(self, text: str) -> None:
        """Put a warning into the Record: the number stands, but a reader should know this."""
        self.collected.warnings.append(check_value(text, str, "warn's text"))

    def series(
        self,
        name: str,
        columns: Mapping[str, Sequence[float | str]],
        units: Mapping[str, str] | None = None,
    ) -> None:
        """Attach columns of equal length, such as accuracy over epochs or a histogram, to the
        Record.

        columns: name → numbers, or name → text (the names of layers).  units: column of numbers →
        symbol. A number that is not finite is stored as None, such as the loss of a training that
        diverged. Raises DefinitionError for unequal lengths, a column that mixes text and numbers,
        and an unknown unit.
        """
        try:
            self.collected.series[check_value(name, str, "a series' name")] = Series.of(
                columns, units
            )
        except (ValueError, TypeError, AttributeError, ResultError) as error:
            raise DefinitionError(f"series {name!r}: {error}") from error

    @property
    def remaining(self) -> float:
        """Seconds until the point is ended; infinite where nobody set a limit."""
        return math.inf if self.deadline is None else self.deadline - clocks.monotonic()

    @property
    def peaks(self) -> GpuType | None:
        """The published peaks of this node's GPU type; None without GPU, for an unknown card or
        unlike cards."""
        names = {gpu.name for gpu in self.node.gpus[: self.gpus or None]}
        return find_gpu(names.pop()) if len(names) == 1 else None

    def data(
        self, name: str, *, train: int | None = None, test: int | None = None, seed: int = 0
    ) -> Any:
        """The data set of this name, as its source loads it; nothing is ever downloaded. The Record
        says what was used.

        train, test: how many images to take, classes balanced, by the seed; all when left out. A
        data set that is not here skips the point with the reason (`Requires(data=…)` knows before
        the point is started); a damaged one fails it.
        """
        if reason := why_no_data(name):
            self.skip(reason)
        loaded = available_sources()[name].load(lambda text: self._report(text, None))
        if train is not None or test is not None:
            loaded = loaded.take(train, test, seed)
        self.collected.data[name] = loaded.facts()
        return loaded

    def progress(self, text: str, share: float | None = None) -> None:
        """Say what a long point is doing. share: how much is done, 0 to 1, where known; beyond is
        cut off."""
        number = None if share is None else as_number(share, "progress' share")
        shown = None if number is None or math.isnan(number) else min(max(number, 0.0), 1.0)
        self._report(check_value(text, str, "progress' text"), shown)

    def import_module(self, name: str) -> Any:
        """Import a module that `Requires` could not know of; a missing one skips the point with the
        reason."""
        import importlib

        try:
            return importlib.import_module(name)
        except ImportError as error:
            self.skip(f"module {name} does not import: {error}")
