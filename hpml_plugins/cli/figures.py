"""Commands that show a plugin's figures: table, plot."""

from __future__ import annotations

import fnmatch
import itertools
import mimetypes
import shutil
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import click

from hpml_plugins.cli import PATH, Settings
from hpml_plugins.cli.results import BRANCH, FORMAT, RESULTS, find_order
from hpml_plugins.errors import HpmlError, UsageError, nearest
from hpml_plugins.terminal import say, warn

if TYPE_CHECKING:
    from hpml_plugins.host import Host, LoadedPlugin
    from hpml_plugins.report.figures import Drawable

#: Types of the files that `hpml plot` writes.
_PICTURES = ("svg", "png", "pdf")
_NAME = click.argument("name", metavar="NAME|FILE.py")


@click.command()
@_NAME
@FORMAT
@BRANCH
@RESULTS
@click.pass_obj
def table(
    settings: Settings, name: str, form: str, branch: str | None, results: Path
) -> int:
    """Print the tables of plugin NAME.

    NAME can also be a figure, as FIGURE or PLUGIN.FIGURE. FILE.py is a plugin that need not be in
    the registry; its values are those of FILE.jsonl, which `hpml run FILE.py --record` writes, if
    it exists. Otherwise the values are those of the newest Records. A benchmark of asv's own is
    named as asv does, or by a pattern such as 'suite.*'.
    """
    from hpml_plugins.report.tables import as_csv, as_markdown, as_text

    # no width if the output is piped to a file or a program
    width = shutil.get_terminal_size((0, 0)).columns
    formatters = {"markdown": as_markdown, "csv": as_csv}
    formatter = formatters.get(form, partial(as_text, width=width))
    for number, drawable in enumerate(_find_drawables(settings, name, results, branch)):
        if number:
            say()
        if form != "csv":
            say(f"{'### ' if form == 'markdown' else ''}{drawable.figure.title}", "")
        say(*formatter(drawable.table).splitlines())
        if drawable.note and form != "csv":
            say("", drawable.note)
    return 0


@click.command()
@_NAME
@click.option(
    "--format",
    "form",
    type=click.Choice(_PICTURES),
    help="Type of the files; default: that of --to FILE, else png.",
)
@click.option(
    "--to",
    "target",
    type=PATH,
    default=Path(),
    help="Folder to write to; for one chart also a file, such as chart.svg.",
)
@BRANCH
@RESULTS
@click.pass_obj
def plot(
    settings: Settings,
    name: str,
    form: str | None,
    target: Path,
    branch: str | None,
    results: Path,
) -> int:
    """Write the charts of plugin NAME as files.

    NAME can also be a figure, as FIGURE or PLUGIN.FIGURE. FILE.py is a plugin that need not be in
    the registry; its values are those of FILE.jsonl, which `hpml run FILE.py --record` writes, if
    it exists. Otherwise the values are those of the newest Records.
    """
    from hpml_plugins.report.figures import render

    suffix = target.suffix.removeprefix(".")
    is_file = suffix in _PICTURES and not target.is_dir()
    type_of_file = mimetypes.guess_type(target)[0] or ""
    if not is_file and not target.is_dir() and type_of_file.startswith("image/"):
        raise UsageError(f"--to {target}: charts are written as {', '.join(_PICTURES)}")
    if is_file and form not in (None, suffix):
        raise UsageError(f"--to {target} is not of --format {form}; leave one of them out")
    form = form or (suffix if is_file else "png")
    drawables: list[Drawable] = []
    fault: HpmlError | None = None
    try:
        for drawable in _find_drawables(settings, name, results, branch, form):
            if drawable.is_drawn:
                drawables.append(drawable)
    except HpmlError as error:
        if not drawables:
            raise
        fault = error
    if not drawables:
        raise UsageError(f"{name!r} has tables but no chart; print them: hpml table {name}")
    if is_file and len(drawables) > 1:
        figures = ", ".join(f"{each.plugin}.{each.figure.name}" for each in drawables)
        raise UsageError(
            f"--to {target} is one file, and {name!r} has {len(drawables)} charts ({figures});"
            " name one of them, or a folder"
        )
    for drawable in drawables:
        drawn = render(drawable, form)
        if drawn is None:
            say(
                f"{drawable.plugin}.{drawable.figure.name}: nothing to draw; see hpml table"
            )
            continue
        in_folder = target / f"{drawable.plugin}-{drawable.figure.name}.{form}"
        path = target if is_file else in_folder
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(drawn)
        say(path)
    if fault:
        raise fault
    return 0


