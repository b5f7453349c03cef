"""A measured value for comparisons: from one run, or the mean over the cards that measured it."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from sys import intern
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from hpml_plugins.analysis.physics import (
    Physics,
    compared_physics,
    physics_of,
    signature,
)
from hpml_plugins.analysis.variance import Spread, half_width
from hpml_plugins.model.alike_code import measuring_code
from hpml_plugins.model.record import Estimate

if TYPE_CHECKING:
    from hpml_plugins.model.record import MetricSamples, Record

#: The spread of a counted value, which repeats exactly.
EXACT = Spread(0.0, math.inf, 0.0, math.inf)
#: The classes whose times depend on other processes on the CPUs.
ON_HOST = (Physics.LAUNCHED, Physics.HOST_CLOCK, Physics.CPU, Physics.DERIVED)


class _CardLevel(NamedTuple):
    """The result of one card. level: the mean of the natural logarithms of its runs.  reference:
    the mean of the references of these runs."""

    card: str
    level: float
    runs: int
    reference: float | None = None


class TypeReference(NamedTuple):
    """The mean over the cards of a type of the logarithm of a reference's time, and the variance of
    this mean."""

    mean: float
    variance: float


class Adjusted(NamedTuple):
    """How a value varies between cards after removing the card's factor.

    coefficient: β, see `hpml_plugins.analysis.reference`.  of_coefficient: its variance.  variance,
    freedom: of a run on any card, and its degrees of freedom.  of_type: the mean reference of the
    type, with the sign of the value's own; None for fewer than two cards.
    """

    coefficient: float
    of_coefficient: float
    variance: float
    freedom: float
    of_type: TypeReference | None


class MeasuredValue(msgspec.Struct, gc=False, kw_only=True, array_like=True):
    """One metric of one Record, or of several with equal code, and its spread.

    value: the metric's; for several Records the mean over their cards.  low, high: the 95 %
    interval of the run itself, or asv's; None without one.  count: the number of samples.
    direction, regime: of the metric.  physics: its class.  is_busy: whether it was timed on CPUs
    that other processes also used (`Record.is_busy`).  boosted: the same metric in the regime
    boost.  code: see `code_of`.  card: see `card_of`.  hardware: see `hardware_of`.  started: Unix
    time, s.  rounds: see `_variance_by_rounds`.  several_rounds: whether it is the median of
    several rounds.  timing: see `signature`; metrics with the same signature belong to one timing.
    run: the Record's.  load: of the long steps of RESTED at settled clocks: whether the card rested
    between them; else "".  spent: of an energy: see `_spent`; else 0.  reference: the natural
    logarithm of the time of the reference step of its class and visit, negative for a rate; None
    without one.  adjusted: see `hpml_plugins.analysis.reference`.  levels: the result of each card,
    for several Records.  spread: see `fill_in_spreads`; None for values that are not above 0.
    unlike_runs: the number of runs left out of the mean because most cards have another class.
    scatter: for values not above 0, the variance of another run and its degrees of freedom; None if
    no run was repeated.
    """

    value: float
    low: float | None
    high: float | None
    count: int
    direction: str | None
    physics: Physics
    code: str
    card: str
    started: float
    hardware: str = ""
    run: str = ""
    is_busy: bool = False
    regime: str = ""
    rounds: tuple[float, int] | None = None
    several_rounds: bool = False
    timing: float | None = None
    boosted: MeasuredValue | None = None
    levels: tuple[_CardLevel, ...] = ()
    spread: Spread | None = None
    scatter: tuple[float, float] | None = None
    reference: float | None = None
    adjusted: Adjusted | None = None
    unlike_runs: int = 0
    spent: float = 0.0
    load: str = ""

    @classmethod
    def of(cls, record: Record, name: str) -> MeasuredValue:
        """The value of a metric of a Record, without its spread."""
        return cls._of(record, name, physics_of(record, name), _common_facts(record))

    @classmethod
    def all_of(cls, record: Record) -> dict[str, MeasuredValue]:
        """The value of each metric by which a Record is compared, without its spread."""
        common = _common_facts(record)
        return {
            name: cls._of(record, name, physics, common)
            for name, physics in compared_physics(record).items()
        }

    @classmethod
    def _of(
        cls, record: Record, name: str, physics: Physics, common: Mapping[str, Any]
    ) -> MeasuredValue:
        """common: what all metrics of the Record share."""
        metric = record.metrics[name]
        own = metric.estimate
        timing = signature(metric)
        boosted = None
        boost = metric.boost_median
        if boost is not None:
            boosted = cls(
                value=boost,
                low=None,
                high=None,
                count=len(metric.boost),
                direction=metric.direction,
                physics=Physics.BOOST,
                regime="boost",
                rounds=_variance_by_rounds(metric.boost_rounds, metric.boost_round_medians),
                several_rounds=bool(metric.boost_rounds),
                timing=timing,
                **common,
            )
        medians = metric.round_values if metric.rounds else ()
        return cls(
            value=own.value,
            low=own.low,
            high=own.high,
            count=own.count,
            direction=metric.direction,
            physics=physics,
            regime=metric.regime,
            is_busy=record.is_busy and physics in ON_HOST,
            rounds=_variance_by_rounds(metric.rounds, medians),
            several_rounds=bool(metric.rounds),
            boosted=boosted,
            timing=timing,
            spent=_spent(metric),
            load=_load_of(record, metric),
            **common,
        )

    @property
    def kind(self) -> str:
        """Values of the same kind have a similar repeatability on one card."""
        busy = ", busy" if self.is_busy else ""
        return f"{self.physics}, {'rounds' if self.several_rounds else 'one round'}{busy}"

    @property
    def repeats(self) -> bool:
        """Whether the newest reading stands for all, instead of a mean."""
        return self.physics in (Physics.COUNTED, Physics.FOREIGN)

    @property
    def boost(self) -> float | None:
        """The value in the regime boost; None if there is only one regime."""
        return self.boosted.value if self.boosted else None

    @property
    def cards(self) -> tuple[_CardLevel, ...]:
        """The result of each card; the value must be above 0."""
        return self.levels or (
            _CardLevel(self.card, math.log(self.value), 1, self.reference),
        )

    @property
    def own(self) -> Estimate:
        """The value with the interval of the run itself."""
        return Estimate(self.value, self.low, self.high, self.count)

    @property
    def lacks_spread(self) -> bool:
        """Whether nothing shows how far such values vary between cards. What is assumed of the
        speed of cards then holds for no loss, error or accuracy."""
        if self.physics is not Physics.DERIVED or self.spread is None:
            return False
        return self.spread.is_assumed

    @property
    def has_interval(self) -> bool:
        """Whether `estimate` has an interval."""
        if self.physics is Physics.FOREIGN:
            return self.low is not None and math.isfinite(self.low)
        if self.lacks_spread:
            return False
        return self.spread is not None and self.spread != EXACT

    @property
    def estimate(self) -> Estimate:
        """The value with the 95 % interval for the next run on another card of this type.

        A result of a foreign asv project keeps asv's own interval; counted values, values not above
        0 and those of which nothing is known between cards have none.
        """
        if self.physics is Physics.FOREIGN:
            return self.own
        if self.spread is None or not self.has_interval:
            return Estimate(self.value, None, None, self.count)
        factor = math.exp(
            half_width(
                self.spread.any_card, self.spread.any_freedom, max(1, len(self.levels))
            )
        )
        return Estimate(self.value, self.value / factor, self.value * factor, self.count)


#: Metric → its value on one side of a comparison.
Values = Mapping[str, MeasuredValue]


def mean_over_cards(readings: Sequence[MeasuredValue]) -> MeasuredValue:
    """The geometric mean over the cards, each averaged over its runs; for counted values the
    newest.

    readings: of one metric with equal code and environment, at least one. Those that are not
    `averaged` because of their class are counted.
    """
    alike = _of_most_cards(readings)
    unlike = len(readings) - len(alike)
    quiet = _quiet(alike)
    newest = _newest_of_most_cards(quiet)
    if len(quiet) == 1:
        return msgspec.structs.replace(newest, unlike_runs=unlike) if unlike else newest
    by_card: dict[str, list[MeasuredValue]] = {}
    for each in quiet:
        by_card.setdefault(each.card, []).append(each)
    levels: tuple[_CardLevel, ...] = ()
    if min(each.value for each in quiet) > 0:
        levels = tuple(
            _level(card, members, newest.physics) for card, members in by_card.items()
        )
        value = math.exp(statistics.fmean(each.level for each in levels))
    else:
        means = []
        for members in by_card.values():
            means.append(statistics.fmean(each.value for each in members))
        value = statistics.fmean(means)
    return msgspec.structs.replace(
        newest,
        value=value,
        low=None,
        high=None,
        count=sum(each.count for each in quiet),
        levels=levels,
        boosted=_mean_at_boost(quiet),
        unlike_runs=unlike,
    )


#: The load at settled clocks, in the info of samples; earlier ones have none.
CONTINUOUS = "continuous"
#: Benchmarks whose samples from before continuous load are some per cent faster: the card rested
#: while their long steps were launched.
RESTED = (
    "lm_explained",
    "lm_prefill",
    "lm_training",
    "lm_training_fused",
    "lm_training_ranks",
)
#: The classes of GPU steps that the card did not throttle. They have the same rate in both regimes,
#: so a point at which only some cards throttle has one mean.
_UNTHROTTLED = (Physics.STREAMING, Physics.MEMORY_BOUND, Physics.NEVER_THROTTLED)


def averaged(readings: Sequence[MeasuredValue]) -> Sequence[MeasuredValue]:
    """The readings that `mean_over_cards` takes; of counted values the newest.

    Readings that other processes disturbed are used only if there are no others, and none that were
    timed in another way or regime than those of most cards (in a tie, than the newest).
    """
    return _quiet(_of_most_cards(readings))


def _quiet(alike: Sequence[MeasuredValue]) -> Sequence[MeasuredValue]:
    """alike: readings that were timed alike."""
    quiet = [each for each in alike if not each.is_busy] or alike
    newest = max(quiet, key=lambda reading: reading.started)
    return [newest] if newest.repeats else quiet


def _of_most_cards(readings: Sequence[MeasuredValue]) -> list[MeasuredValue]:
    """The readings timed in the way and regime that most cards have, so that one card whose launch
    was once visible does not represent its type. Samples of a throttled card are used only if none
    has regimes."""
    ways: dict[Physics, list[MeasuredValue]] = {}
    for each in readings:
        way = Physics.SUSTAINED if each.physics in _UNTHROTTLED else each.physics
        ways.setdefault(way, []).append(each)
    if any(each.physics is Physics.SUSTAINED for each in readings):
        ways.pop(Physics.THROTTLED, None)
    return max(ways.values(), key=_weight)


def _newest_of_most_cards(alike: Sequence[MeasuredValue]) -> MeasuredValue:
    """The newest of the readings of the class that most cards have."""
    classes: dict[Physics, list[MeasuredValue]] = {}
    for each in alike:
        classes.setdefault(each.physics, []).append(each)
    most = max(classes.values(), key=_weight)
    return max(most, key=lambda reading: reading.started)


def _weight(readings: Sequence[MeasuredValue]) -> tuple[int, float]:
    """The number of cards and the time of the newest reading."""
    return len({each.card for each in readings}), max(each.started for each in readings)


def _mean_at_boost(alike: Sequence[MeasuredValue]) -> MeasuredValue | None:
    """The mean in the regime boost; None if no reading has it."""
    if not any(each.boosted for each in alike):
        return None
    at_boost = [
        each.boosted
        or msgspec.structs.replace(
            each, physics=Physics.BOOST, regime="boost", reference=None
        )
        for each in alike
        if each.boosted or each.physics in _UNTHROTTLED
    ]
    return mean_over_cards(at_boost)


def _level(card: str, readings: Sequence[MeasuredValue], physics: Physics) -> _CardLevel:
    """physics: the class of the mean. Each class has a reference step of its own, so those of other
    classes do not tell how fast this card is for it."""
    references = [
        each.reference
        for each in readings
        if each.reference is not None and each.physics is physics
    ]
    complete = len(references) == len(readings)
    level = statistics.fmean(math.log(each.value) for each in readings)
    return _CardLevel(
        card, level, len(readings), statistics.fmean(references) if complete else None
    )


def _common_facts(record: Record) -> dict[str, Any]:
    """What all values of a Record share. A million values share few distinct texts: keep one copy
    of each."""
    return {
        "code": intern(code_of(record)),
        "card": intern(card_of(record)),
        "hardware": intern(hardware_of(record)),
        "started": record.started,
        "run": intern(record.run),
    }


def _spent(metric: MetricSamples) -> float:
    """The energy of what the Record's `time` is of, with that of the idle card, J; 0 if unknown.

    By `Bench.energy` it is that of a call under load. A plugin that measures the whole of what it
    times gives the mean power with it.
    """
    if metric.unit != "J" or "power" not in metric.info:
        return 0.0
    gross = metric.info.get("gross", metric.value)
    return gross if isinstance(gross, float) else 0.0


def code_of(record: Record) -> str:
    """Equal for repetitions: the same code of the plugin, software stack, problem and load.

    For a package of another repository, also the same state of that package. See
    `different_problems`.
    """
    metrics = record.metrics
    source = record.source
    problem = [
        each.value
        for name, each in metrics.items()
        if each.direction is None and physics_of(record, name) is Physics.COUNTED
    ]
    code = f"{measuring_code(record)} {source.get('package', '')} {record.environment} {problem}"
    loads = {_load_of(record, each) for each in metrics.values()}
    return f"{code} {CONTINUOUS} load" if CONTINUOUS in loads else code


def _load_of(record: Record, metric: MetricSamples) -> str:
    """See `MeasuredValue`."""
    if record.benchmark not in RESTED or not metric.settled:
        return ""
    return CONTINUOUS if metric.info.get("load") == CONTINUOUS else "with rests"


def card_of(record: Record) -> str:
    """The cards that measured it; without GPUs the boot of the host, or if that is unknown the
    run."""
    cards = sorted(str(gpu.get("uuid") or "") for gpu in record.gpus)
    return ",".join(cards) if any(cards) else str(record.node.get("boot") or record.run)


def hardware_of(record: Record) -> str:
    """The type of hardware that measured it: its GPUs, or its CPU."""
    names = sorted(record.gpu_names)
    return " + ".join(names) or str(record.node.get("cpu") or record.machine)


def _variance_by_rounds(
    rounds: Sequence[int], medians: Sequence[float]
) -> tuple[float, int] | None:
    """The variance of the logarithm of the median of the rounds, and its degrees of freedom; None
    for one round."""
    if len(rounds) < 2 or min(medians) <= 0:
        return None
    return (
        _variance_of_median(statistics.variance(map(math.log, medians)), len(medians)),
        len(medians) - 1,
    )


def _variance_of_median(variance: float, count: int) -> float:
    """The variance of the median of `count` normal values of this variance: about π/2 / (n + ½) of
    it, also for small n."""
    return variance * math.pi / 2 / (count + 0.5)
