"""Charts as Vega-Lite specifications, built from column names. The browser draws them; `hpml plot`
renders them to files.

A chart is a plain dict without data; `complete` adds a table and the styling. Vega-Lite supports
much more than these functions: a plugin may write the dict itself. Source:
https://vega.github.io/vega-lite/docs/.
"""

from __future__ import annotations

import functools
import json
import math
import re
import zlib
from collections import Counter, defaultdict
from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final, NamedTuple

from hpml_plugins.errors import DefinitionError
from hpml_plugins.model.figure import Cell, Chart, Table, told_apart
from hpml_plugins.model.formatting import shown_unit
from hpml_plugins.published import gpu_types
from hpml_plugins.report.labels import SIDES, SIZE, Point, Scale, highest_of_each, sides_of

#: One column, or several whose values are joined. A column name may be embedded in text: "batch
#: {batch}".
Columns = str | Sequence[str]
Layer = dict[str, Any]

#: Medium lightness, so that each is visible on white and on near-black (contrast at least 3 : 1
#: to both). The first four can also be distinguished with red-green blindness, and every series
#: also has its own marker or dash.
COLOURS: Final = (
    "#2a78d6",
    "#d1580c",
    "#159a6f",
    "#c2548f",
    "#8a6fd1",
    "#9a7613",
    "#1391a3",
    "#74808d",
)
GREY: Final = "#8a939e"
INK: Final = "#1a1d21"
SHAPES: Final = (
    "circle",
    "square",
    "triangle-up",
    "diamond",
    "cross",
    "triangle-down",
    "triangle-right",
    "triangle-left",
)
#: Beyond as many series as colours, colours repeat with other markers.
_MARKERS: Final = (*SHAPES, *SHAPES[1:], SHAPES[0])
DASHES: Final = ([1, 0], [6, 3], [2, 2], [8, 3, 2, 3], [12, 4], [4, 1])
#: px of a single panel.
WIDTH, HEIGHT = 600, 320
#: px of a panel beside another one.
PANEL = 310
#: px of a legend.
LEGEND = 680
#: px of a character of a legend's labels.
LETTER = 6
#: px by which a character may be wider in the font of a reader than in that of the layout.
WIDER = 1
#: px from the end of an axis within which the labels of its ticks do not reach beyond it.
FLUSH = 35
#: px of a row.
ROW = 20
#: In the column `what`: a row of a roofline chart that is a curve.
ROOF: Final = "roof"
#: px beside the first and last point of a chart with labels, and beside those of other charts.
LABEL_MARGIN, MARGIN = 70, 8
#: CPUs are left out of a chart if they add more decades to an axis than this, and more than this
#: factor.
MOST_ADDED: Final = 0.5
MOST_STRETCHED: Final = 1.25
#: Base of a logarithmic axis → a Vega expression for whether it has a label and a strong line at
#: `datum.value`.
_LABELLED: Final = {
    2: "abs(log(datum.value) / LN2 - round(log(datum.value) / LN2)) < 1e-6",
    10: (
        "indexof([1, 2, 5], round(datum.value / pow(10, floor(log(datum.value) / LN10 + 1e-9))))"
        " >= 0"
    ),
}


class Look(NamedTuple):
    """The style of a GPU type on every page and chart."""

    colour: str
    marker: str


@functools.cache
def look(name: str, gpus: int = 1) -> Look:
    """Colour and marker of a GPU type, independent of other types: the colour depends on the card,
    the marker on the number.

    name: as NVML gives it, or a CPU's.  Known cards follow their order in `gpus.yaml`, to which new
    ones are appended, so that neighbours differ in both; other names are hashed.
    """
    known = [place for place, each in enumerate(gpu_types()) if each.matches(name)]
    place = known[0] if known else zlib.crc32(name.encode()) >> 8
    marker = place + place // len(COLOURS) + 3 * (max(gpus, 1).bit_length() - 1)
    return Look(COLOURS[place % len(COLOURS)], SHAPES[marker % len(SHAPES)])


