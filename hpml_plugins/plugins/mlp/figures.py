"""The exercise's figures 2 to 6 and 12 to 14, and the tables that belong to them."""

from __future__ import annotations

from hpml_plugins import Axis, Figure, Rule, bar_chart, line_chart, roofline_chart
from hpml_plugins.plugins.mlp import tables
from hpml_plugins.plugins.mlp.phases import ORDER

WEIGHTS = ("mlp_weights", "mlp_weights_cpu")
LEARNING = ("mlp_learning", "mlp_learning_cpu")
PHASES = ("mlp_phases", "mlp_phases_cpu")
MODEL = ("mlp_model", "mlp_model_cpu")
OVERLAP = ("mlp_overlap", "mlp_overlap_cpu")
SPLIT = ("mlp_split", "mlp_split_cpu")

#: Of the phases in their order: copying images; forward; backward; element-wise; gradients there, reduced, and back; step.
COLOURS = (
    "#74808d", "#2a78d6", "#7fb0ea", "#b34a08", "#e0762f", "#f2b48a", "#c9ced4", "#0f7350", "#159a6f", "#7fd0b3", "#8a6fd1",
)  # fmt: skip
RATE = Axis("rate", "learning rate", log=True)
ACCURACY = Axis("accuracy", "accuracy", "%", zero=True)
LOSS = Axis("loss", "loss (mean cross-entropy)", log=True)
ERRORS = line_chart(
    RATE,
    Axis("error", "relative error of weights", log=True),
    ("machine", "device"),
    dash=("dtype", "{product} product"),
    panel="data",
    transform=[
        {"joinaggregate": [{"op": "max", "field": "steps", "as": "last"}]},
        {"filter": "datum.steps === datum.last"},
    ],
)
POINT = ("machine", "ranks: {ranks}", "way", "H {hidden}", "B {batch}", "dtype", "{product} product")
PHASE_BARS = bar_chart(
    POINT, Axis("value", "time per batch", "s"), parts=ORDER, colours=COLOURS, marks={"batch_time": "whole batch"}
)
OVERLAP_BARS = bar_chart(
    "variant",
    Axis("time", "time per batch", "s"),
    marks={"predicted": "predicted from phases"},
    panel=POINT,
    independent=("x",),
)
ROOFLINE = roofline_chart(
    Axis("intensity", "arithmetic intensity (FLOP per byte copied or reduced)", "FLOP/B", log=True),
    Axis("rate", "rate (1 multiply-add = 2 FLOP)", "FLOP/s", log=True),
    ("machine", "device", "{ranks} ranks", "way", "{product} product"),
    roof="datum.at / (datum.at / datum.flops + 0.5 * (1 / datum.pci + 1 / datum.mpi))",
    shape="H {hidden}",
    label="B {batch}",
    also=("predicted", "error"),
)


