"""The tables of the plugin's page, made from Records."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from typing import Any

from hpml_plugins import Record, Samples, Table, published_figures

SETS = ("tta", "tta_cpu", "tta_ddp", "tta_ddp_cpu")
WATCHED = ("tta_utilisation", "tta_utilisation_cpu")
TRICKS = ("tta_tricks", "tta_tricks_cpu")

Row = dict[str, Any]


def card_of(record: Record) -> str:
    """What it ran on: the GPU's name, or the CPU's."""
    gpus = record.node.get("gpus") or []
    on_gpu = not record.benchmark.endswith("_cpu")
    return str(gpus[0]["name"] if on_gpu and gpus else record.node.get("cpu", ""))


def sets(records: Sequence[Record]) -> Table:
    """A row a set of runs: time with its spread, share of success, accuracy, where the time goes."""
    rows = []
    for record in records:
        times = Samples.of(record.metrics["time"].samples, "s")
        low, high = times.interval()
        accuracies = record.metrics["accuracy"].samples
        variation, success = record.metrics["variation"], record.metrics["success"]
        rows.append({
            **_set(record),
            "target": record.metrics["time"].info.get("target"),
            "of": record.metrics["time"].info.get("target_of"),
            "runs": len(accuracies),
            "success": success.median,
            "success_from": success.info.get("low"), "success_to": success.info.get("high"),
            "mean": record.median("mean_time"), "deviation": record.median("deviation"),
            "median": times.median, "from": low, "to": high,
            "variation": variation.median,
            "variation_from": variation.info.get("low"), "variation_to": _finite(variation.info.get("high")),
            "accuracy": statistics.fmean(accuracies),
            "accuracy_deviation": statistics.stdev(accuracies) if len(accuracies) > 1 else 0.0,
            "epochs": record.median("epochs"), "epoch": record.median("epoch_time"),
            "evaluation": record.median("evaluation"), "setup": record.median("setup"),
            "energy": _mean(record, "runs", "energy"), "power": _mean(record, "runs", "power"),
        })  # fmt: skip
    seconds = ("mean", "deviation", "median", "from", "to", "epoch", "evaluation", "setup")
    return Table.of(_ordered(rows), {**dict.fromkeys(seconds, "s"), "energy": "J", "power": "W"})


def variations(records: Sequence[Record]) -> Table:
    """Coefficients of variation with their intervals, and the published ones."""
    rows: list[Row] = []
    for record in records:
        variation = record.metrics["variation"]
        if "low" not in variation.info:
            continue  # one run has no spread
        rows.append({
            **_set(record), "runs": len(record.metrics["time"].samples), "variation": variation.median,
            "from": variation.info["low"], "to": _finite(variation.info["high"]), "source": "measured",
        })  # fmt: skip
    rows = _ordered(rows)
    if not rows:
        return Table.of(rows)
    lowest = published_figures("time_to_accuracy", "lowest_variation")
    highest = published_figures("time_to_accuracy", "highest_variation")
    for low, high in zip(lowest, highest, strict=True):
        rows.append({
            "machine": "published", "card": "", "recipe": low.subject.get("model", ""),
            "data": low.subject.get("dataset", ""), "from": low.value, "to": high.value,
            "source": f"{low.source}: {low.what}",
        })  # fmt: skip
    return Table.of(rows)


def curves(records: Sequence[Record]) -> Table:
    """A row an evaluation of every run."""
    rows = []
    for record in records:
        series = record.series["curves"]
        columns = [series.numbers(name) for name in ("run", "epoch", "time", "accuracy")]
        for run, epoch, time, accuracy in zip(*columns, strict=True):
            target = record.metrics["time"].info.get("target")
            found = {"run": int(run) + 1, "epoch": epoch, "time": time, "accuracy": accuracy, "target": target}
            rows.append({**_set(record), **found})
    return Table.of(_ordered(rows), {"time": "s"})


def elsewhere(records: Sequence[Record]) -> Table:
    """A row a kind of images: accuracy of the trained networks, mean and standard deviation over them."""
    rows = []
    for record in records:
        own = record.metrics["accuracy"].samples
        rows.append({**_set(record), "images": "test images as they are", **_spread(own)})
        if "elsewhere" not in record.series:
            continue
        series = record.series["elsewhere"]
        kinds = [str(kind) for kind in series.columns["images"]]
        accuracies = series.numbers("accuracy")
        for kind in dict.fromkeys(kinds):
            of_kind = [value for name, value in zip(kinds, accuracies, strict=True) if name == kind]
            rows.append({**_set(record), "images": kind, **_spread(of_kind)})
    return Table.of(_ordered(rows))


def utilisation(records: Sequence[Record]) -> Table:
    """A row a look at the processor."""
    rows = []
    for record in records:
        series = record.series["utilisation"]
        names = ("time", "core", "memory", "power")
        columns = {name: series.numbers(name) for name in names if name in series.columns}
        for values in zip(*columns.values(), strict=True):
            rows.append({**_watched(record), **dict(zip(columns, values, strict=True))})
    return Table.of(rows, {"time": "s", "power": "W"})


def means(records: Sequence[Record]) -> Table:
    """A row a trick: rate, mean utilisation, power, energy an image."""
    rows = []
    for record in records:
        work = record.series["work"]
        known = ("throughput", "utilisation", "memory_utilisation", "power", "energy_per_image")
        found = {name: work.numbers(name)[0] for name in known if name in work.columns}
        epoch = _epoch(record, found["throughput"])
        looks = len(record.series["utilisation"].columns["time"])
        rows.append({**_watched(record), "looks": looks, "epoch": epoch, **found})
    return Table.of(rows, {"throughput": "1/s", "epoch": "s", "power": "W", "energy_per_image": "J"})


def tricks(records: Sequence[Record]) -> Table:
    """A row a trick, alone and added to those before it, with the rate against the exercise's own."""
    rows = []
    for record in records:
        series = record.series["tricks"]
        columns = {name: list(values) for name, values in series.columns.items()}
        before = series.numbers("throughput")[0]
        for values in zip(*columns.values(), strict=True):
            row = dict(zip(columns, values, strict=True))
            place = {"machine": record.machine, "card": card_of(record), "data": record.params["data"]}
            asked = {name: record.params[name] for name in ("seconds", "compiled")}
            settings = {**asked, "kind": row.pop("kind"), "trick": row.pop("trick")}
            rate = float(row["throughput"])
            rows.append({**place, **settings, "times_lab": rate / before, "epoch": _epoch(record, rate), **row})
    return Table.of(rows, {"throughput": "1/s", "epoch": "s", "power": "W", "energy_per_image": "J", "setup": "s"})


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


def _spread(values: Sequence[float]) -> Row:
    deviation = statistics.stdev(values) if len(values) > 1 else 0.0
    return {"networks": len(values), "accuracy": statistics.fmean(values), "deviation": deviation}


def _mean(record: Record, series: str, column: str) -> float | None:
    found = record.series.get(series)
    return statistics.fmean(found.numbers(column)) if found and column in found.columns else None


def _finite(value: Any) -> float | None:
    # An interval without an upper end is kept as −1: JSON has no infinity.
    return None if value is None or float(value) < 0 else float(value)
