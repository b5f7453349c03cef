"""Bench and Rank: the objects passed to a plugin's `measure` and to the function of a rank."""

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
    from hpml_plugins.measure.meter import Meter
    from hpml_plugins.measure.ranks.collective_timing import Over
    from hpml_plugins.measure.ranks.group import Backend, Launcher
    from hpml_plugins.measure.sampling import Cache, Launch
    from hpml_plugins.model.program_output import ProgramOutput
    from hpml_plugins.published import GpuType


class Bench(Session):
    """The services for one point: time a step, check a result, skip, warn, attach a series, show
    progress. `Session` holds the state they work on.

    failed_check: the first one.
    """

    failed_check: CheckFailed | None = None

    def time_alternately(
        self,
        steps: Mapping[str, Callable[[], Callable[[], object]]],
        *,
        seconds: float = 0.0,
        budget: float = 1.5,
    ) -> Alternating:
        """Time several steps in turn, so that disturbances of the machine affect all of them alike.

        steps: name → a function that prepares and returns the step; called before each turn.
        seconds: the approximate duration of one call of a step, if it takes seconds: there are then
        fewer turns, and the steps must have been called before.  budget: s, for all turns of all
        rounds together.
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
        """Samples of numbers that an external program prints: one sample of each output per run.

        The program is run until its duration is stable, then until the 95 % interval of the first
        output's median is narrow enough or the budget ends, just as `time` samples a step; each
        output gets the warnings that `time` gives.

        command: the program and its arguments; no shell is used.  outputs: name → how to find the
        number.  environment: variables for the program in addition to those of this process; it
        runs in the C locale. Raises HpmlError with the end of its output if it cannot be run, fails
        or prints something else.
        """
        from hpml_plugins.measure.program import run_program

        return run_program(self, command, outputs, environment or {})

    def energy(self, step: Callable[[], object]) -> Samples | None:
        """Samples of the energy of one call of `step`, J; None with a warning if there is no energy
        counter.

        The step runs under settled load for some seconds. On "cuda" the energy counter of this
        bench's GPU is read, on "cpu" those of all CPU packages, which include other programs. The
        power of the idle device is measured first and subtracted; it is in the info (`idle_power`,
        W), with the mean `power` under load, W, and the energy of a call including the idle part,
        `gross`, J. The step need not synchronise.
        """
        from hpml_plugins.measure.energy import measure_energy

        return measure_energy(self, step)

    def instructions(self, step: Callable[[], object]) -> Samples | None:
        """Samples of the instructions of one call of `step` on the CPU; None with a warning if the
        system does not count them.

        Counts user-mode instructions of all threads of this process. Other programs on the machine
        do not affect them, so they reveal changes that times on a busy machine hide. The step must
        have been called before, as by `time`.
        """
        from hpml_plugins.measure.instructions import INSTRUCTIONS, count_events

        return count_events(self, step, INSTRUCTIONS)

    @contextmanager
    def power_limit(self, watts: float) -> Iterator[None]:
        """Limit the power of this bench's GPU while the block runs; the previous limit is always
        restored.

        Skips the point with the reason if this user may not set the limit, if another process uses
        the GPU, and without a GPU.  watts: W; 0 leaves the limit unchanged.
        """
        from hpml_plugins.measure.power_limit import hold_limit

        if not watts:
            yield
            return
        if self.telemetry is None or not self.telemetry.read():
            self.skip("the GPUs are not monitored here, so no power limit is set")
        with hold_limit(
            self.telemetry, int(self.device.partition(":")[2] or 0), watts
        ) as refusal:
            if refusal:
                self.skip(refusal)
            yield

    def meter(self, interval: float = 0.2) -> Meter:
        """A context manager that measures energy, power, clocks, utilisation and memory while its
        block runs.

        It covers all GPUs of the point; without GPUs, this process (utilisation) and the CPU
        packages (energy).  interval: s between two rows of `Meter.columns`.
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
        """Declare the work of one call that the metric `of` times.

        A metric in FLOP/s, OP/s or B/s that `measure` does not return is then computed as work over
        time. Tables and pages show the arithmetic intensity and the shares of the card's published
        peak and of the measured roof.

        flop: operations on all GPUs of the point; a multiply-add counts as 2.  bytes: read from and
        written to their memory.  dtype: the precision, as for `GpuType.peak`.  roof: whether the
        step measures the highest rate of the machine.
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
        """Run `function(rank, *args)` in `count` processes of one torch.distributed group and
        return the results.

        Each process gets a `Rank` with an initialised process group and its own Bench; checks,
        warnings and series of a rank go into the Record. Start ranks before this process touches
        CUDA or computes with torch: they are then forked, which takes milliseconds. Otherwise they
        are spawned, which imports everything again and requires that the function can be pickled
        (as do `nodes` and `launcher`).

        backend: "nccl", with rank i on GPU i, or "gloo", with all ranks on the CPU; by default the
        one for the bench's device.  environment: variables for the ranks, set before their group is
        created.  nodes: the number of nodes of this run's Slurm job over which the ranks are
        distributed evenly; rank i of a node gets its GPU i. Skip the point if there are too few:
        `bench.nodes`.  launcher: "mpi" starts them with mpirun on this node, each as an MPI process
        that may also use mpi4py; without mpirun or mpi4py the point is skipped with the reason.
        Returned values are pickled; leave tensors on the CPU.  Raises HpmlError naming the rank
        that died, raised or hung, and how; CheckFailed or Skipped if a rank's `check` or `skip`
        did.
        """
        from hpml_plugins.measure.ranks.launch import run_ranks

        if not self._starts_ranks:
            raise UsageError("a rank cannot start ranks; call `ranks` in `measure` itself")
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
        """Check a result against the truth. Raises CheckFailed with the message if it is not ok.

        The message says what would be wrong ("sum differs from NumPy"). Passed checks are kept in
        the Record. The point fails also where the error is caught, or ends another thread.
        """
        text = check_value(message, str, "check's message")
        if not ok:
            error = CheckFailed(f"check failed: {text}")
            self.failed_check = self.failed_check or error
            raise error
        self.collected.checks.append(text)

    def series(
        self,
        name: str,
        columns: Mapping[str, Sequence[float | str]],
        units: Mapping[str, str] | None = None,
    ) -> None:
        """Attach columns of equal length to the Record, such as accuracy over epochs or a
        histogram.

        columns: name → numbers, or name → text (the names of layers).  units: column of numbers →
        symbol. A number that is not finite is stored as None, such as the loss of a diverged
        training. Raises DefinitionError for unequal lengths, a column that mixes text and numbers,
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
        """The published peaks of this node's GPU type; None without a GPU, for an unknown card and
        for different cards."""
        names = {gpu.name for gpu in self.node.gpus[: self.gpus or None]}
        if len(names) != 1:
            return None
        from hpml_plugins.published import find_gpu

        return find_gpu(names.pop())

    def data(
        self, name: str, *, train: int | None = None, test: int | None = None, seed: int = 0
    ) -> Any:
        """Load the data set of this name from its source; nothing is ever downloaded. The Record
        says what was used.

        train, test: the number of images to take, with balanced classes, chosen by the seed; all by
        default. If the data set is missing, the point is skipped with the reason (with
        `Requires(data=…)` before it is started); if it is damaged, the point fails.
        """
        if reason := why_no_data(name):
            self.skip(reason)
        loaded = available_sources()[name].load(lambda text: self._report(text, None))
        if train is not None or test is not None:
            loaded = loaded.take(train, test, seed)
        self.collected.data[name] = loaded.facts()
        return loaded

    def import_module(self, name: str) -> Any:
        """Import a module that `Requires` could not name; if it is missing, the point is skipped
        with the reason."""
        import importlib

        try:
            return importlib.import_module(name)
        except ImportError as error:
            self.skip(f"module {name} does not import: {error}")


class Rank(Member):
    """A process of an initialised torch.distributed group, and its Bench.

    bench: for checks, warnings, series and data sets of this rank, which go into the point's
    Record; its `ranks` raises UsageError, and its `time` is for a step without collectives.  index:
    0 to count − 1.  local: the index among the ranks of its node.  count: the number of ranks.
    backend: "nccl" or "gloo".  device: "cpu", or "cuda:" and the local index.
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
        """Samples of the time of one call of `step`, which all ranks make together, s. Every rank
        gets the same samples.

        Rank 0 decides how often the step is called, and all ranks call it equally often, so a step
        may contain collectives. All ranks must call `time` in the same order.  device: "cpu" or
        "cuda".  over: each sample is the mean over ranks ("mean", as nccl-tests reports) or that of
        the slowest rank ("max"). The other arguments are those of Bench.time.
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
