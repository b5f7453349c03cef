"""`hpml run NAME`: measure one benchmark now, without asv, and show the results."""

from __future__ import annotations

import functools
import itertools
import shutil
from collections.abc import Container, Iterable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path

import click
import msgspec

from hpml_plugins.cli import (
    PATH,
    Positive,
    Settings,
    json_option,
    records_beside,
    records_file,
)
from hpml_plugins.errors import Failure, UsageError, nearest
from hpml_plugins.host import (
    Declared,
    Host,
    Offers,
    Unmet,
    load_sources,
    make_host,
    merge_offers,
)
from hpml_plugins.isolation import end_leftovers
from hpml_plugins.measure import import_before_fork
from hpml_plugins.model.benchmark import Benchmark, Params
from hpml_plugins.model.data_source import LoadableData, available_sources, use_sources
from hpml_plugins.model.formatting import format_choice, name_point
from hpml_plugins.model.record import Record
from hpml_plugins.model.serialization import encode
from hpml_plugins.node import data_used, detect_node, filed_under, unmet
from hpml_plugins.registry import EVERYTHING, read_registry, registry_with
from hpml_plugins.report.points import describe_points
from hpml_plugins.report.progress import RunReport
from hpml_plugins.report.shares import Roof
from hpml_plugins.run import (
    OutOfTime,
    RoundTimes,
    Task,
    TimeLimit,
    measure_rounds,
    parse_limit,
    read_past_rounds,
    rounds_of,
)
from hpml_plugins.store import append_record, stored_rounds
from hpml_plugins.suite.points import make_suite, record_of
from hpml_plugins.temporary import temporary_folder
from hpml_plugins.terminal import printable_json, say, warn

#: The file for --record without a value.
BESIDE = Path("FILE.jsonl")


def _place_records(
    context: click.Context, parameter: click.Parameter, record: Path | None
) -> Path | None:
    """The file for --record; without a value the one beside NAME."""
    place = records_beside(context.params["name"]) if record == BESIDE else record
    return records_file(context, parameter, place)


@click.command("run")
@click.argument("name", metavar="NAME|FILE.py", is_eager=True)
@click.option(
    "-p",
    "--param",
    "choices",
    multiple=True,
    metavar="KEY=VALUE[,VALUE]",
    help="Measure only these points.",
)
@click.option(
    "--profile",
    default=EVERYTHING,
    show_default=True,
    help="Measure only the points of this profile.",
)
@click.option(
    "--precision", type=Positive(1), help="Sample to this precision; 0.005 is ±0.5 %."
)
@click.option(
    "--budget", type=Positive(), help="Maximum sampling time of a step, in seconds."
)
@click.option(
    "--rounds",
    type=click.IntRange(1, 100),
    help="Number of processes in which each point is measured.",
)
@click.option(
    "--limit",
    "limit_text",
    metavar="TIME",
    help="Measure whole points while they fit; 9min, 540s, 1h.",
)
@click.option(
    "--record",
    type=PATH,
    is_flag=False,
    flag_value=BESIDE,
    callback=_place_records,
    metavar="[FILE.jsonl]",
    help="Append the Records of all rounds to this file; default: FILE.jsonl beside FILE.py.",
)
@click.option("-v", "--verbose", is_flag=True, help="Show all warnings.")
@json_option("Print each Record as a line of JSON.")
@click.pass_obj
def command(
    settings: Settings,
    name: str,
    choices: tuple[str, ...],
    profile: str,
    precision: float | None,
    budget: float | None,
    rounds: int | None,
    limit_text: str | None,
    record: Path | None,
    verbose: bool,
    as_json: bool,
) -> int:
    """Measure NAME now: a benchmark, a plugin, or a plugin's file.

    FILE.py need not be in the registry. Exit status 1 when a point failed, 3 when --limit left
    points out, 4 when nothing was measured.
    """
    limit = TimeLimit(parse_limit(limit_text, "--limit")) if limit_text else None
    node = detect_node()
    host, found = _find(settings, name, profile, functools.partial(unmet, node=node))
    chosen = _tasks(found, name, choices, profile)
    tasks = [
        (_as_asked(declared, rounds, precision, budget), params)
        for declared, params in chosen
    ]
    results = settings.results
    machine = filed_under(node, results)
    for problem in host.offers.problems:
        warn(problem)
    if record:  # before measuring anything in vain
        record.parent.mkdir(parents=True, exist_ok=True)
        record.open("ab").close()
    times = RoundTimes(read_past_rounds(results), machine, has_gpu=bool(node.gpus))
    past = stored_rounds(results, machine)
    report = RunReport(times, past, limit, verbose=verbose)
    report.expect(len(tasks))
    measurable = [
        (declared, params) for declared, params in tasks if not declared.why_unmet(params)
    ]
    for task in measurable:
        report.plan(rounds_of(task))
    if sum(declared.rounds for declared, _ in measurable) > 1:
        import_before_fork(
            module for declared, _ in measurable for module in declared.modules
        )
    for left in end_leftovers():
        warn(left)
    with temporary_folder("hpml-run-") as scratch:
        suite = make_suite(host, node, machine, scratch, keep=False)

        def measure(number: int) -> Record:
            declared, params = tasks[number]
            if limit and limit.left < declared.timeout:
                declared = msgspec.structs.replace(declared, timeout=limit.left)
            done = record_of(suite, declared, params, report.progress)
            if done.failure is Failure.TIMEOUT and limit and limit.left <= 0:
                raise OutOfTime
            if record:
                append_record(record, done)
            if done.status == "failed" and settings.debug and not as_json:
                # its reason is shown below the table
                say(
                    f"printed by {name_point(declared.benchmark, params)}:",
                    *done.output.splitlines(),
                    error=True,
                )
            return done

        records = measure_rounds(tasks, suite.run, measure, report, limit)
    report.add([done for done in records if done])  # none of a point that was left out
    _print(report, past, as_json=as_json)
    for line in report.outcome:
        warn(line)
    failed = any(done.status == "failed" for done in report.records)
    return 1 if failed else report.status


