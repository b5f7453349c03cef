"""Draw figures of plugins in separate processes: each plugin is imported into its own process,
which returns tables, charts and pictures as data.

A plugin cannot modify the process that formats numbers and writes pages.
"""

from __future__ import annotations

import functools
import gc
import numbers
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec

from hpml_plugins.errors import HpmlError, describe, environment_number
from hpml_plugins.host import Host, LoadedPlugin
from hpml_plugins.isolation import Send, run_isolated
from hpml_plugins.model.figure import Cell, Chart, Figure, Table
from hpml_plugins.model.record import Record
from hpml_plugins.report.figures import (
    Drawable,
    EveryCard,
    collect,
    find_looks,
    naming,
    note_of,
    records_of,
    render,
    tabulate,
)
from hpml_plugins.report.pictures import checked_picture

#: Seconds that a plugin may take to draw all of its figures.
LIMIT = 300.0
#: The environment variable that sets another limit.
LIMIT_VARIABLE = "HPML_DRAWING_LIMIT"
#: Largest sum of all figures of a plugin, B.
MOST_DRAWN = 256 << 20

#: Collects information about a figure in the process that draws it, as plain data:
#: `SitePage.trace`.
Trace = Callable[[Drawable], Any]
#: Whether to draw a figure: called with the plugin's name and the figure.
Wanted = Callable[[str, Figure], bool]
#: Gives the Records of a figure.
FindRecords = Callable[[Figure], list[Record]]


@dataclass(frozen=True)
class DrawnPlugin:
    """The drawings of a plugin. plugin: as declared in the host; its code is not in this process.

    names: of all its figures.  drawables: those that were requested.  error: why some are missing.
    """

    plugin: LoadedPlugin
    names: list[str] = field(default_factory=list)
    drawables: list[Drawable] = field(default_factory=list)
    error: HpmlError | None = None


class _Listed(msgspec.Struct, frozen=True):
    """The first message: the names of all figures, or why there are none."""

    names: list[str] = []
    fault: str = ""
    where: str = ""


class _Drawing(msgspec.Struct, frozen=True):
    """A figure as data. fault: why its table could not be made; fault_of_picture: why its picture
    could not.

    picture: empty if nothing was drawn.  traced: the result of tracing it.
    """

    name: str
    title: str
    benchmarks: tuple[str, ...]
    caption: str = ""
    chart: Chart | None = None
    columns: dict[str, list[Cell]] = {}
    units: dict[str, str] = {}
    fault: str = ""
    fault_of_picture: str = ""
    picture: bytes | None = None
    traced: Any = None
    every_card: bool = False


def draw_all(
    host: Host,
    records: Sequence[Record],
    *,
    wanted: Wanted = lambda plugin, figure: True,
    form: str = "svg",
    trace: Trace | None = None,
    every_card: EveryCard | None = None,
) -> Iterator[DrawnPlugin]:
    """Draw the figures of each plugin of a registry from these Records, in the registry's order;
    broken plugins are skipped.

    records: the current ones, of any benchmarks.  form: of free drawings, "svg", "png" or "pdf".
    trace: called with each figure in its process; the result is `Drawable.traced`.  every_card: see
    `records_of`. A plugin that raises, or that ends, blocks or crashes its process, has an error,
    and the figures returned before.
    """
    for plugin in host.plugins:
        if not plugin.error:
            yield _draw_plugin(host, plugin, records, wanted, form, trace, every_card)


def figure_names(plugin: str, figure: str) -> tuple[str, str, str]:
    """The names by which a user may refer to a figure, or to all figures of its plugin; the last is
    the full name."""
    return plugin, figure, f"{plugin}.{figure}"


def _draw_plugin(
    host: Host,
    plugin: LoadedPlugin,
    records: Sequence[Record],
    wanted: Wanted,
    form: str,
    trace: Trace | None,
    every_card: EveryCard | None,
) -> DrawnPlugin:
    name = plugin.entry.name
    messages: list[bytes] = []
    drawing = functools.partial(_draw, host, name, records, wanted, form, trace, every_card)

    def watch() -> str:
        drawn = sum(map(len, messages))
        return f"returned more than {MOST_DRAWN >> 20} MiB" if drawn > MOST_DRAWN else ""

    limit = environment_number(LIMIT_VARIABLE, LIMIT)
    fault = run_isolated(drawing, limit, messages.append, watch).fault
    if not fault and (not messages or messages[-1]):
        fault = "ended with exit status 0 before it was done"
    if fault:
        what = f"plugin {name!r} was not drawn: its process {fault}"
        if "timed out" in fault:
            what += f" ({LIMIT_VARIABLE} gives it longer)"
        error: HpmlError | None = HpmlError(what, plugin.where)
    else:
        error = None
        del messages[-1]
    try:
        find = functools.partial(
            records_of, benchmarks=plugin.declared, records=records, every_card=every_card
        )
        return _received(plugin, messages, find, form, error)
    except (msgspec.MsgspecError, ValueError, HpmlError) as strange:
        what = f"plugin {name!r} was not drawn: it returned what is not a figure: {strange}"
        return DrawnPlugin(plugin, error=error or HpmlError(what, plugin.where))