@dataclass(frozen=True)
class Axis:
    """A column of numbers along an axis.

    title: its meaning, without the unit.  unit: of the closed set, or "%" for a share; labels have
    it with a prefix ("20 GB/s").  base: of the logarithm, 10 or 2.  zero: whether the axis starts
    at 0.  nice: whether a logarithmic axis spans whole decades.  floor: smaller numbers are drawn
    at this value, such as zeros on a logarithmic axis.
    """

    column: str
    title: str
    unit: str = ""
    log: bool = False
    base: int = 10
    zero: bool = False
    nice: bool = False
    floor: float | None = None

    def channel(self, **options: Any) -> Layer:
        """The encoding of this axis."""
        label = _formatted("datum.value", self.unit, self.base if self.log else 10)
        scale: Layer = {"zero": self.zero}
        ticks: Layer = {"labelExpr": label, "labelOverlap": "parity", "tickCount": 6}
        if self.log:
            labelled = _LABELLED[self.base]
            scale = {"type": "log", "base": self.base, "nice": self.nice, "padding": MARGIN}
            ticks = {
                "labelExpr": f"{labelled} ? {label} : ''",
                "labelOverlap": "greedy",
                "labelSeparation": 6,
            }
            ticks["gridOpacity"] = {
                "condition": {"test": labelled, "value": 0.2},
                "value": 0.05,
            }
        found = {"field": _field(self.column), "type": "quantitative", "title": self.title}
        return {**found, "scale": scale, "axis": ticks, **options}

    @property
    def shown(self) -> Layer:
        """The transform that keeps the rows with a drawable number."""
        value = f"datum[{json.dumps(self.column)}]"
        if self.floor is not None:
            return {"calculate": f"max({value}, {self.floor})", "as": self.column}
        return {"filter": f"isValid({value})" + (f" && {value} > 0" if self.log else "")}


@dataclass(frozen=True)
class Rule:
    """A dashed line across a chart, at a number or at the value of a column. axis: "x" or "y"."""

    axis: str
    at: float | str
    title: str

    @property
    def layer(self) -> Layer:
        """The layer that draws the rule."""
        at: dict[str, Any]
        columns: list[str] = []
        if isinstance(self.at, str):
            columns = [_field(self.at)]
            at = {"field": columns[0], "type": "quantitative"}
        else:
            at = {"datum": self.at}
        # otherwise one is drawn for each row of the data, all in one place
        once = {"aggregate": [{"op": "count", "as": "rows"}], "groupby": columns}
        return {
            "mark": {"type": "rule", **_DASHED, "tooltip": self.title},
            "transform": [once],
            "encoding": {self.axis: at},
        }


_DASHED: Final = {"strokeDash": [4, 3], "stroke": GREY, "strokeWidth": 1.2}


