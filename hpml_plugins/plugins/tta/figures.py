"""The figures of the plugin, in the order of its page."""

from __future__ import annotations

from hpml_plugins import Axis, Figure, Rule, bar_chart, dot_chart, line_chart
from hpml_plugins.plugins.tta import tables
from hpml_plugins.plugins.tta.tables import SETS, TRICKS, WATCHED

TIME = bar_chart(
    ("recipe", "machine"),
    Axis("time", "time to accuracy", "s"),
    "card",
    low="time_low",
    high="time_high",
    label="time",
    panel="data",
    independent=("x", "y"),
)
#: A published range has no value of its own: its whisker alone is drawn.
VARIATION = dot_chart(
    ("recipe", "data", "machine"),
    Axis("variation", "coefficient of variation", "%", log=True),
    "source",
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
    "images",
    Axis("accuracy", "accuracy", "%"),
    ("recipe", "machine"),
    low="accuracy_low",
    high="accuracy_high",
    panel="data",
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
    panel=("machine", "data", "{seconds} s each", "compiled: {compiled}"),
    independent=("x", "y"),
)
FIGURES = (
    Figure(
        "time",
        "Time to accuracy",
        SETS,
        tables.sets,
        TIME,
        "Bars: median of valid runs; whiskers: 95 % CI. ‘of’: whether each run, or only the mean, must reach the target. "
        "variation_low, variation_high: 95 % interval of the coefficient of variation (Vangel, after McKay; normally "
        "distributed times assumed). The time excludes set-up (compiling, warming up) and loading the images; it includes "
        "every evaluation.",
    ),
    Figure(
        "variation",
        "Coefficient of variation of the time to accuracy",
        SETS,
        tables.variations,
        VARIATION,
        "With 95 % intervals. Whiskers without a mark: published ranges, for other tasks and for epochs instead of seconds.",
    ),
    Figure(
        "curves",
        "Accuracy over time",
        SETS,
        tables.curves,
        CURVES,
        "One line per run; dashed: the target. A recipe that is evaluated only at its end has one mark per run.",
    ),
    Figure(
        "elsewhere",
        "Accuracy on out-of-distribution images",
        SETS,
        tables.out_of_distribution,
        OUT_OF_DISTRIBUTION,
        "Mean over the trained networks; whiskers: one standard deviation to each side. blur, noise, contrast: modified "
        "test images.",
    ),
    Figure(
        "utilisation",
        "Utilisation during training",
        WATCHED,
        tables.utilisation,
        UTILISATION,
        "core: share of time in which any kernel ran, however small; memory: share in which memory was read or written.",
    ),
    Figure(
        "utilisation_means",
        "Mean utilisation during training",
        WATCHED,
        tables.means,
        caption="Over the whole observed time, with its cost.",
    ),
    Figure(
        "tricks",
        "What increases utilisation",
        TRICKS,
        tables.tricks,
        TRICK_BARS,
        "Each trick alone on the exercise's recipe, then together with those before it (+). Percentages: mean utilisation.",
    ),
)
