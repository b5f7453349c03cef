"""A step to be counted and timed, and how its FLOP and bytes come to be known."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from hpml_plugins import Bench, HpmlError, Samples, count_kernels
from hpml_plugins.plugins.roofline import formulas
from hpml_plugins.plugins.roofline.dtypes import capability

if TYPE_CHECKING:
    from hpml_plugins.plugins.roofline.counters import Counts

NCU, ESTIMATE = "ncu", "estimate"
PROGRAM = "hpml_plugins.plugins.roofline.program"
#: s; ncu replays each kernel several times, and a training step has hundreds.
NCU_TIMEOUT = 200.0


@dataclass(frozen=True)
class Step:
    """Work on one device.

    run: does it once.  estimate: its (FLOP, bytes) by formula, for where nothing can be counted.
    """

    run: Callable[[], Any]
    estimate: Callable[[], tuple[float, float]]


@dataclass(frozen=True)
class Work:
    """FLOP and bytes of one step, and whether each was counted ("ncu") or estimated ("estimate")."""

    flop: float
    nbytes: float
    flop_source: str = ESTIMATE
    bytes_source: str = ESTIMATE
    counts: Counts | None = field(default=None, repr=False)


def count(bench: Bench, arguments: Sequence[str], dtype: str = "") -> Counts | None:
    """Count a step of `program` with ncu. None, with a warning that names the reason, where that cannot be.

    arguments: of the program.  dtype: whose tensor cores are counted, all when left out. Caches are emptied before each
    kernel, so bytes are those of a kernel that finds nothing.
    """
    from hpml_plugins.plugins.roofline.counters import add_up, counters

    if bench.device != "cuda":
        bench.warn("FLOP and bytes are estimated, not counted: no GPU")
        return None
    wanted = counters(capability(bench), dtype)
    command = [sys.executable, "-m", PROGRAM, *arguments]
    for _ in range(len(wanted)):
        try:
            return add_up(bench.once("counters", functools.partial(_counters, command, wanted)))
        except HpmlError as error:
            # A counter that a card lacks is n/a to ncu; should another release refuse it by name, ask without it.
            kept = [name for name in wanted if name.removesuffix(".sum") not in error.what]
            if not kept or len(kept) == len(wanted):
                bench.warn(f"FLOP and bytes are estimated, not counted: {error.what}")
                return None
            wanted = kept
    return None


def _counters(command: Sequence[str], wanted: Sequence[str]) -> list[dict[str, float]]:
    """The counters of each kernel."""
    return [kernel.counters for kernel in count_kernels(command, wanted, cold=True, timeout=NCU_TIMEOUT)]


def settle(bench: Bench, counts: Counts | None, estimate: Callable[[], tuple[float, float]]) -> Work:
    """Take what was counted, and the estimate for what was not; each carries its source."""
    if counts is None:
        return Work(*estimate())
    flop_known = counts.sees_tensor_cores
    if not flop_known:
        bench.warn("FLOP are estimated, not counted: ncu has no counter of this card's tensor cores that is known here")
    if not counts.nbytes:
        bench.warn("bytes are estimated, not counted: ncu gave no DRAM traffic for this card")
    if flop_known and counts.nbytes:
        return Work(counts.flop, counts.nbytes, NCU, NCU, counts)
    flop, nbytes = estimate()
    return Work(
        counts.flop if flop_known else flop,
        counts.nbytes or nbytes,
        NCU if flop_known else ESTIMATE,
        NCU if counts.nbytes else ESTIMATE,
        counts,
    )


def metrics(work: Work, time: Samples) -> dict[str, Samples]:
    """The metrics that every counted and timed step has.  time: of one step, s."""
    intensity = formulas.intensity(work.flop, work.nbytes)
    flop_info = {"source": work.flop_source}
    bytes_info = {"source": work.bytes_source}
    mixed = work.flop_source if work.flop_source == work.bytes_source else "ncu and estimate"
    return {
        "flop": Samples((float(work.flop),), info=flop_info),
        "bytes": Samples((float(work.nbytes),), info=bytes_info),
        "time": time,
        "rate": _with(work.flop / time, flop_info),
        "bandwidth": _with(work.nbytes / time, bytes_info),
        "intensity": Samples((intensity,), info={"source": mixed}),
    }


def attach(bench: Bench, counts: Counts | None) -> None:
    """Put into the Record what was counted: the sums by kind of operation, and FLOP and bytes of each kernel."""
    if counts is None:
        return
    bench.series("operations", {op: [number] for op, number in counts.operations.items()})
    bench.series(
        "kernels",
        {"flop": counts.flop_of_kernels, "bytes": counts.bytes_of_kernels},
        {"flop": "FLOP", "bytes": "B"},
    )
    outside = {"flop": [counts.flop], "flop_outside_tensor_cores": [counts.flop_outside_tensor_cores]}
    bench.series("flop_by_path", outside, dict.fromkeys(outside, "FLOP"))


def _with(samples: Samples, info: dict[str, str]) -> Samples:
    from dataclasses import replace

    return replace(samples, info={**samples.info, **info})
