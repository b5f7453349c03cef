"""The charts of every built-in plugin, of what results/ holds: each compiles, and shows what its
table has."""

from __future__ import annotations

import json
from functools import cache

import pytest
from support import ROOT

from hpml_plugins.host import make_host
from hpml_plugins.registry import read_registry
from hpml_plugins.report.charts import complete
from hpml_plugins.report.drawing import draw_all
from hpml_plugins.report.figures import Drawable
from hpml_plugins.report.reading import read_history

vl_convert = pytest.importorskip("vl_convert")

REGISTRY = read_registry(ROOT / "registry.yaml")
#: Layers of panels with rows of their own; all of a chart's layers are of one table, so that
#: nothing follows from it.
FORKED = (
    "Detected faceted independent scales that union domain "
    "of the same fields from different source"
)


@cache
def drawables() -> dict[str, Drawable]:
    """Of all plugins, from all Records."""
    host = make_host(REGISTRY)
    records = read_history(
        ROOT / "results", host, {}, {}, {}, lambda damage: None
    ).current()
    found = [one for drawn in draw_all(host, records) for one in drawn.drawables]
    return {f"{one.plugin}.{one.figure.name}": one for one in found}


@pytest.mark.parametrize("plugin", [entry.name for entry in REGISTRY.plugins])
def test_every_figure_has_its_table_and_a_chart_that_compiles(
    plugin: str, capfd: pytest.CaptureFixture[str]
) -> None:
    for name, drawable in drawables().items():
        if drawable.plugin != plugin:
            continue
        assert drawable.error is None
        assert drawable.figure.caption, name
        if drawable.figure.chart is None or not len(drawable.table):
            continue
        chart = complete(drawable.figure.chart, drawable.table, drawable.figure.title)
        json.dumps(chart, allow_nan=False)
        compiled = vl_convert.vegalite_to_vega(chart, show_warnings=True)
        warnings = [
            line
            for line in capfd.readouterr().err.splitlines()
            if "WARN" in line and FORKED not in line
        ]
        assert warnings == [], name
        assert len(compiled["marks"]) > 0


def fields(part: object) -> set[str]:
    """Every column that a specification names as one."""
    if isinstance(part, list):
        return set().union(*map(fields, part)) if part else set()
    if not isinstance(part, dict):
        return set()
    own = {
        value for name, value in part.items() if name == "field" and isinstance(value, str)
    }
    return own.union(*(fields(value) for value in part.values()))


def computed(part: object) -> set[str]:
    """Every column that its transforms make."""
    if isinstance(part, list):
        return set().union(*map(computed, part)) if part else set()
    if not isinstance(part, dict):
        return set()
    made = part.get("as", part.get("flatten", []))
    own = (
        {made}
        if isinstance(made, str)
        else {each for each in made if isinstance(each, str)}
    )
    return own.union(*(computed(value) for value in part.values()))


def test_charts_name_columns_that_their_tables_have() -> None:
    for name, drawable in drawables().items():
        chart = drawable.figure.chart
        if chart is not None and len(drawable.table):
            assert (
                fields(chart)
                <= computed(chart) | {"series"} | drawable.table.columns.keys()
            ), name


def test_a_chart_says_its_units_and_offers_zoom_and_a_legend_to_click() -> None:
    drawable = drawables()["allreduce.bandwidth"]
    assert drawable.figure.chart is not None
    text = json.dumps(drawable.figure.chart)
    assert "B/s" in text
    assert '"bind": "scales"' in text
    assert '"bind": "legend"' in text
    assert {"size", "bus_bandwidth", "panel", "text 1"} <= fields(drawable.figure.chart)


def test_something_was_measured() -> None:
    assert sum(len(drawable.table) > 0 for drawable in drawables().values()) > 40
