"""The suite: every declared benchmark, written once by asv's main process and read by each
benchmark process. Also measures and stores one round of one of its points."""

from __future__ import annotations

import dataclasses
import functools
import os
import uuid
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec

from hpml_plugins import store
from hpml_plugins.errors import DefinitionError, HpmlError, Unwritable
from hpml_plugins.host import Declared, Host, Offers, load_plugin, load_sources
from hpml_plugins.measure import Context, SamplingPlan, measure_point, unmeasured
from hpml_plugins.measure.session import Progress
from hpml_plugins.model.benchmark import REFERENCE, Benchmark, Params
from hpml_plugins.model.data_source import use_sources
from hpml_plugins.model.node import Node
from hpml_plugins.model.record import Record
from hpml_plugins.model.rounds import combine
from hpml_plugins.model.serialization import encode, shorten
from hpml_plugins.node import data_used
from hpml_plugins.store import append_record, atomic_write, read_file, record_file

#: The variable that gives benchmark processes the file of the suite.
SUITE_VARIABLE = "HPML_SUITE"
PROFILE_VARIABLE = "HPML_PROFILE"
RESULTS_VARIABLE = "HPML_RESULTS"
#: The digest of the commit's package if it is not hpml-plugins; set by the environment `node`.
PACKAGE_VARIABLE = "HPML_PACKAGE"
MACHINE_VARIABLE = "HPML_MACHINE"
#: "1/4": `asv run` measures the second of four shards of the benchmarks. Unset: all of them.
SHARD_VARIABLE = "HPML_SHARD"
#: The file to which `asv run` writes the reason if it is refused, for the job that started it.
REFUSAL_VARIABLE = "HPML_REFUSAL"
#: Results in another folder than asv.conf.json says: for several runs at once on one node.
ASV_RESULTS_VARIABLE = "HPML_ASV_RESULTS"
#: The same for environments.
ASV_ENVIRONMENTS_VARIABLE = "HPML_ASV_ENVIRONMENTS"
#: In a run's temporary folder: why a Record could not be stored, for asv's own process, which then
#: ends.
UNWRITABLE = "unwritable"
#: In the same folder: the last progress of the point that is measured, for asv's own process.
PROGRESS = "progress.json"
#: `hpml run` measures all points from one process; each process of asv measures one.
_load_once = functools.cache(load_plugin)


class Suite(msgspec.Struct, frozen=True):
    """What all benchmark processes of one `asv` command share.

    folder: of registry.yaml.  scratch: a folder that exists as long as the command.  keep: whether
    to store Records.  reuse: statuses of stored Records that are used instead of measuring again
    (asv's --skip-existing and related options); not "skipped", about which asv's main process
    decides (`reused_records`).  offers: the plugins' data sets (`host.Offers`), as
    plain JSON, because the format may differ at a commit.  unranked: asv's names of the metrics
    without a direction. In `benchmarks` they have one, because a commit from before such metrics
    reads the suite too and would refuse None.
    """

    run: str
    machine: str
    node: Node
    folder: str
    scratch: str
    benchmarks: list[Declared]
    keep: bool = True
    reuse: list[str] = []
    offers: dict[str, Any] = {}
    unranked: list[str] = []

    @property
    def results(self) -> Path:
        """asv's results folder."""
        return Path(
            os.environ.get(RESULTS_VARIABLE) or store.results_folder(Path(self.folder))
        )


def make_suite(
    host: Host,
    node: Node,
    machine: str,
    scratch: Path | str,
    *,
    keep: bool = True,
    reuse: Sequence[str] = (),
) -> Suite:
    """Create the suite of a host."""
    folder = str(host.registry.folder)
    offers = msgspec.to_builtins(host.offers)
    benchmarks, unranked = [], []
    for each in host.benchmarks():
        metrics = [
            dataclasses.replace(metric, direction=metric.direction or "lower")
            for metric in each.metrics
        ]
        benchmarks.append(msgspec.structs.replace(each, metrics=metrics))
        unranked += [
            store.asv_name(each.name, metric.name)
            for metric in each.metrics
            if metric.direction is None
        ]
    run = uuid.uuid4().hex
    return Suite(
        run,
        machine,
        node,
        folder,
        str(scratch),
        benchmarks,
        keep,
        list(reuse),
        offers,
        unranked,
    )


