"""Measuring one point: the Bench that `measure` is handed, the timers, and the process that isolates it."""
