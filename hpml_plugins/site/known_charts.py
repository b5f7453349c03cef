"""The charts that were drawn for an earlier publish: matplotlib takes a third of a second for each."""

from __future__ import annotations

from collections.abc import Mapping
from importlib.metadata import version

from hpml_plugins.figures import Drawable, render
from hpml_plugins.records.packs import Packs, digest, spelled

_NAME = "charts"


class KnownCharts:
    """Draws what is not known by the digest of its table and of the code that draws it.

    A plugin's code is its own files, as for its pins; what else it imports to draw is not looked at.
    """

    def __init__(self, packs: Packs) -> None:
        self.packs, self._with = packs, version("matplotlib")
        self._old = packs.load(_NAME, dict[bytes, bytes]) or {}
        self._used: dict[bytes, bytes] = {}

    def draw(self, drawable: Drawable, code: Mapping[str, str]) -> bytes | None:
        """As `figures.render`, SVG.  code: of the plugin, as LoadedPlugin.source; without a digest nothing is known."""
        if not code.get("sha256"):
            return render(drawable, "svg")
        told = [drawable.plugin, drawable.figure.name, drawable.table.columns, drawable.table.units, dict(code)]
        key = digest(spelled([*told, self._with]))
        if key not in self._used:
            drawn = self._old.get(key)
            self._used[key] = (render(drawable, "svg") or b"") if drawn is None else drawn
        return self._used[key] or None

    def save(self) -> None:
        """Keep those of this time. Raises OSError."""
        if self._used.keys() != self._old.keys():
            self.packs.save(_NAME, self._used)
