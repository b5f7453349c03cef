"""Record: the stored result of measuring one point."""

from __future__ import annotations

import functools
import hashlib
import itertools
import math
import statistics
from collections.abc import Iterable, Mapping
from enum import StrEnum
from typing import Annotated, Any, Literal

import msgspec

from hpml_plugins.errors import Failure
from hpml_plugins.lazy import import_lazily
from hpml_plugins.model.benchmark import Count, Direction, Params, Value
from hpml_plugins.model.checking import (
    FEW,
    Amount,
    Amounts,
    Column,
    Duration,
    Facts,
    NodeFacts,
    Numbers,
    Output,
    Rounds,
    Text,
    Texts,
    Words,
)
from hpml_plugins.model.samples import (
    as_number,
    mean_interval,
    median_interval,
    settled_mean,
)
from hpml_plugins.model.units import UNITS
from hpml_plugins.model.work import DeclaredWork

Status = Literal["ok", "failed", "skipped", "retracted"]
SCHEMA = 1
#: Prefix of asv's name for an environment that was installed for a software stack; the other
#: environments use the node's own packages.
STACK = "stack-"
#: Beginning of the warning of a point whose GPU throttled and that was not measured in two
#: regimes. Records older than the field `throttled` say it only here; see `upgrade`.
THROTTLED = "the GPU held its clocks down"
#: If other processes use more than this share of the CPU time, a CPU measurement is not
#: comparable with others. On two CPUs, often two threads of one core, this is half a CPU of other
#: work.
BUSY_SHARE = 0.25

#: The functions that read and write Records can also be imported from here.
__getattr__ = import_lazily(
    "hpml_plugins.model", {".serialization": ("decode", "encode", "shorten", "upgrade")}
)


class Timer(StrEnum):
    """What timed the samples. The values are stored: add new ones, but rename none."""

    #: Events on the current stream of the GPU.
    EVENTS = "cuda events"
    #: The wall clock of this process, without or with synchronisation with the GPU.
    CLOCK = "perf_counter"
    SYNCHRONISED = "perf_counter with device synchronisation"
    #: A clock of the plugin, or of a program that prints its numbers.
    OTHER = "other"


class Estimate(msgspec.Struct, frozen=True, gc=False):
    """The value of a metric and its 95 % interval, in the metric's unit.

    low, high: None if there are too few samples.  count: the number of samples.
    """

    value: float
    low: float | None
    high: float | None
    count: int


class MetricSamples(msgspec.Struct, frozen=True, omit_defaults=True, dict=True):
    """The raw samples of one metric, in SI base units, round after round.

    rounds: the number of samples of each round; empty for a single round.  boost_rounds: the same
    for `boost`.  direction: None if neither is better, or if a foreign asv project does not say.
    boost: for a step that the GPU's power regulator slows down, the samples before it acts;
    `samples` are then those at settled clocks.  info: how the samples were taken, in words. What
    decisions rest on is a field; if it is not given, it is derived from these words.  timers: what
    timed the samples, empty for counted or derived values.  launch_visible: whether they include
    the host's launching.  crosses_host: whether the step uses the link to the host, so that the
    host's CPUs take part.  settled: whether they were taken at settled clocks.  unlike_rounds: the
    number of further rounds that were timed in another way or regime, and are left out.  interval:
    shown by `estimate` instead of the interval of the samples, never stored: the interval for the
    next run on another card, or the one given by a foreign asv project.
    """

    unit: str
    direction: Direction | None
    samples: Numbers
    info: Facts = {}
    boost: Numbers = []
    rounds: Annotated[list[int], FEW] = []
    boost_rounds: Annotated[list[int], FEW] = []
    interval: tuple[float | None, float | None] | None = None
    timers: Annotated[list[Timer], FEW] = []
    launch_visible: bool = False
    crosses_host: bool = False
    settled: bool = False
    unlike_rounds: Count = 0

    def __post_init__(self) -> None:
        if not self.timers:
            for name, fact in _facts_of(self.info).items():
                msgspec.structs.force_setattr(self, name, fact)
        if not self.samples:
            raise ValueError("a metric without samples")
        for samples, rounds in (
            (self.samples, self.rounds),
            (self.boost, self.boost_rounds),
        ):
            if rounds and (sum(rounds) != len(samples) or min(rounds) < 1):
                raise ValueError(f"rounds {rounds} do not add up to {len(samples)} samples")

    @property
    def round_values(self) -> list[float]:
        """What each round measured: the median of its samples, so that a single disturbed sample
        has little influence; at settled clocks `settled_mean`."""
        parts = _split(self.samples, self.rounds)
        return [
            settled_mean(part, self.unit) if self.regime else statistics.median(part)
            for part in parts
        ]

    def of_round(self, number: int) -> MetricSamples:
        """The samples of one round; of the last round if there are fewer."""
        parts = _split(self.samples, self.rounds), _split(self.boost, self.boost_rounds)
        samples, boost = (part[min(number, len(part) - 1)] for part in parts)
        return msgspec.structs.replace(
            self, samples=samples, boost=boost, rounds=[], boost_rounds=[]
        )

    @functools.cached_property
    def value(self) -> float:
        """The median of the rounds' values, so that a single disturbed round has little
        influence."""
        values = self.round_values
        return values[0] if len(values) == 1 else statistics.median(values)

    @property
    def regime(self) -> str:
        """`sustained` for values measured at settled clocks; empty if the card did not throttle."""
        return "sustained" if self.boost or self.settled else ""

    @property
    def boost_round_medians(self) -> list[float]:
        """The median of each round of `boost`; empty if there is none."""
        parts = _split(self.boost, self.boost_rounds) if self.boost else []
        return [statistics.median(part) for part in parts]

    @property
    def boost_median(self) -> float | None:
        """The median of the boost rounds' medians; None without `boost`."""
        return statistics.median(self.boost_round_medians) if self.boost else None

    @property
    def estimate(self) -> Estimate:
        """The value and its interval: the only interval that commands, pages and asv's files show.

        By default it is the interval of the run itself: the 95 % interval of `Samples.interval`, at
        settled clocks `mean_interval`, or with several rounds the range of theirs. A single sample
        that was counted, not timed, has none.
        """
        if self.interval:
            return Estimate(self.value, *self.interval, len(self.samples))
        if len(self.samples) < 2:
            return Estimate(self.samples[0], None, None, 1)
        parts = _split(self.samples, self.rounds)
        intervals = [
            mean_interval(part, settled_mean(part, self.unit))
            if self.regime
            else median_interval(part)
            for part in parts
        ]
        low = min(start for start, _ in intervals)
        high = max(end for _, end in intervals)
        return Estimate(self.value, low, high, len(self.samples))


