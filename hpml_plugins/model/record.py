"""Record: all that one measured point gave, as it is stored."""

from __future__ import annotations

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
from hpml_plugins.model.samples import Samples, as_number
from hpml_plugins.model.units import UNITS
from hpml_plugins.model.work import DeclaredWork

Status = Literal["ok", "failed", "skipped", "retracted"]
SCHEMA = 1
#: How asv's name of an environment begins that was installed for a software stack; others are of
#: the node's own packages.
STACK = "stack-"
#: How the warning of a point begins whose GPU throttled and that was not measured in two regimes.
#: Records from before the field `throttled` tell by it alone; see `upgrade`.
THROTTLED = "the GPU held its clocks down"
#: Above this share of the CPUs' time for other processes, a CPU measurement is not comparable with
#: others: on two CPUs, which are often two threads of one core, half a CPU of others' work.
BUSY_SHARE = 0.25

#: How a Record is written and read is found here too, by who has one in hand.
__getattr__ = import_lazily(
    "hpml_plugins.model", {".serialization": ("decode", "encode", "shorten", "upgrade")}
)


class Timer(StrEnum):
    """What samples were timed by. The values are stored: one is added, none is renamed."""

    #: Events on the GPU's current stream.
    EVENTS = "cuda events"
    #: The wall clock of this process, alone or around a synchronisation with the GPU.
    CLOCK = "perf_counter"
    SYNCHRONISED = "perf_counter with device synchronisation"
    #: A clock of the plugin's own, or of a program that prints its numbers.
    OTHER = "other"


class Estimate(msgspec.Struct, frozen=True, gc=False):
    """The median of a metric with its 95 % interval, in the metric's unit.

    low, high: None where too few samples were taken to say.  count: how many samples.
    """

    value: float
    low: float | None
    high: float | None
    count: int


class MetricSamples(msgspec.Struct, frozen=True, omit_defaults=True):
    """The raw samples of one metric, in SI base units, of one round after the other.

    rounds: how many of the samples are of each round; empty where there was one.  boost_rounds:
    likewise of `boost`. direction: None where neither is better, or where a foreign asv project
    does not tell.  boost: of a step that the GPU's power regulator holds down, the samples before
    it acts; `samples` are then those at settled clocks.  info: how the samples were taken, in
    words; what is decided by it is a field, and follows from the words where it is not given:
    timers: what timed the samples, none for what was counted or derived.  launch_visible: whether
    they contain the host's launching.  crosses_host: whether the step goes over the link to the
    host, whose CPUs take part.  settled: whether they were taken at settled clocks.
    unlike_rounds: how many further rounds were timed in another way or regime, and are left out.
    interval: what `estimate` is to show instead of the interval of the samples, never stored: that
    for the next run on another card, or the one that a foreign asv project gives.
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
                raise ValueError(f"rounds of {rounds} samples do not make {len(samples)}")

    @property
    def round_medians(self) -> list[float]:
        """The median of each round."""
        return _medians(self.samples, self.rounds)

    def of_round(self, number: int) -> MetricSamples:
        """What one round alone measured; the last one, where there are fewer."""
        parts = _split(self.samples, self.rounds), _split(self.boost, self.boost_rounds)
        samples, boost = (part[min(number, len(part) - 1)] for part in parts)
        return msgspec.structs.replace(
            self, samples=samples, boost=boost, rounds=[], boost_rounds=[]
        )

    @property
    def median(self) -> float:
        """The median of the rounds' medians: a round that something disturbed does not count."""
        return statistics.median(self.round_medians)

    @property
    def regime(self) -> str:
        """`sustained` for what was measured at settled clocks; empty where the card did not
        throttle."""
        return "sustained" if self.boost or self.settled else ""

    @property
    def boost_round_medians(self) -> list[float]:
        """The median of each round of `boost`; none where there is none."""
        return _medians(self.boost, self.boost_rounds) if self.boost else []

    @property
    def boost_median(self) -> float | None:
        """The same of `boost`; None where there is none."""
        return statistics.median(self.boost_round_medians) if self.boost else None

    @property
    def estimate(self) -> Estimate:
        """The median and its interval, the only one that commands, pages and asv's files show.

        Where none was given it is that of the run itself: `Samples.interval`'s at 95 %, with
        several rounds the range of all of theirs. A single sample that was counted, not timed, has
        none.
        """
        if self.interval:
            return Estimate(self.median, *self.interval, len(self.samples))
        if len(self.samples) < 2:
            return Estimate(self.samples[0], None, None, 1)
        parts = _split(self.samples, self.rounds)
        intervals = [Samples(tuple(part)).interval() for part in parts]
        low = min(start for start, _ in intervals)
        high = max(end for _, end in intervals)
        return Estimate(self.median, low, high, len(self.samples))


