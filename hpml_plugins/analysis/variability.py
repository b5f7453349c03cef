"""Intervals for the next run and verdicts on differences, from how far Records of equal code differ."""

from __future__ import annotations

import dataclasses
import math
import statistics
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from sys import intern
from typing import Any, Literal

import msgspec
import numpy as np
from msgspec.structs import replace
from scipy.stats import false_discovery_control

from hpml_plugins.analysis.variance import Observations, Spread, estimate_spreads, half_width, p_value, pool_rounds
from hpml_plugins.model.record import Estimate, MetricSamples, Record
from hpml_plugins.model.units import UNITS

Verdict = Literal["SAME", "BETTER", "WORSE", "AMBIGUOUS"]

#: Share of comparisons of equal things that may be called different, of all that are asked at once.
ERROR_RATE = 0.05
#: Two values are the same when the 95 % interval of their ratio lies within this share of 1.
MARGIN = 0.02
#: How many readings of a point say how far it moves: the newest.
RECENT = 50
_COUNTED, _FOREIGN, _THROTTLED, _BUSY = "counted", "asv", "throttled", "busy"
#: The `source` in the info of what hardware counters give: DRAM bytes depend on what is in the caches.
_HARDWARE_COUNTERS = "ncu"
#: A value that was counted comes again exactly.
EXACT = Spread(0.0, math.inf, 0.0, math.inf)


class MeasuredValue(msgspec.Struct, gc=False, kw_only=True):
    """One metric of one Record, and how far it moves.

    value: the median.  low, high: the 95 % interval of the run itself, or asv's; None where there is none.  count: of
    samples.  direction, regime: of the metric.  boost: the median of the regime boost.  kind: see `kind_of`.  code: see
    `code_of`.  card: see `card_of`.  started: Unix time, s.  rounds: see `_variance_by_rounds`.  spread: see
    `fill_in_spreads`; None where the value is not above 0.
    """

    value: float
    low: float | None
    high: float | None
    count: int
    direction: str | None
    boost: float | None
    kind: str
    code: str
    card: str
    started: float
    regime: str = ""
    rounds: tuple[float, int] | None = None
    spread: Spread | None = None

    @classmethod
    def of(cls, record: Record, name: str) -> MeasuredValue:
        """Of a metric of a Record, without its spread."""
        metric = record.metrics[name]
        own = metric.estimate
        return cls(  # a million values have few such texts: one copy of each is kept
            value=own.value, low=own.low, high=own.high, count=own.count, direction=metric.direction,
            boost=metric.boost_median, kind=intern(kind_of(record, metric)), code=intern(code_of(record)),
            card=intern(card_of(record)), started=record.started, regime=metric.regime,
            rounds=_variance_by_rounds(metric),
        )  # fmt: skip

    @property
    def is_busy(self) -> bool:
        """Whether it was timed on CPUs that other processes used too (`Record.is_busy`)."""
        return self.kind.endswith(_BUSY)

    @property
    def own(self) -> Estimate:
        """The value with the interval of the run itself."""
        return Estimate(self.value, self.low, self.high, self.count)

    @property
    def estimate(self) -> Estimate:
        """The value with the 95 % interval for the next run on another card of this type.

        A result of a foreign asv project keeps asv's own interval; a value that was counted, or is not above 0, has
        none.
        """
        if self.kind == _FOREIGN:
            return self.own
        if self.spread is None or self.spread == EXACT:
            return Estimate(self.value, None, None, self.count)
        factor = math.exp(half_width(self.spread.any_card, self.spread.any_freedom))
        return Estimate(self.value, self.value / factor, self.value * factor, self.count)


def code_of(record: Record) -> str:
    """Values are repetitions where this is equal: one code of the plugin, software stack and problem.

    Also one state of the package that was measured, where that is another repository's. See `different_problems`.
    """
    metrics, source = record.metrics.values(), record.source
    problem = [each.median for each in metrics if each.direction is None and kind_of(record, each) == _COUNTED]
    code = source.get("sha256") or record.commit
    return f"{code} {source.get('package', '')} {record.environment} {problem}"


def _variance_by_rounds(metric: MetricSamples) -> tuple[float, int] | None:
    """The variance of the logarithm of the median of the rounds, and its degrees of freedom; None for one round."""
    if len(metric.rounds) < 2 or min(medians := metric.round_medians) <= 0:
        return None
    return variance_of_median(statistics.variance(map(math.log, medians)), len(medians)), len(medians) - 1


def variance_of_median(variance: float, count: int) -> float:
    """The variance of the median of `count` normal values of this variance: near π/2 / (n + ½) of it, also for few."""
    return variance * math.pi / 2 / (count + 0.5)


