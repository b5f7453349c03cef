"""Charts from tables, by matplotlib: SVG that follows a page's light or dark scheme, and PNG or PDF for print."""

from __future__ import annotations

import io
import re
from typing import Any

from hpml_plugins.errors import PluginError, describe
from hpml_plugins.report.figures import Drawable

#: Inches. A column of text on a page is about this wide at 96 to the inch.
SIZE = (7.6, 4.4)
#: Middle lightness: each stands out from white and from near-black (contrast at least 3 : 1 to both).
COLOURS = ("#2a78d6", "#d1580c", "#159a6f", "#c2548f", "#8a6fd1", "#9a7613", "#1391a3", "#74808d")
MARKERS = ("o", "s", "^", "D", "v", "P", "X", "*")
#: What stands for the page's own ink until it is replaced in the SVG.
INK = "#010203"
_SCHEME = "<style>svg{color:#1a1d21}@media(prefers-color-scheme:dark){svg{color:#e6e9ed}}</style>"


def render(drawable: Drawable, form: str) -> bytes | None:
    """The chart as a file of this form: "svg", "png" or "pdf". The same table gives the same bytes.

    None where `draw` left the sheet empty: of this table there is nothing to draw.
    Raises PluginError with the figure's name when the plugin's `draw` raises.
    """
    import matplotlib
    from matplotlib.figure import Figure

    figure = drawable.figure
    assert figure.draw is not None
    with matplotlib.rc_context(_style(figure.name)):
        sheet = Figure(figsize=SIZE, layout="constrained")
        try:
            figure.draw(sheet, drawable.table)
            if not sheet.axes:
                return None
            file = io.BytesIO()
            metadata = {"Date": None} if form == "svg" else {"CreationDate": None} if form == "pdf" else {}
            sheet.savefig(file, format=form, metadata=metadata, transparent=form == "svg", dpi=200)
        except Exception as error:
            raise PluginError(
                f"figure {figure.name!r} of plugin {drawable.plugin!r} cannot be drawn: {describe(error)}"
            ) from error
    return _follow_the_page(file.getvalue()) if form == "svg" else file.getvalue()


def _style(name: str) -> dict[str, Any]:
    from cycler import cycler

    ink = dict.fromkeys(
        ["text.color", "axes.labelcolor", "axes.edgecolor", "xtick.color", "ytick.color", "grid.color"], INK
    )
    return {
        # More lines than colours: the next round is dashed, with other markers.
        "axes.prop_cycle": cycler(linestyle=["-", "--", ":"]) * (cycler(color=COLOURS) + cycler(marker=MARKERS)),
        "axes.grid": True,
        "axes.axisbelow": True,  # bars stand before the grid
        "axes.spines.top": False,
        "axes.spines.right": False,
        "font.size": 10,
        "font.family": "sans-serif",
        "grid.alpha": 0.15,
        "legend.frameon": False,
        "legend.fontsize": 9,
        "lines.markersize": 4.5,
        "svg.fonttype": "none",  # text stays text: found by search, read aloud, and small
        "svg.hashsalt": name,
        **ink,
    }


#: Characters that no XML may hold; a label with one would keep a browser from showing the chart.
_NOT_IN_XML = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\ufffe\uffff]")


def _follow_the_page(svg: bytes) -> bytes:
    text = _NOT_IN_XML.sub("", svg.decode()).replace(INK, "currentColor")
    start = text.index(">", text.index("<svg")) + 1
    return (text[:start] + _SCHEME + text[start:]).encode()