def _facts_of(info: Mapping[str, object]) -> dict[str, object]:
    """The facts that a metric's info gives in words; default values are left out.

    The texts of rounds that differ are joined by semicolons; an explanation follows after a colon.
    """
    timers = [_timer_of(word) for word in _words(info.get("timer"))]
    facts: dict[str, object] = {
        "timers": list(dict.fromkeys(timers)),
        "launch_visible": "visible" in _words(info.get("launch")),
        "crosses_host": "cpus" in info,
        "settled": info.get("regime") == "sustained",
    }
    return {name: fact for name, fact in facts.items() if fact}


def _words(text: object) -> list[str]:
    return [each.partition(":")[0] for each in str(text).split("; ")] if text else []


def _timer_of(word: str) -> Timer:
    return Timer(word) if word in [*Timer] else Timer.OTHER


def _split(samples: list[float], rounds: list[int]) -> list[list[float]]:
    if len(rounds) < 2:
        return [samples]
    ends = list(itertools.accumulate(rounds))
    return [samples[start:end] for start, end in itertools.pairwise([0, *ends])]


class Series(msgspec.Struct, frozen=True, omit_defaults=True):
    """Columns of equal length, such as a utilisation over time or a histogram; `units` gives the
    unit of each column.

    A column holds only numbers or only text (names of layers); text has no unit. None stands for a
    number that is not finite, such as the loss of a diverged training.
    """

    # msgspec does not support a union of two list types; `__post_init__` checks that a column
    # holds one type only.
    columns: Annotated[dict[Text, Column], FEW]
    units: Words = {}

    @classmethod
    def of(
        cls, columns: Mapping[str, Iterable[Any]], units: Mapping[str, str] | None = None
    ) -> Series:
        """Create a series from a plugin's columns.

        Raises ResultError for a cell that is neither text nor a number, ValueError for unequal
        lengths, an unknown unit, and a column that mixes text and numbers.
        """
        plain = {}
        for name, cells in columns.items():
            plain[str(name)] = [_cell(name, cell) for cell in cells]
        return cls(plain, {**(units or {})})

    def __post_init__(self) -> None:
        lengths = {name: len(cells) for name, cells in self.columns.items()}
        if len(set(lengths.values())) > 1:
            raise ValueError(f"columns have different lengths: {lengths}")
        if unknown := [symbol for symbol in self.units.values() if symbol not in UNITS]:
            raise ValueError(
                f"unit {unknown[0]!r} is not known; use one of {', '.join(UNITS)}"
            )
        for name, values in self.columns.items():
            kinds = set(map(type, values)) - {type(None)}
            if len(kinds) > 1 and str in kinds:
                raise ValueError(f"column {name!r} mixes text and numbers")

    def numbers(self, column: str) -> list[float]:
        """A column of numbers, with NaN for None. Raises KeyError for a missing column, TypeError
        for text."""
        values = [
            math.nan if each is None else each
            for each in self.columns[column]
            if not isinstance(each, str)
        ]
        if len(values) < len(self.columns[column]):
            raise TypeError(f"column {column!r} of the series is text")
        return values


def _cell(column: str, cell: Any) -> float | str | None:
    if isinstance(cell, str):
        return str(cell)
    if isinstance(cell, bool):
        number = float(cell)
    else:
        number = as_number(cell, f"column {column!r}: a value")
    return number if math.isfinite(number) else None


