"""What limits a measured value: values of one class have a similar repeatability, whatever they
measure.

The class follows from typed fields of a Record: how a metric was timed, in which regime, the
duration of a call, and the work declared for it.
"""

from __future__ import annotations

import functools
import math
from enum import StrEnum
from typing import TYPE_CHECKING

from hpml_plugins.model.record import Timer
from hpml_plugins.model.samples import PERF
from hpml_plugins.model.units import UNITS
from hpml_plugins.published import find_gpu

if TYPE_CHECKING:
    from hpml_plugins.model.record import MetricSamples, Record
    from hpml_plugins.model.work import DeclaredWork
    from hpml_plugins.published import GpuType


class Physics(StrEnum):
    """The classes. The first six are for GPU computations."""

    STREAMING = "streaming"
    MEMORY_BOUND = "memory-bound"
    NEVER_THROTTLED = "never throttled"
    BOOST = "boost"
    SUSTAINED = "sustained"
    LATENCY = "latency below 20 µs"
    #: Sampled while the card throttled, before regimes were introduced: between boost and
    #: sustained.
    THROTTLED = "throttled, no regime"
    #: Steps of many kernels that the host launches during the step, such as training steps.
    LAUNCHED = "launched steps"
    #: Copies between the GPU and the memory of the host.
    HOST_LINK = "host link"
    HOST_CLOCK = "host clock"
    CPU = "CPU"
    #: Counted by the processor: hardly varies on one machine, even beside other programs.
    INSTRUCTIONS = "instructions"
    #: Not timed: ratios, errors, accuracies, output of a program, hardware counters.
    DERIVED = "derived"
    #: The highest or lowest sample of a timing: due to chance rather than the card's rate, so
    #: not compared.
    EXTREME = "an extreme sample"
    #: Repeats exactly.
    COUNTED = "counted"
    #: From a foreign asv project.
    FOREIGN = "asv"


#: The classes of GPU computations.
ON_GPU = (
    Physics.STREAMING,
    Physics.MEMORY_BOUND,
    Physics.NEVER_THROTTLED,
    Physics.BOOST,
    Physics.SUSTAINED,
    Physics.LATENCY,
)
#: The classes that vary from host to host rather than from card to card.
HOST_TAKES_PART = (
    Physics.LAUNCHED,
    Physics.HOST_LINK,
    Physics.HOST_CLOCK,
    Physics.CPU,
    Physics.INSTRUCTIONS,
)
#: s: a shorter kernel call is limited by its start and end.
SHORT_CALL = 20e-6
#: s: a longer step hides the host's launches behind its kernels. With a limit of 3 ms 66 % of
#: another card's values lie within the intervals of the class, with 12 ms 93 %. The longest step
#: still determined by the host took 11.5 ms: 38 % longer on one host than on another.
LONG_STEP = 12e-3
#: A kernel is memory-bound from this share of the published bandwidth.
MEMORY_BOUND_SHARE = 0.4
#: From this share on, only memory limits it.
STREAMING_SHARE = 0.85
#: Above this share the bytes do not come from the memory but from a cache.
CACHED_SHARE = 1.1
#: FLOP/B: a kernel with at most this intensity streams its data; an addition of two float32
#: vectors has 1/12, a softmax about 0.6.
STREAMING_INTENSITY = 0.25
#: The largest factor that a tensor core kernel loses when the card throttles: the maximum of 94
#: Records was 1.209.
MOST_THROTTLED = 1.21
#: Precisions not computed by tensor cores, whose clocks the power regulator hardly lowers.
PLAIN_PRECISIONS = ("float32", "fp32", "float64", "fp64")
#: Parameters that give the precision of a point if no work is declared.
PRECISION_PARAMETERS = ("dtype", "precision", "format")
#: The `source` in the info of hardware counter values: DRAM bytes depend on the contents of the
#: caches.
HARDWARE_COUNTERS = "ncu"
#: Relative difference between two ratios of samples that may be rounding: samples are stored
#: with nine digits.
ROUNDING = 1e-7


def physics_of(record: Record, name: str) -> Physics:
    """The class of a metric's samples. Those in the regime `boost` have the class BOOST."""
    metric = record.metrics[name]
    if metric.interval:
        return Physics.FOREIGN
    if metric.info.get("source") == PERF:
        return Physics.INSTRUCTIONS
    if not metric.timers:
        return Physics.COUNTED if _is_count(metric) else Physics.DERIVED
    if _is_extreme(metric):
        return Physics.EXTREME
    if not record.gpus:
        return Physics.CPU
    if metric.timers != [Timer.EVENTS]:
        return Physics.HOST_CLOCK
    if metric.launch_visible:
        return Physics.LAUNCHED if _is_long_step(record, metric) else Physics.HOST_CLOCK
    if metric.crosses_host:
        return Physics.HOST_LINK
    if metric.regime:
        return Physics.SUSTAINED
    return _class_of_kernel(record, name)


def depends_on_host(record: Record, name: str) -> bool:
    """Whether what other programs do on the host may change a metric. Without a GPU, ratios and
    errors follow from times of the CPU."""
    physics = physics_of(record, name)
    if physics is Physics.DERIVED:
        return not record.gpus
    return physics in HOST_TAKES_PART and physics is not Physics.INSTRUCTIONS


