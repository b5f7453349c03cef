"""From facts about a plugin to findings. Pure: facts in, sentences out."""

from __future__ import annotations

import itertools
import shlex
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from hpml_plugins.host import Declared
from hpml_plugins.model import (
    Failure,
    Finding,
    Grid,
    Params,
    Record,
    Value,
    counted,
    format_choice,
    natural_key,
)
from hpml_plugins.registry import PluginSource
from hpml_plugins.store import read_object_or_empty

#: s of CPU time: with 200 plugins in a registry, each may take this.
IMPORT_COST = 0.1
#: Points measured of each benchmark, unless all are requested.
MOST_POINTS = 5
RESULT = "pass what is checked through bench.result(...), which `hpml check` corrupts"


class CheckedPlugin(msgspec.Struct, frozen=True):
    """A plugin's source, and the folder that its path is relative to and that may contain results/.

    file: of a plugin outside the registry, as for `hpml run`.
    """

    source: PluginSource
    folder: str
    file: str = ""


class Loaded(msgspec.Struct, frozen=True):
    """The outcome of loading. seconds: CPU time.  findings: problems of the plugin seen in that
    process."""

    error: str
    seconds: float
    benchmarks: list[Declared]
    findings: list[Finding]


class Observed(msgspec.Struct):
    """Observations of a point. imports: top-level modules of other distributions that the plugin's
    own files import.

    programs: started by its files.  results: how many values went through `bench.result`. prints:
    whether a timed step printed.
    """

    imports: set[str] = msgspec.field(default_factory=set)
    programs: set[str] = msgspec.field(default_factory=set)
    results: int = 0
    prints: bool = False


class Tried(msgspec.Struct, frozen=True):
    """One point measured. fault: which was injected, or "".  relaxed: without the GPUs that it
    requires.

    unfinished: ended by the time limit of the check, not by its own timeout.  observed: only
    imports and programs that its `Requires` does not name; None if it never started.
    """

    record: Record
    fault: str
    unfinished: bool
    relaxed: bool
    observed: Observed | None

    @property
    def status(self) -> str:
        """The Record's, or "unfinished"."""
        return "unfinished" if self.unfinished else self.record.status


def sample_points(grid: Grid, most: int | None = MOST_POINTS) -> list[Params]:
    """The points of a grid that are measured, the smallest first; the same each time. most: None
    for all of them.

    The others take values of every parameter from its whole range: numbers ascending, the rest as
    declared. At most as many points as the longest parameter has values.
    """
    ordered: dict[str, list[Value]] = {}
    for name, values in grid.items():
        are_numbers = all(str(value)[:1].isdigit() for value in values)
        ordered[name] = sorted(values, key=natural_key) if are_numbers else list(values)
    if most is None:
        combinations = itertools.product(*ordered.values())
        return [dict(zip(ordered, values, strict=True)) for values in combinations]
    count = min(most, max(map(len, ordered.values()), default=1))
    chosen: list[Params] = []
    for number in range(count):
        point = {
            name: values[_spread(number, count, len(values))]
            for name, values in ordered.items()
        }
        if point not in chosen:
            chosen.append(point)
    return chosen


def points_to_try(most: int | None, *, relaxed: bool) -> int | None:
    """How many points of a benchmark are measured.

    relaxed: without the GPU that it requires, by a simulator that takes minutes for a large point:
    one.
    """
    return 1 if relaxed and most is not None else most


def _spread(number: int, count: int, values: int) -> int:
    """The element of `values` for the point of this number: in turn if they are few, else evenly
    spread."""
    if values < count:
        return number % values
    return round(number * (values - 1) / max(count - 1, 1))


def judge_loading(first: Loaded, second: Loaded) -> Iterator[Finding]:
    """Check names, units, directions, grids, import cost and side effects, and that two processes
    agree."""
    if first.error:
        yield Finding("loads", "broken", first.error)
        return
    count = len(first.benchmarks)
    yield Finding(
        "loads",
        "ok",
        f"{counted(count, 'benchmark')}; names, units, directions, grids and signatures hold",
    )
    names = Counter(each.name for each in first.benchmarks)
    for name in (name for name, uses in names.items() if uses > 1):
        what = f"{names[name]} benchmarks have this name"
        yield Finding(name, "broken", what, "give each its own name")
    for benchmark in first.benchmarks:
        if not benchmark.description:
            yield Finding(
                benchmark.name,
                "warning",
                "has no description",
                "Benchmark(..., description='one sentence')",
            )
    seconds = min(first.seconds, second.seconds)
    if seconds > IMPORT_COST:
        yield Finding(
            "import",
            "warning",
            f"takes {seconds:.2f} s",
            f"stay below {IMPORT_COST} s: import in measure",
        )
    else:
        yield Finding("import", "ok", f"{seconds * 1e3:.0f} ms")
    yield from first.findings
    if first.benchmarks == second.benchmarks:
        yield Finding(
            "determinism",
            "ok",
            "the same names, versions, metrics and grids in two processes",
        )
    else:
        differing = _difference(first.benchmarks, second.benchmarks)
        fix = "no sets, dates or random numbers in names, versions and grids"
        yield Finding(
            "determinism", "broken", f"two processes got different {differing}", fix
        )


