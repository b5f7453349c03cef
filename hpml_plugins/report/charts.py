"""Charts as Vega-Lite specifications, built from column names. The browser draws them, `hpml plot` makes files of them.

A chart is a plain dict without data; `complete` adds a table and how everything looks. Vega-Lite knows much more than
these functions: a plugin may write the dict itself. Source: https://vega.github.io/vega-lite/docs/.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from hpml_plugins.model.figure import Cell, Chart, Table
from hpml_plugins.model.formatting import shown_unit

#: One column, or several whose values are joined. A column may be within words: "batch {batch}".
Columns = str | Sequence[str]
Layer = dict[str, Any]

#: Middle lightness: each stands out from white and from near-black (contrast at least 3 : 1 to both); the first four
#: are told apart with red-green blindness too, and every series also has a marker or a dash of its own.
COLOURS: Final = ("#2a78d6", "#d1580c", "#159a6f", "#c2548f", "#8a6fd1", "#9a7613", "#1391a3", "#74808d")
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
DASHES: Final = ([1, 0], [6, 3], [2, 2], [8, 3, 2, 3], [12, 4], [4, 1])
_POWER_OF_TWO: Final = "abs(log(datum.value) / LN2 - round(log(datum.value) / LN2)) < 1e-6"

#: Pixels: the width of a single panel, of one beside others, and of what a legend may take; a letter of a label.
WIDTH, PANEL, LEGEND, LETTER = 600, 310, 680, 6
ROW = 20
#: The first digit of a number on an axis, as a Vega expression.
_MANTISSA: Final = "round(datum.value / pow(10, floor(log(datum.value) / LN10 + 1e-9)))"


@dataclass(frozen=True)
class Axis:
    """A column of numbers along an axis.

    title: what it is, without the unit. unit: of the closed set, or "%" for a share; numbers are labelled with it and
    with a prefix ("20 GB/s"). base: of the logarithm. zero: whether the axis starts at 0. nice: whether a logarithmic
    axis spans whole decades. limits: from, to; what is below is drawn at the edge.
    """

    column: str
    title: str
    unit: str = ""
    log: bool = False
    base: int = 10
    zero: bool = False
    nice: bool = False
    limits: tuple[float, float] | None = None

    def channel(self, **options: Any) -> Layer:
        """The encoding of this axis."""
        scale: Layer = (
            {"type": "log", "base": self.base, "nice": self.nice, "padding": 8} if self.log else {"zero": self.zero}
        )
        if self.limits:
            scale |= {"domain": list(self.limits), "clamp": False}
        ticks: Layer = {
            "labelExpr": _spelled("datum.value", self.unit, self.base),
            "labelOverlap": "greedy" if self.log else "parity",
        }
        ticks |= {} if self.log else {"tickCount": 6}
        if self.log and self.base == 10:
            ticks["labelExpr"] = f"indexof([1, 3], {_MANTISSA}) >= 0 ? {ticks['labelExpr']} : ''"
            ticks["labelSeparation"] = 6
            ticks["gridOpacity"] = {"condition": {"test": f"{_MANTISSA} === 1", "value": 0.25}, "value": 0.08}
        if self.log and self.base == 2:
            ticks["labelExpr"] = f"{_POWER_OF_TWO} ? {ticks['labelExpr']} : ''"
            ticks["gridOpacity"] = {"condition": {"test": _POWER_OF_TWO, "value": 0.25}, "value": 0}
        found = {
            "field": _field(self.column),
            "type": "quantitative",
            "title": self.title,
            "scale": scale,
            "axis": ticks,
        }
        return found | options


@dataclass(frozen=True)
class Rule:
    """A dashed line across a chart: at a number, or at what a column says. axis: "x" or "y"."""

    axis: str
    at: float | str
    title: str


def line_chart(
    x: Axis,
    y: Axis,
    series: Columns = (),
    *,
    dash: Columns = (),
    panel: Columns = (),
    parts: Sequence[str] = (),
    each: str = "",
    low: str = "",
    high: str = "",
    label: Columns = (),
    rules: Sequence[Rule] = (),
    diagonal: bool = False,
    lines: bool = True,
    points: bool = True,
    steps: bool = False,
    hollow: str = "",
    transform: Sequence[Layer] = (),
    layers: Sequence[Layer] = (),
    also: Sequence[str] = (),
    legend: bool = True,
    independent: Sequence[str] = (),
    across: int = 2,
) -> Chart:
    """Lines with markers over two axes of numbers.

    series: a colour and marker each.  dash: a dash each.  panel: a panel each.  parts: columns that are drawn as series
    `part` of an axis `value`.  each: a line for each value of this column, all alike.  low, high: columns of an
    interval.  label: the text beside a point.  diagonal: a dashed line where x and y are equal.  lines,
    points: whether they are drawn.  steps: the value holds until the next x.  hollow: a Vega expression; points for
    which it holds are outlines.  transform, layers: of Vega-Lite, added.  also: columns that tooltips show as well.
    legend: whether there is one of the series.  independent: "x", "y": axes that differ by panel.  across: how many
    panels stand beside one another.
    """
    look = _Look(series, dash, (x, y), parts, ends=(low, high), legend=legend)
    where = [_shown(axis) for axis in (x, y) if not axis.limits]
    where += [{"calculate": f"max({_datum(a.column)}, {a.limits[0]})", "as": a.column} for a in (x, y) if a.limits]
    place = {"x": x.channel(), "y": y.channel()}
    if label:  # room for the text of the last point
        place["x"]["scale"]["padding"] = 45
    drawn: list[Layer] = [_rule(rule) for rule in rules]
    if diagonal:
        even = {"x": place["x"], "y": y.channel(field=_field(x.column))}
        drawn.append({"mark": {"type": "line", "strokeDash": [4, 3], "color": GREY, "point": False}, "encoding": even})
    if lines:
        detail = {"detail": {"field": _field(each)}} if each else {}
        mark: Layer = {"type": "line", "strokeWidth": 1.2 if each else 1.8}
        mark |= {"interpolate": "step-after"} if steps else {}
        drawn.append({"mark": mark, "encoding": {**place, **look.colour(), **look.dash(), **look.opacity(), **detail}})
    if low:
        ends = {"y": y.channel(field=_field(low)), "y2": {"field": _field(high)}}
        drawn.append({"mark": {"type": "rule"}, "encoding": {**place, **ends, **look.colour(), **look.opacity()}})
    tooltip = look.tooltip(panel, each, label, also)
    if points:
        drawn += _points({**place, **look.colour(), **look.shape(), **look.opacity(), **tooltip}, hollow)
    else:  # invisible points carry the tooltips
        unseen = {"mark": {"type": "point", "size": 80, "opacity": 0}, "encoding": {**place, **tooltip}}
        drawn.append(unseen)
    if label:
        drawn.append(_text(label, place))
    inner = _layers([*drawn, *layers], look, ("x", "y"))
    chart = _chart(inner, look, [*transform, *look.fold(), *where], panel, independent, across)
    chart["usermeta"]["needs"] = [axis.column for axis in (x, y) if axis.column != "value"]
    return chart


def dot_chart(
    row: Columns,
    x: Axis | Sequence[Axis],
    series: Columns = (),
    *,
    panel: Columns = (),
    parts: Sequence[str] = (),
    low: str = "",
    high: str = "",
    rules: Sequence[Rule] = (),
    transform: Sequence[Layer] = (),
    independent: Sequence[str] = (),
) -> Chart:
    """A row of dots for each value of `row`: unlike bars they are true on a logarithmic axis too.

    x: several axes stand beside one another, with the same rows.  low, high: columns of an interval of the first axis.
    For the rest see `line_chart`.
    """
    axes = [x] if isinstance(x, Axis) else list(x)
    look = _Look(series, (), axes, parts, row, ends=(low, high))
    aside = {"yOffset": {"field": "series", "scale": {"paddingOuter": 0.3}}} if look.series else {}
    charts: list[Chart] = []
    for number, axis in enumerate(axes):
        place = {"y": _rows(labels=not number), "x": axis.channel(), **aside, **look.colour()}
        drawn: list[Layer] = [_rule(rule) for rule in rules] if not number else []
        if low and not number:
            ends = {"x": axis.channel(field=_field(low)), "x2": {"field": _field(high)}}
            whisker = {"type": "rule", "strokeWidth": 1.6} | ({} if look.series else {"color": COLOURS[0]})
            drawn.append({"mark": whisker, "encoding": {**place, **ends, **look.opacity()}})
        dots = _points({**place, **look.shape(), **look.opacity(), **look.tooltip(panel)})
        drawn += [{**layer, "transform": [_shown(axis)]} for layer in dots]
        size = {"height": {"step": ROW, "for": "position"}, "width": (WIDTH - 120) // len(axes)}
        charts.append(_layers(drawn, look, ("x",), f"zoom{number}", legend=not number) | size)
    if len(charts) == 1:
        return _chart(charts[0], look, [*transform, *look.fold()], panel, independent, 1)
    shared = {"scale": {"color": "shared", "shape": "shared", "y": "shared"}}
    beside = {"hconcat": charts, "resolve": shared, "spacing": 12}
    return _chart(beside, look, [*transform, *look.fold()])


def bar_chart(
    row: Columns,
    x: Axis,
    series: Columns = (),
    *,
    parts: Sequence[str] = (),
    colours: Sequence[str] = (),
    marks: Mapping[str, str] | None = None,
    low: str = "",
    high: str = "",
    label: str = "",
    panel: Columns = (),
    transform: Sequence[Layer] = (),
    independent: Sequence[str] = (),
) -> Chart:
    """A horizontal bar for each value of `row`; with `parts`, columns whose numbers are stacked.

    colours: of the parts, in their order.  marks: column → title of numbers that stand as ticks on the bars.  label:
    a Vega expression of the text at the end of the bar, or the axis' column.  For the rest see `line_chart`.
    """
    look = _Look(series, (), [x], parts, row, colours, (low, high, *(marks or {})))
    x = replace(x, zero=True)
    place: Layer = {"y": _rows(), "x": x.channel(stack="zero" if parts else None)}
    order = {"order": {"field": "part order"}} if parts else {}
    tooltip = look.tooltip(panel)
    bar = {"type": "bar", "height": {"band": 0.72}} | ({} if look.series else {"color": COLOURS[0]})
    drawn: list[Layer] = [{"mark": bar, "encoding": {**place, **look.colour(), **look.opacity(), **order, **tooltip}}]
    if low:
        ends = {"x": x.channel(field=_field(low)), "x2": {"field": _field(high)}}
        drawn.append({"mark": {"type": "rule", "strokeWidth": 1.6}, "encoding": {**place, **ends}})
    for column, title in (marks or {}).items():
        mark = {"type": "point", "filled": True, "size": 60, "color": "white", "stroke": "black", "strokeWidth": 1.5}
        shape = {"datum": title, "title": None, "scale": {"range": ["diamond", "square", "circle"]}}
        where = {**place, "x": x.channel(field=_field(column)), "shape": shape}
        drawn.append({"mark": mark | {"opacity": 1}, "encoding": {**where, **tooltip}})
    if label:
        end = {"x": x.channel(field=_field(high))} if high else {}
        text = {"mark": {"type": "text", "align": "left", "dx": 6}}
        drawn.append({**text, "encoding": {**place, "text": {"field": "label"}, **end}})
        transform = [*transform, {"calculate": label, "as": "label"}] if label != x.column else transform
    inner = _layers(drawn, look, ()) | {"height": {"step": ROW + 2}, "width": WIDTH - 120}
    chart = _chart(inner, look, [*transform, *look.fold()], panel, independent, 1)
    if label == x.column:
        chart["transform"].append({"calculate": "datum['text 0']", "as": "label"})
    return chart


def roofline_chart(
    x: Axis,
    y: Axis,
    series: Columns,
    *,
    roof: str,
    dash: Columns = (),
    shape: Columns = (),
    panel: Columns = (),
    label: Columns = (),
    hollow: str = "",
    also: Sequence[str] = (),
    across: int = 1,
) -> Chart:
    """Rows whose column `what` is "roof" as curves, the others as points, both axes logarithmic.

    roof: a Vega expression of what a row of a roof allows at `datum.at`, the arithmetic intensity.  series: a colour
    each, of roofs and points.  dash: of roofs.  shape: of points.  For the rest see `line_chart`.
    """
    look = _Look(series, dash, (x, y), ())
    at = _datum(x.column)
    curve: list[Layer] = [
        {"filter": "datum.what === 'roof'"},
        {"calculate": "sequence(0, 1.001, 0.02)", "as": "step"},
        {"flatten": ["step"]},
        {"calculate": "pow(10, datum.least + datum.step * (datum.most - datum.least))", "as": "at"},
        {"calculate": roof, "as": "allowed"},
    ]
    over = {"x": x.channel(field="at"), "y": y.channel(field="allowed")}
    tooltip = look.tooltip(panel, "what", shape, also)
    marker = (
        {
            "shape": {
                "field": "shape",
                "type": "nominal",
                "title": _title(shape),
                "sort": None,
                "scale": {"range": list(SHAPES)},
            }
        }
        if shape
        else {}
    )
    drawn: list[Layer] = [{
        "transform": curve, "mark": {"type": "line", "strokeWidth": 1.6},
        "encoding": {**over, **look.colour(), **look.dash(), **look.opacity(), "detail": {"field": "row"}},
    }]  # fmt: skip
    plotted = {"filter": f"datum.what !== 'roof' && {at} > 0 && {_datum(y.column)} > 0"}
    place = {"x": x.channel(), "y": y.channel()}
    for layer in _points({**place, **look.colour(), **marker, **look.opacity(), **tooltip}, hollow):
        drawn.append({**layer, "transform": [plotted, *layer.get("transform", ())]})
    if label:
        text = _text(label, place)
        drawn.append({**text, "transform": [plotted, *text["transform"]]})
    ranged: list[Layer] = [
        {"window": [{"op": "row_number", "as": "row"}]},
        {"joinaggregate": [{"op": op, "field": _field(x.column), "as": op} for op in ("min", "max")]},
        {"calculate": "log(datum.min / 3) / LN10", "as": "least"},
        {"calculate": "log(datum.max * 6) / LN10", "as": "most"},
    ]
    if shape:
        ranged.append({"calculate": _joined(shape), "as": "shape"})
    inner = _layers(drawn, look, ("x", "y")) | {"height": 380}
    chart = _chart(inner, look, ranged, panel, ("x", "y") if panel else (), across)
    chart["usermeta"]["legends"] |= {"shape": list(_tuple(shape))}
    return chart


def complete(chart: Chart, table: Table, title: str = "") -> Chart:
    """The chart with the table's rows, sizes that fit them, and colours and fonts: ready for Vega-Lite."""
    made: Chart = json.loads(json.dumps(chart))
    meta = made.pop("usermeta", {})
    rows = [{name: _finite(cell) for name, cell in row.items()} for row in table.rows()]
    drawn = [row for row in rows if all(row[name] is not None for name in meta.get("needs", ()))]
    inner = made.get("spec", made)
    if "spec" in made:
        count = len({label(row, meta["panel"]) for row in drawn})
        made["columns"] = min(count, meta["across"])
        if meta["across"] > 1:
            inner["width"] = WIDTH if count == 1 else round(PANEL * 2 / meta["across"]) - 10 * (meta["across"] > 2)
            inner["height"] = 320 if count == 1 else 220 if meta["across"] == 2 else 130
    # Colours and markers share a legend only where both name all series; a series looks alike in all panels.
    names = {channel: _labels(columns, drawn) for channel, columns in meta.get("legends", {}).items()}
    for child in made.get("hconcat", [inner]):
        if "yOffset" in str(child["layer"]):  # the dots of a row stand one below the other
            child["height"]["step"] = max(ROW, 7 * len(names.get("color", ())))
    for encoding in _encodings(made):
        for channel in (name for name in names if "field" in encoding.get(name, {})):
            encoding[channel]["scale"]["domain"] = names[channel]
            encoding[channel]["legend"] = {"columns": _legend_columns(names[channel])}
            if channel == "strokeDash":
                encoding[channel]["legend"] |= {"symbolSize": 500, "symbolStrokeColor": GREY}
    _label_few_decades(made, rows)
    head = {"$schema": "https://vega.github.io/schema/vega-lite/v6.json", "description": title}
    return {**head, "data": {"values": rows}, "config": config(), **made}


