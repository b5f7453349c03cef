"""Intervals for the next run and verdicts on differences, from how far Records of equal code differ."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, NamedTuple

from hpml_plugins.model import formatting
from hpml_plugins.model.benchmark import Direction
from hpml_plugins.model.record import Estimate, MetricSamples, Record
from hpml_plugins.model.units import UNITS

Verdict = Literal["SAME", "BETTER", "WORSE", "AMBIGUOUS"]

#: Share of comparisons of equal things that may be called different, of all that are asked at once.
ERROR_RATE = 0.05
#: Two values are the same when the 95 % interval of their ratio lies within this share of 1.
MARGIN = 0.02
#: What monitoring says of a Record of before there were regimes, where the card throttled.
_THROTTLED = "held its clocks down"
_THROTTLED_KIND = "throttled"


class Spread(NamedTuple):
    """Variances of a value's natural logarithm, and the degrees of freedom behind each.

    same_*: of a run on the same card.  any_*: of a run on any card of the type.
    """

    same_card: float
    same_freedom: float
    any_card: float
    any_freedom: float


#: A value that was counted comes again exactly.
EXACT = Spread(0.0, math.inf, 0.0, math.inf)


@dataclass(frozen=True)
class Difference:
    """One metric of one point, B against A. ratio: B over A, None where one of them is not above 0.

    low, high: the 95 % interval of the ratio.  p: of no difference, before correction; None where nobody can say.
    reason: why there can be neither ratio nor verdict, see `different_problems`.
    """

    verdict: Verdict
    ratio: float | None = None
    low: float | None = None
    high: float | None = None
    p: float | None = None
    reason: str = ""


class Variability:
    """How far values move from run to run and from card to card, of all metrics of some Records.

    records: those whose values will be asked for, and all others of the same machines: the more, the better it is
    known. See `hpml_plugins.model.variance` for the estimator.
    """

    def __init__(self, records: Iterable[Record]) -> None:
        self._spreads: dict[tuple[str, ...], Spread] = {}
        numbers: list[dict[Any, int]] = [{} for _ in range(6)]
        rows: list[tuple[float, ...]] = []
        for record in records:
            if record.status != "ok":
                continue
            for name, metric in record.metrics.items():
                kind, key = kind_of(record, metric), _key(record, name, metric)
                if kind == "counted" or not metric.median > 0:
                    continue
                group = (kind, record.benchmark, name)
                code = record.source.get("sha256") or record.commit
                labels = (key, group, kind, code, card_of(record), (record.run, record.commit, record.started))
                found = [known.setdefault(label, len(known)) for known, label in zip(numbers, labels, strict=True)]
                rows.append((math.log(metric.median), *found))
        if rows:
            self._estimate(rows, list(numbers[0]))

    def _estimate(self, rows: Sequence[tuple[float, ...]], keys: Sequence[tuple[str, ...]]) -> None:
        import numpy as np

        from hpml_plugins.model.variance import Observations, estimate_variances

        value, *columns = np.array(rows).T
        found = estimate_variances(Observations(value, *(column.astype(np.int64) for column in columns)))
        for point, *spread in zip(columns[0].astype(int).tolist(), *(each.tolist() for each in found), strict=True):
            self._spreads[keys[point]] = Spread(*spread)

    def spread(self, record: Record, name: str) -> Spread | None:
        """Of a metric of a Record; None where its logarithm has none, for it is not above 0."""
        metric = record.metrics[name]
        return EXACT if kind_of(record, metric) == "counted" else self._spreads.get(_key(record, name, metric))

    def estimate(self, record: Record, name: str) -> Estimate:
        """The value with the 95 % interval for the next run on another card of this type.

        A result of a foreign asv project keeps asv's own interval; a value that was counted, or is not above 0, has
        none.
        """
        found = record.metrics[name].estimate
        spread = self.spread(record, name)
        if not record.plugin and found.low is not None:
            return found
        if spread is None or spread == EXACT:
            return Estimate(found.value, None, None, found.count)
        from hpml_plugins.model.variance import half_width

        factor = math.exp(half_width(spread.any_card, spread.any_freedom))
        return Estimate(found.value, found.value / factor, found.value * factor, found.count)

    def compare(self, pairs: Sequence[tuple[Record, Record, str]], margin: float = MARGIN) -> list[Difference]:
        """A verdict on each (A, B, metric), corrected for how many are asked at once (Benjamini and Hochberg).

        BETTER, WORSE: the difference would arise from equal things too seldom.  SAME: the 95 % interval of the ratio
        lies within the margin.  AMBIGUOUS: neither can be said, or no direction is better.
        Source: Benjamini and Hochberg, Controlling the false discovery rate, JRSS B 57 (1995).
        """
        raw = [self._difference(*pair) for pair in pairs]
        tested = [each.p for each in raw if each.p is not None]
        if tested:
            from scipy.stats import false_discovery_control

            adjusted = iter(false_discovery_control(tested).tolist())
        return [
            _judged(each, next(adjusted) if each.p is not None else None, common_direction(a, b, name), margin)
            for each, (a, b, name) in zip(raw, pairs, strict=True)
        ]

    def _difference(self, a: Record, b: Record, name: str) -> Difference:
        from hpml_plugins.model.variance import half_width, p_value

        one, other = a.metrics[name].median, b.metrics[name].median
        first, second = self.spread(a, name), self.spread(b, name)
        if not _describes_problem(a, b, name) and (reason := different_problems(a, b)):
            return Difference("AMBIGUOUS", reason=reason)
        if one == other:
            return Difference("SAME", 1.0 if one > 0 else None)
        if not (one > 0 and other > 0) or first is None or second is None:
            return Difference("AMBIGUOUS")
        ratio = other / one
        if len({_THROTTLED_KIND in kind_of(each, each.metrics[name]) for each in (a, b)}) > 1:
            return Difference("AMBIGUOUS", ratio)  # neither boost nor sustained: of no regime that the other has
        if first == second == EXACT:
            return Difference("AMBIGUOUS", ratio, ratio, ratio, 0.0)
        same = card_of(a) == card_of(b)
        parts = [each[:2] if same else each[2:] for each in (first, second)]
        variance = sum(part for part, _ in parts)
        freedom = min(freedom for _, freedom in parts)
        factor = math.exp(half_width(variance / 2, freedom))
        p = p_value(math.log(ratio), variance, freedom)
        return Difference("AMBIGUOUS", ratio, ratio / factor, ratio * factor, p)


def _judged(found: Difference, adjusted: float | None, direction: str | None, margin: float) -> Difference:
    verdict = found.verdict
    if adjusted is not None and adjusted < ERROR_RATE and found.ratio is not None and direction is not None:
        verdict = "BETTER" if (found.ratio > 1) == (direction == "higher") else "WORSE"
    elif found.low is not None and found.high is not None and 1 - margin <= found.low and found.high <= 1 + margin:
        verdict = "SAME"
    return replace(found, verdict=verdict)


def common_direction(a: Record, b: Record, name: str) -> Direction | None:
    """Which direction of a metric is better by both Records; None where one of them has none, or they contradict."""
    one, other = a.metrics[name].direction, b.metrics[name].direction
    return one if one == other else None


def different_problems(a: Record, b: Record) -> str:
    """How the problems differ that two Records of a point solved: `different problems: size 4096 and 12288`, or "".

    A metric that has no direction and was counted, such as the size that a product was fastest at, describes the
    problem. The other metrics of different problems have no ratio.
    """
    differing = []
    for name in sorted(a.metrics.keys() & b.metrics.keys()):
        one, other = a.metrics[name], b.metrics[name]
        if _describes_problem(a, b, name) and one.median != other.median:
            unit = formatting.shown_unit(one.unit).label
            differing.append(f"{name} {one.median:.15g} and {other.median:.15g} {unit}".rstrip())
    return f"different problems: {', '.join(differing)}" if differing else ""


def _describes_problem(a: Record, b: Record, name: str) -> bool:
    is_counted = all(kind_of(each, each.metrics[name]) == "counted" for each in (a, b))
    return is_counted and common_direction(a, b, name) is None


def kind_of(record: Record, metric: MetricSamples) -> str:
    """How a value was measured: values of one kind repeat about as well, whatever they are of."""
    timer = str(metric.info.get("timer", ""))
    once = len(metric.samples) == max(1, len(metric.rounds)) and not timer
    if (
        once
        and metric.unit in UNITS
        and UNITS[metric.unit].count
        and all(value.is_integer() for value in metric.samples)
    ):
        return "counted"
    where = "GPU" if record.gpus else "CPU"
    if timer.startswith("cuda events"):
        regime = str(metric.info.get("regime", ""))
        if not regime and any(_THROTTLED in text for text in record.warnings):
            regime = _THROTTLED_KIND
        how = f"kernel, {regime}" if regime else "kernel"
    else:
        how = "wall clock" if timer else "derived"
    return f"{where}, {how}, {'rounds' if metric.rounds else 'one round'}"


def card_of(record: Record) -> str:
    """Which cards measured it; without any, which start of the host, and each run another where that does not tell."""
    cards = sorted(str(gpu.get("uuid") or "") for gpu in record.gpus)
    return ",".join(cards) if any(cards) else str(record.node.get("boot") or record.run)


def _key(record: Record, name: str, metric: MetricSamples) -> tuple[str, ...]:
    return record.machine, record.point, name, kind_of(record, metric)
