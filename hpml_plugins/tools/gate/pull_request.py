"""The gate's report: lines for a terminal, and Markdown for a pull request."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from urllib.parse import quote

from hpml_plugins.model import (
    LARGEST_RATIO,
    Node,
    Table,
    change,
    counted,
    quantity,
    times,
)
from hpml_plugins.report import as_markdown, as_text
from hpml_plugins.terminal import printable
from hpml_plugins.tools.gate.sides import BASE, HEAD, Commits
from hpml_plugins.tools.gate.verdicts import GatedValue

#: The order in which values are shown.
_ORDER = {"refused": 0, "undecided": 1, "within": 2}


@dataclass
class GateResult:
    """The measurements. broken: points that fail only on the head, with the reason. left_out: why
    points that the base lacks were not compared → how many. not_judged_points: why other points, or
    metrics of them, were not judged → how many.  rounds: the fewest and the most.  again: the
    command that repeats it.  page: the address of the history, "" if unknown. loosened: the rules
    that the head has loosened.
    """

    commits: Commits
    node: Node
    machine: str
    values: list[GatedValue] = field(default_factory=list)
    broken: list[str] = field(default_factory=list)
    left_out: Mapping[str, int] = field(default_factory=dict)
    not_judged_points: Mapping[str, int] = field(default_factory=dict)
    rounds: tuple[int, int] = (0, 0)
    again: str = ""
    page: str = ""
    loosened: Sequence[str] = ()

    @property
    def refused(self) -> bool:
        """Whether any value is worse by more than its budget, or broken."""
        return bool(self.broken) or any(each.outcome == "refused" for each in self.values)

    @property
    def not_judged(self) -> bool:
        """Whether any value or all could not be judged, or the change has loosened a rule."""
        undecided = any(each.outcome == "undecided" for each in self.values)
        missing = bool(self.not_judged_points or self.loosened) or not self.values
        return undecided or missing

    @property
    def headline(self) -> str:
        """The outcome in one line."""
        counts = Counter(each.outcome for each in self.values)
        points = sum(self.not_judged_points.values())
        parts = {
            f"{counts['refused']} slower beyond the budget": counts["refused"],
            f"{len(self.broken)} broken": len(self.broken),
            f"{counts['undecided']} of {len(self.values)} values undecided": counts[
                "undecided"
            ],
            f"{counted(points, 'point')} not judged": points,
            f"{counts['within']} within the budget": counts["within"],
            f"{counted(sum(self.left_out.values()), 'point')} not compared": len(
                self.left_out
            ),
            f"{counted(len(self.loosened), 'rule')} loosened by this change": len(
                self.loosened
            ),
        }
        summary = ", ".join(text for text, count in parts.items() if count)
        outcome = (
            "refused" if self.refused else "not judged" if self.not_judged else "passed"
        )
        return f"{outcome}: {summary or 'nothing was compared'}"

    @property
    def shown(self) -> list[GatedValue]:
        """The listed values, worst first: all except equal ones and those worse by less than the
        budget."""
        found = [each for each in self.values if each.outcome != "within" or each.is_better]
        return sorted(found, key=lambda each: (_ORDER[each.outcome], -(each.slower or 0)))

    def table(self) -> Table:
        """The listed values."""
        return Table.of(
            {
                "benchmark": each.benchmark,
                "point": each.point,
                "metric": each.metric,
                "base": quantity(each.base, each.unit),
                "head": quantity(each.head, each.unit),
                "head over base (95 % interval)": format_change(each),
                "budget": f"{100 * each.budget:.3g} %",
                "verdict": each.outcome if each.outcome != "within" else "faster",
            }
            for each in self.shown
        )

    def describe(self) -> Iterator[str]:
        """Where and how it was measured, and what could not be judged."""
        node = self.node
        if node.gpus:
            hardware = f"{node.num_gpu} × {node.gpu}, driver {node.driver}"
        else:
            hardware = f"no GPU, {node.cpu}"
        yield f"Measured on {self.machine}: {hardware}."
        least, most = self.rounds
        yield (
            f"{least if least == most else f'{least} to {most}'} rounds of each point and side in"
            " new processes: pairs of base and head, in random order and its reverse."
        )
        undecided = [each for each in self.values if each.outcome == "undecided"]
        if wide := [each for each in undecided if not each.reason]:
            yield (
                f"Undecided: {counted(len(wide), 'value')}: a slow-down beyond the budget"
                " is neither certain nor excluded. More rounds (--limit, --rounds) or an idle"
                " machine decide."
            )
        for reason, count in Counter(
            each.reason for each in undecided if each.reason
        ).items():
            yield f"Undecided: {reason} ({counted(count, 'value')})."
        for reason, count in self.not_judged_points.items():
            points = f" ({counted(count, 'point')})" if count else ""
            yield f"Not judged: {reason}{points}."
        for reason, count in self.left_out.items():
            yield f"Not compared: {reason} ({counted(count, 'point')})."
        yield from (f"Broken: {line}" for line in self.broken)
        yield from (f"Loosened by this change: {line}." for line in self.loosened)


def format_change(value: GatedValue) -> str:
    """`1.12× (+12 %), 1.10 to 1.15×`; without a ratio, the change; both values if one is near 0."""
    if value.slower is None or value.interval is None:
        more = value.head - value.base
        return f"{'+' if more > 0 else ''}{quantity(more, value.unit)}"
    low, high = value.interval
    ratio = value.slower
    if (value.head > value.base) != (ratio > 1):  # a rate: slower is less
        low, high, ratio = 1 / high, 1 / low, 1 / ratio
    if not 1 / LARGEST_RATIO <= ratio <= LARGEST_RATIO:
        return (
            f"from {quantity(value.base, value.unit)} to {quantity(value.head, value.unit)}"
        )
    return f"{change(ratio)}, {times(low)} to {times(high)}×"


def as_lines(result: GateResult) -> list[str]:
    """For a terminal."""
    table = ["", *as_text(result.table()).splitlines()] if result.shown else []
    return [result.headline, *table, "", *map(printable, result.describe())]


def as_comment(result: GateResult) -> str:
    """Markdown for a pull request."""
    commits = result.commits
    table = result.table()
    texts = ("benchmark", "point", "metric")  # of the code that was measured
    plain = table.extended(lambda row: {name: plain_text(str(row[name])) for name in texts})
    again = printable(result.again)
    lines = [
        f"### Benchmarks {result.headline}",
        "",
        (
            f"`{commits.name(HEAD)}` against `{commits.name(BASE)}`, the newest commit that both"
            " branches share."
        ),
        "",
        *([as_markdown(plain)] if result.shown else []),
        *(f"- {plain_text(line)}" for line in result.describe()),
        f"- Repeat it: `{again}`" if "`" not in again else "",
        *([f"- History: {quote(result.page, safe=_ADDRESS)}"] if result.page else []),
    ]
    return "\n".join(lines).rstrip() + "\n"


#: Characters of an address that need no escaping.
_ADDRESS = ":/?#[]@!$&'()*+,;=%~"
#: Extensions of Markdown by GitHub and GitLab: mentions, references and bare addresses, which a
#: backslash does not stop; and the border of a cell.
_REFERENCES = {
    "@": "@&#8203;",
    "#": "#&#8203;",
    "!": "!&#8203;",
    "&": "&amp;",
    "<": "&lt;",
    ">": "&gt;",
    "|": "&#124;",
    "~": "\\~",
}
_MARKS = "\\`*_{}[]$"


def plain_text(text: str) -> str:
    """Untrusted text, escaped for Markdown: it cannot be HTML, a link, a mention, or the end of a
    table's cell."""

    def escape(character: str) -> str:
        escaped = f"\\{character}" if character in _MARKS else character
        return _REFERENCES.get(character, escaped)

    made = "".join(map(escape, printable(text))).replace("://", "&#58;//")
    return re.sub(r"(?i)\bwww\.", lambda match: f"{match[0][:-1]}&#46;", made)