def config() -> dict[str, Any]:
    """How charts look: on white here; the pages' script replaces the ink in dark mode."""
    text = {"labelColor": INK, "titleColor": INK, "labelFontSize": 11, "titleFontSize": 12, "titleFontWeight": "normal"}
    return {
        "font": "sans-serif",
        "background": "transparent",
        "view": {"stroke": None, "continuousWidth": WIDTH, "continuousHeight": 320},
        "axis": {
            **text, "domainColor": GREY, "tickColor": GREY, "gridColor": GREY, "gridOpacity": 0.2, "labelLimit": 420,
        },
        "legend": {
            **text, "orient": "bottom", "labelLimit": 0, "symbolLimit": 0, "symbolStrokeWidth": 2, "titleLimit": 0,
            "layout": {"bottom": {"direction": "vertical", "anchor": "start"}},
        },
        "header": {"labelColor": INK, "labelFontSize": 12, "labelLimit": 0, "title": None},
        "text": {"color": INK, "fontSize": 10},
        "rule": {"color": INK},
        "range": {"category": list(COLOURS)},
    }  # fmt: skip


class _Look:
    """What the layers of a chart share: its series, how their markers and tooltips look."""

    def __init__(
        self,
        series: Columns,
        dash: Columns,
        axes: Sequence[Axis],
        parts: Sequence[str],
        row: Columns = (),
        colours: Sequence[str] = (),
        ends: Sequence[str] = (),
        legend: bool = True,
    ) -> None:
        self.series = _tuple(series) or (("part",) if parts and "part" not in _names(dash) else ())
        self.dashes = _tuple(dash)
        self.parts, self.row, self.colours, self.legend = parts, row, colours, legend
        #: Title → (column, unit) of what tooltips spell as numbers.
        self.numbers = {axis.title: (axis.column, axis.unit) for axis in axes}
        self.numbers |= {_title(name): (name, axes[0].unit) for name in ends if name}

    def fold(self) -> list[Layer]:
        """Columns that are parts become rows."""
        if not self.parts:
            return []
        named = "replace(datum.part, regexp('_', 'g'), ' ')"
        names = [part.replace("_", " ") for part in self.parts]
        return [
            {"fold": [_field(part) for part in self.parts], "as": ["part", "value"]},
            {"calculate": named, "as": "part"},
            {"calculate": f"indexof({json.dumps(names)}, datum.part)", "as": "part order"},
        ]

    def calculated(self) -> list[Layer]:
        """The texts of series, dashes and rows, and those of numbers for tooltips."""
        made = {"series": self.series, "dash": self.dashes, "row": _tuple(self.row)}
        texts = [{"calculate": _joined(columns), "as": name} for name, columns in made.items() if columns]
        for number, (column, unit) in enumerate(self.numbers.values()):
            text = f"isValid({_datum(column)}) ? {_spelled(_datum(column), unit, 10, '.4')} : '–'"
            texts.append({"calculate": text, "as": f"text {number}"})
        return texts

    def colour(self) -> Layer:
        if not self.series:
            return {}
        scale: Layer = {"range": list(self.colours)} if self.colours else {}
        found = {"field": "series", "type": "nominal", "title": None, "sort": None, "scale": scale}
        return {"color": found | ({} if self.legend else {"legend": None})}

    def shape(self) -> Layer:
        if not self.series:
            return {}
        found = {"field": "series", "type": "nominal", "title": None, "sort": None, "scale": {"range": list(SHAPES)}}
        return {"shape": found | ({} if self.legend else {"legend": None})}

    def dash(self) -> Layer:
        if not self.dashes:
            return {}
        found = {"field": "dash", "type": "nominal", "title": None, "sort": None, "scale": {"range": list(DASHES)}}
        return {"strokeDash": found}

    def opacity(self) -> Layer:
        if not self.series or not self.legend:
            return {}
        return {"opacity": {"condition": {"param": "shown", "value": 1}, "value": 0.08}}

    def tooltip(self, *more: Columns) -> Layer:
        columns = [name for each in (self.row, self.series, self.dashes, *more) for name in _names(each)]
        texts = [{"field": _field(name), "title": name.replace("_", " ")} for name in dict.fromkeys(columns)]
        numbers = [{"field": f"text {number}", "title": title} for number, title in enumerate(self.numbers)]
        return {"tooltip": [*texts, *numbers]}

    def meta(self) -> dict[str, Any]:
        """What `complete` needs to know to lay legends out."""
        parts = {part: part.replace("_", " ") for part in self.parts}
        named = {"color": self.series, "shape": self.series, "strokeDash": self.dashes}
        legends = {channel: parts if columns == ("part",) else list(columns) for channel, columns in named.items()}
        return {"legends": {channel: columns for channel, columns in legends.items() if columns and self.legend}}