def _difference(first: Sequence[Declared], second: Sequence[Declared]) -> str:
    if [each.name for each in first] != [each.name for each in second]:
        return "names of benchmarks"
    for a, b in zip(first, second, strict=True):
        for field in ("version", "metrics", "grid", "description"):
            if getattr(a, field) != getattr(b, field):
                return f"{field} of {a.name}"
    return "benchmarks"


def judge_names(loaded: Loaded, others: Mapping[str, str]) -> Iterator[Finding]:
    """Whether another plugin of the registry has the name of a benchmark.  others: benchmark →
    plugin."""
    for benchmark in loaded.benchmarks:
        if other := others.get(benchmark.name):
            what = f"the plugin {other!r} of the registry has a benchmark of this name"
            yield Finding(benchmark.name, "broken", what, "rename or disable one")


def judge_definition(loaded: Loaded, results: Path) -> Iterator[Finding]:
    """Parameters, units and directions must be those that asv recorded under the same version."""
    file = results / "benchmarks.json"
    if not (recorded := read_object_or_empty(file)):
        yield Finding(
            "version", "missing", f"no {file} to compare with: nothing was recorded yet"
        )
        return
    for benchmark in loaded.benchmarks:
        same = {"benchmark": benchmark.name, "version": benchmark.version}
        old = [
            each
            for each in recorded.values()
            if isinstance(each, dict) and same.items() <= each.items()
        ]
        if changed := list(_changed(benchmark, old)):
            fix = (
                f"give {benchmark.name} another version than {benchmark.version!r}, or undo the"
                " change"
            )
            yield Finding(
                "version",
                "broken",
                f"{benchmark.name}: {'; '.join(changed)} since it was recorded",
                fix,
            )
        elif old:
            yield Finding(
                "version",
                "ok",
                f"{benchmark.name}: as recorded under version {benchmark.version!r}",
            )


def _changed(benchmark: Declared, recorded: Sequence[dict[str, Any]]) -> Iterator[str]:
    now = {metric.name: (metric.unit, metric.direction) for metric in benchmark.metrics}
    for old in recorded:
        name = old.get("metric")
        if name not in now:
            yield f"metric {name} is gone"
            continue
        unit, direction = now[name]
        old_unit = old.get("si_unit")
        old_direction = None if old.get("direction") == "none" else old.get("direction")
        # a direction that is added, or is no longer given, changes no value
        turned = direction != old_direction and None not in (direction, old_direction)
        if unit != old_unit or turned:
            yield f"metric {name} was [{old_unit}, {old_direction}], is [{unit}, {direction}]"
    names = list(benchmark.grid)
    old_names = list(recorded[0].get("param_names", [])) if recorded else names
    if old_names != names:
        were, are = (", ".join(each) or "none" for each in (old_names, names))
        yield f"parameters were {were}, are {are}"


def judge_points(
    plugin: CheckedPlugin, loaded: Loaded, tried: Sequence[Tried], most: int | None
) -> Iterator[Finding]:
    """The outcome of measuring, whether the check noticed a corrupted result, and whether all used
    modules and programs are declared.

    most: how many points were to be measured, see `sample_points`.
    """
    for benchmark in loaded.benchmarks:
        own = [each for each in tried if each.record.benchmark == benchmark.name]
        plain = [each for each in own if not each.fault]
        own_most = points_to_try(most, relaxed=any(each.relaxed for each in plain))
        chosen = len(sample_points(benchmark.grid, own_most))
        yield from _measured(benchmark, plain, plugin.file or benchmark.name, chosen)
        yield from _checked(benchmark.name, own)
        yield from _declared(benchmark.name, plain)


