"""Requests over time, and the loop that answers them by continuous batching. `Engine` is the
interface to the model."""

from __future__ import annotations

import heapq
import math
import random
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Protocol

#: The longest wait for the next request, s; progress is shown after each.
LONGEST_WAIT = 0.5


@dataclass
class Request:
    """arrival: s from the start.  wanted: number of requested tokens.  times: s from the start,
    when each token was ready.  tokens: the tokens."""

    arrival: float
    wanted: int
    times: list[float] = field(default_factory=list)
    tokens: list[int] = field(default_factory=list)

    def gaps(self) -> list[float]:
        """s between its tokens."""
        return [after - before for before, after in zip(self.times, self.times[1:], strict=False)]


class Engine(Protocol):
    """Computes tokens in `slots` rows of a cache."""

    slots: int

    def start(self, number: int, slot: int) -> int:
        """Read the prompt of request `number` into a slot; return its first token."""

    def step(self, slots: int) -> list[int]:
        """One more token in each of the first `slots` slots, also in free ones; maybe of more."""

    def finish(self, slot: int) -> None:
        """The request in this slot has all its tokens."""


def arrivals(rate: float, seconds: float, tokens: int, seed: int) -> list[Request]:
    """At least one request; `rate` per second, with exponential intervals. Each requests 0.5 to 1.5
    times `tokens`."""
    generator = random.Random(seed)
    now = 0.0
    found: list[Request] = []
    while now < seconds or not found:
        wanted = generator.randint(max(2, tokens // 2), max(2, tokens * 3 // 2))
        found.append(Request(now, wanted))
        now += generator.expovariate(rate)
    return found


def serve(
    engine: Engine,
    requests: Sequence[Request],
    progress: Callable[[int], None] = lambda done: None,
    clock: Callable[[], float] = time.perf_counter,
    sleep: Callable[[float], None] = time.sleep,
) -> float:
    """Answer all requests; s that it took.

    Arrived requests are read into the first free slot, first come, first served, before the next
    step; a step gives each slot a token. progress: called with the number of finished requests.
    """
    coming = deque(enumerate(requests))
    running: dict[int, Request] = {}
    free = list(range(engine.slots))
    started = clock()
    while coming or running:
        now = clock() - started
        if coming and free and coming[0][1].arrival <= now:
            number, request = coming.popleft()
            slot = heapq.heappop(free)
            token = engine.start(number, slot)
            _take(request, token, clock() - started)
            running[slot] = request
        elif running:
            tokens = engine.step(max(running) + 1)
            now = clock() - started
            for slot, request in list(running.items()):
                _take(request, tokens[slot], now)
                if len(request.tokens) == request.wanted:
                    engine.finish(slot)
                    heapq.heappush(free, slot)
                    del running[slot]
            progress(len(requests) - len(coming) - len(running))
        else:
            sleep(min(LONGEST_WAIT, coming[0][1].arrival - now))
    return clock() - started


def _take(request: Request, token: int, now: float) -> None:
    request.tokens.append(token)
    request.times.append(now)


def percentile(values: Sequence[float], share: float) -> float:
    """The least value that at least this share of the values does not exceed (nearest rank).

    Raises ValueError for no values.
    """
    if not values:
        raise ValueError("no values have no percentile")
    return sorted(values)[max(0, math.ceil(share * len(values)) - 1)]
