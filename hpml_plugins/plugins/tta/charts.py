"""The charts, each drawn from its table."""

from __future__ import annotations

from typing import Any

from hpml_plugins import Table, panels


def draw_times(sheet: Any, table: Table) -> None:
    """A panel a data set, a bar a recipe and card: the median, written on it, and its 95 % interval."""
    groups = table.groups("data")
    grid = _panels_of_rows(sheet, [len(rows) for rows in groups.values()], 0.42)
    for axes, ((data,), rows) in zip(grid, groups.items(), strict=True):
        names = [f"{row['recipe']}\n{row['machine']}" for row in rows]
        middle = [float(row["median"]) for row in rows]  # type: ignore[arg-type]
        ends = [
            [value - float(row["from"]) for value, row in zip(middle, rows, strict=True)],  # type: ignore[arg-type]
            [float(row["to"]) - value for value, row in zip(middle, rows, strict=True)],  # type: ignore[arg-type]
        ]
        bars = axes.barh(names, middle, xerr=ends, capsize=3, height=0.6)
        axes.bar_label(bars, [f"{value:.3g} s" for value in middle], padding=4)
        axes.margins(x=0.12)
        axes.set_ylim(len(names) - 0.5, -0.5)
        axes.set(title=str(data), xlabel="time to accuracy in s")


def draw_variations(sheet: Any, table: Table) -> None:
    """A line a set: from the lower to the upper end, the measured value a mark. Published ranges are dashed."""
    axes = sheet.subplots()
    rows = list(table.rows())
    for row in rows:
        name = f"{row['recipe']} {row['data']}\n{row['machine']}"
        low = 100 * float(row["from"])  # type: ignore[arg-type]
        ours = row["source"] == "measured"
        value = 100 * float(row["variation"]) if ours else low  # type: ignore[arg-type]
        high = value if row["to"] is None else 100 * float(row["to"])
        axes.plot([low, high], [name, name], color="C0" if ours else "0.5", linestyle="-" if ours else "--", marker="|")
        if ours:
            axes.plot([value], [name], color="C0", marker="o")
    axes.invert_yaxis()
    # From a schedule that is always run to its end, whose time varies by the machine alone, to five runs that were not.
    axes.set_xscale("log")
    axes.xaxis.set_major_formatter("{x:g}")
    axes.set(xlabel="coefficient of variation in %")


def draw_curves(sheet: Any, table: Table) -> None:
    """A panel a set, a line a run; the target dashed. A set that is only judged at its end has a mark a run."""
    groups = table.groups("recipe", "data", "machine")
    for axes, ((recipe, data, machine), rows) in zip(panels(sheet, len(groups)), groups.items(), strict=True):
        for (run,), of_run in Table.of(rows).groups("run").items():
            times = [row["time"] for row in of_run]
            axes.plot(times, [row["accuracy"] for row in of_run], marker=".", label=f"run {run}")
        if rows[0]["target"] is not None:
            axes.axhline(float(rows[0]["target"]), color="0.5", linestyle="--")
        axes.set(xlabel="time in s", ylabel="accuracy")
        axes.set_title(f"{recipe}, {data}, {machine}", fontsize=9)
        axes.locator_params(axis="x", nbins=5)


def draw_elsewhere(sheet: Any, table: Table) -> None:
    """A panel a data set: mean over the networks, the bar one standard deviation to each side; sets side by side."""
    groups = table.groups("data")
    for axes, ((data,), rows) in zip(_panels(sheet, len(groups)), groups.items(), strict=True):
        names = list(dict.fromkeys(str(row["images"]) for row in rows))
        sets = Table.of(rows).groups("recipe", "machine")
        for number, ((recipe, machine), of_set) in enumerate(sets.items()):
            aside = 0.5 * ((number + 0.5) / len(sets) - 0.5)
            axes.errorbar(
                [names.index(str(row["images"])) + aside for row in of_set],
                [row["accuracy"] for row in of_set], yerr=[row["deviation"] for row in of_set],
                marker="o", linestyle="", capsize=3, label=f"{recipe}, {machine}",
            )  # fmt: skip
        axes.set_xticks(range(len(names)), names)
        axes.set(title=str(data), ylabel="accuracy", xlim=(-0.5, len(names) - 0.5))
        axes.legend(fontsize="x-small")


def draw_utilisation(sheet: Any, table: Table) -> None:
    """A panel a machine and length: core utilisation solid, memory's dashed, a colour a trick."""
    groups = table.groups("machine", "seconds")
    for axes, ((machine, seconds), rows) in zip(_panels(sheet, len(groups)), groups.items(), strict=True):
        for number, ((trick,), of_trick) in enumerate(Table.of(rows).groups("trick").items()):
            times = [row["time"] for row in of_trick]
            for column, style in (("core", "-"), ("memory", "--")):
                if of_trick[0].get(column) is None:
                    continue
                values = [100 * float(row[column]) for row in of_trick]  # type: ignore[arg-type]
                label = f"{trick}, {column}"
                axes.plot(times, values, linestyle=style, color=f"C{number % 10}", marker="", label=label)
        axes.set(title=f"{machine}, {seconds} s", xlabel="time in s", ylabel="utilisation in %", ylim=(0, 105))
        axes.legend(fontsize="x-small", ncols=2)


def draw_tricks(sheet: Any, table: Table) -> None:
    """A panel a measurement: the rate against the exercise's own, a bar a trick, the utilisation written on it."""
    groups = table.groups("machine", "data", "seconds", "compiled")
    grid = _panels_of_rows(sheet, [len(rows) for rows in groups.values()], 0.3)
    for axes, ((machine, data, seconds, compiled), rows) in zip(grid, groups.items(), strict=True):
        for kind, colour in (("alone", "C0"), ("together", "C1")):
            of_kind = [row for row in rows if row["kind"] == kind]
            names = [str(row["trick"]) for row in of_kind]
            bars = axes.barh(names, [row["times_lab"] for row in of_kind], color=colour, label=kind)
            told = [f" {100 * float(row['utilisation']):.0f} %" for row in of_kind]  # type: ignore[arg-type]
            axes.bar_label(bars, told)
        axes.invert_yaxis()
        title = f"{machine}, {data}, {seconds} s each{', compiling too' if compiled else ''}"
        axes.set(title=title, xlabel="images a second, times the exercise's own")
        axes.legend()


def _panels(sheet: Any, count: int) -> Any:
    sheet.set_size_inches(sheet.get_figwidth(), 0.7 * sheet.get_figheight() * max(1, count))
    return sheet.subplots(count, 1, squeeze=False)[:, 0]


def _panels_of_rows(sheet: Any, counts: list[int], row: float) -> Any:
    """Panels of so many rows each, one below the other: a row is as high in all of them.  row: inches."""
    around = 0.9  # inches for the title, the axis and its label
    heights = [row * count + around for count in counts]
    sheet.set_size_inches(sheet.get_figwidth(), sum(heights))
    return sheet.subplots(len(counts), 1, squeeze=False, height_ratios=heights)[:, 0]
