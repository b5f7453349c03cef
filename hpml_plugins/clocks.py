"""Python's clocks, saved before any plugin was loaded: a plugin that replaces `time.perf_counter`
does not affect measurements."""

from time import monotonic, perf_counter, process_time, sleep
from time import time as wall_clock

__all__ = ["monotonic", "perf_counter", "process_time", "sleep", "wall_clock"]