def _layers(drawn: Sequence[Layer], look: _Look, zoom: Sequence[str], name: str = "zoom", legend: bool = True) -> Chart:
    """Layers with what readers can do: zoom with Ctrl and the wheel, drag, click on a series in the legend."""
    params: list[Layer] = []
    if zoom:
        select = {"type": "interval", "encodings": list(zoom), "zoom": "wheel![event.ctrlKey]"}
        params.append({"name": name, "select": select, "bind": "scales"})
    if look.series and look.legend and legend:
        shown = {"type": "point", "fields": ["series"], "toggle": "true"}
        params.append({"name": "shown", "select": shown, "bind": "legend"})
    layers = [dict(layer) for layer in drawn]
    needed = {*zoom, *({"color"} if look.series else ())}
    carrier = next(each for each in layers if all("field" in each["encoding"].get(name, {}) for name in needed))
    carrier["params"] = params
    return {"layer": layers}


def _chart(
    inner: Chart,
    look: _Look,
    transform: Sequence[Layer],
    panel: Columns = (),
    independent: Sequence[str] = (),
    across: int = 1,
) -> Chart:
    """The whole chart, with a panel for each value of these columns."""
    computed = [*transform, *look.calculated()]
    if not panel:
        return {"transform": computed, "usermeta": look.meta(), **inner}
    return {
        "transform": [*computed, {"calculate": _joined(panel), "as": "panel"}],
        "usermeta": {**look.meta(), "panel": list(_tuple(panel)), "across": across},
        "facet": {"field": "panel", "type": "nominal", "sort": None},
        "spec": inner,
        "resolve": {"scale": dict.fromkeys(independent, "independent")},
    }


