"""The charts, drawn from the tables."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from hpml_plugins import Table, dots, legend_below, panels
from hpml_plugins.plugins.paleo.precisions import default_ppp


def draw_predicted(sheet: Any, table: Table) -> None:
    """Predicted forward time, a panel a precision: GPU types down, time across, a mark a model."""
    points = {
        f"{precision}: s for one picture": [(str(row["gpu"]), str(row["model"]), row["forward"]) for row in rows]
        for (precision,), rows in table.groups("precision").items()
    }
    for axes in dots(sheet, points):
        axes.set_xscale("log")


def draw_against(sheet: Any, table: Table) -> None:
    """Measured against predicted time of each layer, log-log, a panel a machine; the line is where both are equal."""
    for axes, known in _panels(sheet, table, ("predicted", "measured")):
        for (model, batch), of_model in Table.of(known).groups("model", "batch").items():
            x, y = ([row[name] for row in of_model] for name in ("predicted", "measured"))
            axes.plot(x, y, linestyle="", label=f"{model}, batch {batch}")
        times = [float(row[name]) for row in known for name in ("predicted", "measured")]
        ends = [min(times), max(times)]
        axes.plot(ends, ends, color="0.5", linewidth=0.8, linestyle="--", marker="")
        axes.set(xscale="log", yscale="log", xlabel="predicted, s", ylabel="measured alone, s")
    legend_below(sheet)


def draw_ppp(sheet: Any, table: Table) -> None:
    """Platform percent of peak of each layer in the model's order, a panel a machine, PALEO's default dashed."""
    for axes, known in _panels(sheet, table, ("ppp",)):
        for (model, batch), of_model in Table.of(known).groups("model", "batch").items():
            shares = [float(row["ppp"]) for row in of_model]  # type: ignore[arg-type]
            axes.plot(range(1, len(shares) + 1), shares, linewidth=0.8, label=f"{model}, batch {batch}")
        axes.axhline(
            default_ppp("compute"), color="0.5", linewidth=0.8, linestyle="--", marker="", label="PALEO's default"
        )
        axes.set(xlabel="layer with multiply-adds, in order", ylabel="share of the published peak", ylim=(0, None))
    legend_below(sheet)


def _panels(sheet: Any, table: Table, needed: Sequence[str]) -> Iterator[tuple[Any, list[dict[str, Any]]]]:
    """Axes and rows of each machine that has rows with all of these: where no peak is published, nothing is known."""
    known = [row for row in table.rows() if all(row[name] is not None for name in needed)]
    machines = Table.of(known).groups("machine") if known else {}
    if machines:
        for axes, ((machine,), rows) in zip(panels(sheet, len(machines)), machines.items(), strict=True):
            axes.set_title(machine)
            yield axes, rows