def _as_asked(
    declared: Declared, rounds: int | None, precision: float | None, budget: float | None
) -> Declared:
    """The benchmark with the overrides from the options."""
    return msgspec.structs.replace(
        declared,
        rounds=rounds or declared.rounds,
        precision=precision or declared.precision,
        budget=budget or declared.budget,
    )


def _print(report: RunReport, past: Sequence[Record], *, as_json: bool) -> None:
    """Print a table of each benchmark, or each Record as JSON; warnings about the run go to
    stderr."""
    if as_json:
        for done in report.records:
            say(printable_json(encode(done).decode()))
    else:
        roof = Roof([*past, *report.records])
        width = shutil.get_terminal_size().columns
        for name, group in itertools.groupby(report.records, lambda done: done.benchmark):
            say(name, *describe_points(list(group), width, roof, verbose=report.verbose))
    noisy = [] if as_json else report.noisy
    for line in [*report.omitted, *report.code_changes, *noisy, *report.busy]:
        warn(line)


def _find(
    settings: Settings, name: str, profile: str, unmet: Unmet
) -> tuple[Host, list[Declared]]:
    """The host, and the benchmarks selected by NAME: from the registry, or from a file, with the
    registry's data sets.

    Raises UsageError for a file that does not exist, and the errors of `Host.find`.
    """
    if name.endswith(".py"):
        return _find_in_file(Path(name), settings.registry, profile, unmet)
    host = make_host(read_registry(settings.registry), unmet=unmet, profile=profile)
    try:
        return host, host.find(name)
    except UsageError:
        file = _unregistered(name, settings.registry.parent)
        if file is None:
            raise
        where = settings.registry.name
        raise UsageError(
            f"{where} has no {name!r}; to run the file: hpml run {file}"
        ) from None


def _find_in_file(
    file: Path, path: Path, profile: str, unmet: Unmet
) -> tuple[Host, list[Declared]]:
    """The same for a plugin's file. path: of the registry, whose plugins are only asked for data
    sets if a point may need one."""
    registry, entry = registry_with(file, path)
    host = make_host(registry, unmet=unmet, profile=profile)
    found = host.of_plugin(entry.name)
    if not path.is_file() or not any(map(_may_name_data, found)):
        return host, found
    whole = read_registry(path)
    if entry in whole.plugins:
        return host, found
    offers = make_host(whole).offers
    knowing = _knowing(offers, registry.folder, unmet)
    host = make_host(registry, unmet=knowing, profile=profile)
    host = replace(host, offers=merge_offers([host.offers, offers]))
    return host, host.of_plugin(entry.name)