def _measured(
    benchmark: Declared, plain: Sequence[Tried], name: str, chosen: int
) -> Iterator[Finding]:
    """name: what `hpml run` takes.  chosen: how many points were to be measured."""
    total = len(list(benchmark.points()))
    failed = [each for each in plain if each.status == "failed"]
    for each in failed:
        choices = [
            f"{key}={format_choice(value)}" for key, value in each.record.params.items()
        ]
        message = f"{' '.join(choices)}: {each.record.reason}".removeprefix(": ")
        if each.relaxed:
            what = f"not tried: it wants a GPU, and without one {message}"
            yield Finding(benchmark.name, "not judged", what, "check on a GPU node")
        else:
            options = "".join(f" -p {shlex.quote(choice)}" for choice in choices)
            fix = f"`hpml --debug run {name}{options}` shows what the point printed"
            yield Finding(benchmark.name, "broken", message, fix)
    measured = sum(each.status == "ok" for each in plain)
    if reasons := {each.record.reason for each in plain if each.status == "skipped"}:
        count = sum(each.status == "skipped" for each in plain)
        yield Finding(
            benchmark.name,
            "missing" if measured else "not judged",
            f"{counted(count, 'point')} skipped here: {'; '.join(sorted(reasons))}",
        )
    if measured:
        others = "; --all measures the others" if chosen < total else ""
        relaxed = any(each.relaxed and each.status == "ok" for each in plain)
        without = ", without the GPUs that it requires" if relaxed else ""
        told = f"{measured} of {total} points measured{without}{others}"
        yield Finding(benchmark.name, "ok", told)
    unfinished = sum(each.status == "unfinished" for each in plain)
    if (left := chosen - len(plain) + unfinished) > 0:
        yield Finding(
            benchmark.name,
            "not judged",
            f"{left} of {chosen} points, of which {unfinished} did not end within the limit",
            "hpml check --limit gives more; a point that never ends is a fault",
        )


def _checked(name: str, tried: Sequence[Tried]) -> Iterator[Finding]:
    if not (plain := [each for each in tried if not each.fault and each.status == "ok"]):
        return
    if unchecked := [each for each in plain if not each.record.checks]:
        what = f"{counted(len(unchecked), 'point')} measured without any bench.check"
        yield Finding(
            name,
            "broken",
            what,
            "bench.check(result agrees with a reference, 'what differs')",
        )
        return
    faulty = {each.fault: each for each in tried if each.fault}
    if any(each.status == "unfinished" for each in faulty.values()):
        what = "whether its check notices a wrong result: it did not end within the limit"
        yield Finding(name, "not judged", what, "hpml check --limit gives more")
        return
    noticed = {
        fault: each.record.failure is Failure.CHECK for fault, each in faulty.items()
    }
    if "nan" in noticed:
        if noticed["off"]:
            yield Finding(name, "ok", "its check fails for a corrupted result")
        elif faulty["off"].status != "ok":
            what = (
                "a corrupted result ended otherwise than by its check:"
                f" {faulty['off'].record.reason}"
            )
            yield Finding(name, "warning", what, RESULT)
        elif noticed["nan"]:
            yield Finding(
                name,
                "warning",
                "its check notices NaN but not a result 10 % off",
                "tighten its tolerance",
            )
        else:
            yield Finding(
                name,
                "broken",
                "its check passes for a corrupted result",
                "compare with a reference",
            )
    elif faulty:
        yield Finding(
            name,
            "warning",
            "whether its check notices a wrong result could not be tried",
            RESULT,
        )


def _declared(name: str, plain: Sequence[Tried]) -> Iterator[Finding]:
    observed = [each.observed for each in plain if each.observed]
    if not observed:
        return
    modules = sorted({module for each in observed for module in each.imports})
    programs = sorted({program for each in observed for program in each.programs})
    if modules:
        fix = (
            f"Requires(modules=({', '.join(map(repr, modules))},)), so that a node without is"
            " skipped"
        )
        yield Finding(
            name, "broken", f"imports {', '.join(modules)}, which it does not require", fix
        )
    if programs:
        fix = f"Requires(tools=({', '.join(map(repr, programs))},)), unless it skips by itself"
        yield Finding(
            name, "warning", f"starts {', '.join(programs)}, which it does not require", fix
        )
    if any(each.prints for each in observed):
        what = "a timed step prints, so that its time is that of printing too"
        yield Finding(name, "broken", what, "print before or after bench.time")
    # one that failed may have ended before it imported the rest
    if not modules and not programs and all(each.status == "ok" for each in plain):
        yield Finding(name, "ok", "all that it imports and starts is required")
