"""Before `asv run` measures: the node and its name, the suite for the benchmark processes, the points to measure."""

from __future__ import annotations

import atexit
import itertools
import math
import os
import shutil
import tempfile
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec
from asv.benchmarks import Benchmarks
from asv.console import log
from asv.machine import MachineCollection

from hpml_plugins.host import make_host
from hpml_plugins.model.formatting import format_point_texts
from hpml_plugins.model.node import Node
from hpml_plugins.model.record import Record, decode, point_key
from hpml_plugins.model.rounds import combine, schedule
from hpml_plugins.node import detect_node, machine_name
from hpml_plugins.registry import read_registry
from hpml_plugins.registry.reader import EVERYTHING
from hpml_plugins.report.progress import RunReport
from hpml_plugins.store import lock_machine, past_rounds, read_object_or_empty
from hpml_plugins.store.asv_results import value_of
from hpml_plugins.store.projection import MACHINE
from hpml_plugins.suite.declaration import (
    MACHINE_VARIABLE,
    PROFILE_VARIABLE,
    SHARD_VARIABLE,
    SUITE_VARIABLE,
    Suite,
    declare,
)

#: s to wait for another writer of ~/.asv-machine.json, who needs milliseconds.
MACHINE_FILE_TIMEOUT = 30.0


class Prepared(msgspec.Struct):
    """What a measuring command works with.

    scratch: its folder, where points leave their Records.  selection: our benchmark → the indices of its points, as asv
    counts them.  rounds: our benchmark → its rounds.  run: of this command, as in its Records.  tasks: asv's benchmarks
    of ours, with the index of each point to measure.  spawner: asv's, of the commit and environment under way.
    outcomes: (asv's name, index) → what asv's process of the last round gave, and the Record of all rounds.
    """

    machine: str
    scratch: Path
    selection: dict[str, set[int]]
    report: RunReport
    rounds: dict[str, int]
    run: str
    tasks: list[tuple[dict[str, Any], int]] = []
    spawner: Any = None
    outcomes: dict[tuple[str, int], tuple[Any, Record | None]] = {}


def prepare(conf: Any, args: Any, *, writes: bool) -> Prepared:
    """Validate the registry, detect the node, and write the suite that the benchmark processes read.

    args: asv's arguments; its `machine` is set to the name of this node's results.  writes: lock the machine's folder
    for this process. Nothing of results/ is touched before the registry is known to be good. Raises HpmlError when it
    is not, and Locked when another process, here or on another node, writes this machine's results.
    """
    registry = read_registry()
    node = detect_node()
    args.machine = machine = getattr(args, "machine", None) or machine_name(node)
    results = Path(conf.results_dir)
    if writes:
        atexit.register(lock_machine(results, machine).release)
    os.environ[MACHINE_VARIABLE] = machine
    scratch = _make_scratch()
    host = make_host(registry, facts=True, profile=os.environ.get(PROFILE_VARIABLE) or EVERYTHING)
    suite = declare(host, node, machine, scratch, keep=writes, reuse=_reused_statuses(args))
    for problem in [*(plugin.error for plugin in host.broken), *host.offers.problems]:
        log.warning(str(problem))
    file = scratch / "suite.json"
    file.write_bytes(msgspec.json.encode(suite))
    os.environ[SUITE_VARIABLE] = str(file)
    record_machine(facets(node, machine, read_object_or_empty(results / machine / MACHINE)))
    report = RunReport(past=past_rounds(results, machine))
    rounds = {declared.benchmark: declared.rounds for declared in suite.benchmarks}
    return Prepared(machine, scratch, select_points(suite), report, rounds, suite.run)


def select_points(suite: Suite) -> dict[str, set[int]]:
    """The points of each benchmark that this run's profile chooses; those that lack something write a Record why."""
    return {
        declared.benchmark: {index for index, params in enumerate(declared.points()) if declared.is_chosen(params)}
        for declared in suite.benchmarks
    }


def narrow(benchmarks: Benchmarks, selection: Mapping[str, set[int]]) -> None:
    """Keep of asv's selection one metric of each benchmark of ours, and of its points those of the profile.

    The process of that metric measures the point for all metrics, and the projection gives the others to asv.
    """
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


def tasks_of(benchmarks: Benchmarks) -> list[tuple[dict[str, Any], int]]:
    """The points of ours that asv has selected: its benchmark and the index of the point, in its order."""
    found = []
    for name, entry in benchmarks.items():
        active = benchmarks.benchmark_selection.get(name)
        for index in range(math.prod(map(len, entry["params"])) if "benchmark" in entry else 0):
            if active is None or index in active:
                found.append((entry, index))
    return found


def values_of(benchmark: Mapping[str, Any], index: int) -> tuple[str, ...]:
    """The values of a point of one of asv's benchmarks, as Python's repr. index: as asv counts."""
    return next(itertools.islice(itertools.product(*benchmark["params"]), index, None), ())


