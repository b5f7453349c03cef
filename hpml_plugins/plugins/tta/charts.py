"""Time to accuracy: sets of runs, their spread, utilisation and the tricks that raise it, in the
order of the page."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from typing import Any

from hpml_plugins import (
    Axis,
    Figure,
    Record,
    Rule,
    Samples,
    Table,
    bar_chart,
    dot_chart,
    line_chart,
    published_figures,
)
from hpml_plugins.plugins.tta.time_to_accuracy import variation_interval

SETS = ("tta", "tta_cpu", "tta_ddp", "tta_ddp_cpu")
WATCHED = ("tta_utilisation", "tta_utilisation_cpu")
TRICKS = ("tta_tricks", "tta_tricks_cpu")
VARIATIONS = ("variation", "variation_low", "variation_high")
#: The columns that identify a set of runs, in the order of the tables.
SET = ("machine", "card", "recipe", "data")
ORDER = ("data", "recipe", "card", "machine")
#: The share of a recipe's runs that a target should be reached by.
MOST = 0.9

Row = dict[str, Any]


def time(records: Sequence[Record]) -> Table:
    """Bars: median of valid runs; whiskers: 95 % CI. ‘of’: whether each run, or only the mean, must
    reach the target. variation_low, variation_high: 95 % interval of the coefficient of variation
    (Vangel, after McKay; normally distributed times assumed). The time excludes set-up (compiling,
    warming up) and loading the images; it includes every evaluation.
    """
    metrics = ("success", "deviation", "epochs", "evaluation", "setup", "mean_time", "epoch_time")
    units = {**dict.fromkeys(VARIATIONS, "1"), "accuracy": "1", "energy": "J", "power": "W"}
    table = Table.of_records(records, *metrics, intervals=("time",), more=_runs, units=units)
    spread = (
        "success",
        "success_low",
        "success_high",
        "deviation",
        "time",
        "time_low",
        "time_high",
        *VARIATIONS,
    )
    reached = ("accuracy", "accuracy_deviation", "epochs", "evaluation", "setup", "energy", "power")
    chosen = table.select(
        *SET, "target", "of", "runs", *spread, *reached, mean="mean_time", epoch="epoch_time"
    )
    return chosen.sorted(*ORDER)


def compiling(records: Sequence[Record]) -> Table:
    """Means over the runs of a set, with and without compiling, by the same machine type. Of
    several compiled sets, the one with as many runs, or else the largest. pays_after: the number of
    runs after which the faster training has made up for the longer set-up; none where compiling is
    no faster.
    """
    compiled: dict[tuple[str, ...], list[Record]] = {}
    for record in records:
        if record.benchmark == "tta":
            compiled.setdefault(_task(record), []).append(record)
    rows: list[Row] = []
    for record in records:
        sets = compiled.get(_task(record), [])
        if record.benchmark != "tta_eager" or not sets:
            continue
        runs = int(record.params["runs"])
        with_it = max(
            sets, key=lambda each: (each.params["runs"] == runs, int(each.params["runs"]))
        )
        times = [each.metrics["mean_time"].value for each in (with_it, record)]
        setups = [each.metrics["setup"].value for each in (with_it, record)]
        gained, paid = times[1] - times[0], setups[0] - setups[1]
        rows.append(
            {
                "machine": record.machine,
                "recipe": record.params["recipe"],
                "data": record.params["data"],
                "runs": runs,
                "compiled_runs": int(with_it.params["runs"]),
                "compiled": times[0],
                "eager": times[1],
                "speedup": times[1] / times[0],
                "compiled_setup": setups[0],
                "eager_setup": setups[1],
                "pays_after": max(0.0, paid / gained) if gained > 0 else None,
            }
        )
    seconds = ("compiled", "eager", "compiled_setup", "eager_setup")
    return Table.of(rows, dict.fromkeys(seconds, "s") | {"speedup": "1", "pays_after": "1"})


def _task(record: Record) -> tuple[str, ...]:
    return (record.machine, str(record.params["recipe"]), str(record.params["data"]))


def _runs(record: Record) -> Row:
    time, success = record.metrics["time"].info, record.metrics["success"].info
    accuracies, runs = record.metrics["accuracy"].samples, record.series["runs"]
    row = {
        **_set(record),
        **_variation(record),
        "target": time.get("target"),
        "of": time.get("target_of"),
    }
    row |= {
        "success_low": success.get("low"),
        "success_high": success.get("high"),
        "runs": len(accuracies),
    }
    row |= {"accuracy": statistics.fmean(accuracies), "accuracy_deviation": _deviation(accuracies)}
    for name in ("energy", "power"):
        row[name] = statistics.fmean(runs.numbers(name)) if name in runs.columns else None
    return row


def variation(records: Sequence[Record]) -> Table:
    """With 95 % intervals. Whiskers without a mark: published ranges, for other tasks and for
    epochs instead of seconds.
    """
    # one run has no spread
    several = [record for record in records if "low" in record.metrics["variation"].info]

    def measured(record: Record) -> Row:
        runs = len(record.metrics["time"].samples)
        return {**_set(record), "runs": runs, **_variation(record), "source": "measured"}

    ours = (
        Table.of_records(several, more=measured)
        .select(*SET, "runs", *VARIATIONS, "source")
        .sorted(*ORDER)
    )
    if not several:
        return ours
    published: list[Row] = []
    lowest, highest = (
        published_figures("time_to_accuracy", f"{end}_variation") for end in ("lowest", "highest")
    )
    for low, high in zip(lowest, highest, strict=True):
        subject = {"recipe": low.subject.get("model", ""), "data": low.subject.get("dataset", "")}
        ends = {"variation_low": low.value, "variation_high": high.value, "source": "published"}
        published.append(
            {
                "machine": "published",
                "card": "",
                **subject,
                **ends,
                "document": f"{low.source}: {low.what}",
            }
        )
    return Table.of([*ours.rows(), *published], dict.fromkeys(VARIATIONS, "1"))


def cards(records: Sequence[Record]) -> Table:
    """One row per card: the newest set of each recipe on it. Dots: coefficient of variation;
    whiskers: 95 % interval. card: the first eight digits of the GPU's UUID. epochs: the median, up
    to the target; commit: of the code that trained.
    """

    def measured(record: Record) -> Row:
        return {
            **_set(record),
            "card": _digits(record),
            **_variation(record),
            "commit": record.commit[:8],
        }

    several = [record for record in records if "low" in record.metrics["variation"].info]
    units = dict.fromkeys(VARIATIONS, "1")
    metrics = ("mean_time", "success", "epochs")
    table = Table.of_records(several, *metrics, more=measured, units=units)
    known = (*SET, "runs", "mean_time", "success", "epochs", *VARIATIONS, "commit")
    return table.select(*known).sorted("data", "recipe", "machine", "runs", "variation")


def _variation(record: Record) -> Row:
    found = record.metrics["variation"]
    low, high = (found.info.get(name) for name in ("low", "high"))
    # An interval without an upper end is stored as −1: JSON has no infinity.
    high = None if high is None or float(high) < 0 else float(high)
    return dict(zip(VARIATIONS, (found.value, low, high), strict=True))


def curves(records: Sequence[Record]) -> Table:
    """One line per run; dashed: the target. A recipe that is evaluated only at its end has one mark
    per run."""

    def target(record: Record) -> Row:
        return {**_set(record), "target": record.metrics["time"].info.get("target")}

    table = Table.of_series(records, "curves", more=target).extended(
        lambda row: {"run": int(row["run"]) + 1}
    )
    return table.select(*SET, "run", "epoch", "time", "accuracy", "target").sorted(*ORDER)


def lower_targets(records: Sequence[Record]) -> Table:
    """Recipes whose own target fewer than nine of ten runs reach, timed to a lower one. target: the
    highest whole percentage that at least nine of ten of a recipe's runs, on all cards, reached
    within its epochs. mean_time: of the runs that reached it, to the end of the evaluation that
    did. variation: their coefficient of variation, with its 95 % interval (Vangel). epochs: the
    mean. One row per card; card: the first eight digits of the GPU's UUID.
    """
    recipes: dict[tuple[str, str], list[Record]] = {}
    for record in records:
        # a mean over runs, or runs evaluated only at their end, have no time to a lower target
        by_epoch = any(len(run) > 1 for run in _runs_of(record))
        if by_epoch and record.metrics["time"].info.get("target_of") == "each":
            about = _set(record)
            recipes.setdefault((about["recipe"], about["data"]), []).append(record)
    rows: list[Row] = []
    for sets in recipes.values():
        best = sorted(max(a for _, _, a in run) for each in sets for run in _runs_of(each))
        # of ten runs the second lowest is reached by nine
        percent = math.floor(100 * best[len(best) - math.ceil(MOST * len(best))] + 1e-9)
        own = float(sets[0].metrics["time"].info["target"])
        if percent < 100 * own - 1e-9:
            rows += [_to_target(each, percent / 100) for each in sets]
    units = {"mean_time": "s", **dict.fromkeys(VARIATIONS, "1")}
    return Table.of(rows, units).sorted("data", "recipe", "machine", "card")


def _to_target(record: Record, target: float) -> Row:
    """What the runs of a set took to a target other than their own."""
    curves = _runs_of(record)
    first = [next((mark for mark in run if mark[2] >= target), None) for run in curves]
    reached = [mark for mark in first if mark is not None]
    times = [time for _, time, _ in reached]
    several = len(times) > 1
    low, high = variation_interval(times) if several else (None, None)
    return {
        **_set(record),
        "card": _digits(record),
        "target": target,
        "runs": len(curves),
        "success": len(reached) / len(curves),
        "mean_time": statistics.fmean(times) if times else None,
        "variation": Samples.of(times, "s").coefficient_of_variation if several else None,
        "variation_low": low,
        "variation_high": None if high is None or math.isinf(high) else high,
        "epochs": statistics.fmean([epochs for epochs, _, _ in reached]) if reached else None,
    }


def _runs_of(record: Record) -> list[list[tuple[float, float, float]]]:
    """Epochs, s and accuracy after each evaluation, for each run of a set."""
    curves = record.series["curves"]
    columns = [curves.numbers(name) for name in ("run", "epoch", "time", "accuracy")]
    runs: dict[float, list[tuple[float, float, float]]] = {}
    for run, *mark in zip(*columns, strict=True):
        epochs, time, accuracy = mark
        runs.setdefault(run, []).append((epochs, time, accuracy))
    return list(runs.values())


def _digits(record: Record) -> str:
    """The first eight digits of the GPU's UUID."""
    uuid = str(record.gpus[0].get("uuid") or "") if record.gpus else ""
    return uuid.removeprefix("GPU-")[:8] or "unknown"


