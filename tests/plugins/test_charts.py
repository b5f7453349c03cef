"""The charts of every built-in plugin, drawn from what results/ holds."""

from __future__ import annotations

import pytest
from support import ROOT

from hpml_plugins.cli import Settings
from hpml_plugins.cli.figures import find_drawables
from hpml_plugins.figures import render
from hpml_plugins.records.newest import read_all
from hpml_plugins.registry import read_registry

RESULTS = ROOT / "results"
REGISTRY = ROOT / "registry.yaml"
MEASURED = {record.plugin for record in read_all(RESULTS, lambda damage: None) if record.status == "ok"}
#: Those of the harness are about this project: it draws none.
DRAWN = sorted(MEASURED & {entry.name for entry in read_registry(REGISTRY).plugins} - {"harness"})


@pytest.mark.parametrize("plugin", DRAWN)
def test_every_table_has_its_chart(plugin: str) -> None:
    settings = Settings(REGISTRY)
    for drawable in find_drawables(settings, plugin, RESULTS):
        assert drawable.error is None
        if drawable.figure.draw is not None and len(drawable.table):
            drawn = render(drawable, "svg")
            assert drawn is None or b"<svg" in drawn