def _is_long_step(record: Record, metric: MetricSamples) -> bool:
    """Whether the GPU determines the duration of a step that includes the host's launches.

    The shortest time among metrics timed like this one is used, because a speed-up has no time of
    its own and an epoch is many steps. It must be at least LONG_STEP, and longer than any part of
    the host timed beside it, such as data loading.
    """
    times = [other for other in record.metrics.values() if other.unit == "s"]
    steps = [
        other.value
        for other in times
        if other.timers == metric.timers and other.launch_visible and not other.crosses_host
    ]
    of_host = [other.value for other in times if other.timers == [Timer.CLOCK]]
    least = max([LONG_STEP, *of_host])
    return bool(steps) and not metric.crosses_host and min(steps) >= least


def compared_metrics(record: Record) -> list[str]:
    """The metrics by which Records are compared: all but extreme samples."""
    return list(compared_physics(record))


def compared_physics(record: Record) -> dict[str, Physics]:
    """Their classes."""
    classes = {name: physics_of(record, name) for name in record.metrics}
    return {name: each for name, each in classes.items() if each is not Physics.EXTREME}


def _class_of_kernel(record: Record, name: str) -> Physics:
    """The class of a kernel measured in one regime."""
    timing = timing_of(record, name)
    if timing is None:
        return Physics.THROTTLED if record.throttled else Physics.NEVER_THROTTLED
    seconds = record.metrics[timing].value
    if 0 < seconds < SHORT_CALL:
        return Physics.LATENCY
    flop, nbytes = _work(record, timing)
    of_memory = _share_of_memory(record, timing, flop, nbytes, seconds)
    if of_memory >= STREAMING_SHARE and flop <= STREAMING_INTENSITY * nbytes:
        return Physics.STREAMING
    if of_memory >= MEMORY_BOUND_SHARE:
        return Physics.MEMORY_BOUND
    if record.throttled and uses_tensor_cores(record, timing):
        return Physics.THROTTLED
    return Physics.NEVER_THROTTLED


def _share_of_memory(
    record: Record, timing: str, flop: float, nbytes: float, seconds: float
) -> float:
    """The share of the published bandwidth that a kernel reaches; 0 if memory does not limit it."""
    gpu = _published(record)
    if gpu is None or not nbytes or not seconds:
        return 0.0
    count = max(1, len(record.gpus))
    of_memory = nbytes / gpu.bandwidth / count / seconds
    declared = record.work.get(timing)
    peak = gpu.peak(declared.dtype) if declared else None
    of_operations = flop / peak / count / seconds if peak else 0.0
    return of_memory if of_operations <= of_memory <= CACHED_SHARE else 0.0


def _published(record: Record) -> GpuType | None:
    return _find_gpu(record.gpu_names[0])


_find_gpu = functools.lru_cache(maxsize=256)(find_gpu)


def _work(record: Record, timing: str) -> tuple[float, float]:
    """Operations and bytes of one call: declared, or implied by the rates of the same timing; 0 if
    unknown."""
    declared: DeclaredWork | None = record.work.get(timing)
    if declared:
        return declared.flop, declared.bytes
    seconds = record.metrics[timing].value
    found = {"FLOP/s": 0.0, "B/s": 0.0}
    for name, metric in record.metrics.items():
        if metric.unit in found and timing_of(record, name) == timing:
            found[metric.unit] = max(found[metric.unit], metric.value * seconds)
    return found["FLOP/s"], found["B/s"]


def timing_of(record: Record, name: str) -> str | None:
    """The metric that holds the time from which this metric follows: itself, for a time; None
    without one."""
    metric = record.metrics[name]
    declared = metric.info.get("work")
    if isinstance(declared, str) and declared in record.metrics:
        return declared
    if metric.unit == "s":
        return name
    mine = signature(metric)
    if mine is None:
        return None
    for other, samples in record.metrics.items():
        if samples.unit == "s" and len(samples.samples) == len(metric.samples):
            theirs = signature(samples)
            if theirs is not None and abs(mine - theirs) < ROUNDING:
                return other
    return None


def signature(metric: MetricSamples) -> float | None:
    """A number shared by all metrics of one timing and few others: times and the rates derived from
    them.

    It is the absolute logarithm of the ratio of the last to the first sample, which is the same for
    a quantity, its multiples and their inverses. None if it is not informative.
    """
    first = metric.samples[0]
    last = metric.samples[-1]
    if first <= 0 or last <= 0 or first == last:
        return None
    return abs(math.log(last / first))


def uses_tensor_cores(record: Record, timing: str | None) -> bool:
    """Whether the power regulator may have lowered the rate of this kernel by up to MOST_THROTTLED.

    The rate of copies and of plain float32 does not change; an unknown precision is assumed to be
    affected.
    """
    declared = record.work.get(timing or "")
    if declared and declared.flop:
        return declared.dtype not in PLAIN_PRECISIONS
    if declared and declared.bytes:
        return False
    precisions = [
        record.params[each] for each in PRECISION_PARAMETERS if each in record.params
    ]
    return not any(each in PLAIN_PRECISIONS for each in precisions)


def _is_extreme(metric: MetricSamples) -> bool:
    """Whether it has one sample per round, chosen from a timing whose samples varied."""
    varied = metric.info.get("variation", 0.0)
    return bool(varied) and len(metric.samples) == max(1, len(metric.rounds))


def _is_count(metric: MetricSamples) -> bool:
    if len(metric.samples) != max(1, len(metric.rounds)):
        return False
    is_count = metric.unit in UNITS and UNITS[metric.unit].count
    whole = all(value.is_integer() for value in metric.samples)
    return is_count and whole and metric.info.get("source") != HARDWARE_COUNTERS