def out_of_distribution(records: Sequence[Record]) -> Table:
    """Mean over the networks, and one standard deviation to each side. blur, noise, contrast:
    modified test images."""
    rows: list[Row] = []
    for record in records:
        kinds = {"unmodified": record.metrics["accuracy"].samples}
        for row in Table.of_series([record], "elsewhere").rows():
            kinds.setdefault(str(row["images"]), []).append(float(row["accuracy"] or 0))
        for kind, accuracies in kinds.items():
            mean, deviation = statistics.fmean(accuracies), _deviation(accuracies)
            data = record.data.get(kind) or record.data.get(str(record.params["data"]), {})
            judged = int(data.get("test", 0)) or None
            found = {
                "images": kind,
                "judged": judged,
                "networks": len(accuracies),
                "accuracy": mean,
            }
            ends = {
                "deviation": deviation,
                "accuracy_low": mean - deviation,
                "accuracy_high": mean + deviation,
            }
            rows.append({**_set(record), **found, **ends})
    return Table.of(rows).sorted("data", "images", *ORDER[1:])


def networks(records: Sequence[Record]) -> Table:
    """One row per trained network: its accuracy on the test images (unmodified) and on each other
    kind of images."""
    rows: list[Row] = []
    for record in records:
        others: dict[int, Row] = {}
        for row in Table.of_series([record], "elsewhere").rows():
            others.setdefault(int(row["run"] or 0), {})[str(row["images"])] = row["accuracy"]
        accuracies = record.metrics["accuracy"].samples
        for number, accuracy in enumerate(accuracies):
            about = {**_set(record), "networks": len(accuracies), "network": number + 1}
            rows.append({**about, "unmodified": accuracy, **others.get(number, {})})
    return Table.of(rows).sorted(*ORDER, "networks", "network")


