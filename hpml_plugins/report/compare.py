"""Two sides of the same points: machines, commits or environments, as a table with ratios."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from hpml_plugins.errors import UsageError
from hpml_plugins.model import formatting as display
from hpml_plugins.model.figure import Table
from hpml_plugins.model.record import Record
from hpml_plugins.model.samples import Samples

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


def compare(a: Side, b: Side, records: Iterable[Record], order: Mapping[str, int]) -> Table:
    """A row for each point and metric that both sides measured.

    Of each side the newest Record of a point, on one machine where the sides are commits or environments. ratio: how
    many times better B is.  verdict: better or worse where the 95 % intervals of the medians do not overlap, "~" where
    they do, "?" where there are too few samples to tell.
    order: commit → its place in history.
    """
    everything = [record for record in records if record.status == "ok"]
    shared = [kind for kind in ("machine",) if kind not in (a.kind, b.kind)]
    old, new = (_newest(filter(side.has, everything), shared, order) for side in (a, b))
    rows = []
    for key in sorted(old.keys() & new.keys(), key=str):
        left, right = old[key], new[key]
        for name, metric in left.metrics.items():
            other = right.metrics.get(name)
            if other is None or other.unit != metric.unit:
                continue
            before, after = Samples(tuple(metric.samples)), Samples(tuple(other.samples))
            times = display.better_by(after.median, before.median, metric.direction)
            row = {kind: getattr(left, kind) for kind in shared}
            row |= {
                "benchmark": left.benchmark,
                "point": display.point(list(left.params), [repr(value) for value in left.params.values()]),
                "metric": name,
                "unit": metric.unit,
                "A": before.median,
                "B": after.median,
                "ratio": times,
                "verdict": _verdict(before, after, metric.direction),
            }
            rows.append(row)
    return Table.of(rows)


def _newest(records: Iterable[Record], shared: list[str], order: Mapping[str, int]) -> dict[tuple[str, ...], Record]:
    found: dict[tuple[str, ...], Record] = {}
    for record in records:
        key = (*(getattr(record, kind) for kind in shared), record.benchmark, record.point)
        age = order.get(record.commit, -1), record.started
        if key not in found or age >= (order.get(found[key].commit, -1), found[key].started):
            found[key] = record
    return found


def _verdict(before: Samples, after: Samples, direction: str | None) -> str:
    if before.median != after.median and min(len(before), len(after)) < ENOUGH:
        return "?"
    (low, high), (other_low, other_high) = before.interval(), after.interval()
    if high < other_low:
        return "worse" if direction == "lower" else "better"
    if other_high < low:
        return "better" if direction == "lower" else "worse"
    return "~"


def _some(names: list[str]) -> str:
    shown = [name[:8] if len(name) == 40 else name for name in names[-6:]]
    return ", ".join(shown) + (" and others" if len(names) > 6 else "") or "none"
