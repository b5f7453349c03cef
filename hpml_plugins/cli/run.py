"""`hpml run NAME`: measure one benchmark now, without asv, and show what came out."""

from __future__ import annotations

import dataclasses
import itertools
import shutil
import sys
import tempfile
import uuid
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

import click
import msgspec

from hpml_plugins.cli import Settings
from hpml_plugins.errors import UsageError, nearest
from hpml_plugins.host import Declared, Host, load_sources, make_host
from hpml_plugins.measure import Context, SamplingPlan, import_before_fork, measure_point
from hpml_plugins.model.benchmark import Benchmark, Params
from hpml_plugins.model.formatting import format_point
from hpml_plugins.model.record import Record, encode, point_key
from hpml_plugins.model.rounds import combine, schedule
from hpml_plugins.node import data_used, detect_node, machine_name
from hpml_plugins.registry import EVERYTHING, read_registry
from hpml_plugins.report.progress import RunReport
from hpml_plugins.store import append_record, check_writable, past_rounds

Task = tuple[Declared, Params]
Point = tuple[Benchmark, Params]


@click.command("run")
@click.argument("name")
@click.option("-p", "--param", "choices", multiple=True, metavar="KEY=VALUE[,VALUE]", help="Measure only these points.")
@click.option("--profile", default=EVERYTHING, show_default=True, help="Measure only the points of this profile.")
@click.option(
    "--precision", type=click.FloatRange(0, 1, min_open=True), help="Sample to this precision; 0.005 is ±0.5 %."
)
@click.option("--budget", type=click.FloatRange(0, min_open=True), help="Maximum sampling time of a step, in seconds.")
@click.option("--rounds", type=click.IntRange(1, 100), help="Number of processes in which each point is measured.")
@click.option("--record", type=click.Path(path_type=Path), help="Append the Records of all rounds to this .jsonl file.")
@click.option("--json", "as_json", is_flag=True, help="Print each Record as a line of JSON.")
@click.pass_obj
def command(
    settings: Settings,
    name: str,
    choices: tuple[str, ...],
    profile: str,
    precision: float | None,
    budget: float | None,
    rounds: int | None,
    record: Path | None,
    as_json: bool,
) -> int:
    """Measure benchmark (or plugin) NAME now. Exit status 1 when a point failed."""
    host = make_host(read_registry(settings.registry), facts=True, profile=profile)
    tasks = _tasks(host, name, choices, profile)
    node = msgspec.structs.replace(detect_node(), facts=host.offers.facts)
    for problem in host.offers.problems:
        print(f"hpml: {problem}", file=sys.stderr)
    sampling, _ = tasks[0]
    plugin = host.load(sampling.plugin.name)  # a name is of one plugin or of one of its benchmarks
    if plugin.error:
        raise plugin.error
    benchmarks = {benchmark.name: benchmark for benchmark in plugin.benchmarks}
    points = [(benchmarks[info.name], params) for info, params in tasks]
    if record:
        check_writable(record)
    if len(points) > 1:
        import_before_fork(module for benchmark, _ in points for module in benchmark.requires.modules)
    context = Context(
        node=node,
        plugin=plugin.entry.name,
        source=plugin.source,
        machine=machine_name(node),
        run=uuid.uuid4().hex,
        plan=SamplingPlan().but(precision=precision or sampling.precision, budget=budget or sampling.budget),
    )
    needed = [data for benchmark, params in points for data in data_used(benchmark, params)]
    sources = load_sources(host.offers, settings.registry.parent, needed, plugin)
    planned = [rounds or info.rounds for info, _ in tasks]
    past = past_rounds(settings.registry.parent / "results", context.machine)
    report = RunReport([_key(point) for point, count in zip(points, planned, strict=True) for _ in range(count)], past)

    def measure(point: Point, round_of: str, count: int) -> Record:
        benchmark, params = point
        title = f"{benchmark.name} {format_point(params)}"
        report.start_point(f"{round_of}{title}")
        round_context = dataclasses.replace(context, rounds=count, scratch=Path(scratch))
        done = measure_point(benchmark, params, round_context, progress=report.progress)
        if record:
            append_record(record, done)
        if done.status == "failed" and settings.debug and not as_json:
            print(f"failed {title}: {done.reason}\n{done.output}", file=sys.stderr)
        return done

    with host.offers.in_force(sources), tempfile.TemporaryDirectory(prefix="hpml-") as scratch:
        measured = _in_rounds(points, planned, context.run, measure, report)
    _print(measured, report, as_json=as_json)
    failed = sum(done.status == "failed" for done in report.records)
    if failed:
        print(f"hpml: {failed} of {len(points)} points failed", file=sys.stderr)
    return 1 if failed else 0


