"""Figures of plugins: collected, with their tables, and as files. If a plugin raises, only its own
figure is missing."""

from __future__ import annotations

import io
import re
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from hpml_plugins.errors import DefinitionError, HpmlError, describe, explain, needs_extra
from hpml_plugins.host import Declared, LoadedPlugin
from hpml_plugins.model.benchmark import Benchmark
from hpml_plugins.model.figure import Chart, Figure, Table
from hpml_plugins.model.formatting import format_point
from hpml_plugins.model.record import Record, point_key
from hpml_plugins.report.charts import COLOURS, Look, complete, look, without_cpus
from hpml_plugins.report.default_figures import default_figures

#: Gives the newest Records of some benchmarks on each card: `History.of_every_card`.
EveryCard = Callable[[Container[str]], Sequence[Record]]

#: The most points at settled clocks that a note lists.
MOST_NAMED = 6


@dataclass(frozen=True)
class Drawable:
    """A figure with its table, or with the error that its plugin raised.

    note: see `note_of`.  looks: machine or card → its
    style.  records: from which the table was made.  traced: the result of `SitePage.trace`, and
    picture: its free drawing, if another process made them; picture_error: why it could not be
    drawn there.
    """

    plugin: str
    figure: Figure
    table: Table
    error: HpmlError | None = None
    note: str = ""
    looks: Mapping[str, Look] = field(default_factory=dict)
    records: Sequence[Record] = ()
    traced: Any = None
    picture: bytes | None = None
    picture_error: HpmlError | None = None

    @property
    def is_drawn(self) -> bool:
        """Whether it has more than a table."""
        figure = self.figure
        drawn_elsewhere = self.picture is not None or self.picture_error is not None
        return figure.chart is not None or figure.draw is not None or drawn_elsewhere

    @property
    def drawn_table(self) -> Table:
        """The rows that the chart shows: see `without_cpus`."""
        cpus = {record.machine for record in self.records if not record.gpus}
        return without_cpus(self.figure.chart or {}, self.table, cpus)

    @property
    def chart(self) -> Chart | None:
        """The figure's chart with its rows, ready for Vega-Lite; None without a chart."""
        chart = self.figure.chart
        title = self.figure.title
        return (
            None if chart is None else complete(chart, self.drawn_table, title, self.looks)
        )

    @property
    def left_out(self) -> str:
        """A sentence about the rows missing from the chart; empty if it shows all."""
        missing = len(self.table) - len(self.drawn_table)
        rows = "1 row of a CPU is" if missing == 1 else f"{missing} rows of CPUs are"
        return f"{rows} only in the table: the axis is for GPUs." if missing else ""


def collect(plugin: LoadedPlugin) -> list[Figure]:
    """The figures of a plugin, then the default figures of benchmarks without any.

    Raises HpmlError if the plugin raises, or returns something other than figures.
    """
    name = plugin.entry.name
    try:
        figures = plugin.offered("hpml_figures", Figure)
    except Exception as error:
        what, where = explain(error)
        raise HpmlError(
            f"hpml_figures of plugin {name!r}: {what}", where or plugin.where
        ) from error
    own = {benchmark.name for benchmark in plugin.benchmarks}
    seen: set[str] = set()
    for figure in figures:
        if figure.name in seen:
            raise HpmlError(
                f"plugin {name!r} offers two figures called {figure.name!r}; rename one",
                plugin.where,
            )
        if strangers := [each for each in figure.benchmarks if each not in own]:
            raise HpmlError(
                f"figure {figure.name!r} of plugin {name!r} is drawn from {strangers[0]!r}, which"
                f" is not one of its benchmarks ({', '.join(sorted(own))})",
                plugin.where,
            )
        seen.add(figure.name)
    shown = {name for figure in figures for name in figure.benchmarks}
    missing = [
        each
        for benchmark in plugin.benchmarks
        if benchmark.name not in shown
        for each in default_figures(benchmark)
    ]
    return [*figures, *(figure for figure in missing if figure.name not in seen)]


def tabulate(
    plugin: LoadedPlugin,
    figures: Sequence[Figure],
    records: Sequence[Record],
    every_card: EveryCard | None = None,
) -> Iterator[Drawable]:
    """Each figure with its table.  records: the current ones, of any benchmarks.  every_card: see
    `records_of`.

    Runs the plugin's code in this process; `drawing.draw_all` uses another one.
    """
    for figure in figures:
        own = records_of(figure, plugin.benchmarks, records, every_card)
        try:
            table = figure.table(own) if own else Table({})
            note = note_of(figure, own)
            yield Drawable(
                plugin.entry.name, figure, table, None, note, find_looks(own), own
            )
        except Exception as error:
            fault = HpmlError(
                f"figure {figure.name!r} of plugin {plugin.entry.name!r}: {describe(error)}"
            )
            fault.__cause__ = error
            yield Drawable(plugin.entry.name, figure, Table({}), fault)