@dataclass
class _ChartBuilder:
    """Builds a chart from the keyword options of the functions below; not every chart uses every
    option.

    axes: of numbers, in the order of tooltips.  row: the column with one chart row per value.
    series: columns distinguished by colour and marker.  shape: by marker, if not the series.  dash:
    by dash.  panel: by panel.  parts: columns whose numbers are drawn as series on an axis `value`.
    colours: of the parts.  each: one line per value of this column, all with the same style.  low,
    high: columns of an interval.  label: the text beside a mark.  label_once: of points with the
    same text, only beside the highest of a panel.  also: additional tooltip entries;
    numbers with a unit as an Axis.  hollow: a Vega expression; points for which it holds are drawn
    as outlines.  legend: whether the series have one.  independent: "x", "y": axes that differ by
    panel.  across: the number of panels side by side.  rules: drawn behind.  transform, layers:
    additional ones of Vega-Lite.  marks: see `bar_chart`.  stacked: bars of one row follow each
    other, in the order of the table.
    """

    axes: Sequence[Axis]
    row: Columns = ()
    series: Columns = ()
    shape: Columns = ()
    dash: Columns = ()
    panel: Columns = ()
    parts: Sequence[str] = ()
    colours: Sequence[str] = ()
    each: str = ""
    low: str = ""
    high: str = ""
    label: Columns = ()
    label_once: bool = False
    also: Sequence[str | Axis] = ()
    hollow: str = ""
    legend: bool = True
    independent: Sequence[str] = ()
    across: int = 2
    rules: Sequence[Rule] = ()
    transform: Sequence[Layer] = ()
    layers: Sequence[Layer] = ()
    marks: Mapping[str, str] = field(default_factory=dict)
    stacked: bool = False

    def __post_init__(self) -> None:
        self.drawn: list[Layer] = [rule.layer for rule in self.rules]
        self.coloured = _tuple(self.series)
        #: The labels whose sides `complete` finds.
        self.beside_points: Columns = ()
        dashed = any(name == "part" for _, name, _ in _parsed(self.dash))
        if self.parts and not self.coloured and not dashed:
            self.coloured = ("part",)
        #: Title → (column, unit) of the numbers in tooltips.
        self.numbers: dict[str, tuple[str, str]] = {}
        for axis in (*self.axes, *self.also):
            if isinstance(axis, Axis):
                self.numbers[axis.title] = (axis.column, axis.unit)
        for name in (self.low, self.high, *self.marks):
            if name:
                self.numbers[name.replace("_", " ")] = (name, self.axes[0].unit)
        nominal: Layer = {"type": "nominal", "title": None, "sort": None}
        hidden: Layer = {} if self.legend else {"legend": None}
        #: Colours of marks; `plain` is for marks that no series colours.
        self.colour: Layer = {}
        self.marker: Layer = {}
        self.plain: Layer = {"color": COLOURS[0]}
        self.dashes: Layer = {}
        if self.coloured:
            self.plain = {}
            scale = {"range": list(self.colours)} if self.colours else {}
            self.colour["color"] = {
                "field": "series",
                **nominal,
                "scale": scale,
                **hidden,
            }
            if self.legend:
                dim = {"condition": {"param": "shown", "value": 1}, "value": 0.08}
                self.colour["opacity"] = dim
            marked = "shape" if self.shape else "series"
            markers = {"range": list(_MARKERS)}
            self.marker["shape"] = {"field": marked, **nominal, "scale": markers, **hidden}
        if self.dash:
            dashes = {"range": list(DASHES)}
            self.dashes["strokeDash"] = {"field": "dash", **nominal, "scale": dashes}

    @property
    def tooltip(self) -> Layer:
        """All encoded fields, as text."""
        also = [name for name in self.also if isinstance(name, str)]
        columns = (
            self.row,
            self.coloured,
            self.shape,
            self.dash,
            self.panel,
            self.each,
            also,
        )
        names = dict.fromkeys(name for each in columns for _, name, _ in _parsed(each))
        texts = [{"field": _field(name), "title": name.replace("_", " ")} for name in names]
        return {
            "tooltip": (
                texts
                + [
                    {"field": f"text {n}", "title": title}
                    for n, title in enumerate(self.numbers)
                ]
            )
        }

    def place(self, x: Axis, y: Axis) -> Layer:
        """The position of a mark, with room for the label of the last point."""
        found = {"x": x.channel(), "y": y.channel()}
        if self.label and x.log:
            found["x"]["scale"]["padding"] = LABEL_MARGIN
        found["x"]["axis"]["labelFlush"] = (
            FLUSH  # else across the ends of the next panel's axis
        )
        return found

    def add(self, mark: Layer, encoding: Layer, transform: Sequence[Layer] = ()) -> None:
        """Add a layer in front of the others."""
        self.drawn.append(
            {
                **({"transform": list(transform)} if transform else {}),
                "mark": mark,
                "encoding": encoding,
            }
        )

    def add_points(self, place: Layer, transform: Sequence[Layer] = ()) -> None:
        """Add markers with tooltips, filled or hollow."""
        encoding = {**place, **self.colour, **self.marker, **self.tooltip}
        hollow = self.hollow
        for filled, test in (
            ((True, f"!({hollow})"), (False, hollow)) if hollow else ((True, ""),)
        ):
            chosen = [{"filter": test}] if test else []
            self.add(
                {"type": "point", "filled": filled, "size": 45, **self.plain},
                encoding,
                [*transform, *chosen],
            )

    def add_text(self, place: Layer, transform: Sequence[Layer] = ()) -> None:
        """Add the labels of points, on the sides that `complete` finds."""
        if not self.label:
            return
        self.beside_points = self.label
        for number, side in enumerate(SIDES):
            mark = {
                "type": "text",
                "align": "right" if side.is_left else "left",
                "dx": side.right,
                "dy": side.down,
                "fontSize": SIZE,
            }
            chosen = [
                {"filter": f"datum['label side'] === {number}"},
                {"calculate": _joined(self.label), "as": "label"},
            ]
            self.add(mark, {**place, "text": {"field": "label"}}, [*transform, *chosen])

    def layered(self, zoom: Sequence[str], name: str = "", legend: bool = True) -> Chart:
        """The layers with interaction: zoom with Ctrl and the wheel, drag, click on a series in the
        legend."""
        params: list[Layer] = []
        if zoom:
            select = {
                "type": "interval",
                "encodings": list(zoom),
                "zoom": "wheel![event.ctrlKey]",
            }
            params.append({"name": f"zoom{name}", "select": select, "bind": "scales"})
        if self.coloured and self.legend and legend:
            shown = {"type": "point", "fields": ["series"], "toggle": "true"}
            params.append({"name": "shown", "select": shown, "bind": "legend"})
        layers = [*self.drawn, *self.layers]
        needed = {*zoom, *({"color"} if self.coloured else ())}

        def has_fields(layer: Layer) -> bool:
            return all("field" in layer["encoding"].get(each, {}) for each in needed)

        carrier = next(place for place, layer in enumerate(layers) if has_fields(layer))
        layers[carrier] = {**layers[carrier], "params": params}
        return {"layer": layers}

    def chart(
        self,
        transform: Sequence[Layer],
        inner: Chart,
        needs: Sequence[Axis] = (),
        beyond: Sequence[float] = (1, 1),
    ) -> Chart:
        """The whole chart. inner: one panel.  needs: what a row must have to be drawn.  beyond: how
        far the x axis goes on, as a ratio to the least and to the largest number of the rows."""
        parts = {part: part.replace("_", " ") for part in self.parts}
        named = {
            "color": self.coloured,
            "shape": _tuple(self.shape) or self.coloured,
            "strokeDash": _tuple(self.dash),
        }
        meta = {
            "legends": {
                channel: names for channel, names in named.items() if names and self.legend
            },
            "parts": list(parts.values()),
            "needs": [axis.column for axis in needs if axis.column != "value"],
            "panel": self.panel,
            "row": self.row,
            "across": self.across,
            "axes": [[axis.column, axis.title, axis.unit] for axis in self.axes],
            "logarithmic": [axis.column for axis in self.axes if axis.log],
            "series": self.coloured,
            "label": self.beside_points,
            "label_once": self.label_once,
            "beyond": beyond,
            "others": [
                name
                for each in (self.row, self.shape, self.dash, self.panel, self.each)
                for name in _tuple(each)
            ],
        }
        folded: list[Layer] = [
            {"fold": [_field(part) for part in parts], "as": ["part", "value"]},
            {"calculate": "replace(datum.part, regexp('_', 'g'), ' ')", "as": "part"},
            {
                "calculate": f"indexof({json.dumps(list(parts.values()))}, datum.part)",
                "as": "part order",
            },
        ]
        transforms = [
            *self.transform,
            *(folded if parts else ()),
            *transform,
            *self._texts(),
        ]
        made = {"transform": transforms, "usermeta": meta}
        if not self.panel:
            return {**made, **inner}
        facet = {
            "facet": {"field": "panel", "type": "nominal", "sort": None},
            "spec": inner,
        }
        return {
            **made,
            **facet,
            "resolve": {"scale": dict.fromkeys(self.independent, "independent")},
        }

    def _texts(self) -> list[Layer]:
        """The texts of series and similar columns, and those of numbers for tooltips."""
        made = {
            "series": self.coloured,
            "shape": self.shape,
            "dash": self.dash,
            "row": self.row,
            "panel": self.panel,
        }
        texts = [
            {"calculate": _joined(columns), "as": name}
            for name, columns in made.items()
            if columns
        ]
        for number, (column, unit) in enumerate(self.numbers.values()):
            value = f"datum[{json.dumps(column)}]"
            text = f"isValid({value}) ? {_formatted(value, unit, 10, '.4')} : '–'"
            texts.append({"calculate": text, "as": f"text {number}"})
        return texts


