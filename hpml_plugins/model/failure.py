"""Failure: what kind of thing made a point fail. Its reason says it in words."""

from __future__ import annotations

from enum import StrEnum


class Failure(StrEnum):
    """The kinds. The values are stored: one is added, none is renamed."""

    NONE = ""
    #: `bench.check` found a wrong result.
    CHECK = "check"
    #: `measure` raised.
    ERROR = "error"
    #: What `measure` returned or sent cannot be believed or stored.
    RESULT = "result"
    #: The process ended before it reported: by itself, or by a signal.
    EXIT = "exit"
    SIGNAL = "signal"
    #: The point, or its ranks, took longer than they may.
    TIMEOUT = "timeout"
    #: More processes, or a longer message, than a point may have.
    LIMIT = "limit"
    #: The process that supervises the point's was killed or stopped.
    SUPERVISOR = "supervisor"
    #: Who watched the process ended it.
    STOPPED = "stopped"
    #: A card was lost, or its memory failed.
    GPU = "gpu"
