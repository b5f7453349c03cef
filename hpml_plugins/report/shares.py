"""How close a point comes to the published and measured limits of its device, from the declared
work of its benchmark."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from hpml_plugins.model.formatting import quantity
from hpml_plugins.model.record import Record
from hpml_plugins.model.work import DeclaredWork, Limit

if TYPE_CHECKING:
    from hpml_plugins.published import GpuType

#: The columns that `shares` fills, in order.
INTENSITY = "intensity"
OF_PEAK = "of published peak"
OF_ROOF = "of measured roof"
#: Replaces a share of the memory bandwidth that memory cannot reach.
IN_CACHE = "fits in the cache"
#: The numbers over a time are the same if they agree this well; samples have nine digits.
SAME_AMOUNT = 1e-6
#: From this share on the data come from a cache: a measured roof is the best sample of another
#: kernel, which a step in memory can exceed by a few percent.
LEAST_IN_CACHE = 1.1


class Roof:
    """The measured roof of a machine: the highest rates in Records of steps declared to measure
    them."""

    def __init__(self, records: Iterable[Record]) -> None:
        self._highest: dict[tuple[bool, str], float] = {}
        for record in records:
            for name, work in record.work.items():
                if work.roof and (seconds := record.value(name)):
                    for kind, amount in ((work.dtype, work.flop), ("bytes", work.bytes)):
                        if not amount:
                            continue
                        key = (work.gpus > 0, kind)
                        rate = amount / seconds / max(1, work.gpus)
                        self._highest[key] = max(self._highest.get(key, 0.0), rate)

    def limit(self, work: DeclaredWork) -> Limit:
        """The limit of the device that did the work."""
        return Limit(
            *(self._highest.get((work.gpus > 0, kind)) for kind in (work.dtype, "bytes"))
        )


def shares(record: Record, roof: Roof, metric: str = "") -> dict[str, str]:
    """Arithmetic intensity, shares of the published peak and of the measured roof, as text; unknown
    ones are omitted.

    metric: the time with declared work, or a rate derived from it; by default the first metric with
    declared work.
    """
    found = _work_of(record, metric)
    if found is None:
        return {}
    work, seconds = found
    published = _published(record, work)
    measured = _binding(work, roof.limit(work), published)
    texts = {
        INTENSITY: quantity(work.intensity, "FLOP/B") if work.intensity else "",
        OF_PEAK: _share_text(work, seconds, published),
        # except of itself
        OF_ROOF: "" if work.roof else _share_text(work, seconds, measured),
    }
    return {title: text for title, text in texts.items() if text}


def share_of_peak(record: Record, metric: str, value: float) -> float | None:
    """The value of a metric of this point as a share of the published peak, 0 to 1.

    value: instead of the Record's own, such as the mean over several cards.  None if the benchmark
    declares no work for this metric, if the Record does not have it, or if no peak is published.
    """
    found = _work_of(record, metric)
    if found is None or metric not in record.metrics:
        return None
    work, seconds = found
    share = work.share(seconds, _published(record, work))
    measured = record.metrics[metric].value
    if share is None or value <= 0 or measured <= 0:
        return None
    return share * (
        measured / value if record.metrics[metric].unit == "s" else value / measured
    )


def _work_of(record: Record, metric: str) -> tuple[DeclaredWork, float] | None:
    """The work of one call for a metric, and its duration, s; None without declared work.

    metric: a time with declared work, or a rate derived from it; "" for the first.
    """
    for name, work in record.work.items():
        seconds = record.value(name)
        of = record.metrics[metric].info.get("work") if metric in record.metrics else name
        if seconds and (name in (metric, of) or _is_rate_of(record, metric, name)):
            return work, seconds
    return None


def _is_rate_of(record: Record, metric: str, name: str) -> bool:
    """Whether a metric is the same number over each sample of a time, such as tokens per second of
    a step."""
    rate = record.metrics.get(metric)
    time = record.metrics[name]
    if rate is None or rate.unit != "1/s" or not 1 < len(rate.samples) == len(time.samples):
        return False
    amounts = [one * other for one, other in zip(rate.samples, time.samples, strict=True)]
    return max(amounts) - min(amounts) <= SAME_AMOUNT * max(amounts)


def describe_shares(record: Record, roof: Roof, metric: str) -> str:
    """The same in words, for a time with declared work or a rate derived from it."""
    found = shares(record, roof, metric)
    words = {
        INTENSITY: "{}",
        OF_PEAK: "{} of the published peak",
        OF_ROOF: "{} of the measured roof",
    }
    texts = (
        text if text == IN_CACHE else words[title].format(text)
        for title, text in found.items()
    )
    return ", ".join(dict.fromkeys(texts))


def describe_limit(record: Record, roof: Roof, metric: str = "") -> str:
    """The best known share of a limit, in words: of the published peak, else of the roof measured
    here.

    metric: as in `shares`.
    """
    found = shares(record, roof, metric)
    for title, words in (
        (OF_PEAK, "of the published peak"),
        (OF_ROOF, "of the measured roof"),
    ):
        if text := found.get(title):
            return text if text == IN_CACHE else f"{text} {words}"
    work = _work_of(record, metric)
    return "this is the measured roof" if work and work[0].roof else ""


def _published(record: Record, work: DeclaredWork) -> Limit:
    types = {_type_of(gpu) for gpu in record.gpus[: work.gpus]}
    card = types.pop() if len(types) == 1 else None
    return Limit(card.peak(work.dtype), card.bandwidth) if card else Limit(None, None)


def _binding(work: DeclaredWork, measured: Limit, published: Limit) -> Limit:
    """The measured limits; infinite instead of one that was not measured and, by the published
    ones, does not bound the work."""
    if not (work.flop and work.bytes and published.flop and published.bytes):
        return measured
    memory_bound = work.bytes / published.bytes > work.flop / published.flop
    if memory_bound and measured.flop is None:
        return Limit(math.inf, measured.bytes)
    if not memory_bound and measured.bytes is None:
        return Limit(measured.flop, math.inf)
    return measured


def _type_of(gpu: Mapping[str, Any]) -> GpuType | None:
    from hpml_plugins.published import find_gpu  # only needed with GPUs

    memory = gpu.get("memory")
    return find_gpu(str(gpu.get("name")), memory if isinstance(memory, int | float) else 0)


def _share_text(work: DeclaredWork, seconds: float, limit: Limit) -> str:
    """The share of a limit in percent, or that the step's data came from a cache."""
    of_memory = DeclaredWork(bytes=work.bytes, gpus=work.gpus).share(seconds, limit)
    if of_memory and of_memory >= LEAST_IN_CACHE:
        return IN_CACHE
    share = work.share(seconds, limit)
    return "" if share is None else f"{100 * share:.3g} %"