def records_of(
    figure: Figure,
    benchmarks: Iterable[Benchmark | Declared],
    records: Iterable[Record],
    every_card: EveryCard | None = None,
) -> list[Record]:
    """The Records from which a figure is made, in the order of the grids; they are stored in random
    order.

    records: the current ones.  every_card: gives those of a figure of every card; without it, such
    a figure is made from the current ones too.
    """
    if figure.every_card and every_card:
        records = every_card(figure.benchmarks)
    points = [
        (benchmark, params) for benchmark in benchmarks for params in benchmark.points()
    ]
    place = {
        point_key(of.name, of.version, params): number
        for number, (of, params) in enumerate(points)
    }
    own = [record for record in records if record.benchmark in figure.benchmarks]
    own.sort(key=lambda record: (record.machine, place.get(record.point, len(place))))
    return own


def find_looks(records: Iterable[Record]) -> dict[str, Look]:
    """The style of each machine of these Records, and of each card and CPU."""
    found: dict[str, Look] = {}
    for record in records:
        if record.machine not in found:
            cpu = str(record.node.get("cpu") or "unknown")
            found |= {name: look(name) for name in (*record.gpu_names, cpu)}
            what_computes = record.gpu_type if record.gpus else cpu
            found[record.machine] = look(what_computes, len(record.gpus))
    return found


def note_of(figure: Figure, records: Sequence[Record]) -> str:
    """What the rows of a figure made from these Records are; empty if there is nothing to say."""
    is_of_newest = not figure.every_card and any(record.gpus for record in records)
    newest = (
        "From the newest Record of each point, not the mean over the cards."
        if is_of_newest
        else ""
    )
    return " ".join(filter(None, (newest, regime_note(records))))


def regime_note(records: Sequence[Record]) -> str:
    """A sentence about the Records of a figure that have metrics in the regime `sustained`."""
    throttled = []
    for record in records:
        if any(metric.regime for metric in record.metrics.values()):
            throttled.append(record)
    if not throttled:
        return ""
    names = list(
        dict.fromkeys(format_point(each.params) or each.benchmark for each in throttled)
    )
    named = "; ".join(names[:MOST_NAMED]) + (
        f"; {len(names) - MOST_NAMED} more" if len(names) > MOST_NAMED else ""
    )
    return (
        f"{len(throttled)} of {len(records)} points are sustained rates: the card throttles, and"
        f" the clocks have settled ({named})."
    )


def render(drawable: Drawable, form: str) -> bytes | None:
    """The figure as a file of this form: "svg", "png" or "pdf". None for a figure with only a
    table.

    A chart is drawn by vl-convert, as the page's script draws it; `draw` by matplotlib, which also
    gives None if nothing was drawn. Raises HpmlError, with the figure's name, if it cannot be
    drawn.
    """
    with naming(drawable):
        if drawable.picture_error:
            raise drawable.picture_error
        if (chart := drawable.chart) is None:
            return (
                _drawn(drawable, form) if drawable.figure.draw else drawable.picture or None
            )
        with needs_extra("publish"):
            import vl_convert

        chart["background"] = "white"
        if form == "svg":
            return bytes(vl_convert.vegalite_to_svg(chart).encode())
        return bytes(
            vl_convert.vegalite_to_pdf(chart)
            if form == "pdf"
            else vl_convert.vegalite_to_png(chart, scale=2)
        )


@contextmanager
def naming(drawable: Drawable) -> Iterator[None]:
    """Convert any exception in the block to an HpmlError with the figure's name."""
    try:
        yield
    except Exception as error:
        if error is drawable.picture_error:  # it already has the name
            raise
        what = (
            f"figure {drawable.figure.name!r} of plugin {drawable.plugin!r} cannot be drawn:"
            f" {describe(error)}"
        )
        raise HpmlError(what) from error


def _drawn(drawable: Drawable, form: str) -> bytes | None:
    with needs_extra("publish"):
        import matplotlib
        from cycler import cycler
        from matplotlib.figure import Figure as Sheet

    style = {
        "axes.prop_cycle": cycler(color=COLOURS),
        "axes.grid": True,
        "grid.alpha": 0.2,
        "legend.frameon": False,
        "svg.fonttype": "none",
        "svg.hashsalt": drawable.figure.name,
    }
    with matplotlib.rc_context(style):
        sheet = Sheet(figsize=(7.6, 4.4), layout="constrained")
        assert drawable.figure.draw is not None
        drawable.figure.draw(sheet, drawable.table)
        if not sheet.axes:
            return None
        file = io.BytesIO()
        metadata = {"svg": {"Date": None}, "pdf": {"CreationDate": None}}.get(form, {})
        sheet.savefig(file, format=form, metadata=metadata, dpi=200)
        if b"<a xlink:href" in file.getvalue():  # from `set_url`; text is escaped
            raise DefinitionError(
                "the picture has a link; pages must not link to other sites, so omit set_url",
                "",
            )
        return _NOT_IN_XML.sub(b"", file.getvalue()) if form == "svg" else file.getvalue()


#: Characters that are invalid in XML; a label with one would keep a browser from showing the
#: picture.
_NOT_IN_XML = re.compile(b"[\x00-\x08\x0b\x0c\x0e-\x1f]|\xef\xbf[\xbe\xbf]")
