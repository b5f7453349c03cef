"""The charts of every built-in plugin, drawn from what results/ holds."""

from __future__ import annotations

from functools import cache

import pytest
from support import ROOT

from hpml_plugins.host import make_host
from hpml_plugins.registry import read_registry
from hpml_plugins.report.charts import render
from hpml_plugins.report.figures import Drawable, collect, tabulate, versions
from hpml_plugins.store import current_records, read_records

REGISTRY = read_registry(ROOT / "registry.yaml")


@cache
def drawables() -> list[Drawable]:
    """Of all plugins, from all Records."""
    host = make_host(REGISTRY)
    records = current_records(read_records(ROOT / "results", lambda damage: None), versions(host.plugins), {})
    with host.offers.in_force():
        return [one for plugin in host.plugins for one in tabulate(plugin, collect(plugin), records)]


@pytest.mark.parametrize("plugin", [entry.name for entry in REGISTRY.plugins])
def test_every_figure_has_its_table_and_chart(plugin: str) -> None:
    for drawable in drawables():
        if drawable.plugin == plugin:
            assert drawable.error is None
            if drawable.figure.draw is not None and len(drawable.table):
                drawn = render(drawable, "svg")
                assert drawn is None or b"<svg" in drawn


def test_something_is_drawn_of_what_was_measured() -> None:
    assert any(len(drawable.table) for drawable in drawables())
