"""Measures in a test, compares with the stored history, and stores."""

from __future__ import annotations

import inspect
import platform
import sys
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from hpml_plugins.analysis import Difference, ValuePair, Values, Variability, compare_values
from hpml_plugins.errors import UsageError
from hpml_plugins.git import GitRefused, ask_git
from hpml_plugins.host import Declared
from hpml_plugins.measure import Bench, Context, SamplingPlan
from hpml_plugins.model import (
    Benchmark,
    Metric,
    Node,
    Record,
    Requires,
    combine,
    quantity,
)
from hpml_plugins.node import detect_node, filed_under
from hpml_plugins.registry import PluginEntry
from hpml_plugins.run import Follower, measure_rounds
from hpml_plugins.store import (
    append_record,
    atomic_write,
    commit_order,
    current_records,
    describe_outside,
    lock_machine,
    machine_folder,
    read_records,
    record_file,
    results_folder,
    save_declarations,
)
from hpml_plugins.temporary import temporary_folder
from hpml_plugins.tools.pytest_bench.measuring import measure_point
from hpml_plugins.tools.pytest_bench.naming import TestName

PLUGIN = "pytest"
ROUNDS = 3
#: s to wait for another process that writes this machine's results.
PATIENCE = 60.0
#: A value is judged if its 95 % interval excludes a slow-down of this share.
SLOW_DOWN = 0.2


class _ComparedMetric(NamedTuple):
    """A metric against the history. line: for the summary.  is_judged: whether a slow-down of
    SLOW_DOWN would have been noticed.  is_worse: whether it is significantly worse."""

    line: str
    is_judged: bool
    is_worse: bool = False


@dataclass
class BenchSession:
    """State shared by the tests of one pytest run. root: of the tests."""

    root: Path
    results: Path
    save: bool
    fail: bool
    run: str = field(default_factory=lambda: uuid.uuid4().hex)

    @classmethod
    def of(cls, config: Any) -> BenchSession:
        """By pytest's options."""
        root = Path(config.rootpath)
        named = config.getoption("--hpml-results")
        results = root / named if named else results_folder(root)
        return cls(
            root, results, config.getoption("--hpml-save"), config.getoption("--hpml-fail")
        )

    @cached_property
    def node(self) -> Node:
        """This machine."""
        return detect_node()

    @cached_property
    def machine(self) -> str:
        """The machine name of its results."""
        return filed_under(self.node, self.results)

    @cached_property
    def commit(self) -> str:
        """The commit checked out; empty if tracked files have uncommitted changes."""
        try:
            changed = ask_git(self.root, "status", "--porcelain", "--untracked-files=no")
            return "" if changed else ask_git(self.root, "rev-parse", "HEAD")
        except GitRefused as refused:
            pytest.fail(str(refused), pytrace=False)

    @cached_property
    def stored(self) -> list[Record]:
        """The Records of this machine."""
        return [each for each in read_records(self.results) if each.machine == self.machine]

    def compare(self, record: Record) -> list[_ComparedMetric]:
        """Compare each metric with the current Record of the point."""
        same = [
            each
            for each in self.stored
            if (each.benchmark, each.point) == (record.benchmark, record.point)
        ]
        order = commit_order(self.root, self.results)
        current = current_records(same, order)
        before = current[0] if current else None
        outside = order.outside(each.commit for each in same)
        left_out = describe_outside(outside, "what is checked out")
        variability = Variability([*self.stored, record])
        new = variability.values(record)
        old = variability.values(before) if before else {}
        since = (before.commit[:8] if before else "") or "uncommitted"
        found = []
        for name in new:
            metric = record.metrics[name]
            if name in old:
                found.append(_against(name, metric.unit, old, new, since))
            else:
                why = "; ".join(filter(None, ["nothing stored to compare with", left_out]))
                line = f"{name} {quantity(metric.value, metric.unit)}, {why}"
                found.append(_ComparedMetric(line, is_judged=metric.direction is None))
        return found

    def store(self, benchmark: Benchmark, rounds: Sequence[Record]) -> None:
        """Append the rounds, and declare the benchmark for the pages."""
        with lock_machine(self.results, self.machine, timeout=PATIENCE):
            for record in rounds:
                append_record(
                    record_file(self.results, self.machine, record.commit), record
                )
            if not (
                file := machine_folder(self.results, self.machine) / "machine.json"
            ).exists():
                from hpml_plugins.asv import machine_file

                atomic_write(file, machine_file(self.node, self.machine))
        declared = Declared.of(benchmark, PluginEntry(PLUGIN))
        save_declarations(self.results, declared.entries())


