"""Preparation of `asv run`: the node and its name, the suite for the benchmark processes, the
points to measure."""

from __future__ import annotations

import atexit
import functools
import json
import os
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
from asv.benchmarks import Benchmarks
from asv.console import log
from asv.machine import MachineCollection

from hpml_plugins.errors import UsageError
from hpml_plugins.host import Declared, Host, make_host
from hpml_plugins.isolation import end_leftovers
from hpml_plugins.model.benchmark import REFERENCE, Params
from hpml_plugins.model.formatting import counted
from hpml_plugins.model.node import Node
from hpml_plugins.model.record import Record
from hpml_plugins.model.serialization import decode
from hpml_plugins.node import detect_node, filed_under, pin_devices, unmet
from hpml_plugins.registry import read_registry
from hpml_plugins.registry.reader import EVERYTHING
from hpml_plugins.report.progress import RunReport
from hpml_plugins.run import (
    LIMIT_VARIABLE,
    Pass,
    Round,
    RoundTimes,
    TimeLimit,
    limit_of_environment,
    read_past_rounds,
    rounds_of,
)
from hpml_plugins.store import (
    Lock,
    atomic_write,
    lock_machine,
    machine_folder,
    read_object_or_empty,
    stored_rounds,
)
from hpml_plugins.store.files import format_json, read_object
from hpml_plugins.store.history import find_tip
from hpml_plugins.store.projection import MACHINE
from hpml_plugins.suite.points import (
    MACHINE_VARIABLE,
    PROFILE_VARIABLE,
    SHARD_VARIABLE,
    SUITE_VARIABLE,
    Suite,
    make_suite,
)
from hpml_plugins.temporary import temporary_folder
from hpml_plugins.terminal import say, warn

#: s to wait for another writer of ~/.asv-machine.json, which takes milliseconds.
MACHINE_FILE_TIMEOUT = 30.0


class AsvTask(NamedTuple):
    """A point to measure. entry: of asv's benchmarks, one metric of a plugin.  number: of the
    point, as asv counts them."""

    entry: dict[str, Any]
    number: int
    declared: Declared
    params: Params

    @property
    def name(self) -> str:
        """asv's name of the point, by which its process finds it."""
        name = str(self.entry["name"])
        return f"{name}-{self.number}" if self.entry["params"] else name


@dataclass
class Prepared:
    """The state of a measuring command.

    scratch: its folder, where points write their Records.  rounds: of each point, if given.
    profile: which points were to be measured.  attributes: of benchmarks, overridden by asv's
    options, JSON.  left_out: the benchmarks with no
    point that fitted into the limit.  lock: of the machine's folder; None if nothing is stored.
    passes: how often asv visits each commit if rounds of several commits are interleaved; else 0.
    done: for each commit and environment the next pass, and the earlier results for asv.
    """

    scratch: Path
    host: Host
    suite: Suite
    report: RunReport
    tasks: list[AsvTask] = field(default_factory=list)
    rounds: int | None = None
    profile: str = EVERYTHING
    attributes: str = "{}"
    left_out: set[str] = field(default_factory=set)
    lock: Lock | None = None
    passes: int = 0
    done: dict[tuple[str, str], tuple[Pass, dict[int, Any]]] = field(default_factory=dict)

    def next_pass(
        self, commit: str, environment: str
    ) -> tuple[Pass | None, dict[int, Any]]:
        """The pass over a commit's points that begins now, and by number of the point the results
        for asv of the earlier passes; None if all rounds are measured at once."""
        if not self.passes:
            return None, {}
        before = self.done.get((commit, environment))
        this = Pass(before[0].number + 1, before[0].measured) if before else Pass()
        answers = before[1] if before else {}
        self.done[commit, environment] = this, answers
        return this, answers

    def is_last_pass(self, commit: str, environment: str) -> bool:
        """Whether asv will not visit the commit again."""
        return (
            not self.passes or self.done[commit, environment][0].number == self.passes - 1
        )

    def check_lock(self) -> None:
        """Raise Locked if another process may write the same results."""
        if self.lock:
            self.lock.check()