def utilisation(records: Sequence[Record]) -> Table:
    """core: share of time in which any kernel ran, however small; memory: share in which memory was
    read or written."""
    table = Table.of_series(records, "utilisation", "trick", "data", "seconds", more=_card)
    return table.select(
        "machine", "card", "trick", "data", "seconds", "time", "core", "memory", "power"
    )


def utilisation_means(records: Sequence[Record]) -> Table:
    """Over the whole observed time, with its cost."""
    known = ("throughput", "utilisation", "memory_utilisation", "power", "energy_per_image")

    def sampled(record: Record) -> Row:
        return {
            **_card(record),
            "samples": len(record.series["utilisation"].columns["time"]),
            **_images(record),
        }

    table = Table.of_series(records, "work", "trick", "data", "seconds", more=sampled).extended(
        _epoch, EPOCH_UNITS
    )
    return table.select("machine", "card", "trick", "data", "seconds", "samples", "epoch", *known)


def tricks(records: Sequence[Record]) -> Table:
    """Each trick alone on the baseline recipe, then together with those before it (+). Percentages:
    mean utilisation.
    """

    def compared(record: Record) -> Row:
        return {
            **_card(record),
            **_images(record),
            "baseline": record.series["tricks"].numbers("throughput")[0],
        }

    table = Table.of_series(records, "tricks", "data", "seconds", "compiled", more=compared)
    timed = table.extended(
        lambda row: {"speedup": row["throughput"] / row["baseline"], **_epoch(row)}, EPOCH_UNITS
    )
    before = ("machine", "card", "data", "seconds", "compiled", "kind", "trick", "speedup", "epoch")
    hidden = ("images", "baseline")
    return timed.select(
        *before, *(name for name in timed.columns if name not in (*before, *hidden))
    )


