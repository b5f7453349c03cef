"""The end of a run: what changed since the last commit that was measured here."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from hpml_plugins.analysis.variability import Variability
from hpml_plugins.model.formatting import change
from hpml_plugins.model.record import Record
from hpml_plugins.report.compare import Side, changed, compare, summarise

#: Changed values that are named.
MOST_CHANGES = 3


def changes(
    records: Sequence[Record], machine: str, commit: str, order: Mapping[str, int]
) -> Iterator[str]:
    """How the values of a commit on a machine differ from those of the last commit before it that
    measured as many of its points there, or half of those that the best one did.

    records: all that are stored, for how far values move.  order: see `store.commit_order`.
    """
    here = [each for each in records if each.machine == machine and each.commit in order]
    at = order.get(commit, len(order))
    of_commit = [
        each for each in records if each.machine == machine and each.commit == commit
    ]
    points = {each.point for each in of_commit if each.status == "ok"}
    before: dict[str, set[str]] = {}
    for each in here:
        if each.status == "ok" and each.point in points and order[each.commit] < at:
            before.setdefault(each.commit, set()).add(each.point)
    if not before:
        yield f"No earlier commit measured these points on {machine}: nothing to compare with."
        return
    enough = max(map(len, before.values())) / 2
    last = max(
        (each for each in before if len(before[each]) >= enough),
        key=lambda each: order[each],
    )
    sides = Side("commit", last), Side("commit", commit)
    asked = [each for each in here if each.commit == last] + of_commit
    found, refused = compare(*sides, asked, order, Variability(records))
    yield f"Since {last[:8]}, the last commit measured here: {summarise(found)}."
    # one metric of each point: those of one timing change alike
    rows = {(row.benchmark, row.point): row for row in changed(found)[::-1]}
    different = list(rows.values())[::-1]
    for row in different[:MOST_CHANGES]:
        ratio = row.difference.ratio
        what = (
            change(ratio, row.label)
            if ratio
            else row.difference.undirected.wording(row.unit)
        )
        yield f"  {row.difference.verdict} {f'{row.benchmark} {row.point}'.rstrip()}: {what}"
    if refused:
        names = ", ".join(dict.fromkeys(each.benchmark for each in refused))
        yield f"  not compared, for their definitions changed: {names}"
    if different:
        yield f"  all of them: hpml compare {last[:8]} {commit[:8]} --machine {machine}"
