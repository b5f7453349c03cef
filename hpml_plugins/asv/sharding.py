"""Sharing the benchmarks of one `asv run` out to several, each of which measures its part."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping

from asv.benchmarks import Benchmarks

#: "1/4": the second of four parts.  Unset: everything.
PART_VARIABLE = "HPML_PART"


def share_out(weights: Mapping[str, float], parts: int) -> list[list[str]]:
    """Names in so many parts of about equal weight: the heaviest first, each to the part that is lightest yet.

    The same for whoever asks: ties go by name, and to the part that comes first. At most 4/3 of the best there is.
    Source: Graham, Bounds on multiprocessing timing anomalies, 1969.
    """
    shares: list[list[str]] = [[] for _ in range(parts)]
    filled = [0.0] * parts
    for name in sorted(weights, key=lambda name: (-weights[name], name)):
        lightest = filled.index(min(filled))
        shares[lightest].append(name)
        filled[lightest] += weights[name]
    return shares


def my_part() -> tuple[int, int]:
    """Which part this process measures, and of how many."""
    index, _, count = os.environ.get(PART_VARIABLE, "0/1").partition("/")
    return int(index), int(count)


def keep_part(benchmarks: Benchmarks, index: int, count: int) -> None:
    """Keep of asv's selection what is in this part. Ends the process, well, when that is nothing and others have some.

    A benchmark's points and metrics stay together: a point is measured once for all its metrics, and results are
    merged benchmark by benchmark.
    """
    points: dict[str, float] = {}
    for name in benchmarks:
        active = benchmarks.benchmark_selection.get(name)
        benchmark = _benchmark_of(name)
        points[benchmark] = max(points.get(benchmark, 0), 1 if active is None else len(active))
    mine = set(share_out(points, count)[index])
    if points and not mine:
        print(f"part {index + 1} of {count} has nothing to measure: there are {len(points)} benchmarks", flush=True)
        sys.exit(0)
    for name in list(benchmarks):
        if _benchmark_of(name) not in mine:
            del benchmarks[name]


def _benchmark_of(name: str) -> str:
    """`vecadd` of `vecadd.track_time`."""
    return name.partition(".track_")[0]