def _points(encoding: Layer, hollow: str = "") -> list[Layer]:
    full: Layer = {"mark": {"type": "point", "filled": True, "size": 45}, "encoding": encoding}
    if not hollow:
        return [full]
    outline: Layer = {"mark": {"type": "point", "filled": False, "size": 45}, "encoding": encoding}
    return [
        {**full, "transform": [{"filter": f"!({hollow})"}]},
        {**outline, "transform": [{"filter": hollow}]},
    ]


def _text(columns: Columns, place: Layer) -> Layer:
    return {
        "transform": [{"calculate": _joined(columns), "as": "label"}],
        "mark": {"type": "text", "align": "left", "dx": 6, "dy": 5, "fontSize": 9},
        "encoding": {**place, "text": {"field": "label"}},
    }


def _shown(axis: Axis) -> Layer:
    """Rows that have a number for this axis; on a logarithmic one, above 0."""
    value = _datum(axis.column)
    return {"filter": f"isValid({value})" + (f" && {value} > 0" if axis.log else "")}


def _rule(rule: Rule) -> Layer:
    at: Layer = {"field": _field(rule.at), "type": "quantitative"} if isinstance(rule.at, str) else {"datum": rule.at}
    mark = {"type": "rule", "strokeDash": [4, 3], "color": GREY, "strokeWidth": 1.2, "tooltip": rule.title}
    return {"mark": mark, "encoding": {rule.axis: at}}


