"""Stretches of time: their union, their length, what two sets of them share. Pure functions on (start, end) pairs."""

from __future__ import annotations

from collections.abc import Iterable

Interval = tuple[float, float]


def union(intervals: Iterable[Interval]) -> list[Interval]:
    """The same times as disjoint intervals in order; those that touch become one, empty ones vanish.

    Raises ValueError for an interval that ends before it starts.
    """
    merged: list[Interval] = []
    for start, end in sorted(intervals):
        if end < start:
            raise ValueError(f"interval ({start}, {end}) ends before it starts")
        if merged and start <= merged[-1][1]:
            merged[-1] = (merged[-1][0], max(merged[-1][1], end))
        elif end > start:
            merged.append((start, end))
    return merged


def intersection(first: Iterable[Interval], second: Iterable[Interval]) -> list[Interval]:
    """The times that lie in both, as disjoint intervals in order."""
    shared: list[Interval] = []
    a, b = union(first), union(second)
    i = j = 0
    while i < len(a) and j < len(b):
        start, end = max(a[i][0], b[j][0]), min(a[i][1], b[j][1])
        if start < end:
            shared.append((start, end))
        if a[i][1] < b[j][1]:
            i += 1
        else:
            j += 1
    return shared


def length(intervals: Iterable[Interval]) -> float:
    """How long they are together; what several cover counts once."""
    return sum(end - start for start, end in union(intervals))