def prepare(conf: Any, args: Any, *, writes: bool) -> Prepared:
    """Validate the registry, detect the node, and write the suite that the benchmark processes
    read.

    args: asv's arguments; its `machine` is set to the name of this node's results.  writes: lock
    the machine's folder for this process. Nothing in results/ is modified before the registry has
    been validated. Raises HpmlError if it is invalid, and Locked if another process, here or on
    another node, writes this machine's results.
    """
    limit = limit_of_environment()
    registry = read_registry()
    node = detect_node()
    # available here too: older commits measure without it
    if reordered := pin_devices(node, os.environ):
        log.warning(reordered)
    results = Path(conf.results_dir)
    named = getattr(args, "machine", None)
    args.machine = machine = named or filed_under(node, results)
    folder = machine_folder(results, machine)
    lock = lock_machine(results, machine) if writes else None
    if lock:
        atexit.register(lock.release)
    os.environ[MACHINE_VARIABLE] = machine
    for_this_command = ExitStack()
    atexit.register(for_this_command.close)
    scratch = for_this_command.enter_context(temporary_folder("hpml-run-"))
    for left in end_leftovers() if writes else ():
        log.warning(left)
    profile = os.environ.get(PROFILE_VARIABLE) or EVERYTHING
    host = make_host(registry, profile=profile, unmet=functools.partial(unmet, node=node))
    suite = make_suite(
        host, node, machine, scratch, keep=writes, reuse=_reused_statuses(args)
    )
    file = scratch / "suite.json"
    file.write_bytes(msgspec.json.encode(suite))
    os.environ[SUITE_VARIABLE] = str(file)
    record_machine(facets(node, machine, read_object_or_empty(folder / MACHINE)))
    times = RoundTimes(read_past_rounds(results), machine, has_gpu=bool(node.gpus))
    verbose = bool(getattr(args, "verbose", False))
    report = RunReport(times, stored_rounds(results, machine), limit, verbose=verbose)
    attributes = dict(getattr(args, "attribute", None) or {})
    rounds = 1 if getattr(args, "quick", False) else attributes.get("rounds")
    passes = 0
    if getattr(args, "interleave_rounds", False):
        passes = interleave(args, rounds, suite, limit)
    return Prepared(
        scratch,
        host,
        suite,
        report,
        rounds=rounds,
        profile=profile,
        attributes=json.dumps(attributes),
        lock=lock,
        passes=passes,
    )


def interleave(args: Any, rounds: Any, suite: Suite, limit: TimeLimit | None) -> int:
    """Make asv visit each commit once per round. Returns the number of visits.

    args: asv's arguments, whose attribute `rounds` is set.  Raises UsageError together with a
    limit, because points are then measured whole.
    """
    if limit:
        raise UsageError(
            f"--interleave-rounds completes points only in its last pass: omit it, or"
            f" {LIMIT_VARIABLE}={limit}"
        )
    passes = int(rounds or max((each.rounds for each in suite.benchmarks), default=1))
    args.attribute = {**dict(args.attribute or {}), "rounds": passes}
    return passes


def narrow(benchmarks: Benchmarks, declared: Iterable[Declared]) -> None:
    """Reduce asv's selection to one metric of each plugin's benchmark, and to the points of the
    profile.

    The process of that metric measures the point for all metrics, and the projection provides the
    others to asv. Points whose requirements are not met are kept: their Records give the reason.
    """
    selection = {each.benchmark: each.chosen_points().keys() for each in declared}
    done: set[str] = set()
    for name, entry in list(benchmarks.items()):
        if (benchmark := entry.get("benchmark")) not in selection:
            continue
        points: Collection[int] = selection[benchmark]
        if (active := benchmarks.benchmark_selection.get(name)) is not None:
            active[:] = points = [index for index in active if index in points]
        if benchmark in done or not points:
            del benchmarks[name]
        done.add(benchmark)