def figures() -> list[Figure]:
    """In the order of the exercise's questions."""
    rate, best, loss = (tables.published(name) for name in ("best_learning_rate", "precision", "best_loss"))
    at_rate = [Rule("x", rate, "the exercise's best rate")] if rate else []
    at_best = [Rule("y", best, "the exercise's accuracy")] if best else []
    at_loss = [Rule("y", loss, "the exercise's best loss")] if loss else []
    who = ("machine", "device", "data")
    return [
        Figure(
            "errors", "Weights compared with NumPy's in float64 (figure 2)", WEIGHTS,
            tables.of_series(
                "errors", "data", "dtype", "product",
                units=dict.fromkeys(("rate", "steps", "error", "precision", "reference"), "1"),
            ),
            ERRORS,
            "Relative error of the weights after the last step. Where it is large, training is chaotic: the accuracies in "
            "the table (precision, and reference for NumPy) still agree.",
        ),
        Figure(
            "precision", "Accuracy vs. learning rate (figure 3)", LEARNING, tables.over("rate"),
            line_chart(RATE, ACCURACY, who, dash="by", rules=[*at_rate, *at_best]),
            "On test images, after five epochs with 512 hidden units. Grey lines: the exercise's result on MNIST, about "
            "0.97 and a best rate near 0.1.",
        ),
        Figure(
            "rate", "Loss vs. learning rate (figure 4)", LEARNING, tables.over("rate"),
            line_chart(RATE, LOSS, who, rules=at_rate),
            "Mean cross-entropy over the training images after five epochs. Too small a rate converges slowly; too large a "
            "rate diverges.",
        ),
        Figure(
            "loss", "Loss by epochs (figure 5)", LEARNING, tables.over("epochs"),
            line_chart(Axis("epochs", "epochs", log=True), LOSS, who, rules=at_loss),
            "At twice the exercise's best rate. Grey line: the best loss that the exercise reports after a thousand epochs.",
        ),
        Figure(
            "hidden", "Accuracy by hidden size (figure 6)", LEARNING, tables.over("hidden"),
            line_chart(Axis("hidden", "hidden units", log=True, base=2), ACCURACY, who, rules=at_best),
            "After five epochs at a rate of 0.1. Grey line: about where the exercise's accuracy saturates, on MNIST.",
        ),
        Figure(
            "phases", "Where the time of a batch goes (question 2.1)", PHASES, tables.phases, PHASE_BARS,
            "A phase is device time, without launch overhead; ranks are synchronised before gradients are reduced. The mark "
            "is the whole batch as it runs; launching (in the table): host time to launch the computation.",
        ),
        Figure(
            "setup", "Before the first batch", PHASES,
            tables.of_series("setup", "ranks", "way", "product", units={"time": "s"}),
            caption="Starting MPI, importing, drawing weights and images, and the three batches that are checked.",
        ),
        Figure(
            "throughput", "Effective throughputs (question 2.4)", PHASES, tables.throughput,
            caption="P_flops: FLOP of the four products divided by their time; P_pci: gradients there and back; P_mpi: bytes "
            "of the all-reduce, 2 b between two ranks as the exercise counts. Last row: the exercise's own.",
        ),
        Figure(
            "roofline", "Roofline with effective throughputs (figure 12)", MODEL,
            tables.model(images=False, points=False), ROOFLINE,
            "AI / (AI / P_flops + ½ (1 / P_pci + 1 / P_mpi)), with the rates measured at the point shown.",
        ),
        Figure(
            "points", "Measured points on the roofline (figure 13)", MODEL, tables.model(images=True, points=True), ROOFLINE,
            "Whole batches, including copying the images, which the roof does not model. predicted: from each phase's rates "
            "at the other points of the grid. H: hidden units.",
        ),
        Figure(
            "points_without_images", "Measured points without copying images (figure 14)", MODEL,
            tables.model(images=False, points=True), ROOFLINE,
            "Points above the roof compute faster than the point at which the roof was measured. predicted: by the roof.",
        ),
        Figure(
            "overlap", "Pinned memory, pieces, prefetched images (question 2.2)", OVERLAP,
            tables.of_series(
                "ways", "ranks", "way", "hidden", "batch", "product", error=True,
                units={"time": "s", "predicted": "s", "error": "1"},
            ),
            OVERLAP_BARS,
            "Mark: predicted from the phases of the plain and of the pinned batch.",
        ),
        Figure(
            "split", "Data parallel and model parallel", SPLIT,
            tables.of_series(
                "predicted", "ranks", "way", "hidden", "batch", "product",
                units={"time": "s", "predicted": "s", "handed": "B", "counted": "B"},
            ),
            caption="handed: bytes that each rank gives to the all-reduce per batch, counted there; counted: by formula, "
            "(H D + H + C H + C) b and B C b.",
        ),
        Figure(
            "gemm", "Our tiled product and torch's", ("mlp_gemm",), tables.gemm,
            caption="vs_torch: torch's time divided by ours, both in float32 without tf32; tile: the fastest of those tried.",
        ),
        Figure(
            "tiles", "The tiles that were tried", ("mlp_gemm",),
            tables.of_series("tuning", "shape", "dtype", "variant", units={"time": "s", "waste": "1"}),
            caption="The fastest first.",
        ),
    ]  # fmt: skip
