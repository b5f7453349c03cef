"""What the plugin draws, in the order of its page."""

from __future__ import annotations

from hpml_plugins import Figure
from hpml_plugins.plugins.tta import charts, tables
from hpml_plugins.plugins.tta.tables import SETS, TRICKS, WATCHED

FIGURES = (
    Figure(
        "time",
        "Time to accuracy",
        SETS,
        tables.sets,
        charts.draw_times,
        "Bars: the median over the runs that count, lines its 95 % interval by order statistics. of: each run must "
        "reach the target, or the mean of all. variation_from, variation_to: 95 % interval of the coefficient of "
        "variation (Vangel, after McKay; normal times assumed). setup (compiling, warming up) and loading the images "
        "are not in the time; every evaluation is.",
    ),
    Figure(
        "variation",
        "Coefficient of variation of the time to accuracy",
        SETS,
        tables.variations,
        charts.draw_variations,
        "With 95 % intervals. Dashed: published ranges, of other tasks and of epochs instead of seconds.",
    ),
    Figure(
        "curves",
        "Accuracy over time",
        SETS,
        tables.curves,
        charts.draw_curves,
        "A line a run; dashed: the target.",
    ),
    Figure(
        "elsewhere",
        "Accuracy on images from elsewhere",
        SETS,
        tables.elsewhere,
        charts.draw_elsewhere,
        "Mean over the trained networks, and their deviation. blur, noise, contrast: the test images, shifted.",
    ),
    Figure(
        "utilisation",
        "Utilisation while training",
        WATCHED,
        tables.utilisation,
        charts.draw_utilisation,
        "core: share of time in which any kernel ran, which a single small kernel also does; memory: in which it "
        "was read or written.",
    ),
    Figure(
        "utilisation_means",
        "Mean utilisation while training",
        WATCHED,
        tables.means,
        None,
        "Over the whole of the watched time, with what it cost.",
    ),
    Figure(
        "tricks",
        "What drives the utilisation up",
        TRICKS,
        tables.tricks,
        charts.draw_tricks,
        "Each trick alone on the exercise's recipe, then added to those before it (+). Percentages: mean utilisation.",
    ),
)