def add_reference(benchmarks: Benchmarks, declared: Iterable[Declared], node: Node) -> None:
    """Add the reference to a selection that measures something on this node's GPUs.

    asv has removed it if `--bench` selects other benchmarks.
    """
    needs_gpu = {each.benchmark for each in declared if each.needs_gpu}
    selected = {entry.get("benchmark") for entry in benchmarks.values()}
    if not node.gpus or REFERENCE in selected or not needs_gpu & selected:
        return
    for name, entry in benchmarks._all_benchmarks.items():
        if entry.get("benchmark") == REFERENCE:
            benchmarks[name] = entry
            return


def tasks_of(benchmarks: Benchmarks, declared: Iterable[Declared]) -> list[AsvTask]:
    """The points of plugins that asv has selected, in the registry's order."""
    entries = {
        entry["benchmark"]: (name, entry)
        for name, entry in benchmarks.items()
        if "benchmark" in entry
    }
    tasks: list[AsvTask] = []
    for each in declared:
        if each.benchmark not in entries:
            continue
        name, entry = entries[each.benchmark]
        tasks += selected_tasks(benchmarks, name, entry, each)
    return tasks


def selected_tasks(
    benchmarks: Benchmarks, name: str, entry: dict[str, Any], declared: Declared
) -> Iterator[AsvTask]:
    """The points of a benchmark that asv has selected. name: asv's, of the benchmark or of one
    metric."""
    active = benchmarks.benchmark_selection.get(name)
    for number, params in enumerate(declared.points()):
        if active is None or number in active:
            yield AsvTask(entry, number, declared, params)


def plan(prepared: Prepared, repeats: int, *, whole: bool = True) -> None:
    """Tell the report which points the run was asked for, and which rounds it will measure.
    repeats: the number of commits and environments.  whole: whether all that asv measures is of
    plugins."""
    asked = {task.declared.benchmark for task in prepared.tasks}
    companion = REFERENCE if asked != {REFERENCE} else ""
    points = sum(task.declared.benchmark != companion for task in prepared.tasks)
    prepared.report.expect(
        points * repeats,
        companion=companion,
        whole=whole,
        keeps=bool(prepared.suite.reuse),
    )
    rounds: list[Round] = []
    for task in prepared.tasks:
        if task.number in task.declared.unmet:
            continue
        rounds += rounds_of((task.declared, task.params))
    prepared.report.plan(rounds, repeats, commits=repeats * max(1, prepared.passes))


def take_record(scratch: Path, point: str) -> Record | None:
    """The Record that a point has just written; None if its commit has no suite."""
    found = None
    for path in scratch.rglob(f"{point}.json"):
        found = decode(path.read_bytes())
        # otherwise a commit from before rounds would return it again instead of measuring
        path.unlink()
        path.with_suffix(".started").unlink(missing_ok=True)
    return found


def keep_shard(benchmarks: Benchmarks) -> None:
    """Keep the benchmarks of this process's shard. Raises SystemExit(0) when it has none and others
    have some."""
    index, count = chosen_shard()
    active = benchmarks.benchmark_selection
    weights = {
        name: 1 if active.get(name) is None else len(active[name]) for name in benchmarks
    }
    mine = shard(weights, count)[index]
    if weights and not mine:
        say(
            f"shard {index + 1} of {count} has nothing to measure: there are"
            f" {counted(len(weights), 'benchmark')}"
        )
        raise SystemExit(0)
    for name in set(benchmarks) - set(mine):
        del benchmarks[name]