def _rows(labels: bool = True) -> Layer:
    axis = {"grid": True, "domain": False, "ticks": False} if labels else None
    return {"field": "row", "type": "nominal", "sort": None, "title": None, "axis": axis}


def _encodings(chart: Chart) -> list[Layer]:
    nested = [chart.get("spec", {}), *chart.get("hconcat", ()), *chart.get("layer", ())]
    return [
        *([chart["encoding"]] if "encoding" in chart else ()),
        *(e for each in nested if each for e in _encodings(each)),
    ]


def _label_few_decades(chart: Chart, rows: Sequence[Mapping[str, Cell]]) -> None:
    """More labels on logarithmic axes whose numbers span little more than a decade."""
    axes: dict[str, list[Layer]] = {}
    for channel in (encoding[name] for encoding in _encodings(chart) for name in ("x", "y") if name in encoding):
        if channel.get("scale", {}).get("type") == "log":
            axes.setdefault(channel["title"], []).append(channel)
    for channels in axes.values():
        fields = {channel["field"] for channel in channels}
        numbers = [
            cell for row in rows for name in fields if isinstance(cell := row.get(name), int | float) and cell > 0
        ]
        if numbers and max(numbers) < 30 * min(numbers):
            for channel in channels:
                channel["axis"]["labelExpr"] = channel["axis"]["labelExpr"].replace("[1, 3]", "[1, 2, 3, 5, 7]")