EPOCH_UNITS = {"epoch": "s", "throughput": "1/s", "power": "W", "energy_per_image": "J"}


def _epoch(row: Row) -> Row:
    """s that all training images take at this rate."""
    return {"epoch": row["images"] / row["throughput"]}


def _images(record: Record) -> Row:
    return {"images": float(record.data[str(record.params["data"])]["train"])}


def _card(record: Record) -> Row:
    """The name of the GPU, or of the CPU."""
    on_gpu = record.gpus and not record.benchmark.endswith("_cpu")
    return {"card": record.gpu_names[0] if on_gpu else str(record.node.get("cpu", ""))}


def _set(record: Record) -> Row:
    ranks = record.params.get("gpus", record.params.get("ranks", 1))
    recipe = str(record.params["recipe"]) + (f", {ranks} ranks" if int(ranks) > 1 else "")
    return {
        "machine": record.machine,
        **_card(record),
        "recipe": recipe,
        "data": record.params["data"],
    }


def _deviation(values: Sequence[float]) -> float:
    return statistics.stdev(values) if len(values) > 1 else 0.0


TIME = bar_chart(
    ("recipe", "machine", "{runs} runs"),
    Axis("time", "time to accuracy", "s"),
    "card",
    low="time_low",
    high="time_high",
    label="time",
    panel="data",
    independent=("x", "y"),
)
#: A published range has no single value: only its whisker is drawn.
VARIATION = dot_chart(
    ("recipe", "data", "machine", "{runs} runs"),
    Axis("variation", "coefficient of variation", "%", log=True),
    "source",
    low="variation_low",
    high="variation_high",
)
CARDS = dot_chart(
    ("recipe", "{runs} runs", "machine", "card {card}"),
    Axis("variation", "coefficient of variation", "%", log=True),
    "machine",
    low="variation_low",
    high="variation_high",
)
CURVES = line_chart(
    Axis("time", "time", "s"),
    Axis("accuracy", "accuracy", "%"),
    "machine",
    panel=("recipe", "data"),
    each="run",
    rules=[Rule("y", "target", "target")],
    independent=("x", "y"),
)
OUT_OF_DISTRIBUTION = dot_chart(
    ("data", "images", "recipe"),
    Axis("accuracy", "accuracy", "%"),
    "machine",
    low="accuracy_low",
    high="accuracy_high",
)
UTILISATION = line_chart(
    Axis("time", "time", "s"),
    Axis("value", "utilisation", "%", zero=True),
    "trick",
    dash="part",
    parts=("core", "memory"),
    panel=("machine", "{seconds} s"),
    points=False,
    independent=("x",),
)
TRICK_BARS = bar_chart(
    "trick",
    Axis("speedup", "throughput relative to baseline script (×)"),
    "kind",
    label="format(datum.utilisation, '.0%')",
    independent=("x", "y"),
    panel=("machine", "data", "{seconds} s each", "compiled: {compiled}"),
)
FIGURES = (
    Figure("time", "Time to accuracy", SETS, time, TIME),
    Figure(
        "variation", "Coefficient of variation of the time to accuracy", SETS, variation, VARIATION
    ),
    Figure(
        "cards",
        "Variation of the time to accuracy on each card",
        ("tta",),
        cards,
        CARDS,
        every_card=True,
    ),
    Figure(
        "compiling",
        "Time to accuracy with and without compiling",
        ("tta", "tta_eager"),
        compiling,
        dot_chart(
            ("machine", "recipe", "data"),
            Axis("value", "mean time of a run", "s", log=True),
            parts=("compiled", "eager"),
        ),
    ),
    Figure("curves", "Accuracy over time", SETS, curves, CURVES),
    Figure(
        "lower_targets",
        "Variation of the time to a target that nine of ten runs reach",
        ("tta",),
        lower_targets,
        CARDS,
        every_card=True,
    ),
    Figure(
        "elsewhere",
        "Accuracy on out-of-distribution images",
        SETS,
        out_of_distribution,
        OUT_OF_DISTRIBUTION,
    ),
    Figure("networks", "Accuracy of each trained network", SETS, networks),
    Figure(
        "utilisation", "Utilisation during training", ("tta_utilisation",), utilisation, UTILISATION
    ),
    Figure(
        "utilisation_cpu",
        "Utilisation during training on CPUs",
        ("tta_utilisation_cpu",),
        utilisation,
        UTILISATION,
    ),
    Figure("utilisation_means", "Mean utilisation during training", WATCHED, utilisation_means),
    Figure("tricks", "What increases utilisation", TRICKS, tricks, TRICK_BARS),
)
