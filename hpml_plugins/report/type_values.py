"""The value of a point on a type of hardware: the mean over the cards of all Records with the
newest code.

Pages of types and quotes in texts take it from `read_point`, so that they cannot differ.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from hpml_plugins.analysis.measured import MeasuredValue, Values, averaged
from hpml_plugins.analysis.sides import MeasuredRun, SideRuns
from hpml_plugins.report.reading import Outcome, TrackedMetric
from hpml_plugins.store import of_node

#: Measured Records of a point.
PointRuns = SideRuns[Outcome]
#: Point and machines of a type → its runs, which all metrics of a benchmark share.
KnownRuns = dict[tuple[str, tuple[str, ...]], PointRuns]


@dataclass(frozen=True)
class TypeValue:
    """A metric of a point on the machines of one type.

    newest: the newest result.  failed: whether that has no value.  values: of all metrics of the
    point with the newest code.  runs: all its measured Records, with any code.
    """

    metric: str
    newest: Outcome
    failed: bool = False
    values: Values = field(default_factory=dict, repr=False)
    runs: PointRuns = field(default_factory=lambda: SideRuns.of(()), repr=False)

    @property
    def number(self) -> MeasuredValue | None:
        """The mean over the cards, with its spread; None if there is none."""
        return self.values.get(self.metric)

    @property
    def records(self) -> list[Outcome]:
        """The Records that the number rests on; the newest alone if it is of no known code."""
        number = self.number
        runs = self.runs.of_code(number.code) if number else ()
        measured = [run for run in runs if self.metric in run.values]
        if not measured:
            return [self.newest]
        used = set(map(id, averaged([run.values[self.metric] for run in measured])))
        return [run.origin for run in measured if id(run.values[self.metric]) in used]

    @property
    def cards(self) -> set[str]:
        """The cards that the number rests on, see `MeasuredValue.card`."""
        return {each.card for each in self.records}


def read_point(
    metric: TrackedMetric, point: str, machines: tuple[str, ...], known: KnownRuns
) -> TypeValue | None:
    """The value of a point on these machines, which have the same hardware; None if it was neither
    measured nor failed there.

    known: runs of the points that were read before, which are extended.
    """
    newest = _newest(metric, point, machines)
    if newest is None:
        return None
    outcome, value = newest
    if value is None:
        return TypeValue(metric.metric, outcome, failed=True)
    runs = _runs_of(metric, point, machines, known)
    has_code = bool(runs.of_code(value.code))
    values = runs.values(value.code) if has_code else outcome.readings
    return TypeValue(metric.metric, outcome, values=values, runs=runs)


def _newest(
    metric: TrackedMetric, point: str, machines: Sequence[str]
) -> tuple[Outcome, MeasuredValue | None] | None:
    """The newest result of these machines; without a value it failed."""
    results = []
    for name in machines:
        for outcome, value in metric.newest_first(point, name):
            if value or outcome.status == "failed":
                results.append((outcome, value))
                break
    rank = metric.benchmark.index.rank
    return max(results, key=lambda each: rank(each[0]), default=None)


def _runs_of(
    metric: TrackedMetric, point: str, machines: tuple[str, ...], known: KnownRuns
) -> PointRuns:
    """All measured Records of the line of a point; those of other software stacks than the node's
    own only if there are no others."""
    key = (point, machines)
    index = metric.benchmark.index
    if key not in known:
        found = [
            outcome
            for name in machines
            for outcome in index.on_line((point, name))
            if outcome.readings and outcome.revision >= 0
        ]
        known[key] = SideRuns(
            of_node(found),
            lambda each: MeasuredRun.of(each.readings, index.rank(each), each),
        )
    return known[key]