#: Metric → its value in one Record.
Values = Mapping[str, MeasuredValue]


def fill_in_spreads(points: Iterable[tuple[Hashable, Sequence[MeasuredValue]]]) -> None:
    """Fill in the spread of every reading.

    points: (class, readings) of each metric of each point on each machine; metrics of one class borrow from one
    another. See `hpml_plugins.analysis.variance` for the estimator.
    """
    numbers: list[dict[Any, int]] = [{} for _ in range(6)]
    rows: list[tuple[float, ...]] = []
    places: list[list[MeasuredValue]] = []
    for group, readings in points:
        of_kind: dict[str, list[MeasuredValue]] = {}
        for reading in sorted(readings, key=lambda reading: reading.started):
            if reading.kind == _COUNTED:
                reading.spread = EXACT
            elif reading.kind != _FOREIGN and reading.value > 0:
                of_kind.setdefault(reading.kind, []).append(reading)
        for kind, found in of_kind.items():
            rounds = pool_rounds([each.rounds for each in found[-RECENT:] if each.rounds])
            for each in found[-RECENT:]:
                labels = (len(places), (kind, group), kind, each.code, each.card, each.started)
                numbered = [known.setdefault(label, len(known)) for known, label in zip(numbers, labels, strict=True)]
                rows.append((math.log(each.value), rounds, *numbered))
            places.append(found)
    if not rows:
        return
    values, of_rounds, *columns = np.array(rows).T
    spreads = estimate_spreads(Observations(values, of_rounds, *(column.astype(np.int64) for column in columns)))
    for found, spread in zip(places, spreads, strict=True):
        for reading in found:
            reading.spread = spread


@dataclass(frozen=True)
class Difference:
    """One metric of one point, B against A. ratio: B over A, None where one of them is not above 0.

    direction: which is better.  low, high: the 95 % interval of the ratio.  p: of no difference, before correction;
    None where nobody can say.  reason: why there can be neither ratio nor verdict, see `different_problems`.
    """

    verdict: Verdict
    ratio: float | None = None
    low: float | None = None
    high: float | None = None
    p: float | None = None
    reason: str = ""
    direction: str | None = None

    @property
    def times(self) -> float | None:
        """How many times better B is, whichever direction is better; None where that cannot be said."""
        if self.ratio is None or self.direction is None:
            return None
        return self.ratio if self.direction == "higher" else 1 / self.ratio


def compare_values(pairs: Sequence[tuple[Values, Values, str]]) -> list[Difference]:
    """A verdict on each (A, B, metric), corrected for how many are asked at once (Benjamini and Hochberg).

    SAME: the 95 % interval of the ratio lies within MARGIN of 1.  BETTER, WORSE: it does not, and the difference would
    arise from equal things too seldom; counts by any difference.  AMBIGUOUS: neither can be said, or no direction is
    better.
    Source: Benjamini and Hochberg, Controlling the false discovery rate, JRSS B 57 (1995).
    """
    raw = [_difference(*pair) for pair in pairs]
    adjusted = iter(correct([each.p for each in raw if each.p is not None]))
    return [_judged(each, next(adjusted) if each.p is not None else 1.0) for each in raw]


def correct(p_values: Sequence[float]) -> list[float]:
    """The p-values corrected for how many there are (Benjamini and Hochberg)."""
    return [float(each) for each in false_discovery_control(p_values)] if p_values else []


def _difference(of_a: Values, of_b: Values, name: str) -> Difference:
    a, b = of_a[name], of_b[name]
    direction = common_direction(a, b)
    if not _describes_problem(a, b) and (reason := different_problems(of_a, of_b)):
        return Difference("AMBIGUOUS", reason=reason)
    if a.value == b.value:
        return Difference("SAME", 1.0 if a.value > 0 else None, direction=direction)
    if not (a.value > 0 and b.value > 0):
        return Difference("AMBIGUOUS")
    ratio = b.value / a.value
    if a.spread is None or b.spread is None or why_not_judged(a, b):
        return Difference("AMBIGUOUS", ratio, direction=direction)
    if a.spread == b.spread == EXACT:
        return Difference("AMBIGUOUS", ratio, ratio, ratio, 0.0, direction=direction)
    parts = [spread[:2] if a.card == b.card else spread[2:] for spread in (a.spread, b.spread)]
    variance = sum(part for part, _ in parts)
    freedom = min(freedom for _, freedom in parts)
    factor = math.exp(half_width(variance / 2, freedom))
    p = p_value(math.log(ratio), variance, freedom)
    return Difference("AMBIGUOUS", ratio, ratio / factor, ratio * factor, p, direction=direction)


