"""What is drawn: the exercise's figures 2 to 6 and 12 to 14, and tables beside them."""

from __future__ import annotations

from hpml_plugins import Figure
from hpml_plugins.plugins.mlp import charts, tables

WEIGHTS = ("mlp_weights", "mlp_weights_cpu")
LEARNING = ("mlp_learning", "mlp_learning_cpu")
PHASES = ("mlp_phases", "mlp_phases_cpu")
MODEL = ("mlp_model", "mlp_model_cpu")
OVERLAP = ("mlp_overlap", "mlp_overlap_cpu")
SPLIT = ("mlp_split", "mlp_split_cpu")


def figures() -> list[Figure]:
    """In the order of the exercise's questions."""
    rate, best = tables.published("best_learning_rate"), tables.published("precision")
    return [
        Figure(
            "errors", "Weights against NumPy's in float64 (figure 2)", WEIGHTS, tables.errors, charts.draw_errors,
            "Relative error of weights after the last of the steps. Where it is large the training is chaotic: the "
            "precisions in the table, ours and the reference's, are still alike.",
        ),
        Figure(
            "precision", "Precision over the learning rate (figure 3)", LEARNING, tables.over("rate"),
            charts.draw_over("rate", "precision", "learning rate", told=(rate, best)),
            "Of test images, after five epochs with 512 hidden; dashed: NumPy in float64. Dotted: what the exercise "
            "finds on MNIST, about 0.97 and a best rate near 0.1.",
        ),
        Figure(
            "rate", "Loss over the learning rate (figure 4)", LEARNING, tables.over("rate"),
            charts.draw_over("rate", "loss", "learning rate", told=(rate, None)),
            "Mean cross-entropy over the training images after five epochs. Too small a rate has not got far yet; too "
            "large a one jumps.",
        ),
        Figure(
            "loss", "Loss over epochs (figure 5)", LEARNING, tables.over("epochs"),
            charts.draw_over("epochs", "loss", "epochs", told=(None, tables.published("best_loss"))),
            "At twice the best rate of the exercise. Dotted: the best loss that it finds after a thousand epochs.",
        ),
        Figure(
            "hidden", "Precision over the hidden size (figure 6)", LEARNING, tables.over("hidden"),
            charts.draw_over("hidden", "precision", "hidden size", told=(None, best)),
            "After five epochs at a rate of 0.1. Dotted: about where the exercise's saturates, on MNIST.",
        ),
        Figure(
            "phases", "Where a batch's time goes (question 2.1)", PHASES, tables.phases, charts.draw_phases,
            "A phase is what the device does, launching apart, with ranks waiting for one another before gradients "
            "are added up. The mark is the whole batch as it runs; launching is how long the host needs to ask for the "
            "computation.",
        ),
        Figure(
            "setup", "Before the first batch", PHASES, tables.setup, None,
            "Starting MPI, importing, drawing weights and images, and the three batches that are checked.",
        ),
        Figure(
            "throughput", "Effective throughputs (question 2.4)", PHASES, tables.throughput, None,
            "P_flops: FLOP of four products in their time; P_pci: gradients there and back; P_mpi: bytes of the "
            "all-reduce, 2 b between two ranks as the exercise counts. Last: its own, as published.",
        ),
        Figure(
            "roofline", "Roofline with effective throughputs (figure 12)", MODEL,
            tables.model(images=False, points=False), charts.draw_roofline,
            "AI / (AI / P_flops + ½ (1 / P_pci + 1 / P_mpi)), the rates being those measured at the point shown.",
        ),
        Figure(
            "points", "Measured points on the roofline (figure 13)", MODEL, tables.model(images=True, points=True),
            charts.draw_roofline,
            "Whole batches, images copied each time: the roof knows nothing of that. predicted: by each "
            "phase's rates at the other points of the grid.",
        ),
        Figure(
            "points_without_images", "Measured points without copying images (figure 14)", MODEL,
            tables.model(images=False, points=True), charts.draw_roofline,
            "Points above the roof compute faster than the one at which it was measured. predicted: by the roof.",
        ),
        Figure(
            "overlap", "Pinned memory, pieces, images ahead (question 2.2)", OVERLAP, tables.ways, charts.draw_ways,
            "Predicted: from the phases of the plain and of the pinned batch.",
        ),
        Figure(
            "split", "Data parallel against model parallel", SPLIT, tables.split, None,
            "handed: bytes given to the all-reduce by each rank in a batch, counted there; counted: by formula, "
            "(H D + H + C H + C) b and B C b.",
        ),
        Figure(
            "gemm", "Our tiled product and torch's", ("mlp_gemm",), tables.gemm, None,
            "vs_torch: torch's time over ours, both in float32 without tf32; tile: the fastest of those tried.",
        ),
        Figure("tiles", "The tiles that were tried", ("mlp_gemm",), tables.tiles, None, "The fastest first."),
    ]  # fmt: skip
