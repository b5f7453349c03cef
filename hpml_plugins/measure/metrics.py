"""Convert what `measure` returned to the metrics of a Record: checks, and rates derived from
declared work."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping

from hpml_plugins.errors import ResultError, nearest
from hpml_plugins.measure.bench import Bench
from hpml_plugins.model.benchmark import Benchmark, Metric
from hpml_plugins.model.record import MetricSamples
from hpml_plugins.model.samples import Samples, as_number
from hpml_plugins.model.units import unit
from hpml_plugins.model.validation import is_unresolved
from hpml_plugins.model.work import DeclaredWork, Limit

#: A warning is added for a larger share of the published peak: peaks refer to the highest clock,
#: and timers are noisy.
HIGHEST_SHARE = 1.05


def to_metrics(
    benchmark: Benchmark, returned: object, works: Mapping[str, DeclaredWork] | None = None
) -> dict[str, MetricSamples]:
    """Check what `measure` returned against the declared metrics: all of them, no others, finite,
    in the right unit.

    works: declared work by the metric that times it, from which rates that were not returned are
    derived. A metric returned as None is unknown on this node and left out. Raises ResultError with
    the metric's name.
    """
    if not isinstance(returned, Mapping):
        raise ResultError(
            f"measure returned {type(returned).__name__}, not a mapping of metric names to samples"
        )
    declared = {metric.name: metric for metric in benchmark.metrics}
    if unknown := [str(name) for name in returned if name not in declared]:
        are = "is not a metric" if len(unknown) == 1 else "are not metrics"
        raise ResultError(
            f"measure returned {', '.join(unknown)}, which {are} of {benchmark.name!r};"
            f" {nearest(unknown[0], declared)}"
        )
    returned = {**_rates(benchmark, returned, works or {}), **returned}
    if missing := [name for name in declared if name not in returned]:
        raise ResultError(f"measure returned no value for {', '.join(missing)}")
    result = {
        name: _to_metric(metric, _as_samples(name, returned[name]))
        for name, metric in declared.items()
        if returned[name] is not None
    }
    if not result:
        raise ResultError(
            "measure returned None for every metric; skip the point with the reason instead"
            " (bench.skip)"
        )
    return result


def _to_metric(metric: Metric, samples: Samples) -> MetricSamples:
    _check_values(metric, samples)
    return MetricSamples(
        metric.unit,
        metric.direction,
        list(samples.values),
        dict(samples.info),
        boost=list(samples.boost),
    )


def _check_values(metric: Metric, samples: Samples) -> None:
    """Raise ResultError for missing, non-finite or impossible values, and for another unit."""
    if not samples.values:
        raise ResultError(f"metric {metric.name!r} has no samples")
    low, high = metric.bounds
    for number in samples.values + samples.boost:
        if not math.isfinite(number):
            raise ResultError(f"metric {metric.name!r} is not finite: {number}")
        if not low <= number <= high:
            bounds = f"from {low:g} to {high:g}" if high < math.inf else f"{low:g} or more"
            value = f"{number:g} {unit(metric.unit).label}".rstrip()
            raise ResultError(f"metric {metric.name!r} is {value}; it must be {bounds}")
    if is_unresolved(metric.unit, metric.direction, samples.values):
        raise ResultError(
            f"metric {metric.name!r} is 0 s in each sample, below the timer's resolution; time"
            " more work at once"
        )
    if samples.unit not in ("", metric.unit):
        raise ResultError(
            f"metric {metric.name!r} was measured in {samples.unit} instead of {metric.unit}"
        )


def _rates(
    benchmark: Benchmark, returned: Mapping[str, object], works: Mapping[str, DeclaredWork]
) -> dict[str, object]:
    """The declared metrics that were not returned and are work over time. Raises ResultError for
    work without a time."""
    found: dict[str, object] = {}
    for of, work in works.items():
        if returned.get(of) is None:
            raise ResultError(f"work is declared of {of!r}, which measure did not return")
        time = _as_samples(of, returned[of])
        for metric in benchmark.metrics:
            if metric.name not in returned and (amount := work.amount(metric.unit)):
                found[metric.name] = (amount / time).note(work=of)
    return found


def impossible_rates(bench: Bench, metrics: Mapping[str, MetricSamples]) -> Iterator[str]:
    """A warning for each rate above the published peak of the point's GPUs."""
    if not bench.gpus or not (peaks := bench.peaks):
        return
    from hpml_plugins.published import PRECISIONS  # only needed with GPUs

    limits = {
        of: (work, Limit(peaks.peak(work.dtype), peaks.bandwidth))
        for of, work in bench.collected.work.items()
    }
    for of, (work, limit) in limits.items():
        share = work.share(metrics[of].value, limit) if of in metrics else None
        if share and share > HIGHEST_SHARE:
            cause = "the data stay in a cache, or " if work.bytes else ""
            yield (
                f"{of}: the work is {share:.3g} times what {peaks.name} can do: {cause}work or time"
                " is wrong"
            )
    highest = (
        max(
            (peaks.peak(dtype) or 0.0 for dtype in PRECISIONS if dtype != "int8"),
            default=0.0,
        )
        * bench.gpus
    )
    for name, metric in metrics.items():
        if metric.unit == "FLOP/s" and metric.value > HIGHEST_SHARE * highest > 0:
            yield (
                f"{name}: {metric.value / highest:.3g} times the highest published peak of"
                f" {peaks.name}"
            )


def _as_samples(name: str, value: object) -> Samples:
    try:
        return value if isinstance(value, Samples) else Samples((as_number(value, ""),))
    except ResultError:
        raise ResultError(
            f"metric {name!r} is a {type(value).__name__}, not Samples or a number"
        ) from None
