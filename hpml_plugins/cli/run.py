"""`hpml run NAME`: measure one benchmark now, without asv, and show what came out."""

from __future__ import annotations

import itertools
import shutil
import tempfile
from collections.abc import Container, Iterable, Sequence
from pathlib import Path

import click
import msgspec

from hpml_plugins.cli import Positive, Settings
from hpml_plugins.errors import UsageError, nearest
from hpml_plugins.host import Declared, Host, make_host
from hpml_plugins.measure import import_before_fork
from hpml_plugins.model.benchmark import Params
from hpml_plugins.model.formatting import format_point, spell_choice
from hpml_plugins.model.record import Record, encode
from hpml_plugins.node import detect_node, machine_name
from hpml_plugins.registry import EVERYTHING, read_registry
from hpml_plugins.report.progress import RunReport, measure_rounds
from hpml_plugins.store import append_record, past_rounds
from hpml_plugins.suite.declaration import declare
from hpml_plugins.suite.functions import record_of
from hpml_plugins.terminal import printable_json, say, warn

Task = tuple[Declared, Params]


@click.command("run")
@click.argument("name")
@click.option("-p", "--param", "choices", multiple=True, metavar="KEY=VALUE[,VALUE]", help="Measure only these points.")
@click.option("--profile", default=EVERYTHING, show_default=True, help="Measure only the points of this profile.")
@click.option("--precision", type=Positive(1), help="Sample to this precision; 0.005 is ±0.5 %.")
@click.option("--budget", type=Positive(), help="Maximum sampling time of a step, in seconds.")
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
    tasks = [
        (
            msgspec.structs.replace(
                declared,
                rounds=rounds or declared.rounds,
                precision=precision or declared.precision,
                budget=budget or declared.budget,
            ),
            params,
        )
        for declared, params in _tasks(host, name, choices, profile)
    ]
    node = detect_node()
    machine = machine_name(node)
    for problem in host.offers.problems:
        warn(problem)
    if record:  # before anything is measured for nothing
        record.parent.mkdir(parents=True, exist_ok=True)
        record.open("ab").close()
    if len(tasks) > 1:
        import_before_fork(module for declared, _ in tasks for module in declared.modules)
    past = past_rounds(settings.registry.parent / "results", machine)
    report = RunReport([declared.key(params) for declared, params in tasks for _ in range(declared.rounds)], past)
    with tempfile.TemporaryDirectory(prefix="hpml-") as scratch:
        suite = declare(host, node, machine, scratch, keep=False)

        def measure(number: int) -> Record:
            declared, params = tasks[number]
            done = record_of(suite, declared, params, report.progress)
            if record:
                append_record(record, done)
            if done.status == "failed" and settings.debug and not as_json:
                point = f"{declared.benchmark} {format_point(params)}"
                say(f"failed {point}: {done.reason}", *done.output.splitlines(), error=True)
            return done

        measured = measure_rounds(tasks, suite.run, measure, report)
    _print([done for done in measured if done], report, as_json=as_json)
    failed = sum(done.status == "failed" for done in report.records)
    if failed:
        warn(f"{failed} of {len(tasks)} points failed")
    return 1 if failed else 0


def _print(measured: Sequence[Record], report: RunReport, *, as_json: bool) -> None:
    """A table of each benchmark, or each Record as JSON; on stderr, of which plugin the files changed."""
    for name, of_benchmark in itertools.groupby(measured, lambda done: done.benchmark):
        for done in of_benchmark:
            report.add(done)
            if as_json:
                say(printable_json(encode(done).decode()))
        if not as_json:
            say(name, *report.finish_benchmark(shutil.get_terminal_size().columns).splitlines())
    for line in report.code_changes:
        warn(line)


def _tasks(host: Host, name: str, choices: Iterable[str], profile: str) -> list[Task]:
    """The points to measure, in order, all of one plugin.

    Raises UsageError when the choice names no parameter, no value or no point.
    """
    found = host.find(name)
    wanted = dict(split_choice(choice) for choice in choices)
    known = {key for benchmark in found for key in benchmark.grid}
    chosen: dict[str, list[str]] = {}
    for key, text in wanted.items():
        if key not in known:
            raise UsageError(f"{name!r} has no parameter {key!r}; {nearest(key, sorted(known))}")
        offered = {spell_choice(value) for benchmark in found for value in benchmark.grid.get(key, ())}
        values = chosen[key] = choose(text, offered)
        if unknown := [value for value in values if value not in offered]:
            raise UsageError(
                f"{key} {unknown[0]!r} is not in the grid of {name!r}; {nearest(unknown[0], sorted(offered))}; "
                "grids are widened in registry.yaml"
            )
    tasks = [
        (benchmark, params)
        for benchmark in found
        for params in benchmark.chosen_points().values()
        if all(key in params and spell_choice(params[key]) in values for key, values in chosen.items())
    ]
    if not tasks:
        raise UsageError(
            f"no point of {name!r} is selected by profile {profile!r} and {' '.join(choices) or 'no choice'}"
        )
    return tasks


def split_choice(choice: str) -> tuple[str, str]:
    """`-p KEY=VALUE[,VALUE]` as the key and the rest. Raises UsageError for anything else."""
    key, equals, text = choice.partition("=")
    if not equals or not key:
        raise UsageError(f"-p {choice!r} is not KEY=VALUE; for example -p millions=10")
    return key, text


def choose(text: str, offered: Container[str]) -> list[str]:
    """The values that a choice names: one that is offered as it stands, though it has a comma, else those between."""
    if text in offered:
        return [text]
    return [value.lower() if value in ("True", "False") else value for value in text.split(",")]