def _find_drawables(
    settings: Settings, name: str, results: Path, branch: str | None, form: str = "svg"
) -> Iterator[Drawable]:
    """The figures of plugin NAME, or the figure of this name (NAME or PLUGIN.NAME), that have
    something to show; after them raises the error of one that fails.

    form: of free drawings. Raises UsageError with the nearest names if there is none, or if nothing
    has been measured for them yet.
    """
    from hpml_plugins.host import make_host
    from hpml_plugins.registry import read_registry, registry_with
    from hpml_plugins.report.drawing import draw_all, figure_names
    from hpml_plugins.report.reading import read_history
    from hpml_plugins.store import (
        DECLARATIONS,
        describe_outside,
        foreign_declarations,
        read_object_or_empty,
    )

    asked = name
    if name.endswith(".py"):
        registry, entry = registry_with(Path(name), settings.registry)
        name = entry.name
    else:
        registry = read_registry(settings.registry)
    host = make_host(registry)
    if asvs := fnmatch.filter(foreign_declarations(results), name):
        yield from _tables_of_asv(settings, results, branch, asvs)
        return
    chosen = _find_plugins(host, name)
    _, order = find_order(settings, results, branch)
    # also of benchmarks that no plugin declares any more, as the site's: intervals rest on all
    declarations = read_object_or_empty(results / DECLARATIONS)
    history = read_history(results, host, declarations, order, {}, warn)
    drawing = draw_all(
        replace(host, plugins=tuple(chosen)),
        history.current(),
        wanted=lambda plugin, figure: name in figure_names(plugin, figure.name),
        form=form,
        every_card=history.of_every_card,
    )
    found: list[Drawable] = []
    for drawn in drawing:
        if drawn.error:
            raise drawn.error
        found += drawn.drawables
    shown = {benchmark for drawable in found for benchmark in drawable.figure.benchmarks}
    if left_out := describe_outside(history.outside_of(shown), order.branch):
        warn(f"{left_out}; name the branch: --branch")
    faults = [drawable.error for drawable in found if drawable.error]
    measured = [
        drawable for drawable in found if len(drawable.table) and not drawable.error
    ]
    if not measured and not faults:
        measure = f"hpml run {asked} --record" if asked.endswith(".py") else "asv run"
        raise UsageError(
            f"nothing measured for {name!r} under {results}; run `{measure}`, or name the folder:"
            " --results"
        )
    yield from measured
    for fault in faults[:-1]:
        warn(fault)
    if faults:
        raise faults[-1]


def _find_plugins(host: Host, name: str) -> list[LoadedPlugin]:
    """The plugins with figures of this name: PLUGIN, FIGURE or PLUGIN.FIGURE. A plugin of that name
    takes precedence over other plugins' figures.

    Raises UsageError with the nearest names if there is none, and the error of a broken plugin that
    is named.
    """
    from hpml_plugins.report.drawing import draw_all, figure_names

    head = name.partition(".")[0]
    for broken in host.broken:
        if broken.error and head == broken.entry.name:
            raise broken.error
    chosen: list[LoadedPlugin] = []
    known: dict[str, None] = {}
    for drawn in draw_all(host, [], wanted=lambda plugin, figure: False):
        own = drawn.plugin.entry.name
        if drawn.error and head == own:
            raise drawn.error
        if drawn.error:
            warn(drawn.error)
        for figure in drawn.names:
            names = figure_names(own, figure)
            known |= {own: None, names[-1]: None}
            if name in names and drawn.plugin not in chosen:
                chosen.append(drawn.plugin)
    if named := [plugin for plugin in chosen if plugin.entry.name == name]:
        return named
    if not chosen:
        raise UsageError(
            f"no figure or plugin with figures {name!r}; {nearest(name, list(known))}"
        )
    return chosen


def _tables_of_asv(
    settings: Settings, results: Path, branch: str | None, names: Sequence[str]
) -> Iterator[Drawable]:
    """A table for each of these benchmarks of asv's own, with the newest values of the current
    declarations. Raises UsageError if none has any."""
    from hpml_plugins.model import Figure, Table
    from hpml_plugins.report.figures import Drawable
    from hpml_plugins.store import current_records, foreign_declarations, read_foreign

    _, order = find_order(settings, results, branch)
    declared = foreign_declarations(results)
    newest = [
        each
        for each in current_records(read_foreign(results), order)
        if each.benchmark in names and each.version == declared[each.benchmark].version
    ]
    if not newest:
        raise UsageError(
            f"nothing measured for {', '.join(names)} under {results}; run `asv run`"
        )
    for name, records in itertools.groupby(
        sorted(newest, key=lambda each: each.benchmark), lambda each: each.benchmark
    ):
        table = Table.of_records(records, "value")
        yield Drawable("asv", Figure("value", name, (name,), lambda _: Table({})), table)
