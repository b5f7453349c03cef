"""The end of a run: what changed since the last commit that was measured here."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from hpml_plugins.model.formatting import change, counted
from hpml_plugins.model.record import Record
from hpml_plugins.report.compare import CHANGED, Side, changed, compare, summarise
from hpml_plugins.report.known import KnownRecords

#: The most changed values that are listed.
MOST_CHANGES = 3


def changes(
    records: Sequence[Record], machine: str, commit: str, order: Mapping[str, int]
) -> Iterator[str]:
    """How the values of a commit on a machine differ from those of the last earlier commit that
    measured at least as many of its points there, or half as many as the best one.

    records: all stored ones, for estimating the variation of values.  order: see
    `store.commit_order`.
    """
    here = [each for each in records if each.machine == machine]
    of_commit = [each for each in here if each.commit == commit]
    last = _last_before(of_commit, here, order)
    if last is None:
        yield f"No earlier commit measured these points on {machine}: nothing to compare with."
        return
    known = KnownRecords.of(here, [each for each in records if each.machine != machine])
    found, refused = compare(Side("commit", last), Side("commit", commit), known, order)
    # a difference measured beside other processes says nothing about the commit: it is counted,
    # without a verdict
    judged = [
        each for each in found if not (each.is_busy and each.difference.verdict in CHANGED)
    ]
    summary = summarise(judged) if judged else "no value is judged"
    yield f"Since {last[:8]}, the last commit measured here: {summary}."
    # one metric of each point, because those of one timing change together
    rows = {(row.benchmark, row.point): row for row in changed(found)[::-1]}
    different = [row for row in list(rows.values())[::-1] if not row.is_busy]
    if busy := len(rows) - len(different):
        yield (
            f"  Not judged: {counted(busy, 'point')} measured while other processes used the CPUs;"
            " measure again when idle"
        )
    for row in different[:MOST_CHANGES]:
        difference = row.difference
        what = difference.undirected.wording(row.unit)
        if difference.ratio:
            what = change(difference.ratio, row.label)
        name = f"{row.benchmark} {row.point}".rstrip()
        yield f"  {difference.verdict} {name}: {what}"
    if refused:
        names = ", ".join(dict.fromkeys(each.benchmark for each in refused))
        yield f"  not compared because their definitions changed: {names}"
    if rows:
        yield f"  all of them: hpml compare {last[:8]} {commit[:8]} --machine {machine}"


def _last_before(
    of_commit: Sequence[Record], here: Sequence[Record], order: Mapping[str, int]
) -> str | None:
    """The last earlier commit of these Records that measured enough of their points.

    here: all Records of the machine.
    """
    measured = [each for each in of_commit if each.status == "ok"]
    points = {each.point for each in measured}
    at = order.get(measured[0].commit, len(order)) if measured else 0
    before: dict[str, set[str]] = {}
    for each in here:
        is_before = order.get(each.commit, at) < at
        if is_before and each.status == "ok" and each.point in points:
            before.setdefault(each.commit, set()).add(each.point)
    most = max(map(len, before.values()), default=0)
    enough = [commit for commit, measured in before.items() if len(measured) >= most / 2]
    return max(enough, key=lambda commit: order[commit], default=None)
