"""The figures of `mlp`: tables by hand, the coursework's own beside them, every chart drawn."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from charted import picture
from records import a_record

from hpml_plugins import Record, Series
from hpml_plugins.plugins.mlp import charts as tables
from hpml_plugins.plugins.mlp import hpml_benchmarks, hpml_figures
from hpml_plugins.plugins.mlp.formulas import LAUNCHING, ORDER

FIGURES = {figure.name: figure for figure in hpml_figures()}
BENCHMARKS = {benchmark.name: benchmark for benchmark in hpml_benchmarks()}


def record(
    benchmark: str, params: dict[str, Any], series: dict[str, Series], **medians: float
) -> Record:
    return a_record(BENCHMARKS[benchmark], medians, params=params, series=series)


def phases() -> Record:
    names = [*ORDER, LAUNCHING]
    return record(
        "mlp_phases",
        {
            "ranks": 2,
            "way": "mpi",
            "hidden": 512,
            "batch": 3000,
            "dtype": "float32",
            "product": "own",
        },
        {
            "phases": Series({"phase": list(names), "time": [1e-4] * len(names)}),
            "setup": Series({"part": ["MPI_Init", "imports"], "time": [0.5, 2.0]}),
            "rates": Series({"flops": [6e12], "pci": [16e9], "mpi": [4e9]}),
        },
        batch=1.2e-3,
        explained=0.92,
    )


def modelled() -> Record:
    grid = {
        "hidden": [512, 2048],
        "batch": [3000, 12000],
        "flops": [2e9, 32e9],
        "intensity": [400, 1600],
        "whole": [2e-3, 8e-3],
        "without_images": [1e-3, 5e-3],
        "added_up": [2e-3, 8e-3],
        "roofline": [1.1e-3, 4e-3],
        "lines": [1.5e-3, 8e-3],
        "curves": [1.8e-3, 8e-3],
        "all-reduce": [3e-4, 9e-4],
    }
    series = {
        "grid": Series({name: list(map(float, column)) for name, column in grid.items()}),
        "rates": Series({"flops": [6e12], "pci": [16e9], "mpi": [4e9]}),
    }
    return record("mlp_model", {"ranks": 2, "way": "mpi", "product": "own"}, series)


def learned(sweep: str, values: list[float], benchmark: str = "mlp_learning_cpu") -> Record:
    series = {
        sweep: Series({sweep: list(values), "precision": [0.5, 0.9], "loss": [2.0, 0.3]})
    }
    if sweep == "rate":
        series["numpy"] = Series({"rate": [0.1], "precision": [0.89]})
    return record(benchmark, {"data": "digits", "sweep": sweep}, series)


def weights() -> Record:
    columns = {
        "rate": [0.01, 0.01, 1.0, 1.0],
        "steps": [3.0, 100.0, 3.0, 100.0],
        "error": [1e-7, 1e-6, 1e-6, 0.1],
        "precision": [0.9] * 4,
        "reference": [0.9] * 4,
    }
    params = {"data": "digits", "dtype": "float32", "product": "torch"}
    return record(
        "mlp_weights_cpu",
        params,
        {"errors": Series({name: list(c) for name, c in columns.items()})},
    )


def others() -> list[Record]:
    point = {"ranks": 2, "way": "mpi", "hidden": 512, "batch": 3000, "product": "torch"}
    ways = Series(
        {
            "variant": ["plain", "all together"],
            "time": [4e-3, 2e-3],
            "predicted": [4e-3, 2.5e-3],
        }
    )
    split = Series(
        {
            "how": ["data", "model"],
            "time": [2e-3, 1e-3],
            "predicted": [2e-3, 1e-3],
            "handed": [1.6e6, 1.2e5],
            "counted": [1.6e6, 1.2e5],
        }
    )
    tuning = Series({"tile": ["128x128x8, 8x8 a thread"], "time": [4e-3], "waste": [1.0]})
    gemm = record(
        "mlp_gemm",
        {"shape": "4096x4096x4096", "dtype": "float32", "variant": "nn"},
        {"tuning": tuning},
        time=4e-3,
        rate=34e12,
        torch=2.7e-3,
        vs_torch=0.68,
    )
    kernels = Series(
        {
            "whose": ["own", "torch"],
            "kernel": ["multiply", "sgemm"],
            "occupancy": [0.25, 0.5],
        }
    )
    stalls = Series({"reason": ["barrier"], "own": [2.0], "torch": [1.0]})
    shape = {"shape": "10x512x1500", "dtype": "float32", "variant": "nn"}
    counters = record(
        "mlp_counters", shape, {"kernels": kernels, "stalls": stalls}, occupancy=0.25
    )
    overlap = record("mlp_overlap", point, {"ways": ways})
    return [overlap, record("mlp_split", point, {"predicted": split}), gemm, counters]


RECORDS = [
    phases(),
    modelled(),
    weights(),
    learned("rate", [0.01, 0.1]),
    learned("hidden", [8, 64]),
    learned("epochs", [1, 8]),
    learned("rate", [0.01, 0.1], "mlp_learning"),
    *others(),
]


def test_every_figure_names_benchmarks_that_there_are() -> None:
    names = {benchmark.name for benchmark in hpml_benchmarks()}
    assert {name for figure in FIGURES.values() for name in figure.benchmarks} == names


@pytest.mark.parametrize("name", FIGURES)
def test_every_figure_has_a_table_and_its_chart_is_drawn(name: str) -> None:
    figure = FIGURES[name]
    table = figure.table([each for each in RECORDS if each.benchmark in figure.benchmarks])
    assert len(table) > 0
    if figure.chart:
        marks = picture(figure, table).marks
        assert marks.get("point") or marks.get("bar")


@pytest.mark.parametrize("name", FIGURES)
def test_a_figure_without_records_is_empty(name: str) -> None:
    assert len(FIGURES[name].table([])) == 0


def test_the_coursework_s_times_stand_below_ours() -> None:
    own, theirs = tables.phases([phases()]).rows()
    assert own["gradients"] == theirs["gradients"] == "MPI through pageable host memory"
    assert (own["machine"], theirs["machine"]) == ("m", tables.PUBLISHED)
    assert theirs["forward GEMM 1"] == pytest.approx(470.879e-6)
    assert theirs["backward GEMM 2"] is None  # it does not say
    assert (own["batch_time"], own["explained"]) == (1.2e-3, 0.92)


def test_the_three_published_throughputs_stand_beside_ours() -> None:
    own, theirs = tables.throughput([phases()]).rows()
    assert (own["flops"], own["pci"], own["mpi"]) == (6e12, 16e9, 4e9)
    assert (theirs["flops"], theirs["pci"], theirs["mpi"]) == (
        1.632730e12,
        1.2720e10,
        7.9502e9,
    )


def test_points_on_the_roofline_by_hand() -> None:
    roof, first, second = tables.model(images=False, points=True)([modelled()]).rows()
    assert (roof["what"], roof["machine"]) == ("roof", "m")
    # 2 GFLOP in 1 ms without images, 32 in 5.
    assert (first["rate"], second["rate"]) == (pytest.approx(2e12), pytest.approx(6.4e12))
    assert first["error"] == pytest.approx(0.1)  # the roof says 1.1 ms
    whole = list(tables.model(images=True, points=True)([modelled()]).rows())
    # In 2 ms with them; curves say 1.8.
    assert (whole[1]["rate"], whole[1]["error"]) == (
        pytest.approx(1e12),
        pytest.approx(-0.1),
    )
    alone = list(tables.model(images=False, points=False)([modelled()]).rows())
    assert [row["what"] for row in alone] == ["roof", "point", "roof"]
    assert alone[-1]["machine"] == tables.PUBLISHED
    # The all-reduce, if the Record has it.
    assert (whole[1]["all-reduce"], whole[2]["all-reduce"]) == (3e-4, 9e-4)


def test_the_loss_over_epochs_says_how_much_the_last_ones_changed() -> None:
    first, second = tables.over("epochs")([learned("epochs", [1, 8])]).rows()
    assert first["change"] is None
    assert second["change"] == pytest.approx(0.3 / 2.0 - 1)


def test_each_roof_weighs_copies_and_reduction_by_their_bytes() -> None:
    for ranks, share in ((2, 0.5), (4, 0.4)):
        each = modelled()
        each.params["ranks"] = ranks
        roofs = [
            row
            for row in tables.model(images=True, points=False)([each]).rows()
            if row["what"] == "roof"
        ]
        # below: the coursework's, two ranks
        assert [row["copied"] for row in roofs] == [pytest.approx(share), 0.5]


def test_numpy_s_precision_stands_beside_the_network_s() -> None:
    rows = list(tables.over("rate")([learned("rate", [0.01, 0.1])]).rows())
    assert [(row["by"], row["rate"], row["accuracy"]) for row in rows] == [
        ("network", 0.01, 0.5),
        ("network", 0.1, 0.9),
        ("NumPy", 0.1, 0.89),
    ]


def test_the_phases_are_stacked_with_the_whole_batch_as_a_mark() -> None:
    drawn = picture(FIGURES["phases"], [phases()])
    assert {"all-reduce", "copying images host to device", "whole batch"} <= drawn.texts
    assert len(drawn.marks["point"]) == 2  # ours and the coursework's


def test_points_have_a_panel_with_a_roof_for_each_machine_and_one_label_for_each_batch() -> (
    None
):
    other = msgspec.structs.replace(modelled(), machine="n")
    higher = modelled()
    # Of one batch; the wider network is faster.
    higher.series["grid"].columns["batch"] = [3000.0, 3000.0]
    drawn = picture(FIGURES["points"], [other, higher])
    assert {"m, gpu", "n, gpu"} <= drawn.texts
    assert len(drawn.marks["line mark"]) == 2
    assert len(drawn.marks["point"]) == 4
    assert {
        "B 3000",
        "B 12000",
        "H 512",
        "H 2048",
        "2 ranks, mpi, own product",
    } <= drawn.texts
    labels = [
        (row["machine"], row["hidden"], row["label"])
        for row in tables.model(images=True, points=True)([other, higher]).rows()
        if row["what"] == "point"
    ]
    assert labels == [
        ("n", 512, "B 3000"),
        ("n", 2048, "B 12000"),
        ("m", 512, None),
        ("m", 2048, "B 3000"),
    ]


def test_roofs_of_all_machines_stand_in_one_chart() -> None:
    drawn = picture(FIGURES["roofline"], [modelled()])
    assert len(drawn.marks["line mark"]) == 2  # ours and the published
    assert {"m, gpu", f"{tables.PUBLISHED}, gpu", "B 3000"} <= drawn.texts