def _labels(columns: Sequence[str] | Mapping[str, str], rows: Sequence[Mapping[str, Cell]]) -> list[str]:
    """The texts of a legend: of parts their names, else what these columns of the table say."""
    if isinstance(columns, Mapping):
        return list(columns.values())
    return [text for text in dict.fromkeys(label(row, columns) for row in rows) if text]


def _legend_columns(labels: Sequence[str]) -> int:
    """How many labels stand side by side."""
    longest = max(map(len, labels), default=1)
    return max(1, min(len(labels), LEGEND // (longest * LETTER + 40)))


def label(row: Mapping[str, Cell], columns: Columns) -> str:
    """The text of a series, row or panel, as the chart makes it."""
    found = ((template, row.get(_name(template))) for template in _tuple(columns))
    return ", ".join(
        re.sub(r"\{.*\}", str(cell), template) if "{" in template else str(cell)
        for template, cell in found
        if cell not in (None, "")
    )


def _joined(columns: Columns) -> str:
    """A Vega expression of these columns' texts, without those that are empty."""
    texts = []
    for template in _tuple(columns):
        value = _datum(_name(template))
        before, _, after = template.partition("{" + _name(template) + "}") if "{" in template else ("", "", "")
        text = " + ".join(filter(None, [json.dumps(", " + before), value, json.dumps(after) if after else ""]))
        texts.append(f"(isValid({value}) && {value} !== '' ? {text} : '')")
    return f"slice({' + '.join(texts)}, 2)"


def _spelled(value: str, unit: str, base: int, digits: str = "") -> str:
    """A Vega expression of a number as `formatting.quantity` writes it: scaled, with its unit.

    Bytes on a binary axis have binary prefixes.
    """
    if unit == "%":
        return f"format({value}, '{digits}~%')"
    if unit == "B" and base == 2:
        sizes = [
            f"{value} >= {1024**n} ? format({value} / {1024**n}, '~g') + ' {sign}iB'"
            for n, sign in ((3, "G"), (2, "M"), (1, "K"))
        ]
        return " : ".join([*sizes, f"{value} + ' B'"])
    shown = shown_unit(unit)
    if shown.lowest or shown.highest:
        return f"replace(format({value}, '{digits}~s'), regexp('([a-zA-Zµ]?)$'), ' $1{shown.label}')"
    small = f"abs({value}) < 1e-3 && {value} !== 0 ? format({value}, '.3~e') : format({value}, ',~g')"
    plain = f"abs({value}) >= 1e5 ? format({value}, '.4~s') : {small}"
    return f"({plain}) + ' {shown.label}'" if shown.label else plain


def _tuple(columns: Columns) -> tuple[str, ...]:
    return (columns,) if isinstance(columns, str) and columns else tuple(columns)


def _name(template: str) -> str:
    found = re.search(r"\{(.*)\}", template)
    return found[1] if found else template


def _names(columns: Columns) -> tuple[str, ...]:
    return tuple(_name(template) for template in _tuple(columns))


def _title(columns: Columns) -> str:
    return ", ".join(name.replace("_", " ") for name in _names(columns))


def _datum(column: str) -> str:
    return f"datum[{json.dumps(column)}]"


def _field(column: str) -> str:
    return re.sub(r"([.\[\]])", r"\\\1", column)


def _finite(cell: Cell) -> Cell:
    return None if isinstance(cell, float) and not math.isfinite(cell) else cell