def line_chart(
    x: Axis,
    y: Axis,
    series: Columns = (),
    *,
    lines: bool = True,
    points: bool = True,
    steps: bool = False,
    diagonal: bool = False,
    **options: Any,
) -> Chart:
    """Lines with markers over two numeric axes.

    lines, points: whether to draw them.  steps: a value holds until the next x.  diagonal: a dashed
    line where x and y are equal.  options: see `_ChartBuilder`.
    """
    made = _ChartBuilder((x, y), (), series, **options)
    place = made.place(x, y)
    if diagonal:
        even = {"x": place["x"], "y": y.channel(field=_field(x.column))}
        made.add({"type": "line", **_DASHED}, even)
    if lines:
        each = {"detail": {"field": _field(made.each)}} if made.each else {}
        mark = {
            "type": "line",
            "strokeWidth": 1.2 if each else 1.8,
            "interpolate": "step-after" if steps else "linear",
        }
        made.add(mark, {**place, **made.colour, **made.dashes, **each})
    if points:
        made.add_points(place)
    else:  # invisible points carry the tooltips
        made.add({"type": "point", "size": 80, "opacity": 0}, {**place, **made.tooltip})
    made.add_text(place)
    return made.chart([x.shown, y.shown], made.layered(("x", "y")), needs=(x, y))


def dot_chart(
    row: Columns, x: Axis | Sequence[Axis], series: Columns = (), **options: Any
) -> Chart:
    """One row of dots for each value of `row`: unlike bars, they are also correct on a logarithmic
    axis.

    x: several axes are placed side by side, with the same rows; an interval belongs to the first.
    options: see `_ChartBuilder`.
    """
    axes = [x] if isinstance(x, Axis) else list(x)
    chosen = _ChartBuilder(axes, row, series, **{"across": 1, **options})
    charts: list[Chart] = []
    for number, axis in enumerate(axes):
        made = replace(chosen) if not number else replace(chosen, rules=(), low="")
        if made.colour:
            aside = {"yOffset": {"field": "series", "scale": {"paddingOuter": 0.3}}}
        else:
            aside = {}
        place = {"y": _rows(labels=not number), "x": axis.channel(), **aside}
        if made.low:
            ends = {
                "x": axis.channel(field=_field(chosen.low)),
                "x2": {"field": _field(chosen.high)},
            }
            made.add(
                {"type": "rule", "strokeWidth": 1.6, **made.plain},
                {**place, **ends, **made.colour, **made.tooltip},
            )
        made.add_points(place, [axis.shown])
        size = {
            "height": {"step": ROW, "for": "position"},
            "width": (WIDTH - 120) // len(axes),
        }
        charts.append({**made.layered(("x",), str(number), legend=not number), **size})
    shared = {"color": "shared", "shape": "shared", "y": "shared"}
    beside = {"hconcat": charts, "resolve": {"scale": shared}, "spacing": 12}
    return chosen.chart([], charts[0] if len(charts) == 1 else beside)


