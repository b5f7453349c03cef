"""Compares measurements with the bands: a verdict on each value, component, card and on the
node."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Mapping, Sequence
from typing import Literal

import msgspec

from hpml_plugins.model import Params, Record, counted, name_point
from hpml_plugins.published import find_gpu
from hpml_plugins.report import share_of_peak
from hpml_plugins.tools.accept.bands import (
    Band,
    Bands,
    Component,
    Population,
    Words,
    card_digest,
    format_stack,
    stack_of_record,
)
from hpml_plugins.tools.accept.points import BITS, majority

Verdict = Literal["pass", "fail", "cannot say"]
#: The components of a card. A card passes only if a value of each of the first four was judged.
ON_CARD: tuple[Component, ...] = ("memory", "tensor cores", "power", "clocks", "link")
NEEDED = ON_CARD[:4]
#: The largest limit, as a logarithm, with which a value can pass: with a larger one, too large a
#: fault would go unnoticed. A broken link loses half.
BLIND: Mapping[str, float] = {"link": math.log(1.5)}
BLIND_OF_OTHERS = math.log(1.15)
#: Largest factor by which other processes on the CPUs may slow a step down.
BUSY = 20.0
#: Components for which the mean of a sound card's samples is within 0.5 % of their median.
STEADY: Sequence[Component] = ("memory", "clocks")
#: The explanation of a card that is slow because other programs used it.
NEIGHBOUR = "another program"
#: Without a population: the share of the published peak below which a card fails.
LEAST_SHARE: Mapping[Component, float] = {
    "memory": 0.75,
    "tensor cores": 0.6,
    "clocks": 0.6,
    "link": 0.6,
}
#: Without a population: the metrics whose published peak is that of a component, by benchmark.
BY_PEAK: Mapping[str, Mapping[str, Component]] = {
    "reference": {"copy": "memory", "float32": "clocks", "bfloat16": "tensor cores"},
    "machine_memory": {"time": "memory"},
    "roofline_kernel": {"time": "clocks"},
}
#: Rates between cards whose peak is NVLink's in one direction, by benchmark.
BY_NVLINK = {"allreduce_nccl": "bus_bandwidth", "machine_peer_copy": "slowest"}
#: Why a component has no verdict.
UNKNOWN = "no measured value has a population or a published peak"
#: What to try, by component.
ADVICE: Mapping[Component, str] = {
    "memory": (
        "look for other programs on the GPU (nvidia-smi), for ECC errors and remapped rows"
        " (nvidia-smi -q -d ECC,ROW_REMAPPER), and at the memory clock"
    ),
    "tensor cores": (
        "compare clocks and power limit with a sound card (nvidia-smi -q -d CLOCK,POWER)"
    ),
    "power": (
        "look at power limit, cooling and reasons for throttling"
        " (nvidia-smi -q -d PERFORMANCE,POWER,TEMPERATURE)"
    ),
    "clocks": (
        "look for other programs on the GPU (nvidia-smi), and for a lock of the clocks"
        " (nvidia-smi -q -d CLOCK); nvidia-smi -rgc lifts one"
    ),
    "link": (
        "look at width and generation of PCIe (nvidia-smi -q), at errors of NVLink"
        " (nvidia-smi nvlink -e), and at the NUMA node of the process; reseat the card"
    ),
    "host": "look for other processes on the CPUs, at their governor, and at NUMA binding",
}
NO_POPULATION = (
    "measure at least four cards of this type with this software (HPML_PROFILE=standard asv run),"
    " and compare with them: hpml accept --export-bands FILE, then --bands FILE"
)
AGAIN = "other processes were on the GPU: end them and measure again"
BITS_ADVICE = "take the card out of service: it computes wrong results (dcgmi diag -r 3)"


class ValueVerdict(msgspec.Struct, frozen=True, kw_only=True):
    """One value.  times: how many times worse than the type's mean; below 1 is better. limit:
    `times` from which it fails.  basis: what it was compared with.  cards: how many cards that
    has."""

    benchmark: str
    params: Params
    metric: str
    regime: str
    component: Component
    value: float
    unit: str
    basis: Literal["population", "published peak"]
    times: float | None = None
    limit: float | None = None
    percentile: float | None = None
    cards: int = 0
    share: float | None = None
    verdict: Verdict
    why: str = ""

    @property
    def excess(self) -> float:
        """How far beyond the limit, as a multiple of it; 0 at the centre."""
        if self.times is None or self.limit is None:
            return 0.0
        return math.log(self.times) / math.log(self.limit)

    def __str__(self) -> str:
        regime = f" ({self.regime})" if self.regime else ""
        return f"{name_point(self.benchmark, self.params)} {self.metric}{regime}"


class ComponentVerdict(msgspec.Struct, frozen=True, kw_only=True):
    """A component.  times: of its worst value.  advice: what to try if it fails."""

    component: Component
    verdict: Verdict
    times: float | None = None
    percentile: float | None = None
    why: str = ""
    advice: str = ""


class CardVerdict(msgspec.Struct, frozen=True, kw_only=True):
    """A card.  explained_by: the component or "bits" that decided.  percentile: the share of the
    cards of its type that it is better than, 0 to 100; the median over its values."""

    card: str
    hardware: str
    verdict: Verdict
    explained_by: str = ""
    why: str = ""
    advice: tuple[str, ...] = ()
    percentile: float | None = None
    population: int = 0
    components: tuple[ComponentVerdict, ...] = ()
    bits: Verdict = "cannot say"
    bits_why: str = ""
    values: tuple[ValueVerdict, ...] = ()


class FailedAtFirst(msgspec.Struct, frozen=True, kw_only=True):
    """A value that failed and was measured again; the verdict is on the second measurement.

    card: its UUID; "" for the links between cards.
    """

    card: str
    why: str


class Acceptance(msgspec.Struct, frozen=True, kw_only=True):
    """What `hpml accept --json` prints.  started: Unix time, s.  seconds: how long it took.  host:
    the verdict on the CPUs.  bands: the version of the file and its digest."""

    format: Literal[1] = 1
    version: str
    started: float
    seconds: float
    host: str
    cpu: str
    driver: str
    stack: Words
    bands: str
    verdict: Verdict
    why: str
    cards: tuple[CardVerdict, ...]
    node: tuple[ComponentVerdict, ...] = ()
    failed_at_first: tuple[FailedAtFirst, ...] = ()


def population_of(
    bands: Bands, hardware: str, stack: Words
) -> tuple[Population | None, str]:
    """The population of a type and stack, or the reason why there is none."""
    alike = list(bands.of_hardware(hardware))
    for each in alike:
        if each.stack == stack:
            return each, ""
    if alike:
        known = "; ".join(format_stack(each.stack) for each in alike)
        return (
            None,
            f"{hardware} is known with {known} alone, and this is {format_stack(stack)}",
        )
    return None, f"no population of {hardware} is known"


def judge_values(
    records: Iterable[Record], bands: Bands, card: str, hardware: str
) -> tuple[list[ValueVerdict], list[str]]:
    """A verdict on each value of a card, and the reasons for missing ones."""
    values: list[ValueVerdict] = []
    reasons: list[str] = []
    records = list(records)
    population, why_none = population_of(bands, hardware, stack_of(records))
    for record in records:
        if record.status == "skipped" or record.benchmark == BITS:
            continue
        if record.status != "ok":
            name = name_point(record.benchmark, record.params)
            reasons.append(f"{name} {record.status}: {record.reason}")
            continue
        if population is None:
            reasons.append(why_none)
        values += (_by_bands(record, population, card) if population else []) + _by_peak(
            record
        )
    known = {each.component for each in values if each.basis == "population"}
    used = [
        each for each in values if each.basis == "population" or each.component not in known
    ]
    return used, list(dict.fromkeys(reasons))


def stack_of(records: Iterable[Record]) -> Words:
    """The software that a card was measured with. A Record names what its point had imported, so
    the Record that names most is used."""
    measured = [stack_of_record(each) for each in records if each.status == "ok"]
    return max(measured, key=len, default={})


def _by_bands(record: Record, population: Population, card: str) -> list[ValueVerdict]:
    found = []
    for band in population.bands:
        same = (band.benchmark, band.version) == (record.benchmark, record.version)
        if same and band.params == record.params and band.metric in record.metrics:
            value = _value_in(record, band)
            if value is not None and value > 0:
                found.append(_judge(record, band, value, card))
    return found


def _value_in(record: Record, band: Band) -> float | None:
    """The value in the regime of the band; None if the card was in another.

    A value that power and clock regulation do not affect is judged by its mean if that is worse: a
    program that uses the card for 5 % of the time disturbs a few samples, which the median ignores.
    """
    metric = record.metrics[band.metric]
    if band.regime == "boost":
        return metric.boost_median
    settled = band.physics == "sustained"
    if settled != bool(metric.regime):
        return None
    is_steady = band.component in STEADY
    return (
        max(metric.value, statistics.fmean(metric.samples)) if is_steady else metric.value
    )


def _judge(record: Record, band: Band, value: float, card: str) -> ValueVerdict:
    level = band.level(card)
    worse = level.worse(value, band.direction)
    is_busy = record.is_busy and band.component == "host"
    limit = level.limit + math.log(BUSY) if is_busy else level.limit
    verdict: Verdict = "fail" if worse > limit else "pass"
    why = ""
    if is_busy and verdict == "pass":
        verdict, why = "cannot say", "other processes used the CPUs"
    elif verdict == "pass" and level.limit > BLIND.get(band.component, BLIND_OF_OTHERS):
        verdict = "cannot say"
        why = f"less than {math.expm1(level.limit):.0%} would not be seen"
    return ValueVerdict(
        benchmark=record.benchmark,
        params=record.params,
        metric=band.metric,
        regime=band.regime,
        component=band.component,
        value=value,
        unit=band.unit,
        basis="population",
        times=math.exp(worse),
        limit=math.exp(limit),
        percentile=level.percentile(value, band.direction),
        cards=band.cards - (card_digest(card) in band.without),
        verdict=verdict,
        why=why,
    )


def _by_peak(record: Record) -> list[ValueVerdict]:
    """Without a population: below a share of the published peak a card fails; above it there is no
    verdict."""
    shares: dict[str, tuple[Component, float | None]] = {}
    for name, component in BY_PEAK.get(record.benchmark, {}).items():
        metric = record.metrics.get(name)
        value = metric and (metric.boost_median or metric.value)
        shares[name] = component, share_of_peak(record, name, value) if value else None
    if name := BY_NVLINK.get(record.benchmark, ""):
        gpu = find_gpu(record.gpu_names[0])
        rate = record.value(name)
        shares[name] = (
            "link",
            rate / gpu.nvlink * 2 if rate and gpu and gpu.nvlink else None,
        )
    return [
        _judge_share(record, name, component, share)
        for name, (component, share) in shares.items()
        if share is not None
    ]


def _judge_share(
    record: Record, name: str, component: Component, share: float
) -> ValueVerdict:
    metric = record.metrics[name]
    least = LEAST_SHARE[component]
    return ValueVerdict(
        benchmark=record.benchmark,
        params=record.params,
        metric=name,
        regime="boost" if metric.boost else "",
        component=component,
        value=metric.boost_median or metric.value,
        unit=metric.unit,
        basis="published peak",
        share=share,
        verdict="fail" if share < least else "cannot say",
        why=f"{share:.0%} of the published peak; below {least:.0%} it would fail",
    )


def judge_component(
    component: Component, values: Sequence[ValueVerdict]
) -> ComponentVerdict:
    """The verdict on a component: that of its worst value. One judged value is enough to pass."""
    own = [each for each in values if each.component == component]
    if not own:
        return ComponentVerdict(component=component, verdict="cannot say", why=UNKNOWN)
    worst = max(own, key=lambda each: (each.verdict == "fail", each.excess))
    verdicts = {each.verdict for each in own}
    verdict: Verdict = (
        "fail" if "fail" in verdicts else "pass" if "pass" in verdicts else "cannot say"
    )
    return ComponentVerdict(
        component=component,
        verdict=verdict,
        times=worst.times,
        percentile=_median_percentile(own),
        why=describe(worst) if verdict != "pass" else "",
        advice=ADVICE[component] if verdict == "fail" else "",
    )


def _median_percentile(values: Sequence[ValueVerdict]) -> float | None:
    known = [each.percentile for each in values if each.percentile is not None]
    return statistics.median(known) if known else None


def describe(value: ValueVerdict) -> str:
    """Why a value decided, in words."""
    if value.basis == "published peak" or value.times is None or value.limit is None:
        return f"{value}: {value.why}"
    said = f"{value} is {value.times:.3f} times that of {counted(value.cards, 'card')}"
    allowed = f"{value.limit:.3f} is allowed"
    return f"{said}; {value.why or allowed}"


def judge_card(
    card: str,
    hardware: str,
    records: Sequence[Record],
    bands: Bands,
    bits: tuple[Verdict, str],
) -> CardVerdict:
    """The verdict on a card.  records: its measurements.  bits: the verdict on its results."""
    values, reasons = judge_values(records, bands, card, hardware)
    on_gpu = any(each.gpus for each in records)
    needed: Sequence[Component] = NEEDED if on_gpu else ("host",)
    judged: Sequence[Component] = ON_CARD if on_gpu else needed
    components = tuple(judge_component(each, values) for each in judged)
    failing = [each for each in components if each.verdict == "fail"]
    others = any(each.conditions.get("other_processes") for each in records)
    advice = [BITS_ADVICE] if bits[0] == "fail" else [AGAIN] if others else []
    if not others:
        advice += [each.advice for each in failing]
    explained = ""
    verdict: Verdict = "fail"
    if bits[0] == "fail":
        explained, why = BITS, bits[1]
    elif failing:
        explained = explain([each for each in values if each.component in judged])
        why = next(each.why for each in failing if each.component == explained)
        if others:
            explained, why = NEIGHBOUR, f"{explained}: {why}"
    else:
        if others:
            reasons.append("other programs were on the GPU")
        for each in components:
            if each.component in needed and each.verdict != "pass":
                reasons.append(f"{each.component}: {each.why}")
        if bits[0] == "cannot say":
            reasons.append(f"bits: {bits[1]}")
        verdict = "cannot say" if reasons else "pass"
        why = "; ".join(reasons[:3])
        if population_of(bands, hardware, stack_of(records))[0] is None:
            advice.append(NO_POPULATION)
    return CardVerdict(
        card=card,
        hardware=hardware,
        verdict=verdict,
        explained_by=explained,
        why=why,
        advice=tuple(advice),
        percentile=_median_percentile(values),
        population=max((each.cards for each in values), default=0),
        components=components,
        bits=bits[0],
        bits_why=bits[1],
        values=tuple(values),
    )


def explain(values: Iterable[ValueVerdict]) -> Component:
    """The component that explains why a card fails, as the cause of the other failures.

    Low clocks slow everything that computes but hardly slow copies, so clocks come before tensor
    cores and power; among the rest, the one furthest beyond its limit.
    """
    failing = [each for each in values if each.verdict == "fail"]
    names = {each.component for each in failing}
    if "clocks" in names and "memory" not in names:
        return "clocks"
    return max(failing, key=lambda each: each.excess).component


def judge_bits(
    digests: Mapping[str, Mapping[str, str]], known: Mapping[str, Mapping[str, str]]
) -> dict[str, tuple[Verdict, str]]:
    """The verdict on the results of each card.

    digests: card → step → digest, of cards of one type.  known: card → the digests of its type and
    stack, which decide; if there are none, the majority of the node's cards decides.
    """
    found: dict[str, tuple[Verdict, str]] = {}
    for card, own in digests.items():
        differing, unknown = [], []
        for step, digest in own.items():
            right = known.get(card, {}).get(step) or majority(
                [each[step] for each in digests.values() if step in each]
            )
            if right is None:
                unknown.append(step)
            elif right != digest:
                differing.append(step)
        if differing:
            found[card] = (
                "fail",
                f"other bits than its type computes: {', '.join(differing)}",
            )
        elif unknown and len(digests) > 1:
            what = f"cards differ in {', '.join(unknown)}, and none is known to be right"
            found[card] = "cannot say", what
        elif unknown:
            found[card] = "pass", "repeats agree; no digest of this type and stack is known"
        else:
            found[card] = "pass", ""
    return found


def judge_node(
    cards: Sequence[CardVerdict],
    parts: Sequence[ComponentVerdict],
    unmeasured: Sequence[str] = (),
) -> tuple[Verdict, str]:
    """The worst verdict on the node: of its cards, links and CPUs.

    unmeasured: why something between the cards was not measured.
    """
    failing = [f"{each.card}: {each.why}" for each in cards if each.verdict == "fail"]
    failing += [each.why for each in parts if each.verdict == "fail"]
    if failing:
        return "fail", "; ".join(failing)
    unsaid = [f"{each.card}: {each.why}" for each in cards if each.verdict != "pass"]
    unsaid += [f"link: {each}" for each in unmeasured]
    if unsaid or not cards:
        return "cannot say", "; ".join(unsaid) or "nothing was measured"
    return "pass", ""