class Record(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """One measured, failed or skipped point, or the retraction of one
    (`hpml_plugins.model.rounds.retract`).

    started: Unix time, s.  duration: s.  planned_rounds: see `hpml_plugins.model.rounds`.  energy:
    J, of the point's GPUs over the whole duration.  node: facts of the node at that time.  source:
    where the plugin's code came from.  data: data set name → what was loaded: fingerprint, sizes,
    the part that was used.  conditions: what else happened on the machine: `cores` that this
    process may use; `other_cpus`, the mean number of these used by other processes during the
    measurement; `other_users`, the number of other users' processes among them; `other_processes`,
    the number of other processes on the point's GPUs at the beginning or the end; and for the GPUs
    that the point did not use, `other_gpus` (their number), `other_gpus_power` (W) and
    `other_gpus_utilization` (0 to 1), means of the beginning and the end. Of several rounds, the
    largest value of each.  work: metric name → the work of one call that the metric times.
    throttled: why the GPU lowered its clocks while samples without a regime were taken; empty if it
    did not.  failure: the kind of failure.  noise: the warnings about the scatter of the samples.
    of_stack: whether it was measured with packages installed for it instead of the node's own.
    requirement_unmet: whether it was skipped before its process was started, because the node did
    not meet a declared requirement.
    packages: versions of the relevant libraries.  commit and machine are empty outside asv.
    """

    schema: int = SCHEMA
    benchmark: str
    plugin: str
    version: str
    params: Params
    status: Status
    reason: Text = ""
    metrics: Annotated[dict[str, MetricSamples], FEW] = {}
    series: Annotated[dict[Text, Series], FEW] = {}
    checks: Texts = []
    warnings: Texts = []
    noise: Texts = []
    output: Output = ""
    seed: int = 0
    started: float = 0.0
    duration: Duration = 0.0
    energy: Amount = 0.0
    machine: str = ""
    commit: str = ""
    environment: str = ""
    run: str = ""
    node: NodeFacts = {}
    packages: Words = {}
    source: Words = {}
    data: Annotated[dict[Text, Facts], FEW] = {}
    planned_rounds: Rounds = msgspec.field(default=1, name="rounds")
    conditions: Amounts = {}
    work: Annotated[dict[Text, DeclaredWork], FEW] = {}
    throttled: Text = ""
    failure: Failure = Failure.NONE
    of_stack: bool = False
    requirement_unmet: bool = False

    @property
    def remarks(self) -> list[str]:
        """All warnings about the numbers: `warnings`, then `noise`."""
        return [*self.warnings, *self.noise]

    def value(self, metric: str) -> float | None:
        """The value of a metric; None if the point has no metric of that name."""
        found = self.metrics.get(metric)
        return found.value if found else None

    @property
    def measured_rounds(self) -> int:
        """The number of rounds that it contains."""
        return max(
            (
                len(metric.rounds or [metric]) + metric.unlike_rounds
                for metric in self.metrics.values()
            ),
            default=1,
        )

    @property
    def is_throttled(self) -> bool:
        """Whether the GPU throttled during samples without a regime, as in Records from before
        regimes were introduced."""
        return bool(self.throttled)

    @property
    def is_busy(self) -> bool:
        """Whether other processes used the CPUs during the measurement; CPU times are then judged
        with a wider interval."""
        return self.conditions.get("other_cpus", 0.0) > BUSY_SHARE * self.conditions.get(
            "cores", math.inf
        )

    @property
    def is_complete(self) -> bool:
        """Whether the point needs no more rounds: all planned ones are there, or it was not
        measured."""
        return self.status != "ok" or self.measured_rounds >= self.planned_rounds

    @property
    def missing_rounds(self) -> str:
        """`1 of 3 rounds` for an interrupted run; empty if the point is complete or was not
        measured."""
        if self.is_complete:
            return ""
        return f"{self.measured_rounds} of {self.planned_rounds} rounds"

    @property
    def gpus(self) -> list[dict[str, Any]]:
        """The facts of the node's GPUs; empty if the Record has none."""
        found = self.node.get("gpus")
        if isinstance(found, list | tuple):
            return [gpu for gpu in found if isinstance(gpu, dict)]
        return []

    @property
    def gpu_names(self) -> list[str]:
        """The names of the node's GPUs; "unknown" for a GPU without a name."""
        return [str(gpu.get("name") or "unknown") for gpu in self.gpus]

    @property
    def gpu_type(self) -> str:
        """The name of the cards, joined by ' + ' if they differ, or 'none'; see `Node.gpu`."""
        return " + ".join(dict.fromkeys(self.gpu_names)) or "none"

    @property
    def point(self) -> str:
        """The key of what was measured: benchmark, version and parameters, independent of run and
        machine."""
        return point_key(self.benchmark, self.version, self.params)


def point_key(benchmark: str, version: str, params: dict[str, Value]) -> str:
    """A short stable key of a point: the same on every node and in every run."""
    return _short_digest(msgspec.json.encode([benchmark, version, sorted(params.items())]))


@functools.lru_cache(maxsize=1 << 14)  # a history has few points and many Records of each
def _short_digest(encoded: bytes) -> str:
    return hashlib.sha256(encoded).hexdigest()[:20]