def _received(
    plugin: LoadedPlugin,
    messages: Sequence[bytes],
    find: FindRecords,
    form: str,
    error: HpmlError | None,
) -> DrawnPlugin:
    """Decode the messages. find: gives the Records of a figure. Raises ValueError, MsgspecError or
    HpmlError for a message that this module cannot have sent."""
    if not messages:
        return DrawnPlugin(plugin, error=error)
    listed = msgspec.msgpack.decode(messages[0], type=_Listed)
    if listed.fault:
        return DrawnPlugin(plugin, error=HpmlError(listed.fault, listed.where))
    drawings = [msgspec.msgpack.decode(each, type=_Drawing) for each in messages[1:]]
    if strange := {each.name for each in drawings} - set(listed.names):
        raise ValueError(f"{min(strange)!r} is not in its list")
    if len({each.name for each in drawings}) < len(drawings):
        raise ValueError("one name twice")
    own = {each.name for each in plugin.declared}
    for drawing in drawings:
        if strange := set(drawing.benchmarks) - own:
            raise ValueError(f"{min(strange)!r} is not one of its benchmarks")
    drawables = [_drawable(plugin, each, find, form) for each in drawings]
    return DrawnPlugin(plugin, listed.names, drawables, error)


def _drawable(
    plugin: LoadedPlugin, drawing: _Drawing, find: FindRecords, form: str
) -> Drawable:
    table = Table(drawing.columns, drawing.units)
    figure = Figure(
        drawing.name,
        drawing.title,
        drawing.benchmarks,
        lambda records: table,
        drawing.chart,
        drawing.caption,
        every_card=drawing.every_card,
    )
    own = find(figure)
    error = HpmlError(drawing.fault) if drawing.fault else None
    picture = drawing.picture
    picture_error = None
    if drawing.fault_of_picture:
        picture_error = HpmlError(drawing.fault_of_picture)
    elif picture:
        try:
            with naming(Drawable(plugin.entry.name, figure, table)):
                picture = checked_picture(picture, form)
        except HpmlError as strange:
            picture = None
            picture_error = strange
    return Drawable(
        plugin.entry.name,
        figure,
        table,
        error,
        note_of(figure, own),
        find_looks(own),
        own,
        drawing.traced,
        picture,
        picture_error,
    )


def _draw(
    host: Host,
    name: str,
    records: Sequence[Record],
    wanted: Wanted,
    form: str,
    trace: Trace | None,
    every_card: EveryCard | None,
    send: Send,
) -> None:
    """In the plugin's process: send the list of its figures, each requested one, and an empty
    message at the end."""
    gc.disable()  # a collection would copy every page that this process shares with its parent
    plugin = host.load(name)
    try:
        if plugin.error:
            raise plugin.error
        figures = collect(plugin)
    except HpmlError as error:
        send(msgspec.msgpack.encode(_Listed(fault=error.what, where=error.where)))
        send(b"")
        return
    send(msgspec.msgpack.encode(_Listed([figure.name for figure in figures])))
    chosen = [figure for figure in figures if wanted(name, figure)]
    for drawable in tabulate(plugin, chosen, records, every_card):
        send(_encoded(drawable, trace, form))
    send(b"")


def _encoded(drawable: Drawable, trace: Trace | None, form: str) -> bytes:
    """A figure as a message. If it cannot be encoded it is sent without its table, with the
    reason."""
    figure = drawable.figure
    bare = _Drawing(
        figure.name,
        figure.title,
        figure.benchmarks,
        figure.caption,
        figure.chart,
        every_card=figure.every_card,
    )
    try:
        drawing = _as_data(bare, drawable, trace, form)
        return msgspec.msgpack.encode(drawing)
    except Exception as error:
        fault = f"figure {figure.name!r} of plugin {drawable.plugin!r}: {describe(error)}"
        return msgspec.msgpack.encode(msgspec.structs.replace(bare, fault=fault))


def _as_data(
    bare: _Drawing, drawable: Drawable, trace: Trace | None, form: str
) -> _Drawing:
    table = drawable.table
    columns = {
        str(name): list(map(plain_cell, cells)) for name, cells in table.columns.items()
    }
    fault_of_picture, picture = "", None
    if drawable.figure.draw is not None and len(table):
        try:
            picture = render(drawable, form) or b""
        except HpmlError as error:
            fault_of_picture = str(error)
    return msgspec.structs.replace(
        bare,
        columns=columns,
        units=dict(table.units),
        fault=str(drawable.error or ""),
        fault_of_picture=fault_of_picture,
        picture=picture,
        traced=trace(drawable) if trace else None,
    )


def plain_cell(cell: object) -> Cell:
    """A cell as a plain Python type; accepts NumPy's numbers. Raises TypeError for anything
    else."""
    if cell is None or type(cell) in (str, int, float, bool):
        return cell  # type: ignore[return-value]
    if isinstance(cell, str):
        return str(cell)
    if isinstance(cell, numbers.Integral):
        return int(cell)
    if isinstance(cell, numbers.Real):
        return float(cell)
    raise TypeError(f"a table has a {type(cell).__name__}, not a text, a number or None")