def _in_rounds(
    points: Sequence[Point],
    planned: Sequence[int],
    seed: str,
    measure: Callable[[Point, str, int], Record],
    report: RunReport,
) -> list[Record]:
    """The Record of each point, after as many rounds as planned; one that was not measured has no further round."""
    measured: list[list[Record]] = [[] for _ in points]
    for number in schedule(range(len(points)), planned.__getitem__, seed):
        records, count = measured[number], planned[number]
        if not records or records[-1].status == "ok":
            round_of = f"round {len(records) + 1} of {count}: " if count > 1 else ""
            records.append(measure(points[number], round_of, count))
        report.finish_round()
    return [combine(records) for records in measured]


def _print(measured: Sequence[Record], report: RunReport, *, as_json: bool) -> None:
    """A table of each benchmark, or each Record as JSON; on stderr, of which plugin the files changed."""
    for name, of_benchmark in itertools.groupby(measured, lambda done: done.benchmark):
        for done in of_benchmark:
            report.add(done)
            if as_json:
                print(encode(done).decode(), flush=True)
        if not as_json:
            print(f"{name}\n{report.finish_benchmark(shutil.get_terminal_size().columns)}", flush=True)
    for line in report.code_changes:
        print(f"hpml: {line}", file=sys.stderr)


def _key(point: Point) -> str:
    benchmark, params = point
    return point_key(benchmark.name, benchmark.version, params)


def _tasks(host: Host, name: str, choices: Iterable[str], profile: str) -> list[Task]:
    """The points to measure, in order, all of one plugin.

    Raises UsageError when the choice names no parameter, no value or no point.
    """
    found = host.find(name)
    wanted = dict(split_choice(choice) for choice in choices)
    known = {key for benchmark in found for key in benchmark.grid}
    for key, values in wanted.items():
        if key not in known:
            raise UsageError(f"{name!r} has no parameter {key!r}; {nearest(key, sorted(known))}")
        offered = {format_value(value) for benchmark in found for value in benchmark.grid.get(key, ())}
        if unknown := [value for value in values if value not in offered]:
            raise UsageError(
                f"{key} {unknown[0]!r} is not in the grid of {name!r}; {nearest(unknown[0], sorted(offered))}; "
                "grids are widened in registry.yaml"
            )
    tasks = [
        (benchmark, params)
        for benchmark in found
        for params in benchmark.chosen_points()
        if all(key in params and format_value(params[key]) in values for key, values in wanted.items())
    ]
    if not tasks:
        raise UsageError(
            f"no point of {name!r} is selected by profile {profile!r} and {' '.join(choices) or 'no choice'}"
        )
    return tasks


def format_value(value: object) -> str:
    """A parameter's value as it is written in the registry: YAML's true, not Python's True."""
    return str(value).lower() if isinstance(value, bool) else str(value)


def split_choice(choice: str) -> tuple[str, list[str]]:
    """`-p KEY=VALUE[,VALUE]` as the key and its values. Raises UsageError for anything else."""
    key, equals, values = choice.partition("=")
    if not equals or not key or not values:
        raise UsageError(f"-p {choice!r} is not KEY=VALUE; for example -p millions=10")
    return key, [value.lower() if value in ("True", "False") else value for value in values.split(",")]