def bar_chart(
    row: Columns,
    x: Axis,
    series: Columns = (),
    marks: Mapping[str, str] = {},
    **options: Any,
) -> Chart:
    """A horizontal bar for each value of `row`; with `parts` their numbers are stacked.

    marks: column → title of numbers drawn as marks on the bars.  options: see `_ChartBuilder`;
    label is here a Vega expression, or the axis' column, for the text at the end of a bar.
    """
    x = replace(x, zero=True)
    made = _ChartBuilder([x], row, series, marks=marks, **{"across": 1, **options})
    parts = made.parts
    low = made.low
    high = made.high
    label = made.label
    place = {"y": _rows(), "x": x.channel(stack="zero" if parts or made.stacked else None)}
    order = {"order": {"field": "part order"}} if parts or made.stacked else {}
    made.add(
        {"type": "bar", "height": {"band": 0.72}, **made.plain},
        {**place, **made.colour, **order, **made.tooltip},
    )
    if low:
        ends = {"x": x.channel(field=_field(low)), "x2": {"field": _field(high)}}
        made.add({"type": "rule", "strokeWidth": 1.6}, {**place, **ends, **made.tooltip})
    for column, title in marks.items():
        mark = {
            "type": "point",
            "filled": True,
            "size": 60,
            "color": "white",
            "stroke": "black",
            "opacity": 1,
        }
        shape = {
            "datum": title,
            "title": None,
            "scale": {"range": ["diamond", "square", "circle"]},
        }
        # only once, not for each part
        once = [{"filter": "datum['part order'] === 0"}] if parts else []
        made.add(
            mark,
            {**place, "x": x.channel(field=_field(column)), "shape": shape, **made.tooltip},
            once,
        )
    if label:
        end = {"x": x.channel(field=_field(high))} if high else {}
        text = [
            {"calculate": "datum['text 0']" if label == x.column else label, "as": "label"}
        ]
        made.add(
            {"type": "text", "align": "left", "dx": 6},
            {**place, "text": {"field": "label"}, **end},
            text,
        )
    numbered = (
        [{"window": [{"op": "row_number", "as": "part order"}]}] if made.stacked else []
    )
    return made.chart(
        numbered, {**made.layered(()), "height": {"step": ROW + 2}, "width": WIDTH - 120}
    )


def roofline_chart(
    x: Axis, y: Axis, series: Columns, *, roof: str, **options: Any
) -> Chart:
    """Rows whose column `what` is ROOF as curves, the others as points, both axes logarithmic.

    roof: a Vega expression for the limit given by a row of a roof at `datum.at`, the arithmetic
    intensity.  options: see `_ChartBuilder`.
    """
    made = _ChartBuilder((x, y), ("what",), series, **{"across": 1, **options})
    beyond = {"min": 1 / 3, "max": 6}
    least, most = (f"log(datum.{op} * {ratio}) / LN10" for op, ratio in beyond.items())
    ranged: list[Layer] = [
        {"window": [{"op": "row_number", "as": "number"}]},
        {
            "joinaggregate": [
                {"op": op, "field": _field(x.column), "as": op} for op in beyond
            ]
        },
    ]
    curve: list[Layer] = [
        {"filter": f"datum.what === '{ROOF}'"},
        {"calculate": "sequence(0, 1.001, 0.02)", "as": "step"},
        {"flatten": ["step"]},
        {"calculate": f"pow(10, {least} + datum.step * ({most} - {least}))", "as": "at"},
        {"calculate": roof, "as": "allowed"},
    ]
    place = made.place(x, y)
    over = {
        "x": {**place["x"], "field": "at"},
        "y": y.channel(field="allowed"),
        "detail": {"field": "number"},
    }
    made.add(
        {"type": "line", "strokeWidth": 1.6}, {**over, **made.colour, **made.dashes}, curve
    )
    plotted = [{"filter": f"datum.what !== '{ROOF}'"}, x.shown, y.shown]
    made.add_points(place, plotted)
    made.add_text(place, plotted)
    inner = {**made.layered(("x", "y")), "height": 380}
    return made.chart(ranged, inner, beyond=tuple(beyond.values()))