def chosen_shard() -> tuple[int, int]:
    """The shard of this process, from 0, and the number of shards. Raises UsageError for an invalid
    shard."""
    text = os.environ.get(SHARD_VARIABLE, "0/1")
    found = re.fullmatch(r"([0-9]{1,6})/([0-9]{1,6})", text)
    index, count = (int(found[1]), int(found[2])) if found else (0, 0)
    if index >= count:
        raise UsageError(
            f"{SHARD_VARIABLE} is {text[:40]!r}, not I/N with I from 0 to N - 1, such as 0/2;"
            " correct it"
        )
    return index, count


def shard(weights: Mapping[str, float], count: int) -> list[list[str]]:
    """Divide names into shards of about equal weight: the heaviest first, each into the lightest
    shard so far.

    Deterministic: ties are broken by name, and by the first shard. At most 4/3 of the optimum.
    Source: Graham, Bounds on multiprocessing timing anomalies, 1969.
    """
    shards: list[list[str]] = [[] for _ in range(count)]
    filled = [0.0] * count
    for name in sorted(weights, key=lambda name: (-weights[name], name)):
        lightest = filled.index(min(filled))
        shards[lightest].append(name)
        filled[lightest] += weights[name]
    return shards


def facets(node: Node, machine: str, known: dict[str, Any]) -> dict[str, str]:
    """asv's six facts of a machine, and `gpu` and `num_gpu`.

    Each different value splits asv's graphs, so facts that change between two boots of one node
    type (kernel, a virtual machine's memory, the host's CPU) keep the first value recorded under
    this name; every Record has the actual values.
    """
    found = {
        "machine": machine,
        "os": node.os.split()[0],
        "arch": node.arch,
        "cpu": node.cpu,
        "num_cpu": str(node.num_cpu),
        "ram": f"{node.ram / 2**30:.0f} GiB",
        "gpu": node.gpu,
        "num_gpu": str(node.num_gpu),
    }
    if all(known.get(key) == found[key] for key in ("gpu", "num_gpu")):
        found |= {key: str(known[key]) for key in found if key in known}
    return found


def machine_file(node: Node, machine: str) -> bytes:
    """The machine.json of a machine that asv has not recorded."""
    return format_json(
        {**facets(node, machine, {}), "version": MachineCollection.api_version}
    )


def record_machine(facts: dict[str, str]) -> None:
    """Write the facts to ~/.asv-machine.json, where asv reads them."""
    save_machines(
        Path(MachineCollection.get_machine_file_path()), {facts["machine"]: facts}
    )


def save_machines(file: Path, machines: Mapping[str, Any]) -> None:
    """Add machines to ~/.asv-machine.json, which may be a link.

    asv reads the file, adds to it and writes it back: if two jobs started at once on a shared home,
    one entry would be lost.
    """
    file = file.resolve()
    with Lock(Path(f"{file}.lock"), MACHINE_FILE_TIMEOUT):
        known = read_object(file) if file.exists() else {}
        found = {**known, **machines, "version": MachineCollection.api_version}
        atomic_write(file, format_json(found))


def newest_commits(repository: Path, branches: Sequence[str | None]) -> list[str] | None:
    """The commits that `asv run` measures by default: the newest commit of each branch.

    None if asv finds them itself. asv fails for a branch that a clone of another one lacks; here
    the same substitute is used as in comparisons and on pages.
    """
    named = [branch for branch in branches if branch]
    tips = [find_tip(repository, branch) for branch in named]
    if len(named) < len(branches) or named == [tip.name for tip in tips]:
        return None
    for tip in tips:
        if tip.problem:
            warn(tip.problem)
    return list(dict.fromkeys(tip.commit for tip in tips if tip.commit)) or None


def _reused_statuses(args: Any) -> list[str]:
    """The statuses that asv was told to skip; see `Suite.reuse`."""
    everything = getattr(args, "skip_existing", False) or getattr(
        args, "skip_existing_commits", False
    )
    wanted = {
        "ok": getattr(args, "skip_existing_successful", False),
        "failed": getattr(args, "skip_existing_failed", False),
    }
    return [status for status, alone in wanted.items() if everything or alone]