def point_of(benchmark: Mapping[str, Any], values: Sequence[str]) -> str:
    """The key of a point of one of asv's benchmarks. values: as Python's repr."""
    params = {name: value_of(value) for name, value in zip(benchmark["param_names"], values, strict=True)}
    return point_key(benchmark["benchmark"], benchmark["version"], params)


def measure_rounds(
    prepared: Prepared, measure: Callable[[dict[str, Any], int], Any], extra: Mapping[str, Any]
) -> Iterator[None]:
    """Measure all rounds of all points, in random order; fills `outcomes`. Yields after each round.

    measure: has asv start a process for a point, which leaves a Record.  extra: asv's; `rounds` there overrides the
    benchmarks' own, as with --quick.
    """
    prepared.outcomes.clear()
    done: Counter[int] = Counter()

    def rounds(task: int) -> int:
        return int(extra.get("rounds") or prepared.rounds.get(prepared.tasks[task][0]["benchmark"], 1))

    for task in schedule(range(len(prepared.tasks)), rounds, prepared.run):
        benchmark, index = prepared.tasks[task]
        _, before = prepared.outcomes.get((benchmark["name"], index), (None, None))
        if not done[task] or (before and _needs_more(before, prepared.run)):
            values = values_of(benchmark, index)
            point = format_point_texts(dict(zip(benchmark["param_names"], values, strict=False)))
            which = f"round {done[task] + 1} of {rounds(task)}: " if rounds(task) > 1 else ""
            prepared.report.start_point(f"{which}{benchmark['benchmark']} {point}")
            result = measure(benchmark, index)
            record = read_new_record(prepared, point_of(benchmark, values))
            if before and record and record.run == prepared.run:  # that of an earlier run comes with all its rounds
                record = combine([before, record])
            prepared.outcomes[benchmark["name"], index] = result, record
            done[task] += 1
        prepared.report.finish_round()
        yield


def _needs_more(record: Record, run: str) -> bool:
    """Whether a point needs further rounds. A commit from before there were rounds plans one, and tells of one."""
    was_found = record.run != run and record.is_complete
    return record.status == "ok" and not was_found and (record.planned_rounds == 1 or not record.is_complete)


def read_new_record(prepared: Prepared, point: str) -> Record | None:
    """The Record that a point has just left; None where its commit has no suite."""
    found = None
    for path in prepared.scratch.rglob(f"{point}.json"):
        found = decode(path.read_bytes())
        path.unlink()  # a commit from before there were rounds would give it again instead of measuring
        path.with_suffix(".started").unlink(missing_ok=True)
    return found


def keep_shard(benchmarks: Benchmarks) -> None:
    """Keep the benchmarks of this process's shard. Raises SystemExit(0) when it has none and others have some."""
    index, _, count = os.environ.get(SHARD_VARIABLE, "0/1").partition("/")
    active = benchmarks.benchmark_selection
    weights = {name: 1 if active.get(name) is None else len(active[name]) for name in benchmarks}
    mine = shard(weights, int(count))[int(index)]
    if weights and not mine:
        print(f"shard {int(index) + 1} of {count} has nothing to measure: there are {len(weights)} benchmarks")
        raise SystemExit(0)
    for name in set(benchmarks) - set(mine):
        del benchmarks[name]


def shard(weights: Mapping[str, float], count: int) -> list[list[str]]:
    """Names in shards of about equal weight: the heaviest first, each to the shard that is lightest so far.

    The same for everybody who asks: ties go by name, and to the first shard. At most 4/3 of the optimum.
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

    Each different value splits asv's graphs, so what changes between two boots of one node type (kernel, a virtual
    machine's memory, the host's CPU) is kept as it was first recorded under this name; every Record has the truth.
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


def record_machine(facts: dict[str, str]) -> None:
    """Write the facts where asv looks for them, ~/.asv-machine.json, beside the machines that are there.

    asv reads the file, adds to it and writes it: of two jobs that start at once on a shared home, one would be lost.
    """
    from filelock import FileLock

    with FileLock(f"{MachineCollection.get_machine_file_path()}.lock", timeout=MACHINE_FILE_TIMEOUT):
        MachineCollection.save(facts["machine"], facts)


def _reused_statuses(args: Any) -> list[str]:
    """The statuses that asv was told to skip. A skipped point counts as successful, as asv counts its NaN."""
    everything = getattr(args, "skip_existing", False) or getattr(args, "skip_existing_commits", False)
    successful = ["ok", "skipped"] if everything or getattr(args, "skip_existing_successful", False) else []
    return successful + (["failed"] if everything or getattr(args, "skip_existing_failed", False) else [])


def _make_scratch() -> Path:
    """A folder for this command alone; those of commands that were killed are removed."""
    for left in Path(tempfile.gettempdir()).glob("hpml-[0-9]*-*"):
        owner = left.name.split("-")[1]
        if owner.isdigit() and not Path("/proc", owner).exists():
            shutil.rmtree(left, ignore_errors=True)
    scratch = Path(tempfile.mkdtemp(prefix=f"hpml-{os.getpid()}-"))
    atexit.register(shutil.rmtree, scratch, ignore_errors=True)
    return scratch
