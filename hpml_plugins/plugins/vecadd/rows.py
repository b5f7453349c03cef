"""From Records to the rows of the tables and charts: pure functions over values."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from hpml_plugins import Record

#: What each benchmark's rows are called: (program, the parameters that tell its variants apart).
VARIANTS: Mapping[str, tuple[str, tuple[str, ...]]] = {
    "vecadd_cpu": ("CPU", ("implementation",)),
    "vecadd_cuda": ("explicit", ("launch", "memory")),
    "vecadd_unified": ("unified", ("launch", "prefetch")),
    "vecadd_tuned": ("tuned", ("implementation",)),
}
#: The CPU program that speed-ups are over: the seed's, or the same loop by numba where no compiler was.
BASELINES = ("cpp", "loop")


@dataclass(frozen=True)
class Row:
    """One measured point, as a chart shows it.

    machine: where.  program: "CPU", "explicit", "unified" or "tuned".  variant: parameter → value, such as launch →
    "grid".  millions: of elements.  time: s, the median of a whole run (allocation and copies included) where the
    benchmark measures it, else of the addition.  kernel: s, the median of the addition alone.  bandwidth: B/s, of the
    addition.  speedup: of `time` over the CPU's on the same machine and size; None where that was not measured.
    """

    machine: str
    program: str
    variant: Mapping[str, str]
    millions: float
    time: float
    kernel: float
    bandwidth: float
    speedup: float | None


def rows(records: Iterable[Record]) -> list[Row]:
    """The rows of what was measured, by machine, program, variant and size.

    records: one of each point and machine, as figures are handed them.
    """
    records = list(records)
    on_cpu: dict[tuple[object, ...], float] = {
        (record.machine, record.params["millions"], record.params["implementation"]): record.metrics["time"].median
        for record in records
        if record.benchmark == "vecadd_cpu"
    }
    found = [_row(record, on_cpu) for record in records]
    return sorted(found, key=lambda row: (row.machine, row.program, *row.variant.values(), row.millions))


def _row(record: Record, on_cpu: Mapping[tuple[object, ...], float]) -> Row:
    program, names = VARIANTS[record.benchmark]
    millions = float(record.params["millions"])
    kernel = record.metrics["time"].median
    time = record.metrics["total"].median if "total" in record.metrics else kernel
    baselines = (on_cpu.get((record.machine, record.params["millions"], name)) for name in BASELINES)
    baseline = next((seconds for seconds in baselines if seconds is not None), None)
    return Row(
        machine=record.machine,
        program=program,
        variant={name: str(record.params[name]) for name in names},
        millions=millions,
        time=time,
        kernel=kernel,
        bandwidth=record.metrics["bandwidth"].median,
        speedup=baseline / time if baseline is not None else None,
    )