def _facts_of(info: Mapping[str, object]) -> dict[str, object]:
    """The facts of a metric that its info tells in words; the default ones are left out.

    Several rounds that differ are told one after the other, with semicolons between; after a colon
    an explanation follows.
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


def _medians(samples: list[float], rounds: list[int]) -> list[float]:
    return [statistics.median(part) for part in _split(samples, rounds)]


class Series(msgspec.Struct, frozen=True, omit_defaults=True):
    """Columns of equal length, such as a utilisation over time or a histogram; `units` names each
    column's unit.

    A column is all numbers or all text (names of layers); text has no unit. None stands for a
    number that is not finite, such as the loss of a training that diverged.
    """

    # msgspec takes no union of two kinds of list; that a column is all of one kind is held in
    # `__post_init__`.
    columns: Annotated[dict[Text, Column], FEW]
    units: Words = {}

    @classmethod
    def of(
        cls, columns: Mapping[str, Iterable[Any]], units: Mapping[str, str] | None = None
    ) -> Series:
        """A series of a plugin's columns.

        Raises ResultError for a cell that is neither text nor a number, ValueError for unequal
        lengths, an unknown unit, and a column that mixes text and numbers.
        """
        plain = {
            str(name): [_cell(name, cell) for cell in cells]
            for name, cells in columns.items()
        }
        return cls(plain, {**(units or {})})

    def __post_init__(self) -> None:
        lengths = {name: len(cells) for name, cells in self.columns.items()}
        if len(set(lengths.values())) > 1:
            raise ValueError(f"columns of different length: {lengths}")
        if unknown := [symbol for symbol in self.units.values() if symbol not in UNITS]:
            raise ValueError(
                f"unit {unknown[0]!r} is not known; use one of {', '.join(UNITS)}"
            )
        for name, values in self.columns.items():
            kinds = set(map(type, values)) - {type(None)}
            if len(kinds) > 1 and str in kinds:
                raise ValueError(f"column {name!r} mixes text and numbers")

    def numbers(self, column: str) -> list[float]:
        """A column of numbers, NaN for None. Raises KeyError for a column that is not there,
        TypeError for text."""
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
    J, of the point's GPUs over its whole duration.  node: facts of the node at that moment.
    source: where the plugin's code came from.  data: what was loaded, by the data set's name:
    fingerprint, sizes, the part of it.  conditions: what else the machine did meanwhile: `cores`
    that this process may use; `other_cpus`, how many of these other processes used on average while
    the point was measured; `other_users`, how many other users' processes were among them;
    `other_processes`, how many processes of others were on the point's GPUs when it began or ended;
    and, of the GPUs that the point did not use, `other_gpus` (how many), `other_gpus_power` (W) and
    `other_gpus_utilization` (0 to 1), means of when it began and when it ended. Of several rounds
    the largest of each. work: of one call of what a metric times, by the metric's name.  throttled:
    why the GPU lowered its clocks while samples of no regime were taken; empty where it did not.
    failure: the kind of what made it fail.  noise: of the warnings, those that say how far the
    samples scatter.  of_stack: whether it was measured with packages that
    were installed for it, not with the node's own.
    packages: versions of the libraries that matter.  commit and machine are empty outside asv.
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

    @property
    def remarks(self) -> list[str]:
        """All that a reader may doubt its numbers by: the warnings, then those of noise."""
        return [*self.warnings, *self.noise]

    def median(self, metric: str) -> float | None:
        """The median of a metric; None where the point has none of that name."""
        found = self.metrics.get(metric)
        return found.median if found else None

    @property
    def measured_rounds(self) -> int:
        """How many rounds it holds."""
        return max(
            (
                len(metric.rounds or [metric]) + metric.unlike_rounds
                for metric in self.metrics.values()
            ),
            default=1,
        )

    @property
    def is_throttled(self) -> bool:
        """Whether the GPU throttled while samples of no regime were taken, as before there were
        regimes."""
        return bool(self.throttled)

    @property
    def is_busy(self) -> bool:
        """Whether other processes used the CPUs while this was measured: its times on the CPU are
        judged with a wider interval."""
        return self.conditions.get("other_cpus", 0.0) > BUSY_SHARE * self.conditions.get(
            "cores", math.inf
        )

    @property
    def is_complete(self) -> bool:
        """Whether the point needs no more rounds: it has all that were planned, or it was not
        measured."""
        return self.status != "ok" or self.measured_rounds >= self.planned_rounds

    @property
    def missing_rounds(self) -> str:
        """`1 of 3 rounds` of a run that was interrupted; empty where the point is whole, or was not
        measured."""
        if self.is_complete:
            return ""
        return f"{self.measured_rounds} of {self.planned_rounds} rounds"

    @property
    def gpus(self) -> list[dict[str, Any]]:
        """The facts of the node's GPUs; none where the Record does not tell."""
        found = self.node.get("gpus")
        if isinstance(found, list | tuple):
            return [gpu for gpu in found if isinstance(gpu, dict)]
        return []

    @property
    def gpu_names(self) -> list[str]:
        """The names of the node's GPUs, "unknown" of one that the Record does not name."""
        return [str(gpu.get("name") or "unknown") for gpu in self.gpus]

    @property
    def gpu_type(self) -> str:
        """The name of the cards, joined by ' + ' where they differ, or 'none'; see `Node.gpu`."""
        return " + ".join(dict.fromkeys(self.gpu_names)) or "none"

    @property
    def point(self) -> str:
        """The key of what was measured: benchmark, version and parameters, whatever the run or the
        machine."""
        return point_key(self.benchmark, self.version, self.params)


def point_key(benchmark: str, version: str, params: dict[str, Value]) -> str:
    """A short stable key of a point: the same on every node and in every run."""
    encoded = msgspec.json.encode([benchmark, version, sorted(params.items())])
    return hashlib.sha256(encoded).hexdigest()[:20]
