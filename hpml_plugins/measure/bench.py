"""Bench and Rank: what a plugin's `measure`, and the function of a rank, are handed."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from hpml_plugins.errors import CheckFailed, DefinitionError, ResultError, UsageError
from hpml_plugins.measure.ranks.group import Member, RankGroup
from hpml_plugins.measure.session import Progress, Session
from hpml_plugins.model.checking import check_value
from hpml_plugins.model.data_source import available_sources, why_no_data
from hpml_plugins.model.record import Series
from hpml_plugins.model.samples import Samples, as_number
from hpml_plugins.model.work import DeclaredWork

if TYPE_CHECKING:
    from hpml_plugins.measure.alternating import Alternating
    from hpml_plugins.measure.gpu_timer import Cache, Launch
    from hpml_plugins.measure.meter import Meter
    from hpml_plugins.measure.ranks.collective_timing import Over
    from hpml_plugins.measure.ranks.group import Backend, Launcher
    from hpml_plugins.model.program_output import ProgramOutput
    from hpml_plugins.published import GpuType


class Bench(Session):
    """The services of one point: time a step, check a result, skip, warn, attach a series, show
    progress; what they work on is in `Session`."""

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
        how long a call of a step takes, where it takes seconds: then there are fewer turns, and
        steps must have been called before.
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

    def instructions(self, step: Callable[[], object]) -> Samples | None:
        """Samples of the instructions of one call of `step` on the CPU; None with a warning where
        the system does not count them.

        Those of user mode, of all threads of this process. Other programs on the machine do not
        change them, so they tell of changes that a busy machine's times hide. The step must have
        been called before, as by `time`.
        """
        from hpml_plugins.measure.instructions import INSTRUCTIONS, count_events

        return count_events(self, step, INSTRUCTIONS)

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
        with hold_limit(
            self.telemetry, int(self.device.partition(":")[2] or 0), watts
        ) as refusal:
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
        flop = as_number(flop, "work's flop")
        bytes = as_number(bytes, "work's bytes")
        if not (0 <= flop < math.inf and 0 <= bytes < math.inf):
            raise DefinitionError(
                f"work of flop={flop:g}, bytes={bytes:g}: both must be finite and not below 0"
            )
        dtype = str(dtype).removeprefix("torch.")
        self.collected.work[check_value(of, str, "work's of")] = DeclaredWork(
            flop, bytes, dtype, self.gpus, bool(roof)
        )

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
            Rank,
            function,
            count,
            args,
            backend=backend,
            environment=dict(environment or {}),
            nodes=nodes,
            launcher=launcher,
        )

    def check(self, ok: object, message: str) -> None:
        """Hold a result against the truth. Raises CheckFailed with the message when it is not ok.

        The message says what would be wrong ("sum differs from NumPy"). Checks that passed are kept
        in the Record.
        """
        text = check_value(message, str, "check's message")
        if not ok:
            raise CheckFailed(f"check failed: {text}")
        self.collected.checks.append(text)

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
    def peaks(self) -> GpuType | None:
        """The published peaks of this node's GPU type; None without GPU, for an unknown card or
        unlike cards."""
        names = {gpu.name for gpu in self.node.gpus[: self.gpus or None]}
        if len(names) != 1:
            return None
        from hpml_plugins.published import find_gpu

        return find_gpu(names.pop())

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

    def import_module(self, name: str) -> Any:
        """Import a module that `Requires` could not know of; a missing one skips the point with the
        reason."""
        import importlib

        try:
            return importlib.import_module(name)
        except ImportError as error:
            self.skip(f"module {name} does not import: {error}")


class Rank(Member):
    """A process of a torch.distributed group that is up, and its Bench.

    bench: checks, warnings, series and data sets of this rank, which go into the point's Record;
    its `ranks` raises UsageError, and its `time` is for a step without collectives.  index: 0 to
    count − 1.  local: the index among the ranks of its node.  count: how many ranks.  backend:
    "nccl" or "gloo".  device: "cpu", or "cuda:" and the local index.
    """

    bench: Bench

    def __init__(self, index: int, group: RankGroup, local: int, report: Progress) -> None:
        bench = Bench(
            group.node,
            group.params,
            gpus=group.gpus,
            seed=group.seed,
            plan=group.plan,
            report=report,
            telemetry=group.telemetry,
            starts_ranks=False,
        )
        super().__init__(index, group, local, bench)

    def time(
        self,
        step: Callable[[], object],
        *,
        cache: Cache = "hot",
        launch: Launch = "hidden",
        device: str | None = None,
        budget: float | None = None,
        name: str = "time",
        over: Over = "mean",
    ) -> Samples:
        """Samples of the time of one call of `step`, which all ranks make jointly, s. Every rank
        gets the same ones.

        Rank 0 decides how often the step is called, and all call it as often: a step may hold
        collectives. All ranks must call `time` in the same order.  device: "cpu" or "cuda".  over:
        each sample is the mean over ranks (as nccl-tests reports), or the slowest rank's ("max").
        The other arguments are Bench.time's.
        """
        from hpml_plugins.measure.ranks.collective_timing import time_collective

        plan = self.bench.plan.but(budget=budget)
        on_gpu = (device or self.device).startswith("cuda")
        samples = time_collective(
            self,
            step,
            plan,
            on_gpu=on_gpu,
            cache=cache,
            launch=launch,
            over=over,
        )
        if self.index == 0:
            self.bench.collected.remark(samples, plan, name)
        return samples
