"""What others report of GPU types, a list of its own on `evidence.html`. Nothing of ours is
compared with it."""

from __future__ import annotations

from typing import NamedTuple

from hpml_plugins.model import formatting
from hpml_plugins.published import (
    ROWS,
    GpuType,
    ReportedFigure,
    gpu_types,
    reported_figures,
)

#: Row → the published peak that its rates are a share of. Attention has none: it is reported in
#: several precisions.
_PEAKS = {"copy": "bandwidth", "bf16_product": "bfloat16", "fp8_product": "fp8"}


class ReportedLine(NamedTuple):
    """One figure as the page writes it.  share: of the type's published peak, or ""."""

    gpu: str
    value: str
    share: str
    how: str
    source: str
    site: str
    date: str


def reported() -> dict[str, list[ReportedLine]]:
    """What others measured: row in words → figures, by GPU type in the order of `gpus.yaml`, the
    highest first."""
    types = {gpu.name: (place, gpu) for place, gpu in enumerate(gpu_types())}
    figures = sorted(
        reported_figures(), key=lambda each: (types[each.gpu][0], -each.gpus, -each.value)
    )
    return {
        title: [_line(each, types[each.gpu][1]) for each in figures if each.row == row]
        for row, title in ROWS.items()
    }


def _line(figure: ReportedFigure, gpu: GpuType) -> ReportedLine:
    peak = getattr(gpu, _PEAKS[figure.row]) if figure.row in _PEAKS else None
    return ReportedLine(
        f"{figure.gpu} × {figure.gpus}" if figure.gpus > 1 else figure.gpu,
        formatting.quantity(figure.value, figure.unit),
        f"{figure.value / peak:.0%}".replace("%", " %") if peak else "",
        figure.how,
        figure.source,
        "/".join(
            figure.source.removeprefix("https://")
            .removeprefix("github.com/")
            .split("/")[:2]
        ),
        figure.date.isoformat(),
    )
