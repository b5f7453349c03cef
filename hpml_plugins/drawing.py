"""What charts of several machines share: a panel each, and one legend that covers nothing."""

from __future__ import annotations

from typing import Any

#: Panels beside one another; more go below.
ABREAST = 2


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


def legend_below(sheet: Any, columns: int = 3) -> None:
    """One legend of all panels below them, each label once; lines of one label look alike in all panels.

    Lines without a marker, such as a limit drawn by `axhline`, keep the look they were given.
    """
    import matplotlib

    unused = iter(matplotlib.rcParams["axes.prop_cycle"])
    by_label: dict[str, Any] = {}
    looks: dict[str, dict[str, Any]] = {}
    for axes in sheet.axes:
        for handle, label in zip(*axes.get_legend_handles_labels(), strict=True):
            by_label.setdefault(label, handle)
            if _is_a_curve(handle):
                if label not in looks:
                    looks[label] = next(unused, {})
                handle.set(**looks[label])
    if by_label:
        sheet.legend(by_label.values(), by_label.keys(), loc="outside lower center", ncols=columns)


def _is_a_curve(handle: Any) -> bool:
    return str(getattr(handle, "get_marker", lambda: "")()) not in ("", "None")
