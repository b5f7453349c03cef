"""Two sides of the same points: machines, commits or environments, as a table with ratios."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from hpml_plugins.errors import UsageError
from hpml_plugins.model.figure import Table
from hpml_plugins.model.formatting import better_by, estimate, format_point, ratio
from hpml_plugins.model.record import Estimate, Record
from hpml_plugins.store import current_records

#: Samples below which the range of all of them does not hold the median at 95 %: 2 · 0.5⁵ = 6 %.
ENOUGH = 6


@dataclass(frozen=True)
class Side:
    """What was asked for. kind: "machine", "commit" or "environment".  name: in full."""

    kind: str
    name: str

    def has(self, record: Record) -> bool:
        """Whether a Record is of this side."""
        return bool(getattr(record, self.kind) == self.name)


@dataclass(frozen=True)
class Compared:
    """One metric of one point on both sides. machine: empty where the sides are machines.

    ratio: how many times better B is; None where that cannot be said.  verdict: better or worse where the 95 %
    intervals of the medians do not overlap, "~" where they do, "?" where there are too few samples to tell.
    """

    machine: str
    benchmark: str
    point: str
    metric: str
    unit: str
    a: Estimate
    b: Estimate
    ratio: float | None
    verdict: str


def find_side(name: str, records: Iterable[Record], named: Callable[[str], str | None]) -> Side:
    """The machine, environment or commit of this name.

    named: what git makes of a name ("HEAD", "v1.2", an abbreviated hash), or None. Raises UsageError that lists what
    there is.
    """
    records = list(records)
    known = {kind: sorted({getattr(each, kind) for each in records} - {""}) for kind in ("machine", "environment")}
    for kind, values in known.items():
        if name in values:
            return Side(kind, name)
    commits = sorted({record.commit for record in records} - {""})
    matches = [commit for commit in commits if len(name) >= 4 and commit.startswith(name)]
    if len(matches) == 1:
        return Side("commit", matches[0])
    commit = named(name)
    if commit in commits:
        return Side("commit", str(commit))
    if commit:
        raise UsageError(f"nothing was measured at {name!r} ({commit[:8]}); commits with Records: {_some(commits)}")
    raise UsageError(
        f"{name!r} is no machine ({_some(known['machine'])}), environment ({_some(known['environment'])}) "
        f"or commit with Records ({_some(commits)})"
    )


def compare(a: Side, b: Side, records: Iterable[Record], order: Mapping[str, int]) -> list[Compared]:
    """Each point and metric that both sides measured.

    Of each side the current Record of a point, on one machine where the sides are commits or environments.
    order: commit → its place in history.
    """
    everything = list(records)
    across = "machine" in (a.kind, b.kind)
    old, new = (_current(filter(side.has, everything), across, order) for side in (a, b))
    rows = []
    for key in sorted(old.keys() & new.keys()):
        machine, benchmark, _ = key
        point, others = format_point(old[key].params), new[key].metrics
        for name, metric in old[key].metrics.items():
            if name in others and others[name].unit == metric.unit:
                before, after = metric.estimate, others[name].estimate
                times = better_by(after.value, before.value, metric.direction)
                verdict = _verdict(before, after, metric.direction)
                rows.append(Compared(machine, benchmark, point, name, metric.unit, before, after, times, verdict))
    return rows


def _current(records: Iterable[Record], across: bool, order: Mapping[str, int]) -> dict[tuple[str, str, str], Record]:
    """(machine, or "" where machines are compared; benchmark; point) → its current Record.

    Another version of a benchmark is another point.
    """
    found = current_records(records, None, order)
    return {("" if across else record.machine, record.benchmark, record.point): record for record in found}


def _verdict(before: Estimate, after: Estimate, direction: str | None) -> str:
    if before.value != after.value and min(before.count, after.count) < ENOUGH:
        return "?"
    if before.low is None or before.high is None or after.low is None or after.high is None:
        return "~"
    if before.high < after.low:
        return "worse" if direction == "lower" else "better"
    if after.high < before.low:
        return "better" if direction == "lower" else "worse"
    return "~"


def as_table(compared: Iterable[Compared], *, formatted: bool) -> Table:
    """The rows as a table.  formatted: with units and intervals, for readers; else numbers in SI units, for code."""
    rows = []
    for each in compared:
        row: dict[str, str | float | None] = {"machine": each.machine} if each.machine else {}
        row |= {"benchmark": each.benchmark, "point": each.point, "metric": each.metric}
        if formatted:
            a, b = (estimate(side, each.unit) for side in (each.a, each.b))
            text = ratio(each.ratio) if each.ratio is not None else "–"
            undecided = each.verdict in ("~", "?")
            row |= {"A": a, "B": b, "ratio": f"{each.verdict} {text.split(maxsplit=1)[-1]}" if undecided else text}
        else:
            row |= {"unit": each.unit, "A": each.a.value, "B": each.b.value, "ratio": each.ratio}
            row |= {"verdict": each.verdict}
        rows.append(row)
    return Table.of(rows)


def _some(names: list[str]) -> str:
    shown = [name[:8] if len(name) == 40 else name for name in names[-6:]]
    return ", ".join(shown) + (" and others" if len(names) > 6 else "") or "none"
