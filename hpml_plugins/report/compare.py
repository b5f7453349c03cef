"""Compare two sides of the same points (machines, commits or environments) as a table with ratios
and verdicts."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from textwrap import wrap

from hpml_plugins.analysis.measured import MeasuredValue
from hpml_plugins.analysis.sides import (
    BOOST,
    MeasuredRun,
    PointSides,
    SideRuns,
    ValuesOfSides,
    newest_run,
)
from hpml_plugins.analysis.verdicts import Difference, ValuePair, compare_values
from hpml_plugins.errors import UsageError
from hpml_plugins.model.differences import Confounder, differences
from hpml_plugins.model.figure import Table
from hpml_plugins.model.formatting import change, counted, format_point, natural_key
from hpml_plugins.model.record import MetricSamples, Record
from hpml_plugins.report.known import KnownRecords, Names
from hpml_plugins.report.points import format_samples
from hpml_plugins.report.reading import Outcome
from hpml_plugins.report.tables import as_text
from hpml_plugins.store import Index, of_node

#: Machine, or "" if machines are compared; benchmark; point.
_Key = tuple[str, str, str]
#: Benchmark and point.
_Place = tuple[str, str]
#: An undecided value that may be worse by more than this share was not judged: as much as `hpml
#: gate` allows by default.
HIDDEN = 0.05


@dataclass(frozen=True)
class Side:
    """A requested side. kind: "machine", "commit" or "environment".  name: in full."""

    kind: str
    name: str

    def has(self, record: Outcome) -> bool:
        """Whether a Record belongs to this side."""
        return bool(getattr(record, self.kind) == self.name)


@dataclass(frozen=True)
class Compared:
    """One metric of one point on both sides. machine: empty if the sides are machines.

    a, b: means over the cards, with their spreads.  difference: of B compared with A, with its
    verdict.  confounders: the facts in which the newest Records of both differ.  regime: "boost" in
    that regime.  across: whether no code was measured on both machines, so that their newest codes
    are compared.  code: the newest commit with the code compared, if a side has newer code that the
    other lacks.
    """

    machine: str
    benchmark: str
    point: str
    metric: str
    unit: str
    a: MeasuredValue
    b: MeasuredValue
    difference: Difference
    confounders: tuple[Confounder, ...]
    regime: str = ""
    across: bool = False
    code: str = ""

    @property
    def is_busy(self) -> bool:
        """Whether other processes used the CPUs during the measurement of either side."""
        return self.a.is_busy or self.b.is_busy

    @property
    def label(self) -> str:
        """The metric with its regime."""
        return f"{self.metric}, {self.regime}" if self.regime else self.metric


@dataclass(frozen=True, order=True)
class RefusedComparison:
    """A comparison that is refused although both sides measured it. metric: empty for the whole
    benchmark.

    kind: as counted by `check`.
    """

    benchmark: str
    metric: str
    reason: str
    kind: str = "of another definition"

    def __str__(self) -> str:
        return f"{f'{self.benchmark} {self.metric}'.rstrip()}: not compared: {self.reason}"


def find_side(
    name: str, records: Iterable[Outcome | Names], named: Callable[[str], str]
) -> Side:
    """The machine, environment or commit of this name.

    named: resolves a name with git, like `git.find_commit`. Raises UsageError that lists the
    alternatives.
    """
    records = list(records)
    machines = sorted({each.machine for each in records} - {""})
    if name in machines:
        return Side("machine", name)
    environments = sorted({each.environment for each in records} - {""})
    if name in environments:
        return Side("environment", name)
    commits = sorted({record.commit for record in records} - {""})
    matches = [commit for commit in commits if len(name) >= 4 and commit.startswith(name)]
    if len(matches) == 1:
        return Side("commit", matches[0])
    commit = named(name)
    if commit in commits:
        return Side("commit", commit)
    if commit:
        raise UsageError(
            f"nothing was measured at {name!r} ({commit[:8]}); commits with Records:"
            f" {_some(commits)}"
        )
    raise UsageError(
        f"{name!r} is no machine ({_some(machines)}), environment"
        f" ({_some(environments)}) or commit with Records ({_some(commits)})"
    )


def compare(
    a: Side, b: Side, known: KnownRecords, order: Mapping[str, int]
) -> tuple[list[Compared], list[RefusedComparison]]:
    """Compare each point and metric that both sides measured. Also returns, once each, what is
    refused because its definition changed.

    A side consists of all Records of a point with one code, on all cards. Both sides are on one
    machine unless they are machines, which are compared at the newest code that both measured. The
    regime boost is compared separately. order: see `store.commit_order`; a side that is a commit
    may be on any line.
    """
    across = a.kind == b.kind == "machine"
    on_line_of_a = {} if a.kind == "commit" else order
    on_line_of_b = {} if b.kind == "commit" else order
    old = _runs_by_point(filter(a.has, known.records), on_line_of_a, across)
    new = _runs_by_point(filter(b.has, known.records), on_line_of_b, across)
    first_old = {key: runs[0].origin for key, runs in old.items()}
    first_new = {key: runs[0].origin for key, runs in new.items()}
    refused = set(_changed_versions(first_old, first_new))
    names = {key: format_point(record.params) for key, record in first_old.items()}
    common = _newest_versions(old, new)
    asked: list[Compared] = []
    pairs: list[ValuePair] = []
    for key in sorted(common, key=lambda key: (*key[:2], natural_key(names[key]))):
        sides = PointSides(SideRuns.of(old[key]), SideRuns.of(new[key]), common=across)
        for found in _compare_point(key, sides, known):
            if isinstance(found, RefusedComparison):
                refused.add(found)
                continue
            compared, values = found
            asked.append(compared)
            pairs.append(ValuePair((key, compared.regime), *values, compared.metric))
    judged = []
    for each, difference in zip(asked, compare_values(pairs), strict=True):
        judged.append(replace(each, difference=difference))
    return judged, sorted(refused)


def _compare_point(
    key: _Key, sides: PointSides[Outcome], known: KnownRecords
) -> Iterator[tuple[Compared, ValuesOfSides] | RefusedComparison]:
    """Each metric of a point that both sides measured, in each regime, without a verdict yet, with
    the values of both sides; or why its values cannot be compared."""
    machine, benchmark, _ = key
    one = known.whole(newest_run(sides.a).origin)
    other = known.whole(newest_run(sides.b).origin)
    point = format_point(one.params)
    confounders = tuple(differences(one, other))
    of_a, of_b = sides.settled
    code = newest_run([*sides.a, *sides.b]).origin.commit if sides.is_older else ""
    for name in one.metrics:
        if infinite := _infinite_sides(name, one, other):
            where = f"{point}: " if point else ""
            reason = f"{where}its value on {infinite} is not finite"
            yield RefusedComparison(benchmark, name, reason, "not finite")
            continue
        if name not in of_a or name not in of_b:
            continue
        if reason := _contradiction(one.metrics[name], other.metrics[name]):
            yield RefusedComparison(benchmark, name, reason)
            continue
        regimes = [""]
        if of_a[name].boosted and of_b[name].boosted:
            regimes.append(BOOST)
        for regime in regimes:
            values = sides.compared(name, regime, sides.settled)
            compared = Compared(
                machine=machine,
                benchmark=benchmark,
                point=point,
                metric=name,
                unit=one.metrics[name].unit,
                a=values[0][name],
                b=values[1][name],
                difference=Difference("AMBIGUOUS"),
                confounders=confounders,
                regime=regime,
                across=sides.across,
                code=code,
            )
            yield compared, values


def describe_one_sided(a: Side, b: Side, records: Iterable[Outcome]) -> str:
    """`12 points are not compared: measured on A alone (2 failed on B)`; "" if there are none."""
    across = a.kind == b.kind == "machine"
    found: dict[tuple[str, str], set[tuple[str, str]]] = {}
    for record in records:
        key = "" if across else record.machine, record.point
        for name, side in (("A", a), ("B", b)):
            if side.has(record):
                found.setdefault((name, record.status), set()).add(key)
    parts = []
    for name, other in ("AB", "BA"):
        alone = found.get((name, "ok"), set()) - found.get((other, "ok"), set())
        failed = len(alone & found.get((other, "failed"), set()))
        also = f" ({failed} failed on {other})" if failed else ""
        if alone:
            parts.append(f"{len(alone)} measured on {name} alone{also}")
    return f"points that are not compared: {', '.join(parts)}" if parts else ""


def check(
    found: Iterable[Compared],
    refused: Sequence[RefusedComparison],
    one_sided: str,
    damaged: int = 0,
) -> tuple[int, str]:
    """The exit status of `hpml compare --check`, and its counts. 1: something is worse.  3: nothing
    is worse, but something could not be judged: AMBIGUOUS, undecided within bounds wider than
    HIDDEN, worse while other processes ran, with another definition, not finite, or measured on one
    side only.  0: otherwise.

    one_sided: see `describe_one_sided`.  damaged: the number of lines and files of results that
    cannot be read, which have status 3 too.
    """
    found = list(found)
    counts = Counter((each.difference.verdict, each.is_busy) for each in found)
    worse = counts["WORSE", False]
    not_judged = {
        "AMBIGUOUS": counts["AMBIGUOUS", False] + counts["AMBIGUOUS", True],
        "worse while other processes used the CPUs (measure again when idle)": counts[
            "WORSE", True
        ],
        f"undecided, perhaps more than {100 * HIDDEN:g} % worse": sum(
            map(_may_be_worse, found)
        ),
        **Counter(each.kind for each in refused),
    }
    parts = [f"{count} {what}" for what, count in not_judged.items() if count]
    if damaged:
        parts.append(f"{counted(damaged, 'part')} of the results that cannot be read")
    if one_sided:
        parts.append(one_sided)
    told = [f"{counted(worse, 'value')} worse"] if worse else []
    if parts:
        told.append(f"not judged: {', '.join(parts)}")
    status = 1 if worse else 3 if parts else 0
    return status, f"check: {'; '.join(told) or 'nothing is worse'}"


def _may_be_worse(each: Compared) -> bool:
    """Whether it is undecided, and its interval includes more than HIDDEN of worsening."""
    found = each.difference
    if found.verdict != "BOUND" or found.direction is None:
        return False
    if found.direction == "lower":
        return found.high is None or found.high > 1 + HIDDEN
    return found.low is None or found.low < 1 - HIDDEN


def _runs_by_point(
    records: Iterable[Outcome], order: Mapping[str, int], across: bool
) -> dict[_Key, list[MeasuredRun[Outcome]]]:
    """The measured Records of each point that count, the newest first; see `store.Index`."""
    index = Index[_Key, Outcome](order)
    for record in records:
        if record.status == "ok":
            machine = "" if across else record.machine
            index.add((machine, record.benchmark, record.point), record)

    def run(record: Outcome) -> MeasuredRun[Outcome]:
        return MeasuredRun.of(record.readings, index.rank(record), record)

    found = {key: of_node(index.on_line(key)) for key in index}
    return {
        key: list(map(run, reversed(records))) for key, records in found.items() if records
    }


def _newest_versions(
    old: Mapping[_Key, Sequence[MeasuredRun[Outcome]]],
    new: Mapping[_Key, Sequence[MeasuredRun[Outcome]]],
) -> Iterable[_Key]:
    """The points that both sides have; if a point has several versions of its benchmark, the
    version measured last."""
    found: dict[_Key, _Key] = {}
    for key in sorted(
        old.keys() & new.keys(), key=lambda key: max(old[key][0].age, new[key][0].age)
    ):
        found[*key[:2], format_point(old[key][0].origin.params)] = key
    return found.values()


def _changed_versions(
    old: Mapping[_Key, Outcome], new: Mapping[_Key, Outcome]
) -> Iterator[RefusedComparison]:
    """Benchmarks for which the sides have points of different versions."""
    found: dict[tuple[str, str], tuple[set[str], set[str]]] = {}
    for number, (mine, theirs) in enumerate(((old, new), (new, old))):
        for key in mine.keys() - theirs.keys():
            found.setdefault(key[:2], (set(), set()))[number].add(mine[key].version)
    for (_, benchmark), (a, b) in found.items():
        if a and b and a != b:
            first, second = (", ".join(sorted(each)) for each in (a - b or a, b - a or b))
            yield RefusedComparison(
                benchmark,
                "",
                f"version {first} on A, {second} on B: its definition changed",
            )


def _infinite_sides(metric: str, a: Record, b: Record) -> str:
    """The sides, at most "A and B", on which the value of a common metric is not finite.

    The median of asv's samples may be infinite; such a value is in no reading.
    """
    of_a, of_b = a.value(metric), b.value(metric)
    if of_a is None or of_b is None:
        return ""
    medians = {"A": of_a, "B": of_b}
    return " and ".join(side for side in medians if not math.isfinite(medians[side]))


def _contradiction(a: MetricSamples, b: MetricSamples) -> str:
    """Why two values of a metric have different definitions, or "". A missing direction is
    compatible with any."""
    if a.unit != b.unit:
        return f"unit {a.unit} on A, {b.unit} on B: its definition changed"
    if a.direction != b.direction and None not in (a.direction, b.direction):
        return f"{a.direction} is better on A, {b.direction} on B: its definition changed"
    return ""


#: The verdicts on a significant difference.
CHANGED = ("WORSE", "BETTER")
#: The display order of verdicts.
_ORDER = ("WORSE", "BETTER", "BOUND", "AMBIGUOUS", "SAME")
#: Clearer names of verdicts for readers.
_WORDS = {"BOUND": "undecided"}


def changed(compared: Iterable[Compared]) -> list[Compared]:
    """Those with a significant difference."""
    return [each for each in compared if each.difference.verdict in CHANGED]


def summarise(compared: Sequence[Compared], hidden: str = "") -> str:
    """The number of values with each verdict.  hidden: how to show those that are not shown."""
    counts: Counter[str] = Counter(each.difference.verdict for each in compared)
    points = len({(each.machine, each.benchmark, each.point) for each in compared})
    verdicts = ", ".join(
        f"{counts[verdict]} {_WORDS.get(verdict, verdict)}"
        for verdict in _ORDER
        if counts[verdict]
    )
    rest = len(compared) - len(changed(compared))
    where = f"; {hidden} shows the other {rest}" if hidden and rest else ""
    values = counted(len(compared), "value")
    return f"{values} of {counted(points, 'point')}: {verdicts}{where}"


def notes(compared: Iterable[Compared], refused: Iterable[RefusedComparison]) -> list[str]:
    """Notes below the table: what was not compared, and which points have no ratio or verdict, and
    why."""
    compared = list(compared)
    refusals = dict.fromkeys(
        f"{f'{each.machine} {each.benchmark} {each.point}'.strip()}: no ratio:"
        f" {each.difference.reason}"
        for each in compared
        if each.difference.reason and each.difference.ratio is None
    )
    reasons = Counter(
        each.difference.reason for each in compared if each.difference.ratio is not None
    )
    unjudged = [
        f"{counted(count, 'value')} without a verdict: {reason}"
        for reason, count in reasons.items()
        if reason
    ]
    if busy := sum(each.is_busy for each in compared):
        unjudged.append(
            f"{counted(busy, 'value')} marked busy: other processes used the CPUs meanwhile, and"
            " the interval is wider"
        )
    if adjusted := sum(each.difference.adjusted for each in compared):
        unjudged.append(
            f"{counted(adjusted, 'ratio')} adjusted for the cards' own speed, from the reference"
            " steps"
        )
    if runs := _unlike_runs(compared):
        unjudged.append(
            f"{counted(runs, 'run')} left out: timed in another way or regime than on most cards of"
            " the side"
        )
    if older := len({(each.benchmark, each.point) for each in compared if each.code}):
        unjudged.append(
            f"{counted(older, 'point')} compared with the newest code that both measured, though a"
            " side has measured newer code"
        )
    across = len({(each.benchmark, each.point) for each in compared if each.across})
    unlike = (
        f"{counted(across, 'point')}: no code was measured on both; compared across commits of one"
        " benchmark version"
    )
    return [*map(str, refused), *refusals, *unjudged, *([unlike] if across else [])]


def _unlike_runs(compared: Iterable[Compared]) -> int:
    """The number of runs left out of the means of both sides; the metrics of a point share them."""
    of_point: dict[tuple[str, str, str], int] = {}
    for each in compared:
        point = each.machine, each.benchmark, each.point
        runs = each.a.unlike_runs + each.b.unlike_runs
        of_point[point] = max(runs, of_point.get(point, 0))
    return sum(of_point.values())


def as_lines(compared: Sequence[Compared], width: int) -> Iterator[str]:
    """The rows for a terminal of this width: first what changed, then the rest.

    A benchmark and its points are headings above their metrics. If a row does not fit, each row of
    its benchmark takes three lines.
    """
    ordered = sorted(compared, key=lambda each: each.difference.verdict not in CHANGED)
    for place, group in groupby(
        ordered, lambda each: f"{each.machine} {each.benchmark}".strip()
    ):
        of_benchmark = list(group)
        header, *rows = as_text(
            as_table(of_benchmark, formatted=True).select(*_SHOWN)
        ).splitlines()
        fits = max(map(len, (header, *rows))) + len(_INDENT) <= width
        yield from wrap(place, width)
        yield from [_INDENT + header] if fits else []
        last = ""
        for each, row in zip(of_benchmark, rows, strict=True):
            if each.point != last:
                older = f"with the code of {each.code[:8]}" if each.code else ""
                yield from wrap(
                    ", ".join(filter(None, [each.point, older])),
                    width,
                    initial_indent="  ",
                    subsequent_indent="    ",
                )
            last = each.point
            if fits:
                yield _INDENT + row
            else:
                yield from wrap(
                    f"{each.label}: {_against(each.difference)}, {_format_verdict(each)}",
                    width,
                    initial_indent=_INDENT,
                    subsequent_indent=f"{_INDENT}  ",
                )
                yield f"{_INDENT}  A {_format_value(each.a, each.unit)}"
                yield f"{_INDENT}  B {_format_value(each.b, each.unit)}"


_SHOWN = ("metric", "A", "B", "B against A", "verdict")
_INDENT = "    "


def _format_value(value: MeasuredValue, unit: str) -> str:
    return format_samples(value, unit) + " busy" * value.is_busy


def as_table(
    compared: Iterable[Compared],
    *,
    formatted: bool,
    refused: Iterable[RefusedComparison] = (),
) -> Table:
    """The rows as a table.  formatted: with units and intervals, for readers; else numbers in SI
    units, for code.

    refused: appended as rows with a reason and no numbers.
    """
    rows = []
    for each in compared:
        row: dict[str, str | float | None] = {}
        if each.machine:
            row["machine"] = each.machine
        row |= {"benchmark": each.benchmark, "point": each.point}
        row |= _formatted_cells(each) if formatted else _plain_cells(each)
        rows.append(row)
    for left_out in refused:
        reason = f"not compared: {left_out.reason}"
        rows.append(
            {"benchmark": left_out.benchmark, "metric": left_out.metric, "reason": reason}
        )
    return Table.of(rows)


def _formatted_cells(each: Compared) -> dict[str, str]:
    return {
        "metric": each.label,
        "A": _format_value(each.a, each.unit),
        "B": _format_value(each.b, each.unit),
        "B against A": _against(each.difference),
        "verdict": _format_verdict(each),
    }


def _plain_cells(each: Compared) -> dict[str, str | float | None]:
    found = each.difference
    return {
        "metric": each.metric,
        "regime": each.regime,
        "unit": each.unit,
        "A": each.a.value,
        "B": each.b.value,
        "ratio": found.times,
        "B / A": found.ratio,
        "low": found.low,
        "high": found.high,
        "B - A": found.change,
        "verdict": found.verdict,
        "bound": found.wording(each.unit),
        "adjusted": found.adjusted,
        "cards of A": found.cards[0],
        "cards of B": found.cards[1],
        "code": each.code,
        "reason": found.reason,
        "differences": "; ".join(map(str, each.confounders)),
    }


def list_confounders(compared: Iterable[Compared]) -> list[str]:
    """The facts in which the sides differ and on how many points, by machine, most points first.

    `h200-x1, 3 of 40 points: torch 2.11.0 → 2.15.0`. Values that differ from point to point are
    shown by an example.
    """
    machines: dict[str, dict[_Place, tuple[Confounder, ...]]] = {}
    for row in compared:
        machines.setdefault(row.machine, {})[row.benchmark, row.point] = row.confounders
    lines = []
    for machine, points in machines.items():
        where = f"{machine}, " if machine else ""
        lines += [f"{where}{line}" for line in _confounders_of(points)]
    return lines


def _confounders_of(points: Mapping[_Place, Sequence[Confounder]]) -> Iterator[str]:
    """For one machine: facts that differ on the same points are in one line."""
    by_name: dict[str, dict[_Place, Confounder]] = {}
    for point, confounders in sorted(points.items()):
        for each in confounders:
            by_name.setdefault(each.name, {})[point] = each
    groups: dict[frozenset[_Place], list[str]] = {}
    for name, found in by_name.items():
        first, *others = dict.fromkeys(found.values())
        text = f"{name}, for example {first.a} → {first.b}" if others else str(first)
        groups.setdefault(frozenset(found), []).append(text)
    for where, texts in sorted(groups.items(), key=lambda group: -len(group[0])):
        some = f"{len(where)} of {len(points)} points"
        share = "all points" if len(where) == len(points) else some
        yield f"{share}: {'; '.join(texts)}"


def _format_verdict(each: Compared) -> str:
    """`BETTER, at least 1.40×`, for B over A; for undecided values only the bounds, without the
    reason, which `notes` gives."""
    found = each.difference.undirected
    if found.verdict == "AMBIGUOUS":
        return found.verdict
    wording = found.full_wording(each.unit)
    return wording if found.verdict == "BOUND" else f"{found.verdict}, {wording}"


def _against(found: Difference) -> str:
    """B over A, `1.04× (+4.0 %)`, with ▲ for better or ▼ for worse if the verdict says so; "–"
    without a ratio."""
    sign = {"BETTER": "▲ ", "WORSE": "▼ "}.get(found.verdict, "")
    has_ratio = found.times is not None and found.ratio is not None
    return f"{sign}{change(found.ratio or 0)}" if has_ratio else "–"


def _some(names: list[str]) -> str:
    shown = [name[:8] if len(name) == 40 else name for name in names[-6:]]
    return ", ".join(shown) + (" and others" if len(names) > 6 else "") or "none"