def _unregistered(name: str, project: Path) -> Path | None:
    """The file of a plugin of this name that is not in the registry: here, or where `hpml new`
    creates it."""
    if "/" in name:
        return None
    from hpml_plugins.asv.configuration import plugins_folder

    files = [Path(f"{name}.py"), plugins_folder(project) / f"{name}.py"]
    return next((file for file in files if file.is_file()), None)


def _may_name_data(benchmark: Declared) -> bool:
    """Whether a point may need a data set that its own plugin does not offer: a required one is
    missing so far, and an optional one is named by a parameter's value."""
    values = itertools.chain.from_iterable(benchmark.grid.values())
    return bool(benchmark.unmet) or any(isinstance(value, str) for value in values)


def _knowing(offers: Offers, folder: Path, unmet: Unmet) -> Unmet:
    """Extend `unmet` by the data sets that the registry's plugins offer.

    folder: of the registry. It is called in the process that loads the file's plugin, so that no
    plugin of the registry is imported here.
    """

    @functools.cache
    def load(names: tuple[str, ...]) -> dict[str, LoadableData]:
        return load_sources(offers, folder, names)

    def unmet_beside(benchmark: Benchmark, params: Params) -> list[str]:
        own = available_sources()
        others = load(
            tuple(each for each in data_used(benchmark, params) if each not in own)
        )
        with use_sources(others) if others else nullcontext():
            return unmet(benchmark, params)

    return unmet_beside


def _tasks(
    found: Sequence[Declared], name: str, choices: Iterable[str], profile: str
) -> list[Task]:
    """The points to measure, in order, all of one plugin.

    Raises UsageError if the choice names an unknown parameter or value, or no point.
    """
    wanted = split_choices(choices)
    known = {key for benchmark in found for key in benchmark.grid}
    chosen: dict[str, list[str]] = {}
    for key, text in wanted.items():
        if key not in known:
            raise UsageError(
                f"{name!r} has no parameter {key!r}; {nearest(key, sorted(known))}"
            )
        offered = {
            format_choice(value)
            for benchmark in found
            for value in benchmark.grid.get(key, ())
        }
        values = chosen[key] = choose(text, offered)
        if unknown := [value for value in values if value not in offered]:
            raise UsageError(
                f"{key} {unknown[0]!r} is not in the grid of {name!r};"
                f" {nearest(unknown[0], sorted(offered))}; grids are widened in registry.yaml"
            )
    tasks = [
        (benchmark, params)
        for benchmark in found
        for params in benchmark.chosen_points().values()
        if is_chosen(params, chosen)
    ]
    if not tasks:
        raise UsageError(
            f"no point of {name!r} is selected by profile {profile!r}"
            + (f" and {' '.join(choices)}" if choices else "")
        )
    return tasks


def split_choices(choices: Iterable[str]) -> dict[str, str]:
    """Split each `-p KEY=VALUE[,VALUE]` into the key and the rest. Raises UsageError for anything
    else, and for a key that is given twice."""
    found: dict[str, str] = {}
    for choice in choices:
        key, equals, text = choice.partition("=")
        if not equals or not key:
            raise UsageError(f"-p {choice!r} is not KEY=VALUE; for example -p millions=10")
        if key in found:
            raise UsageError(
                f"-p {key} is given twice; name all its values in one: {key}=A,B"
            )
        found[key] = text
    return found


def is_chosen(params: Params, chosen: Mapping[str, Sequence[str]]) -> bool:
    """Whether a point has one of the chosen values of each parameter.  chosen: from `choose`."""
    return all(
        key in params and format_choice(params[key]) in values
        for key, values in chosen.items()
    )


def choose(text: str, offered: Container[str]) -> list[str]:
    """The values selected by a choice: an offered value with a comma as a whole, else the parts
    between commas.

    offered: in the form that `format_choice` returns. A text needs quotes only if the same
    characters without quotes are also offered, as a number.
    """

    def forms(value: str) -> tuple[str, ...]:
        return value, *([value.lower()] if value in ("True", "False") else []), repr(value)

    def meant(value: str) -> str:
        return next((each for each in forms(value) if each in offered), value)

    whole = meant(text)
    return [whole] if whole in offered else [meant(value) for value in text.split(",")]