def complete(
    chart: Chart, table: Table, title: str = "", looks: Mapping[str, Look] = {}
) -> Chart:
    """Complete the chart with the table's rows, suitable sizes, colours and fonts, ready for
    Vega-Lite.

    looks: of the machines and cards that series may name; see `_series_looks`. Raises
    DefinitionError for a chart with links or external data: its data are the table's.
    """
    made = _copied(chart)
    meta = made.pop("usermeta", {})  # vega-embed would read its own options from it
    rows = [_finite(row) for row in told_apart(table).rows()]
    if lacking := [name for name in meta.get("needs", ()) if name not in table.columns]:
        raise DefinitionError(f"its table lacks the chart's column {lacking[0]!r}", "")
    drawn = [row for row in rows if _has_all(row, meta.get("needs", ()))]
    inner = made.get("spec", made)
    if "spec" in made:
        panels = len({label_of(row, meta["panel"]) for row in drawn})
        made["columns"] = min(panels, meta["across"])
        inner |= _panel_size(panels, meta["across"])
    if meta.get("label"):
        rows = _with_labels(rows, meta, inner)
    legends = meta.get("legends", {})
    if parts := meta.get("parts"):  # as the chart's own transform folds them
        drawn = [{**row, "part": part} for row in drawn for part in parts]
    labels = {channel: _labels(drawn, columns) for channel, columns in legends.items()}
    colours, shapes = _series_looks(drawn, meta.get("series", ()), looks)
    ranges = {"color": colours}
    # Colours and markers share a legend only if both identify all series.
    if legends.get("shape") == meta.get("series"):
        ranges["shape"] = shapes
    for child in made.get("hconcat", [inner]):
        if "yOffset" in str(child.get("layer")):  # the dots of a row are below each other
            child["height"]["step"] = max(ROW, 7 * len(labels.get("color", ())))
        for layer in child.get("layer", ()):
            _set_legends(layer["encoding"], labels, ranges)
    head: Layer = {
        "$schema": "https://vega.github.io/schema/vega-lite/v6.json",
        "description": title,
    }
    rows_of = meta.get("row", ())
    left = max((len(label_of(row, rows_of)) for row in rows), default=0)
    right = max((len(text) for texts in labels.values() for text in texts), default=0)
    wider = {"left": WIDER * left, "right": WIDER * right, "top": 0, "bottom": 0}
    head["padding"] = {side: 5 + more for side, more in wider.items()}
    return {**head, "data": {"values": rows}, "config": config(), **made}


def _with_labels(
    rows: Iterable[Mapping[str, Cell]], meta: Mapping[str, Any], inner: Chart
) -> list[dict[str, Any]]:
    """The rows with the side of their label in a column `label side`.

    meta: see `_ChartBuilder.chart`. An axis of each panel's own is taken for a shared one, on which
    points are closer to each other.
    """
    found = [dict(row) for row in rows]
    (x, *_), (y, *_) = meta["axes"][:2]
    logs = meta["logarithmic"]
    width, height = inner.get("width", WIDTH), inner.get("height", HEIGHT)
    across = Scale(x, width, LABEL_MARGIN, x in logs, meta["beyond"]).places(found)
    up = Scale(y, height, MARGIN, y in logs).places(found)
    panels: dict[str, list[tuple[dict[str, Any], Point]]] = defaultdict(list)
    for row, right, top in zip(found, across, up, strict=True):
        if right is not None and top is not None and row.get("what") != ROOF:
            point = Point(right, -top, label_of(row, meta["label"]))
            panels[label_of(row, meta["panel"])].append((row, point))
    for panel in panels.values():
        points = [point for _, point in panel]
        sides = sides_of(highest_of_each(points) if meta["label_once"] else points)
        for (row, _), side in zip(panel, sides, strict=True):
            row["label side"] = side
    return found


def _copied(chart: Chart) -> Chart:
    """A copy that can be modified. Raises DefinitionError for a chart with links or external
    data."""
    encoded = json.dumps(chart)
    # a quote within a text is escaped
    if outward := re.search(r'"(href|url)":', encoded):
        raise DefinitionError(
            f"a chart must not have {outward[1]!r}: links and external data are not allowed",
            "",
        )
    copied: Chart = json.loads(encoded)
    return copied


def _finite(row: Mapping[str, Cell]) -> dict[str, Cell]:
    """The row with None for numbers that JSON lacks."""
    return {
        name: None if isinstance(cell, float) and not math.isfinite(cell) else cell
        for name, cell in row.items()
    }


