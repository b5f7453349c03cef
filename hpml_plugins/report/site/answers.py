"""Four sentences that answer the questions of a reader of the first page, and say what is not
decided."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from hpml_plugins.analysis.sides import BOOST
from hpml_plugins.model import formatting
from hpml_plugins.model.formatting import counted
from hpml_plugins.report.site.changes import Judged, Shift
from hpml_plugins.report.site.matrix import TaskRow, TypeColumn
from hpml_plugins.report.site.tasks import OTHER_CODE, SPREAD_UNKNOWN, RowDifference

#: The most regressions that are listed.
MOST_SHIFTS = 2
#: The most types in the answer of a workload.
MOST_TYPES = 4


class Answer(NamedTuple):
    """The answer to one question.  strong: the main statement.  rest: its basis, and what is open.
    link: (label, address) of the page with more details, or None."""

    question: str
    strong: str
    rest: str
    link: tuple[str, str] | None = None


def which_gpu(
    rows: Sequence[TaskRow],
    names: Sequence[str],
    pair: tuple[int, int] | None,
    verdicts: Mapping[int, RowDifference],
) -> Answer:
    """Whether one of two types is faster, where, and by how much at least.

    names: of the types, by column.  pair: base and the type compared with it; None if no two types
    have a row in common.  verdicts: row → that type against the base.
    """
    question = "Which GPU?"
    if pair is None or not verdicts:
        return Answer(question, *_why_no_pair(rows, names))
    base = names[pair[0]]
    other = names[pair[1]]
    better = _strongest(rows, verdicts, "BETTER")
    worse = _strongest(rows, verdicts, "WORSE")
    same = sum(found.verdict == "SAME" for found in verdicts.values())
    bounded = sum(found.verdict == "BOUND" for found in verdicts.values())
    silent = len(verdicts) - len(better) - len(worse) - same - bounded
    rest = []
    if better:
        task, found = better[0]
        strong = (
            f"{other} is faster in {len(better)} of {counted(len(verdicts), 'workload')}."
        )
        rest.append(f"Most in “{task}”: {found.wording()} {base}.")
        if worse:
            task, found = worse[0]
            most = ", most" if len(worse) > 1 else ""
            rest.append(f"Slower in {len(worse)}{most}: “{task}”, {found.wording()}.")
    elif worse:
        task, found = worse[0]
        strong = (
            f"{base} is faster in {len(worse)} of {counted(len(verdicts), 'workload')}."
        )
        rest.append(f"Most in “{task}”: {other} {found.wording()} {base}.")
    else:
        strong = f"No workload distinguishes {other} from {base}."
    if same:
        rest.append(f"The same in {same}.")
    if bounded:
        rest.append(f"Not decided in {bounded}: the table gives the bounds.")
    if silent:
        rest.append(f"No verdict on {silent}.")
    if unlike := sum(found.compared == OTHER_CODE for found in verdicts.values()):
        rest.append(f"{OTHER_CODE.capitalize()} in {unlike}.")
    return Answer(question, strong, " ".join(rest))


def _why_no_pair(rows: Sequence[TaskRow], names: Sequence[str]) -> tuple[str, str]:
    """Why no two types are compared, and what to do about it."""
    if not rows:
        return "Nothing is measured yet.", "Run asv run on a node."
    measured = {number for row in rows for number in row.cells}
    if len(measured) == 1:
        (only,) = measured
        return (
            f"One type has been measured: {names[only]}.",
            "A second type makes a comparison.",
        )
    return "This cannot be told.", "No two types have measured the same workload."


def _strongest(
    rows: Sequence[TaskRow], verdicts: Mapping[int, RowDifference], verdict: str
) -> list[tuple[str, RowDifference]]:
    """The rows with this verdict, the one with the largest bound first."""
    found = [
        (rows[number].task, each)
        for number, each in verdicts.items()
        if each.verdict == verdict
    ]

    def certain(item: tuple[str, RowDifference]) -> float:
        ratio = item[1].least or item[1].ratio or 1.0
        return max(ratio, 1 / ratio)

    return sorted(found, key=certain, reverse=True)


def how_close(
    rows: Sequence[TaskRow], names: Sequence[str], columns: Sequence[int]
) -> Answer:
    """The shares of the published peak that each type reaches, by section of the page; at settled
    clocks where a card throttles.

    columns: the types, in order.
    """
    question = "How close to its limit?"
    told = []
    for column in columns:
        shares: dict[str, list[float]] = {}
        for row in rows:
            if row.regime == BOOST:
                continue
            if column in row.cells and (share := row.cells[column].share) is not None:
                shares.setdefault(row.section, []).append(share)
        if shares:
            listed = [
                f"{section.lower()} {_range(found)}" for section, found in shares.items()
            ]
            told.append(f"{names[column]}: {', '.join(listed)}")
    if not told:
        return Answer(
            question,
            "This cannot be told.",
            "No workload here has both declared work and a published peak of its GPU.",
        )
    rest = "".join(f"{each}. " for each in told[1:])
    return Answer(question, f"{told[0]} of the published peak.", rest.rstrip())


def answer_of_workload(
    row: TaskRow,
    columns: Sequence[TypeColumn],
    base: int,
    verdicts: Mapping[int, RowDifference],
) -> tuple[str, str]:
    """The value of each type in a row, as a sentence; and how the types compare, or why they do
    not.

    base: the column of the row with which its others are compared.  verdicts: column → that type
    against it.
    """
    labels = {column.number: column.label for column in columns}
    told = []
    for number, cell in list(row.cells.items())[:MOST_TYPES]:
        text = formatting.estimate(cell.number.estimate, row.metric.unit)
        if cell.number.lacks_spread:
            text += f", {SPREAD_UNKNOWN}"
        of_peak = f", {100 * cell.share:.0f} % of the published peak" if cell.share else ""
        told.append(f"{labels[number]}: {text}{of_peak}")
    more = len(row.cells) - len(told)
    if more:
        told.append(f"{counted(more, 'further type')} below")
    point = f" at {row.point}" if row.point else ""
    clocks = ", boost clocks" if row.regime == BOOST else ""
    strong = f"{row.metric.title}{point}{clocks}: {'; '.join(told)}."
    if not row.metric.direction:
        return strong, "Not ranked: it has no better direction."
    if len(row.cells) == 1:
        return strong, "No second type has measured this, so nothing is compared."
    compared = [
        f"{labels[number]} is {_in_words(found, labels[base])}"
        for number, found in sorted(verdicts.items(), key=lambda each: _distance(each[1]))
    ]
    return strong, f"{'; '.join(compared[:MOST_TYPES])}."


def _distance(found: RowDifference) -> float:
    """Sort key: verdicts first, the largest ratio first."""
    ratio = found.ratio or 1.0
    return -max(ratio, 1 / ratio) if found.verdict in ("BETTER", "WORSE") else 0.0


def _in_words(found: RowDifference, base: str) -> str:
    """`better than NVIDIA H100 ×1 (at least 1.37×)`, and which code was compared, if that is not
    the newest of both."""
    words = {
        "BETTER": "better than",
        "WORSE": "worse than",
        "SAME": "the same as",
        "BOUND": "not clearly better or worse than",
    }.get(found.verdict, "not compared with")
    wording = ", ".join(filter(None, [found.full_wording(), found.compared]))
    return f"{words} {base}" + (f" ({wording})" if wording else "")


def _range(shares: Sequence[float]) -> str:
    """`66 to 80 %`, `90 %`."""
    low = round(100 * min(shares))
    high = round(100 * max(shares))
    return f"{low} %" if low == high else f"{low} to {high} %"


def _on_gpus(shifts: Iterable[Shift]) -> list[Shift]:
    return [
        shift
        for shift in shifts
        if shift.series.metric.benchmark.needs_gpu and shift.series.machine.hardware.is_gpu
    ]


def _named(shifts: Sequence[Shift]) -> str:
    """The first of them, with how much each changed."""
    named = [
        f"{shift.series.metric.title}: {shift.change.wording}"
        for shift in shifts[:MOST_SHIFTS]
    ]
    return ", ".join(named) + ("" if len(shifts) <= MOST_SHIFTS else ", …")


def has_it_slowed(
    shifts: Mapping[str, Sequence[Shift]], judged: Sequence[Judged]
) -> Answer:
    """Open regressions on GPUs and on CPUs, and how many values could not be
    judged."""
    question = "Has it slowed?"
    link = ("Changes", "changes.html")
    values = sum(each.judged for each in judged)
    left_out = sum(each.left_out.total() for each in judged)
    if not values:
        return Answer(question, "This cannot be told.", "No value could be judged.", link)
    worse = shifts["open regression"]
    suspected = shifts["suspected regression"]
    on_gpus, suspected_on_gpus = _on_gpus(worse), _on_gpus(suspected)
    if on_gpus:
        strong = f"{counted(len(on_gpus), 'open regression')} on GPUs."
        rest = [f"{_named(on_gpus)}."]
    else:
        strong = "No open regression on GPUs."
        rest = []
    if suspected_on_gpus:
        rest.append(
            f"{len(suspected_on_gpus)} suspected on GPUs: {_named(suspected_on_gpus)}."
        )
    if others := len(worse) - len(on_gpus):
        rest.append(f"{others} on CPUs.")
    if others := len(suspected) - len(suspected_on_gpus):
        rest.append(f"{others} suspected on CPUs.")
    if back := shifts["contradicted regression"]:
        titles = ", ".join(shift.series.metric.title for shift in back[:MOST_SHIFTS])
        more = "" if len(back) <= MOST_SHIFTS else ", …"
        rest.append(f"{len(back)} contradicted by the newest value: {titles}{more}.")
    if left_out:
        rest.append(f"{left_out:,} of {values + left_out:,} values could not be judged.")
    if short := sum(each.short for each in judged):
        rest.append(f"{short:,} series have too few readings to judge.")
    return Answer(question, strong, " ".join(rest), link)


def can_i_trust(
    rows: Sequence[TaskRow],
    names: Sequence[str],
    columns: Sequence[int],
    records: int,
    cards: Mapping[int, int],
    gaps: int,
) -> Answer:
    """How many cards of each type the values rest on, how many rest on one card, and what is
    missing.

    records: the number of all with a value.  cards: that measured anything, of each column.  gaps:
    the number of machines with missing or stale results.
    """
    question = "Can I trust it?"
    link = ("Evidence", "evidence.html#gaps")
    counts = []
    for column in columns:
        behind = [row.cells[column].cards for row in rows if column in row.cells]
        told = _tell_cards(cards[column], behind)
        counts.append(f"{names[column]}: {told}" if told else names[column])
    cells = [cell for row in rows for cell in row.cells.values()]
    of_one = sum(cell.cards == 1 for cell in cells)
    rest = []
    if of_one:
        one = "one card or node" if any(cards.values()) else "one node"
        rest.append(f"{of_one} of {len(cells)} values below rest on {one}.")
    rest.append(f"{records:,} Records with values, every sample kept.")
    if gaps:
        rest.append(f"{counted(gaps, 'node')} with missing or stale results.")
    strong = f"{'. '.join(counts)}." if counts else "Nothing is measured yet."
    return Answer(question, strong, " ".join(rest), link)


def _tell_cards(known: int, behind: Sequence[int]) -> str:
    """`2 to 7 of 41 cards per value`, or `1 card`; "" if unknown.  known: the cards of a type.
    behind: on how many each of its values rests."""
    if not known:
        return ""
    if not behind or min(behind) == known:
        return counted(known, "card")
    low = min(behind)
    high = max(behind)
    several = f"{low} to {high}" if low < high else str(low)
    return f"{several} of {known} cards per value"
