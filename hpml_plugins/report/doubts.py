"""What a reader may doubt of a measured point: in a few words, or in full."""

from __future__ import annotations

import re
from collections.abc import Iterator

from hpml_plugins.model.formatting import counted, half_width, quantity, times
from hpml_plugins.model.record import MetricSamples, Record

#: A point is called noisy whose interval reaches this share of its value to one side, or whose
#: rounds differ by it.
NOISY = 0.10
_GPUS = re.compile(r"\b\d+ GPUs?\b")
#: Warnings of a point without noise that are shown.
MOST_WARNINGS = 1


def doubts(record: Record) -> list[str]:
    """What a reader may doubt of a measured point, in a few words each."""
    found = [f"only {record.missing_rounds}"] if record.missing_rounds else []
    noise = [*_widest(record), *_rounds_differ(record)]
    found += [f"noisy: {', '.join(noise)}"] if noise else []
    shown = [] if found else record.warnings[:MOST_WARNINGS]
    more = len(record.warnings) - len(shown)
    return [*found, *shown, *([f"{counted(more, 'warning')}: -v"] if more else [])]


def _widest(record: Record) -> list[str]:
    """The interval of the first metric, which is shown: `± 84 %`; else the widest, with its
    name."""
    widths = {name: _relative_width(metric) for name, metric in record.metrics.items()}
    first = next(iter(widths), "")
    widest = max(widths, key=lambda each: widths[each], default="")
    if not widest or widths[widest] < NOISY:
        return []
    if widths[first] >= NOISY:
        return [half_width(widths[first])]
    return [f"{widest} {half_width(widths[widest])}"]


def _relative_width(metric: MetricSamples) -> float:
    """The longer side of the interval as a share of the value; 0 where there is none."""
    found = metric.estimate
    if not metric.timers or not found.value or found.low is None or found.high is None:
        return 0.0
    return max(found.value - found.low, found.high - found.value) / abs(found.value)


def _rounds_differ(record: Record) -> list[str]:
    """`rounds differ 3.00×`, where a timed metric's do."""
    ratios = [
        max(medians) / min(medians)
        for metric in record.metrics.values()
        if metric.timers and min(medians := metric.round_medians) > 0
    ]
    largest = max(ratios, default=1.0)
    return [f"rounds differ {times(largest)}×"] if largest > 1 + NOISY else []


def all_remarks(record: Record) -> list[str]:
    """All of it, in full."""
    missing = f"only {record.missing_rounds} measured"
    found = [missing] if record.missing_rounds else []
    return [*found, *record.remarks, *_differing_rounds(record)]


def kind_of(reason: str) -> str:
    """A reason for having no number, as that of many points: the first of several, whatever the
    number of GPUs."""
    return _GPUS.sub("more GPUs", reason.partition("; ")[0], count=1)


def _differing_rounds(record: Record) -> Iterator[str]:
    """A warning where the rounds of a timed metric disagree, which explains an interval wider than
    those of rounds."""
    for name, metric in record.metrics.items():
        medians = metric.round_medians if metric.timers else []
        if medians and max(medians) > min(medians) * (1 + NOISY) > 0 and metric.unit == "s":
            yield (
                f"{name}: the rounds differ, their medians are"
                f" {', '.join(quantity(each, 's') for each in medians)}"
            )
