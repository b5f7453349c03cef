"""Time a step on the GPU: events on the current stream, the launch hidden behind a sleeping kernel.

The time between two events includes whatever the GPU waited for. A kernel of 30 µs that Python
needs 60 µs to launch would be measured as 60 µs. So the host enqueues everything first, behind a
kernel that only sleeps. If an event has not been reached when the last launch is enqueued, no
launch was waited for.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, NamedTuple

from hpml_plugins import clocks
from hpml_plugins.measure.cpu_timer import sample_wall_clock
from hpml_plugins.measure.regimes import Regulator, measure_regimes
from hpml_plugins.measure.sampling import (
    OTHER_STREAMS,
    Cache,
    Launch,
    SamplingPlan,
    sample,
    warm_up,
)
from hpml_plugins.model.samples import Samples

#: A hot sample is a batch of at least this long, s: a thousand times the resolution of CUDA
#: events (0.5 µs).
SHORTEST_SAMPLE = 1e-3
#: CUDA queues about a thousand launches before the host must wait; a batch stays far below that.
LARGEST_BATCH = 200
#: s: clocks of an idle card rise within tens of milliseconds; its power regulation takes longer
#: to settle.
LEAST_WARM_UP = 0.2
#: Samples are spread over at least this long, s: ten samples within ten milliseconds agree
#: regardless of what the power regulator is about to do.
LEAST_SAMPLING = 0.3
#: A launch that takes the host longer than this, s, is not hidden: the sleep would cost more
#: than it gains.
LONGEST_SLEEP = 0.1
#: s: a call at least this long is a whole step of a program, which users repeat in a loop; that
#: shorter ones take longer to launch than to run is known.
WHOLE_STEP = 1e-3
#: Info of samples whose launch could not be hidden.
NOT_HIDDEN = (
    "visible: launching takes longer than the longest sleep, or the step waits for the GPU,"
    " or launches more than can be queued"
)
COLD_SAMPLES_A_GROUP = 10
#: How often a continuous load begins: a hiccup of the host shows launches once, a step that takes
#: as long to launch as to run always.
LOADS = 3
#: A hiccup of the host looks like work on another stream, but real work there is left by every
#: call: require it in at least this number of calls, and for this long, s. With three calls within
#: a millisecond, 4 of 6,000 rounds beside a busy neighbour were mistaken for such work.
STREAM_CHECKS = 3
STREAM_CHECKED_FOR = 0.1


def time_on_gpu(
    step: Callable[[], object],
    plan: SamplingPlan,
    *,
    setup: Callable[[], object] | None = None,
    cache: Cache = "hot",
    launch: Launch = "hidden",
    regulator: Regulator | None = None,
) -> Samples:
    """Samples of the GPU time of one call of `step`, s; see Bench.time. regulator: of the current
    GPU."""
    timer = GpuTimer(step, cache, launch, regulator or Regulator(None), setup)
    timer.first_call()
    if not timer.uses_other_streams():
        return timer.measure(plan)

    def run(_: int) -> float:
        if setup:
            setup()
            timer.torch.cuda.synchronize()
        started = clocks.perf_counter()
        step()
        timer.torch.cuda.synchronize()
        return clocks.perf_counter() - started

    info = {"timer": OTHER_STREAMS, "launch": "visible"}
    return sample_wall_clock(
        run, plan, shortest=0.0, largest=1, least_warm_up=LEAST_WARM_UP, **info
    )


class _Marks(NamedTuple):
    """The events of a sample, and whether its launch was hidden."""

    start: Any
    end: Any
    hidden: bool


class GpuTimer:
    """Enqueues a step between events, and adapts batch and sleep to it.

    The timer of several ranks overrides the methods marked as overridable.
    """

    def __init__(
        self,
        step: Callable[[], object],
        cache: Cache,
        launch: Launch,
        regulator: Regulator,
        setup: Callable[[], object] | None = None,
    ) -> None:
        import torch

        self.torch = torch
        self.step = step
        self.regulator = regulator
        self.cache = cache
        self.launch: str = launch
        self.prepare = setup or (lambda: None)
        self.batch = 1
        # a setup before each call rules out batching
        self._batches = cache == "hot" and setup is None
        self._sleep = 0.0
        self._flush: Callable[[], None] = (
            (lambda: None) if cache == "hot" else self._make_flush()
        )
        self._cycles = 0.0
        # s: the shortest that a hidden call took the host
        self._launching = math.inf
        self._ahead: list[_Marks] = []
        self.continuous = False

    def first_call(self) -> None:
        """Run the first call, which compiles, loads and allocates."""
        self.prepare()
        self.step()
        self.torch.cuda.synchronize()
        if self.launch == "hidden":
            self._cycles = self._clock_rate()

    def measure(self, plan: SamplingPlan, **info: str | float) -> Samples:
        """Choose the batch, warm up, hide the launches and sample; in both regimes if the card
        throttles."""
        self.choose_batch()
        self.regulator.begin()
        info |= {
            "timer": "cuda events",
            "cache": self.cache,
            **warm_up(self.round, plan, least=LEAST_WARM_UP),
        }
        self.fit()
        throttles = self.regulator.throttles
        if not throttles():
            samples = sample(
                self.take,
                plan,
                info,
                batch=self.batch,
                least=LEAST_SAMPLING,
                interrupted=throttles,
            )
        if throttles():
            samples = measure_regimes(self, self.regulator, info)
        samples = samples.note(launch=self.launch)
        if (
            self.launch == "hidden"
            and WHOLE_STEP <= samples.value < self._launching < math.inf
        ):
            samples = samples.note(launching=self._launching)
        return samples

    def uses_other_streams(self) -> bool:
        """Whether every call of the step leaves work on a stream that the current one does not wait
        for."""
        began = clocks.perf_counter()
        checks = 0
        while checks < STREAM_CHECKS or clocks.perf_counter() - began < STREAM_CHECKED_FOR:
            if not self.leaves_work():
                return False
            checks += 1
        return True

    def leaves_work(self) -> bool:
        """Whether one call did, or the host had a hiccup."""
        start = self._event()
        end = self._event()
        self.prepare()
        self.torch.cuda.synchronize()
        start.record()
        self.step()
        end.record()
        end.synchronize()
        after = clocks.perf_counter()
        self.torch.cuda.synchronize()
        left = clocks.perf_counter() - after
        return left > max(5e-5, 0.05 * float(start.elapsed_time(end)) * 1e-3)

    def choose_batch(self) -> None:
        """Grow a hot batch until it is long enough for the resolution of events."""
        while (
            self._batches
            and self.batch < LARGEST_BATCH
            and self.round() * self.batch < SHORTEST_SAMPLE
        ):
            self.batch = min(LARGEST_BATCH, 2 * self.batch)

    def round(self) -> float:
        """Take one sample with visible launch, for warming up. Returns seconds of one step."""
        return self.enqueue(1)[0][0]

    def fit(self) -> None:
        """Choose the sleep that hides the launches of a group, or find that they cannot be
        hidden."""
        if self.launch == "visible":
            return
        if not self._fit_sleep():
            self.launch = NOT_HIDDEN
            self._sleep = 0.0
            return
        # With visible launches the step seemed longer than it is; with its real time the batch
        # may have to grow.
        seconds = self.enqueue(self._group)[0][0]
        if (
            self._batches
            and seconds * self.batch < SHORTEST_SAMPLE
            and self.batch < LARGEST_BATCH
        ):
            self.batch = min(LARGEST_BATCH, math.ceil(SHORTEST_SAMPLE / seconds))
            self._fit_sleep()

    def _fit_sleep(self) -> bool:
        """Find a sleep longer than the enqueueing of a group. False if there is none."""
        self._sleep = 0.0
        started = clocks.perf_counter()
        self.enqueue(1, wait=False)
        self._sleep = 1.5 * (clocks.perf_counter() - started) + 2e-5
        self.torch.cuda.synchronize()
        for _ in range(6):
            if self._sleep > LONGEST_SLEEP:
                return False
            if all(hidden for _, hidden in self.enqueue(self._group)):
                return True
            self._sleep *= 2
        return False

    def take(self) -> Iterable[float]:
        """Take samples of one step. Samples whose launch was visible despite the sleep are repeated
        a little later."""
        for _ in range(5):
            taken = self.enqueue(self._group)
            hidden = [
                seconds for seconds, was_hidden in taken if was_hidden or not self._sleep
            ]
            if hidden:
                return hidden
            self._sleep = min(LONGEST_SLEEP, 1.5 * self._sleep)
        self.launch = "visible in part: some launches outlasted the longest sleep"
        return [seconds for seconds, _ in taken]

    @property
    def _group(self) -> int:
        return 1 if self._batches else COLD_SAMPLES_A_GROUP

    def enqueue(self, count: int, *, wait: bool = True) -> list[tuple[float, bool]]:
        """Enqueue `count` samples behind one sleep. Returns seconds of one step and whether its
        launch was hidden."""
        if self._sleep:
            self.torch.cuda._sleep(int(self._sleep * self._cycles))
        marks = self._submit(count)
        return self._results(marks) if wait else []

    @property
    def hides(self) -> bool:
        """Whether launches are hidden behind sleeps."""
        return self._sleep > 0

    def load(self, count: int) -> Iterator[list[tuple[float, bool]]]:
        """Groups of samples under continuous load, without an end: each is enqueued while the one
        before runs. Behind sleeps the card would rest for as long as launching takes, and have
        power left for higher clocks than a loop of steps.

        After a group whose launches showed, the load begins again; after some, groups are enqueued
        behind sleeps. If no launch is hidden, the GPU waits as it does elsewhere.
        """
        for _ in range(LOADS if self.hides else 0):
            self.continuous = True
            self.enqueue_ahead(count, self._sleep)
            taken = self.enqueue_ahead(count, 0.0)
            while all(hidden for _, hidden in taken):
                yield taken
                taken = self.enqueue_ahead(count, 0.0)
        self.continuous = False
        while True:
            yield self.enqueue(count)

    def enqueue_ahead(self, count: int, sleep: float) -> list[tuple[float, bool]]:
        """Enqueue `count` samples. Returns the ones enqueued before by this method; none behind a
        sleep, s, which begins a load."""
        if sleep:
            self._ahead = []
            self.torch.cuda._sleep(int(sleep * self._cycles))
        before, self._ahead = self._ahead, self._submit(count)
        return self._results(before) if before else []

    def _submit(self, count: int) -> list[_Marks]:
        """Enqueue `count` samples."""
        marks = []
        for _ in range(count):
            self.prepare()
            self._flush()
            start = self._event()
            end = self._event()
            self._line_up()
            start.record()
            began = clocks.perf_counter()
            for _ in range(self.batch):
                self.step()
            launching = (clocks.perf_counter() - began) / self.batch
            end.record()
            hidden = not start.query()
            if hidden:
                self._launching = min(self._launching, launching)
            marks.append(_Marks(start, end, hidden))
        return marks

    def _results(self, marks: Sequence[_Marks]) -> list[tuple[float, bool]]:
        """Wait for these samples: seconds of one step, and whether its launch was hidden."""
        marks[-1].end.synchronize()
        return [
            (float(mark.start.elapsed_time(mark.end)) * 1e-3 / self.batch, mark.hidden)
            for mark in marks
        ]

    def _line_up(self) -> None:
        """Overridable: enqueued right before the first event."""

    def _make_flush(self) -> Callable[[], None]:
        """Write twice the size of the L2; for "cold" then read as much, so that no dirty line
        remains."""
        size = (
            2
            * self.torch.cuda.get_device_properties(
                self.torch.cuda.current_device()
            ).L2_cache_size
        )
        written = self.torch.empty(size // 4, dtype=self.torch.int32, device="cuda")
        read = self.torch.zeros(size // 4, dtype=self.torch.int32, device="cuda")
        largest = self.torch.empty((), dtype=self.torch.int32, device="cuda")

        def flush() -> None:
            written.zero_()
            if self.cache == "cold":
                self.torch.amax(read, dim=0, out=largest)

        return flush

    def _clock_rate(self) -> float:
        """Measure the cycles per second of the counter used by the sleeping kernel: it differs
        between cards."""
        rates = []
        for _ in range(3):
            start = self._event()
            end = self._event()
            start.record()
            self.torch.cuda._sleep(1_000_000)
            end.record()
            end.synchronize()
            rates.append(1_000_000 / (float(start.elapsed_time(end)) * 1e-3))
        return max(rates)

    def _event(self) -> Any:
        return self.torch.cuda.Event(enable_timing=True)
