"""What charts share: a panel for each machine, one legend that covers nothing, and rows of marks."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

#: Panels beside one another; more go below.
ABREAST = 2
#: Inches of a row of marks, and what is around the rows.
ROW, AROUND = 0.27, 1.5
#: Of a legend's font size: the width of a letter, and of what stands before and after a label.
LETTER, BESIDE = 0.56, 5.0


def panels(sheet: Any, count: int, **options: Any) -> list[Any]:
    """So many axes on an empty `matplotlib.figure.Figure`, two abreast; the sheet grows with the rows.

    options: of `Figure.subplots`, such as sharey=True.
    """
    across = min(ABREAST, count)
    down = -(-count // across)
    sheet.set_size_inches(sheet.get_figwidth(), sheet.get_figheight() * down)
    grid = list(sheet.subplots(down, across, squeeze=False, **options).flat)
    for spare in grid[count:]:
        spare.remove()
    return grid[:count]


def legend_below(sheet: Any, columns: int = 3, *, restyle: bool = True) -> None:
    """One legend of all panels below them, each label once; lines of one label look alike in all panels.

    Lines without a marker, such as a limit drawn by `axhline`, keep the look they were given, and marks that no line
    joins stay apart. columns: the most; fewer where labels are long.  restyle: False where looks mean something and
    all are to be kept.
    """
    import matplotlib

    unused = iter(matplotlib.rcParams["axes.prop_cycle"])
    by_label: dict[str, Any] = {}
    looks: dict[str, dict[str, Any]] = {}
    for axes in sheet.axes:
        for handle, label in zip(*axes.get_legend_handles_labels(), strict=True):
            by_label.setdefault(label, handle)
            if restyle and _is_a_curve(handle):
                if label not in looks:
                    looks[label] = next(unused, {})
                joined = handle.get_linestyle() != "None"
                handle.set(**{name: look for name, look in looks[label].items() if joined or name != "linestyle"})
    if by_label:
        columns = _columns(sheet, by_label, columns)
        sheet.legend(by_label.values(), by_label.keys(), loc="outside lower center", ncols=columns)


def dots(sheet: Any, panels: Mapping[str, Sequence[tuple[str, str, Any]]]) -> list[Any]:
    """Rows of marks on an empty sheet that grows with them: unlike bars they are true on a logarithmic scale too.

    panels: what is across → points as (row, series, number); None leaves the mark out. The panels stand beside one
    another and have the same rows; a series looks alike in all. Returns their axes.
    """
    points = [point for of_panel in panels.values() for point in of_panel]
    rows = list(dict.fromkeys(row for row, *_ in points))
    series = list(dict.fromkeys(name for _, name, _ in points))
    columns = _columns(sheet, series, 3) if any(series) else 1
    below = 0.2 * (-(-len(series) // columns) - 1)
    sheet.set_size_inches(sheet.get_figwidth(), AROUND + ROW * len(rows) + below)
    grid = list(sheet.subplots(1, len(panels), squeeze=False, sharey=True)[0])
    round_of = len(_colours())
    for axes, (across, of_panel) in zip(grid, panels.items(), strict=True):
        places = _places(rows, [(row, name) for row, name, value in of_panel if value is not None])
        for number, name in enumerate(series):
            own = [(value, places[row, name]) for row, each, value in of_panel if each == name and value is not None]
            fill = ("full", "none", "left")[number // round_of % 3]
            axes.plot([value for value, _ in own], [at for _, at in own], linestyle="", fillstyle=fill, label=name)
        axes.set_xlabel(across)
    grid[0].set_yticks(range(len(rows)), rows, fontsize=8)
    grid[0].set_ylim(len(rows) - 0.5, -0.5)
    if any(series):
        sheet.legend(*grid[0].get_legend_handles_labels(), loc="outside lower center", ncols=columns)
    return grid


def _columns(sheet: Any, labels: Iterable[str], most: int) -> int:
    """How many columns of a legend stand side by side on the sheet, at most so many."""
    import matplotlib
    from matplotlib.font_manager import FontProperties

    lengths = [len(label) for label in labels]
    points = FontProperties(size=matplotlib.rcParams["legend.fontsize"]).get_size_in_points()
    width = (max(lengths) * LETTER + BESIDE) * points / 72
    return max(1, min(most, len(lengths), int(sheet.get_figwidth() / width)))


def _places(rows: Sequence[str], marks: Sequence[tuple[str, str]]) -> dict[tuple[str, str], float]:
    """Where each series' mark stands in its row: those of one row a little apart, for equal values hide each other."""
    places = {}
    for number, row in enumerate(rows):
        here = list(dict.fromkeys(name for each, name in marks if each == row))
        apart = min(0.14, 0.6 / max(1, len(here)))
        places.update({(row, name): number + apart * (k - (len(here) - 1) / 2) for k, name in enumerate(here)})
    return places


def _colours() -> set[str]:
    """Those after which a series looks like an earlier one."""
    import matplotlib

    return {look.get("color", "") for look in matplotlib.rcParams["axes.prop_cycle"]}


def _is_a_curve(handle: Any) -> bool:
    return str(getattr(handle, "get_marker", lambda: "")()) not in ("", "None")