def record_of(
    suite: Suite, declared: Declared, params: Params, progress: Progress | None = None
) -> Record:
    """Measure this point and return its Record.

    One round is measured and stored. With --skip-existing a complete Record of an earlier run of
    this commit and environment is returned instead; one that was interrupted on this node gets
    another round and is returned with it.
    """
    commit = os.environ.get("ASV_COMMIT", "")
    environment = os.environ.get("ASV_ENV_NAME", "")
    before = _earlier(suite, declared, params, commit, environment)
    if before and before.is_complete:
        return before
    context = _context(suite, declared, commit, environment)
    if before:
        context = replace(context, run=before.run)
    record = shorten(_measure(suite, declared, params, context, progress))
    _store(suite, record)
    return combine([before, record]) if before else record


def leave_record(suite: Suite, record: Record) -> None:
    """Write the Record of a point to where asv's main process reads it (`asv.run.take_record`)."""
    folder = _scratch(suite, record.commit, record.environment)
    atomic_write(folder / f"{record.point}.json", encode(record), durable=False)


def leave_progress(suite: Suite, text: str, share: float | None) -> None:
    """Write how far a point is to where asv's main process reads it (`last_progress`).

    A point goes on without it where it cannot be written, as on a full disk.
    """
    content = msgspec.json.encode((text, share))
    with suppress(OSError):
        atomic_write(Path(suite.scratch, PROGRESS), content, durable=False)


def current_progress(suite: Suite) -> tuple[str, float | None]:
    """The last progress of the point that is measured; ("", None) if it reported none."""
    path = Path(suite.scratch, PROGRESS)
    if not path.exists():
        return "", None
    return msgspec.json.decode(path.read_bytes(), type=tuple[str, float | None])


def last_progress(suite: Suite) -> tuple[str, float | None]:
    """As `current_progress`, of the point that was measured; it is forgotten."""
    reached = current_progress(suite)
    with suppress(OSError):
        Path(suite.scratch, PROGRESS).unlink()
    return reached


def skip_point(
    suite: Suite,
    declared: Declared,
    params: Params,
    reason: str,
    commit: str,
    environment: str,
) -> Record:
    """Store the Record of a point whose requirements are not met, without starting a process.

    reason: see `Declared.unmet`. Raises Unwritable if it cannot be stored.
    """
    context = _context(suite, declared, commit, environment)
    skipped = unmeasured(
        declared.benchmark, declared.version, params, context, "skipped", reason
    )
    record = msgspec.structs.replace(skipped, requirement_unmet=True)
    _store(suite, record)
    return record


def reused_records(
    suite: Suite, tasks: Sequence[tuple[Declared, Params]], commit: str, environment: str
) -> dict[int, Record]:
    """For the numbers of points that are not measured again (--skip-existing) the complete Records
    of an earlier run that are used instead.

    A point that was skipped counts as successful, just as asv counts its NaN, unless the
    requirement that it lacked is met now.
    """
    if not suite.reuse:
        return {}
    reused = [*suite.reuse, "skipped"] if "ok" in suite.reuse else suite.reuse
    by_point: dict[str, list[Record]] = {}
    for record in read_file(_file_of(suite, commit)):
        if record.benchmark != REFERENCE:
            by_point.setdefault(record.point, []).append(record)
    found = {}
    for number, (declared, params) in enumerate(tasks):
        last = _standing(suite, by_point.get(declared.key(params), ()), environment)
        if last is None or not last.is_complete or last.status not in reused:
            continue
        if not last.requirement_unmet or declared.why_unmet(params):
            found[number] = last
    return found


def _earlier(
    suite: Suite, declared: Declared, params: Params, commit: str, environment: str
) -> Record | None:
    """The Record that represents the point, or that this run completes; None for the reference,
    which must be measured on each visit."""
    if not suite.reuse or declared.benchmark == REFERENCE:
        return None
    point = declared.key(params)
    stored = read_file(_file_of(suite, commit))
    of_point = [each for each in stored if each.point == point]
    record = _standing(suite, of_point, environment)
    if record and record.is_complete and record.status not in suite.reuse:
        return None
    return record


