"""Figures of GPU types reported by others, in a separate list on `evidence.html`. Our results are
not compared with them."""

from __future__ import annotations

from hpml_plugins.published import (
    ROWS,
    GpuType,
    ReportedFigure,
    gpu_types,
    reported_figures,
)

#: Row → the published peak for its rates. Attention has none, because it is reported in several
#: precisions.
_PEAKS = {"copy": "bandwidth", "bf16_product": "bfloat16", "fp8_product": "fp8"}


def reported() -> dict[str, list[tuple[ReportedFigure, float | None]]]:
    """Measurements by others: row in words → figures, each with its share of the type's published
    peak; by GPU type in the order of `gpus.yaml`, highest first."""
    types = {gpu.name: (place, gpu) for place, gpu in enumerate(gpu_types())}
    figures = sorted(
        reported_figures(), key=lambda each: (types[each.gpu][0], -each.gpus, -each.value)
    )
    found: dict[str, list[tuple[ReportedFigure, float | None]]] = {
        title: [] for title in ROWS.values()
    }
    for each in figures:
        _, gpu = types[each.gpu]
        found[ROWS[each.row]].append((each, _share(each, gpu)))
    return found


def _share(figure: ReportedFigure, gpu: GpuType) -> float | None:
    peak = getattr(gpu, _PEAKS[figure.row]) if figure.row in _PEAKS else None
    return figure.value / peak if peak else None
