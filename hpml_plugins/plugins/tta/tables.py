"""The tables of the plugin's page, made from Records."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from typing import Any

from hpml_plugins import Record, Table, interval_columns, published_figures

SETS = ("tta", "tta_cpu", "tta_ddp", "tta_ddp_cpu")
WATCHED = ("tta_utilisation", "tta_utilisation_cpu")
TRICKS = ("tta_tricks", "tta_tricks_cpu")
UNITS = {
    **dict.fromkeys(("time", "time_low", "time_high", "mean", "deviation", "epoch", "evaluation", "setup"), "s"),
    **dict.fromkeys(("variation", "variation_low", "variation_high", "accuracy", "accuracy_low", "accuracy_high"), "1"),
    "throughput": "1/s",
    "energy": "J",
    "energy_per_image": "J",
    "power": "W",
}

Row = dict[str, Any]


def card_of(record: Record) -> str:
    """What it ran on: the GPU's name, or the CPU's."""
    on_gpu = record.gpus and not record.benchmark.endswith("_cpu")
    return str(record.gpus[0]["name"] if on_gpu else record.node.get("cpu", ""))


def sets(records: Sequence[Record]) -> Table:
    """One row per set of runs: time with its spread, share of success, accuracy, where the time goes."""
    rows = []
    for record in records:
        time, success, accuracies = (
            record.metrics["time"],
            record.metrics["success"],
            record.metrics["accuracy"].samples,
        )
        row = {**_set(record), "target": time.info.get("target"), "of": time.info.get("target_of")}
        row |= {"runs": len(accuracies), "success": success.median}
        row |= {"success_low": success.info.get("low"), "success_high": success.info.get("high")}
        row |= {"mean": record.median("mean_time"), "deviation": record.median("deviation")}
        row |= {**interval_columns(record, "time"), **_variation(record)}
        row |= {"accuracy": statistics.fmean(accuracies), "accuracy_deviation": _deviation(accuracies)}
        row |= {"epochs": record.median("epochs"), "epoch": record.median("epoch_time")}
        row |= {name: record.median(name) for name in ("evaluation", "setup")}
        rows.append(row | {name: _mean(record, "runs", name) for name in ("energy", "power")})
    return Table.of(_ordered(rows), UNITS)


def variations(records: Sequence[Record]) -> Table:
    """Coefficients of variation with their intervals, and the published ones."""
    rows: list[Row] = []
    for record in records:
        if "low" in record.metrics["variation"].info:  # a single run has no spread
            row = {**_set(record), "runs": len(record.metrics["time"].samples), **_variation(record)}
            rows.append({**row, "source": "measured"})
    rows = _ordered(rows)
    lowest = published_figures("time_to_accuracy", "lowest_variation") if rows else []
    highest = published_figures("time_to_accuracy", "highest_variation") if rows else []
    for low, high in zip(lowest, highest, strict=True):
        row = {"machine": "published", "card": "", "recipe": low.subject.get("model", "")}
        row |= {"data": low.subject.get("dataset", ""), "variation_low": low.value, "variation_high": high.value}
        rows.append({**row, "source": "published", "document": f"{low.source}: {low.what}"})
    return Table.of(rows, UNITS)


def _variation(record: Record) -> Row:
    found = record.metrics["variation"]
    low, high = (found.info.get(name) for name in ("low", "high"))
    # An interval without an upper end is stored as −1: JSON has no infinity.
    high = None if high is None or float(high) < 0 else float(high)
    return {"variation": found.median, "variation_low": low, "variation_high": high}


def curves(records: Sequence[Record]) -> Table:
    """One row per evaluation of every run."""
    rows = []
    for record in records:
        point = {**_set(record), "target": record.metrics["time"].info.get("target")}
        for row in Table.of_series([record], "curves").rows():
            row["run"] = int(row["run"] or 0) + 1
            rows.append({**point, **{name: row[name] for name in ("run", "epoch", "time", "accuracy")}})
    return Table.of(_ordered(rows), {"time": "s"})


def out_of_distribution(records: Sequence[Record]) -> Table:
    """One row per kind of images: accuracy of the trained networks, mean and standard deviation over them."""
    rows = []
    for record in records:
        kinds = {"unmodified": record.metrics["accuracy"].samples}
        for row in Table.of_series([record], "elsewhere").rows():
            kinds.setdefault(str(row["images"]), []).append(float(row["accuracy"] or 0))
        for kind, accuracies in kinds.items():
            mean, deviation = statistics.fmean(accuracies), _deviation(accuracies)
            row = {
                **_set(record),
                "images": kind,
                "networks": len(accuracies),
                "accuracy": mean,
                "deviation": deviation,
            }
            rows.append(row | {"accuracy_low": mean - deviation, "accuracy_high": mean + deviation})
    return Table.of(_ordered(rows))


def utilisation(records: Sequence[Record]) -> Table:
    """One row per sample of the processor's utilisation."""
    names = ("time", "core", "memory", "power")
    rows = []
    for record in records:
        for row in Table.of_series([record], "utilisation").rows():
            rows.append({**_watched(record), **{name: row[name] for name in names if name in row}})
    return Table.of(rows, UNITS)


def means(records: Sequence[Record]) -> Table:
    """One row per trick: rate, mean utilisation, power, energy per image."""
    known = ("throughput", "utilisation", "memory_utilisation", "power", "energy_per_image")
    rows = []
    for record in records:
        work = record.series["work"]
        found = {name: work.numbers(name)[0] for name in known if name in work.columns}
        samples = len(record.series["utilisation"].columns["time"])
        epoch = _epoch(record, found["throughput"])
        rows.append({**_watched(record), "samples": samples, "epoch": epoch, **found})
    return Table.of(rows, UNITS)


def tricks(records: Sequence[Record]) -> Table:
    """One row per trick, alone and added to those before it; speedup: over the rate of the baseline script."""
    rows = []
    for record in records:
        baseline = record.series["tricks"].numbers("throughput")[0]
        for row in Table.of_series([record], "tricks", "data", "seconds", "compiled").rows():
            rate = float(row["throughput"] or 0)
            point = {"machine": row.pop("machine"), "card": card_of(record), "data": row.pop("data")}
            point |= {name: row.pop(name) for name in ("seconds", "compiled", "kind", "trick")}
            rows.append({**point, "speedup": rate / baseline, "epoch": _epoch(record, rate), **row})
    return Table.of(rows, UNITS)


def _set(record: Record) -> Row:
    ranks = record.params.get("gpus", record.params.get("ranks", 1))
    recipe = str(record.params["recipe"]) + (f", {ranks} ranks" if int(ranks) > 1 else "")
    return {"machine": record.machine, "card": card_of(record), "recipe": recipe, "data": record.params["data"]}


def _watched(record: Record) -> Row:
    names = ("trick", "data", "seconds")
    return {"machine": record.machine, "card": card_of(record), **{name: record.params[name] for name in names}}


def _epoch(record: Record, rate: float) -> float:
    """s that all training images take at this rate."""
    return float(record.data[str(record.params["data"])]["train"]) / rate


def _ordered(rows: list[Row]) -> list[Row]:
    return sorted(rows, key=lambda row: (row["data"], row["recipe"], row["card"], row["machine"]))


def _deviation(values: Sequence[float]) -> float:
    return statistics.stdev(values) if len(values) > 1 else 0.0


def _mean(record: Record, series: str, column: str) -> float | None:
    found = record.series.get(series)
    return statistics.fmean(found.numbers(column)) if found and column in found.columns else None