class TestBench:
    """The fixture `bench`: measures once, each round in its own process, forked from this one.

    report: called with a line for each metric, and whether it was judged.
    """

    __test__ = False

    def __init__(
        self,
        session: BenchSession,
        name: TestName,
        report: Callable[..., object],
    ) -> None:
        self._session = session
        self._report = report
        self._name = name
        self._params = name.point
        self._measured = False

    def time(
        self,
        step: Callable[[], object],
        *,
        name: str = "time",
        version: str = "1",
        **options: Any,
    ) -> Record:
        """Measure the time of one call of `step`, s. options: of `Bench.time`, such as `budget`."""
        return self.measure(
            lambda bench: {name: bench.time(step, name=name, **options)},
            {name: "s"},
            version=version,
        )

    def measure(
        self,
        function: Callable[[Bench], Mapping[str, Any]],
        metrics: Mapping[str, str | Metric],
        *,
        gpus: int = 0,
        version: str = "1",
        timeout: float = 60.0,
    ) -> Record:
        """Measure what `function(bench)` returns, like the `measure` of a plugin: metric → Samples
        or number.

        metrics: name → unit (less is better), or a Metric.  gpus: how many it needs; on a node
        without one it is measured on the CPU. Create objects that use CUDA inside the function: a
        process that has opened CUDA cannot be forked.  version: change it if something else is
        measured, not if it gets faster. Fails the test if the function raises, crashes or takes
        longer than `timeout`, s. A test is one benchmark: raises UsageError if it has already
        measured.
        """
        if self._measured:
            raise UsageError(
                "a test is one benchmark: return all its metrics from one bench.measure, and give"
                " other steps a test of their own"
            )
        self._measured = True
        torch = sys.modules.get("torch")
        if torch is not None and torch.cuda.is_initialized():
            raise UsageError(
                "CUDA was opened in the process of the tests; make what needs it inside"
                " bench.measure"
            )
        declared = [
            each if isinstance(each, Metric) else Metric(name, each, "lower")
            for name, each in metrics.items()
        ]
        benchmark = Benchmark(
            self._name.benchmark,
            _with_parameters(function, list(self._params)),
            metrics=declared,
            grid={name: [value] for name, value in self._params.items()},
            requires=Requires(gpus=gpus, cpu_fallback=True),
            version=version,
            timeout=timeout,
            rounds=ROUNDS,
            description=self._name.function,
        )
        with temporary_folder("hpml-pytest-") as scratch:
            rounds = self._measure_rounds(benchmark, scratch)
        record = combine(rounds)
        if record.status == "skipped":
            pytest.skip(record.reason)
        if record.status != "ok":
            pytest.fail(f"{record.reason}\n{record.output}", pytrace=False)
        compared = self._session.compare(record)
        if self._name.is_unstable:
            self._report(
                f"{self._name.nodeid}: the id has a memory address, so that nothing stored is"
                " compared with it; name the parameters with ids=",
                False,
            )
        for each in compared:
            self._report(f"{self._name.nodeid}: {each.line}", each.is_judged)
        if self._session.save:
            self._session.store(benchmark, rounds)
        worse = [each.line for each in compared if each.is_worse]
        if worse and self._session.fail:
            pytest.fail("; ".join(worse), pytrace=False)
        return record

    def _measure_rounds(self, benchmark: Benchmark, scratch: Path) -> list[Record]:
        session = self._session
        context = Context(
            node=session.node,
            plugin=PLUGIN,
            machine=session.machine,
            commit=session.commit,
            run=session.run,
            environment=f"pytest-py{'.'.join(platform.python_version_tuple()[:2])}",
            plan=SamplingPlan(),
            rounds=ROUNDS,
            scratch=scratch,
            # the tests measure the repository's code: another or an uncommitted state is not a
            # repetition
            source={
                "test": self._name.function,
                "package": session.commit or session.run,
            },
        )
        rounds: list[Record] = []

        def measure(_: int) -> Record:
            rounds.append(measure_point(benchmark, self._params, context))
            return rounds[-1]

        declared = Declared.of(benchmark, PluginEntry(PLUGIN, module=__name__))
        measure_rounds([(declared, self._params)], session.run, measure, Follower())
        return rounds


def _against(name: str, unit: str, old: Values, new: Values, since: str) -> _ComparedMetric:
    """Compare a metric with the stored one.  since: the commit of the stored one."""
    (difference,) = compare_values([ValuePair(since, old, new, name)])
    has_verdict = new[name].direction is None or _is_judged(difference)
    verdict: str = difference.verdict
    if verdict == "BOUND" or not has_verdict:
        undecided = "undecided" if has_verdict else "not judged"
        verdict = f"{undecided}, {difference.full_wording(unit)}"
    ratio = "" if difference.ratio is None else f", {difference.ratio:.3g} times"
    now, then = (quantity(values[name].value, unit) for values in (new, old))
    line = f"{name} {now}{ratio} {then} at {since}: {verdict}"
    return _ComparedMetric(line, has_verdict, difference.verdict == "WORSE")


def _is_judged(difference: Difference) -> bool:
    """Whether it has a verdict, or an interval that excludes a slow-down of SLOW_DOWN."""
    if difference.verdict != "BOUND":
        return difference.verdict != "AMBIGUOUS"
    bounds = difference.interval
    return bounds is not None and bounds[0] > 1 / (1 + SLOW_DOWN)


def _with_parameters(
    function: Callable[[Bench], Mapping[str, Any]], names: list[str]
) -> Callable[..., Any]:
    """A `measure` with the test's parameters as arguments, which the test's function already
    knows."""

    def measure(bench: Bench, **params: object) -> Mapping[str, Any]:
        return function(bench)

    parameters = [inspect.Parameter("bench", inspect.Parameter.POSITIONAL_OR_KEYWORD)]
    parameters += [
        inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY) for name in names
    ]
    measure.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    return measure