def _file_of(suite: Suite, commit: str) -> Path:
    return record_file(suite.results, suite.machine, commit)


def _scratch(suite: Suite, commit: str, environment: str) -> Path:
    """The folder shared by the rounds of a commit's points."""
    return Path(suite.scratch, commit or "here", environment or "here")


def _context(suite: Suite, declared: Declared, commit: str, environment: str) -> Context:
    return Context(
        plan=SamplingPlan().but(precision=declared.precision, budget=declared.budget),
        rounds=declared.rounds,
        node=suite.node,
        plugin=declared.plugin.name,
        machine=suite.machine,
        commit=commit,
        environment=environment,
        run=suite.run,
        scratch=_scratch(suite, commit, environment),
    )


def _store(suite: Suite, record: Record) -> None:
    """Append a Record where this run stores any. Raises Unwritable, and leaves the reason for asv's
    own process."""
    if not suite.keep:
        return
    try:
        append_record(_file_of(suite, record.commit), record)
    except Unwritable as error:
        Path(suite.scratch, UNWRITABLE).write_text(str(error), encoding="utf-8")
        raise


def _standing(suite: Suite, of_point: Sequence[Record], environment: str) -> Record | None:
    """The stored Record of an earlier run that represents a point or that this run completes; None
    to start a new one.

    A retracted Record counts as not measured.
    """
    found = [
        each
        for each in of_point
        if each.environment == environment and each.status != "retracted"
    ]
    last = found[-1] if found else None
    if last is None or last.run == suite.run:
        return None
    if last.is_complete:
        return last
    return last if _is_of_node(last, suite.node) else None


def _is_of_node(record: Record, node: Node) -> bool:
    """Whether it was measured on these cards since the last boot of the machine."""
    cards = [gpu.get("uuid") for gpu in record.gpus]
    same_boot = node.boot and record.node.get("boot") == node.boot
    return bool(same_boot) and cards == [gpu.uuid for gpu in node.gpus]


def _measure(
    suite: Suite,
    declared: Declared,
    params: Params,
    context: Context,
    progress: Progress | None,
) -> Record:
    folder = Path(suite.folder)
    plugin = _load_once(declared.plugin, folder)
    try:
        if plugin.error:
            raise plugin.error
        benchmark = _at_this_commit(declared, plugin.benchmarks)
    except HpmlError as error:
        reason = f"not available at this commit: {error}"
        return unmeasured(
            declared.benchmark, declared.version, params, context, "skipped", reason
        )
    try:
        offers = msgspec.convert(suite.offers, Offers)
    except msgspec.ValidationError:
        offers = Offers()  # of a newer suite, in another format
    # a value may be the name of a data set
    named = [*data_used(benchmark, params), *map(str, params.values())]
    source = dict(plugin.source)
    if package := os.environ.get(PACKAGE_VARIABLE):
        source["package"] = package
    context = replace(context, source=source)
    with use_sources(load_sources(offers, folder, named, plugin)):
        return measure_point(
            benchmark, params, context, progress=progress, timeout=declared.timeout
        )


def _at_this_commit(declared: Declared, offered: tuple[Benchmark, ...]) -> Benchmark:
    """The commit's own benchmark, if it matches the declared one: same version, grid keys and
    metrics."""
    benchmark = next((each for each in offered if each.name == declared.benchmark), None)
    if benchmark is None:
        raise DefinitionError(f"its plugin offers no {declared.benchmark!r}", "")
    if benchmark.version != declared.version:
        raise DefinitionError(
            f"it has version {benchmark.version}, the registry's is {declared.version}", ""
        )
    metrics = {metric.name for metric in benchmark.metrics}
    if (
        set(benchmark.grid) != set(declared.grid)
        or not {metric.name for metric in declared.metrics} <= metrics
    ):
        raise DefinitionError("its parameters or metrics differ", "")
    return benchmark