def _judged(found: Difference, adjusted: float) -> Difference:
    verdict = found.verdict
    if found.low is not None and found.high is not None and 1 - MARGIN <= found.low < found.high <= 1 + MARGIN:
        verdict = "SAME"
    elif adjusted < ERROR_RATE and found.times is not None:
        verdict = "BETTER" if found.times > 1 else "WORSE"
    return dataclasses.replace(found, verdict=verdict)


def why_not_judged(a: MeasuredValue, b: MeasuredValue) -> str:
    """Why there is no verdict on the two, or "".

    A value sampled while the card throttled is neither boost nor sustained; how much other processes slowed one down is
    not known.
    """
    if a.is_busy or b.is_busy:
        return "other processes used the CPUs meanwhile"
    return "one side throttled" if (_THROTTLED in a.kind) != (_THROTTLED in b.kind) else ""


def common_direction(a: MeasuredValue, b: MeasuredValue) -> str | None:
    """Which direction is better by both sides of a metric; None where one of them has none, or they contradict."""
    return a.direction if a.direction == b.direction else None


def different_problems(a: Values, b: Values) -> str:
    """How the problems differ that two Records of a point solved: `different problems: size 4096 and 12288`, or "".

    A metric that has no direction and was counted, such as the size that a product was fastest at, describes the
    problem. The other metrics of different problems have no ratio.
    """
    differing = [
        f"{name} {a[name].value:.15g} and {b[name].value:.15g}"
        for name in sorted(a.keys() & b.keys())
        if _describes_problem(a[name], b[name]) and a[name].value != b[name].value
    ]
    return f"different problems: {', '.join(differing)}" if differing else ""


def _describes_problem(a: MeasuredValue, b: MeasuredValue) -> bool:
    return a.kind == b.kind == _COUNTED and common_direction(a, b) is None


class Variability:
    """How far values move from run to run and from card to card, of all metrics of some Records.

    records: those whose values will be asked for, and all others of the same machines: the more, the better it is
    known.
    """

    def __init__(self, records: Iterable[Record]) -> None:
        points: dict[tuple[str, ...], list[MeasuredValue]] = {}
        classes: dict[tuple[str, ...], Hashable] = {}
        for record in records:
            if record.status == "ok":
                for name in record.metrics:
                    key = (record.machine, record.point, name)
                    points.setdefault(key, []).append(MeasuredValue.of(record, name))
                    classes[key] = record.benchmark, name
        fill_in_spreads((classes[key], readings) for key, readings in points.items())
        self._spreads = {
            (*key, reading.kind): reading.spread for key, readings in points.items() for reading in readings
        }

    def reading(self, record: Record, name: str) -> MeasuredValue:
        """Of a metric of a Record, with its spread."""
        found = MeasuredValue.of(record, name)
        found.spread = self._spreads.get((record.machine, record.point, name, found.kind))
        return found

    def values(self, record: Record) -> Values:
        """Of every metric of a Record."""
        return {name: self.reading(record, name) for name in record.metrics}


def with_intervals(record: Record, readings: Values) -> Record:
    """The Record with the intervals of these readings of it, for commands and pages; not to be stored."""
    shown = {name: reading.estimate for name, reading in readings.items()}
    metrics = {
        name: replace(metric, interval=(shown[name].low, shown[name].high)) if name in shown else metric
        for name, metric in record.metrics.items()
    }
    return replace(record, metrics=metrics)


def kind_of(record: Record, metric: MetricSamples) -> str:
    """How a value was measured: values of one kind repeat about as well, whatever they are of."""
    if metric.interval:
        return _FOREIGN
    timer = str(metric.info.get("timer", ""))
    once = len(metric.samples) == max(1, len(metric.rounds)) and not timer
    is_count = metric.unit in UNITS and UNITS[metric.unit].count
    exact = once and is_count and metric.info.get("source") != _HARDWARE_COUNTERS
    if exact and all(value.is_integer() for value in metric.samples):
        return _COUNTED
    where = "GPU" if record.gpus else "CPU"
    if timer.startswith("cuda events"):
        regime = metric.regime or (_THROTTLED if record.is_throttled else "")
        how = f"kernel, {regime}" if regime else "kernel"
    else:
        how = "wall clock" if timer else "derived"
    # Kernels are timed on the GPU and launched ahead: what uses the CPUs meanwhile does not slow them down.
    busy = f", {_BUSY}" if record.is_busy and not how.startswith("kernel") else ""
    return f"{where}, {how}, {'rounds' if metric.rounds else 'one round'}{busy}"


def card_of(record: Record) -> str:
    """Which cards measured it; without any, which start of the host, and each run another where that does not tell."""
    cards = sorted(str(gpu.get("uuid") or "") for gpu in record.gpus)
    return ",".join(cards) if any(cards) else str(record.node.get("boot") or record.run)
