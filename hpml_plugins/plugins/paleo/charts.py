"""The charts, drawn from the tables."""

from __future__ import annotations

from typing import Any

from hpml_plugins import Table
from hpml_plugins.plugins.paleo.precisions import default_ppp


def draw_predicted(sheet: Any, table: Table) -> None:
    """Predicted forward time, a panel a precision: GPU types down, time across, a mark a model."""
    panels = table.groups("precision")
    names = list(dict.fromkeys(str(row["gpu"]) for row in table.rows()))
    sheet.set_size_inches(7.6, 1.2 + 0.24 * len(names))
    grid = sheet.subplots(1, len(panels), squeeze=False, sharey=True)[0]
    for axes, ((precision,), rows) in zip(grid, panels.items(), strict=True):
        for (model,), of_model in Table.of(rows).groups("model").items():
            places = [names.index(str(row["gpu"])) for row in of_model]
            axes.plot([row["forward"] for row in of_model], places, linestyle="", label=model)
        axes.set(title=precision, xlabel="s for one picture", xscale="log")
    grid[0].set_yticks(range(len(names)), names, fontsize=8)
    grid[0].invert_yaxis()
    handles, labels = grid[0].get_legend_handles_labels()
    sheet.legend(handles, labels, loc="outside lower center", ncol=len(labels))


def draw_against(sheet: Any, table: Table) -> None:
    """Measured against predicted time of each layer, log-log, a panel a machine; the line is where both are equal."""
    for axes, rows in _panels(sheet, table):
        known = [row for row in rows if row["predicted"] and row["measured"]]
        if not known:
            _say_unknown(axes)
            continue
        for (model, batch), of_model in Table.of(known).groups("model", "batch").items():
            x, y = ([row[name] for row in of_model] for name in ("predicted", "measured"))
            axes.plot(x, y, linestyle="", label=f"{model}, batch {batch}")
        times = [float(row[name]) for row in known for name in ("predicted", "measured")]
        ends = [min(times), max(times)]
        axes.plot(ends, ends, color="0.5", linewidth=0.8, linestyle="--", marker="")
        axes.set(xscale="log", yscale="log", xlabel="predicted, s", ylabel="measured alone, s")
        axes.legend()


def draw_ppp(sheet: Any, table: Table) -> None:
    """Platform percent of peak of each layer in the model's order, a panel a machine, PALEO's default dashed."""
    for axes, rows in _panels(sheet, table):
        known = [row for row in rows if row["ppp"] is not None]
        if not known:
            _say_unknown(axes)
            continue
        for (model, batch), of_model in Table.of(known).groups("model", "batch").items():
            shares = [float(row["ppp"]) for row in of_model]  # type: ignore[arg-type]
            axes.plot(range(1, len(shares) + 1), shares, linewidth=0.8, label=f"{model}, batch {batch}")
        axes.axhline(
            default_ppp("compute"), color="0.5", linewidth=0.8, linestyle="--", marker="", label="PALEO's default"
        )
        axes.set(xlabel="layer with multiply-adds, in order", ylabel="share of the published peak", ylim=(0, None))
        axes.legend()


def _panels(sheet: Any, table: Table) -> Any:
    machines = table.groups("machine")
    sheet.set_size_inches(7.6, 4.0 * len(machines))
    grid = sheet.subplots(len(machines), squeeze=False)[:, 0]
    for axes, ((machine,), rows) in zip(grid, machines.items(), strict=True):
        axes.set_title(machine)
        yield axes, rows


def _say_unknown(axes: Any) -> None:
    axes.text(0.5, 0.5, "no published peak of this processor", ha="center", va="center", transform=axes.transAxes)
    axes.set(xticks=[], yticks=[])