def _panel_size(panels: int, across: int) -> Layer:
    """The size of one of several panels, px; the chart's own size if they are in one row."""
    if across == 1:
        return {}
    if panels == 1:
        return {"width": WIDTH, "height": HEIGHT}
    if across == 2:
        return {"width": PANEL, "height": 220}
    return {"width": 2 * PANEL // across - 10, "height": 130}


def _has_all(row: Mapping[str, Cell], names: Columns) -> bool:
    """Whether none of these columns is empty in the row."""
    return None not in (row[name] for name in names)


def _labels(rows: Iterable[Mapping[str, Cell]], columns: Columns) -> list[str]:
    """The texts of these columns, in the order of the rows, so that all panels use the same
    style."""
    return list(filter(None, dict.fromkeys(label_of(row, columns) for row in rows)))


def _set_legends(
    encoding: Layer, labels: Mapping[str, list[str]], ranges: Mapping[str, list[str]]
) -> None:
    """Set domains and ranges for the channels of a layer, and legends as wide as their texts."""
    for channel, texts in labels.items():
        encoded = encoding.get(channel, {})
        if "field" not in encoded:
            continue
        encoded["scale"]["domain"] = texts
        if ranges.get(channel):
            encoded["scale"]["range"] = ranges[channel]
        longest = max(map(len, texts), default=1) * LETTER + 40
        columns = max(1, min(len(texts), LEGEND // longest))
        room = 10 + WIDER * max(map(len, texts), default=0)
        encoded["legend"] = {"columns": columns, "columnPadding": room}
        if channel == "strokeDash":
            encoded["legend"]["symbolSize"] = 500


def without_cpus(chart: Chart, table: Table, cpus: Container[str]) -> Table:
    """The table without the rows of CPUs, if these stretch a logarithmic axis so far that
    differences between GPUs are invisible; otherwise the whole table.

    cpus: machines that have no GPU.
    """
    rows = list(table.rows())
    of_gpus = [row for row in rows if row.get("machine") not in cpus]
    logarithmic = chart.get("usermeta", {}).get("logarithmic", ())
    for column in logarithmic:
        wanted = _decades(of_gpus, column)
        whole = _decades(rows, column)
        if of_gpus and whole > max(wanted + MOST_ADDED, wanted * MOST_STRETCHED):
            return Table.of(of_gpus, table.units)
    return table


def _decades(rows: Iterable[Mapping[str, Cell]], column: str) -> float:
    """The decades of a logarithmic axis that the numbers of a column span."""
    numbers = [
        cell
        for row in rows
        if isinstance(cell := row.get(column), int | float) and cell > 0
    ]
    return math.log10(max(numbers) / min(numbers)) if numbers else 0.0


def _series_looks(
    rows: Iterable[Mapping[str, Cell]], columns: Columns, looks: Mapping[str, Look]
) -> tuple[list[str], list[str]]:
    """Colour and marker of each series that `columns` form in these rows; empty if they name no GPU
    type.

    A series has the colour and the marker of its GPU type; a series without one, such as a
    published one, is grey. If most types have several series, for example one for each format, the
    colour stands for the format and the marker for the type. All series look different.
    """
    found: dict[str, tuple[Look | None, str]] = {}
    names = [name for _, name, _ in _parsed(columns)]
    for row in rows:
        series = label_of(row, columns)
        if not series:
            continue
        typed = next((name for name in names if str(row.get(name)) in looks), None)
        if typed is None:
            found.setdefault(series, (None, series))
        else:
            variant = label_of({**row, typed: ""}, columns)
            found.setdefault(series, (looks[str(row[typed])], variant))
    typed_series = [(look, variant) for look, variant in found.values() if look]
    if not typed_series:
        return [], []
    of_types = Counter(look for look, _ in typed_series)
    with_several = sum(count > 1 for count in of_types.values())
    by_variant = with_several * 2 > len(of_types)
    variants = list(dict.fromkeys(variant for _, variant in typed_series))
    drawn: list[Look] = []
    for look, variant in found.values():
        colour, marker = look or (GREY, SHAPES[0])
        if by_variant and look:
            colour = COLOURS[variants.index(variant) % len(COLOURS)]
        drawn.append(_unlike(drawn, colour, marker))
    return [each.colour for each in drawn], [each.marker for each in drawn]


def _unlike(drawn: Sequence[Look], colour: str, marker: str) -> Look:
    """An unused look of this colour, with this marker or the next free one."""
    first = SHAPES.index(marker)
    for shape in SHAPES[first:] + SHAPES[:first]:
        if (look := Look(colour, shape)) not in drawn:
            return look
    return Look(colour, marker)


def config() -> dict[str, Any]:
    """The style of charts on a light background; in dark mode the pages' script replaces the
    colours of text and lines."""
    text = {
        "labelColor": INK,
        "titleColor": INK,
        "labelFontSize": 11,
        "titleFontSize": 12,
        "titleFontWeight": "normal",
    }
    legend = {
        "orient": "bottom",
        "labelLimit": 0,
        "symbolLimit": 0,
        "titleLimit": 0,
        "symbolStrokeWidth": 2,
    }
    legend |= {"symbolBaseFillColor": INK, "symbolBaseStrokeColor": GREY}
    return {
        "font": "sans-serif",
        "background": "transparent",
        "view": {"stroke": None, "continuousWidth": WIDTH, "continuousHeight": HEIGHT},
        "axis": {
            **text,
            "domainColor": GREY,
            "tickColor": GREY,
            "gridColor": GREY,
            "gridOpacity": 0.2,
            "labelLimit": 420,
        },
        "legend": {
            **text,
            **legend,
            "layout": {"bottom": {"direction": "vertical", "anchor": "start"}},
        },
        "header": {"labelColor": INK, "labelFontSize": 12, "labelLimit": 0, "title": None},
        "text": {"color": INK, "fontSize": 10},
        "rule": {"color": INK},
        "range": {"category": list(COLOURS)},
    }


def _rows(labels: bool = True) -> Layer:
    axis = {"grid": True, "domain": False, "ticks": False} if labels else None
    return {"field": "row", "type": "nominal", "sort": None, "title": None, "axis": axis}


def label_of(row: Mapping[str, Cell], columns: Columns) -> str:
    """The text of a series or panel, as in the chart."""
    named = [(before, row.get(name), after) for before, name, after in _parsed(columns)]
    return ", ".join(
        f"{before}{_text(cell)}{after}"
        for before, cell, after in named
        if cell not in (None, "")
    )


def _text(cell: Cell) -> Cell:
    """A cell whose text is that of `_joined`: JavaScript writes True as true and 4.0 as 4."""
    if isinstance(cell, bool):
        return str(cell).lower()
    return int(cell) if isinstance(cell, float) and cell.is_integer() else cell


def _joined(columns: Columns) -> str:
    """A Vega expression for the non-empty texts of these columns, joined."""
    texts = []
    for before, name, after in _parsed(columns):
        value = f"datum[{json.dumps(name)}]"
        text = f"{json.dumps(', ' + before)} + {value} + {json.dumps(after)}"
        texts.append(f"(isValid({value}) && {value} !== '' ? {text} : '')")
    return f"slice({' + '.join(texts)}, 2)"


def _formatted(value: str, unit: str, base: int, digits: str = "") -> str:
    """A Vega expression for a number as `formatting.quantity` formats it: scaled, with its unit.

    Bytes on a binary axis have binary prefixes.
    """
    if unit == "%":
        return f"format({value}, '{digits}~{'p' if digits else '%'}')"
    if unit == "B" and base == 2:
        sizes = ((1024**n, sign) for n, sign in ((3, "G"), (2, "M"), (1, "K")))
        scaled = [
            f"{value} >= {size} ? format({value} / {size}, '~g') + ' {sign}iB'"
            for size, sign in sizes
        ]
        return "(" + " : ".join([*scaled, f"{value} + ' B'"]) + ")"
    shown = shown_unit(unit)
    if shown.lowest or shown.highest:
        prefix = "regexp('([a-zA-Zµ]?)$')"
        return f"replace(format({value}, '{digits}~s'), {prefix}, ' $1{shown.label}')"
    tiny = f"abs({value}) < 1e-3 && {value} !== 0"
    small = f"{tiny} ? format({value}, '.3~e') : format({value}, ',~g')"
    plain = f"(abs({value}) >= 1e5 ? format({value}, '.4~s') : {small})"
    return f"{plain} + ' {shown.label}'" if shown.label else plain


def _tuple(columns: Columns) -> tuple[str, ...]:
    return tuple(filter(None, (columns,) if isinstance(columns, str) else columns))


def _parsed(columns: Columns) -> tuple[tuple[str, str, str], ...]:
    """For each column the text before it, its name, and the text after it. Raises DefinitionError
    for a text with two columns."""
    return _parsed_templates(_tuple(columns))


@functools.lru_cache  # asked for each row of a table
def _parsed_templates(templates: tuple[str, ...]) -> tuple[tuple[str, str, str], ...]:
    if double := [template for template in templates if template.count("{") > 1]:
        raise DefinitionError(
            f"chart: {double[0]!r} names two columns; give each its own text"
        )
    found = ((re.match(r"(.*)\{(.*)\}(.*)", template), template) for template in templates)
    return tuple(
        (each[1], each[2], each[3]) if each else ("", template, "")
        for each, template in found
    )


def _field(column: str) -> str:
    return re.sub(r"([.\[\]])", r"\\\1", column)
