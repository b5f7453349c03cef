"""The figures of `roofline`: shares of the roof by hand, published points marked, an unknown card
said so."""

from __future__ import annotations

import msgspec
import pytest
from charted import picture
from records import a_record

from hpml_plugins import Figure, Record, Series
from hpml_plugins.model.record import MetricSamples
from hpml_plugins.plugins.roofline import charts as tables
from hpml_plugins.plugins.roofline.charts import FIGURES
from hpml_plugins.report.tables import as_text

UNITS = {
    "flop": "FLOP",
    "bytes": "B",
    "time": "s",
    "rate": "FLOP/s",
    "bandwidth": "B/s",
    "intensity": "FLOP/B",
    "best": "B/s",
    "flop_excess": "FLOP",
    "bytes_ratio": "1",
}


def record(
    benchmark: str, gpu: str, machine: str, source: str = "ncu", **rest: float | str
) -> Record:
    metrics = {
        name: MetricSamples(UNITS[name], "higher", [float(value)], {"source": source})
        for name, value in rest.items()
        if name in UNITS
    }
    params = {name: value for name, value in rest.items() if name not in UNITS}
    return a_record(benchmark, metrics, gpu=gpu, params=params, machine=machine)


def step(flop: float, nbytes: float, seconds: float) -> dict[str, float]:
    return {
        "flop": flop,
        "bytes": nbytes,
        "time": seconds,
        "rate": flop / seconds,
        "bandwidth": nbytes / seconds,
        "intensity": flop / nbytes,
    }


H200 = ("NVIDIA H200", "h200")
RESNET = {"model": "resnet18", "step": "train", "dtype": "bfloat16", "batch": 32}
RECORDS = [
    record("roofline_model", *H200, **RESNET, **step(400e9, 10e9, 4e-3)),
    record(
        "roofline_kernel",
        *H200,
        kernel="relu",
        **step(0, 1e9, 1e-3),
        flop_excess=0,
        bytes_ratio=1,
    ),
    record(
        "roofline_kernel",
        *H200,
        kernel="fma_float16",
        **step(1e9, 1e8, 1e-3),
        flop_excess=0,
        bytes_ratio=1,
    ),
    record("roof_copy", *H200, mebibytes=256, best=4.0e12),
    record("roof_copy", *H200, mebibytes=4096, best=4.2e12),
    record("roof_matmul", *H200, dtype="bfloat16", best=800e12),
    record(
        "roofline_model",
        "",
        "laptop",
        "estimate",
        **{**RESNET, "dtype": "float32"},
        **step(100e9, 2e9, 1.0),
    ),
    record(
        "roofline_model",
        "Unheard 9000",
        "new",
        **{**RESNET, "dtype": "float32"},
        **step(100e9, 2e9, 1.0),
    ),
]


def by_name(name: str) -> Figure:
    return next(figure for figure in FIGURES if figure.name == name)


def test_a_point_stands_against_the_published_and_the_measured_roof() -> None:
    ours = next(row for row in tables.points(RECORDS).rows() if row["machine"] == "h200")
    # 400e9 FLOP / 10e9 B = 40 FLOP/B; 40 · 4.8e12 = 192e12 < 989e12; 400e9 / 4e-3 s = 100e12; 100 /
    # 192 = 0.5208
    assert ours["attainable"] == pytest.approx(192e12)
    assert ours["share of roof"] == pytest.approx(100 / 192)
    # measured: 40 · 4.2e12 (the better copy) = 168e12 < 800e12; 100 / 168
    assert ours["share of measured roof"] == pytest.approx(100 / 168)
    assert ours["source"] == "measured; ncu"


def test_the_published_points_are_the_seeds_four_and_marked() -> None:
    published = [
        row
        for row in tables.points(RECORDS).rows()
        if row["source"] == "published, not measured"
    ]
    assert [(row["GPU"], row["what"]) for row in published] == [
        ("V100 SXM2", "resnet18"),
        ("V100 SXM2", "resnet50"),
        ("A100 SXM4 40 GB", "resnet18"),
        ("A100 SXM4 40 GB", "resnet50"),
    ]
    # ResNet18 on the V100: 21.95 FLOP/B, right of the ridge at 17.44, so 15.7e12 is attainable:
    # 117.55e9 / 15.7e12
    assert published[0]["attainable"] == 15.7e12
    assert published[0]["share of roof"] == pytest.approx(0.007487, rel=1e-3)
    # on the A100: 4.447 FLOP/B · 1555e9 B/s = 6.915e12
    assert published[2]["attainable"] == pytest.approx(6.915e12, rel=1e-3)


def test_counted_flop_stand_beside_theory() -> None:
    rows = list(tables.flop(RECORDS).rows())
    # ResNet18, a training step of 32 images: 3 · 1,814,073,344 multiply-adds less the first layer's
    # 118,013,952.
    assert rows[0]["theoretical FLOP"] == 2 * 32 * (3 * 1_814_073_344 - 118_013_952)
    assert rows[0]["actual / theoretical"] == pytest.approx(400e9 / 340_749_189_120)
    # relu has no FLOP, fma_float16 no precision whose roof is over it, the laptop no counter.
    assert [(row["machine"], row["what"]) for row in rows[:-4]] == [
        ("h200", "resnet18 train, batch 32"),
        ("new", "resnet18 train, batch 32"),
    ]
    told = {
        (row["GPU"], row["what"]): row["actual / theoretical"]
        for row in rows
        if row["machine"] == "published"
    }
    # Of document 001, its own ratios.
    assert told["V100 SXM2", "resnet18"] == pytest.approx(6.528282983)
    assert told["A100 SXM4 40 GB", "resnet50"] == pytest.approx(0.4844668497)


def test_earlier_cards_stand_beside_the_measured_ones() -> None:
    rows = {
        (row["GPU"], row["precision"], row["roof"]): row
        for row in tables.cards(RECORDS).rows()
    }
    assert rows["V100 SXM2 16 GB", "float32", "published"]["peak"] == 15.7e12
    assert rows["A100 SXM4 40 GB", "tf32", "published"]["bandwidth"] == 1555e9
    assert rows["NVIDIA H200", "bfloat16", "measured"]["peak"] == 800e12
    assert ("V100 SXM2 16 GB", "tf32", "published") not in rows  # it has none


def test_an_unknown_card_has_no_published_roof_and_an_estimate_is_called_one() -> None:
    rows = {row["machine"]: row for row in tables.points(RECORDS).rows()}
    assert rows["new"]["share of roof"] is None
    assert rows["laptop"]["source"] == "measured; estimate"


def test_the_roofs_have_their_ridges() -> None:
    roofs = {
        (row["machine"], row["precision"], row["roof"]): row
        for row in tables.roofs(RECORDS).rows()
    }
    # published: 989e12 / 4.8e12 = 206.04; measured: 800e12 / 4.2e12 = 190.48; 800 / 989
    assert roofs["h200", "bfloat16", "published"]["ridge"] == pytest.approx(
        206.04, abs=0.01
    )
    measured = roofs["h200", "bfloat16", "measured"]
    assert measured["ridge"] == pytest.approx(190.48, abs=0.01)
    assert measured["share of peak"] == pytest.approx(800 / 989)
    assert ("h200", "float32", "measured") not in roofs
    assert ("new", "float32", "published") not in roofs


def test_kernels_show_the_count_of_ffma_and_their_excess() -> None:
    counted = record(
        "roofline_kernel",
        *H200,
        kernel="matmul_float32_2048",
        **step(21.0, 5.0, 1.0),
        flop_excess=1.0,
    )
    counted = msgspec.structs.replace(
        counted, series={"operations": Series({"ffma": [10.0], "fadd": [1.0]})}
    )
    (row,) = tables.kernels([counted]).rows()
    assert (row["FFMA"], row["FLOP by formula"], row["bytes ratio"]) == (10.0, 20.0, None)


def test_tensor_cores_share_is_what_the_other_counters_miss() -> None:
    series = {
        "flop_by_path": Series({"flop": [1000.0], "flop_outside_tensor_cores": [50.0]}),
        "kernels": Series({"flop": [400.0, 600.0], "bytes": [1.0, 2.0]}),
    }
    (row,) = tables.tensor_cores(
        [msgspec.structs.replace(RECORDS[0], series=series), RECORDS[6]]
    ).rows()
    assert (row["share outside tensor cores"], row["kernels"]) == (0.05, 2)


def test_the_chart_says_what_each_line_and_point_is() -> None:
    drawn = picture(by_name("roofline"), RECORDS)
    panels = {
        "h200, NVIDIA H200",
        "laptop, CPU",
        "published, V100 SXM2",
        "published, A100 SXM4 40 GB",
    }
    kinds = {"resnet18 train", "resnet18, published", "resnet50, published"}
    assert panels | kinds | {"bfloat16", "published roof", "measured roof"} <= drawn.texts
    assert "relu" not in drawn.texts  # no FLOP: no place on a logarithmic axis
    assert "fma_float16" not in drawn.texts  # for checking counters only
    # of the H200 the four published precisions and bfloat16 measured; the two cards of document 001
    assert len(drawn.marks["line mark"]) == 4 + 1 + 2
    points = " ".join(drawn.marks["point"])
    assert (
        "arithmetic intensity (bytes of DRAM): 40; rate (1 multiply-add = 2 FLOP): 1e+14"
        in points
    )
    assert "share of roof: 52.08%" in points
    assert len(drawn.marks["point"]) == 3 + 4  # ours on three machines, and the published


def test_gpu_types_share_the_axes_of_a_precision() -> None:
    h100 = ("NVIDIA H100 80GB HBM3", "h100")
    records = [
        *RECORDS,
        record("roofline_model", *h100, **RESNET, **step(400e9, 10e9, 5e-3)),
        record(
            "roof_matmul", "NVIDIA H100 80GB HBM3", "h100-pair", dtype="bfloat16", best=1.0
        ),
    ]
    drawn = picture(by_name("types"), records)
    assert {
        "bfloat16",
        "NVIDIA H200",
        "NVIDIA H100 80GB HBM3",
        "published roof",
    } <= drawn.texts
    # a point of each and that of an unknown GPU in float32; published roofs of both, and the
    # H200's measured one; no roof of a node without points
    assert len(drawn.marks["point"]) == 3
    assert len(drawn.marks["line mark"]) == 3
    assert not drawn.texts & {"laptop, CPU", "V100 SXM2", "resnet18, published"}


@pytest.mark.parametrize("figure", FIGURES, ids=lambda figure: figure.name)
def test_every_figure_has_a_table_of_any_part_of_the_records(figure: Figure) -> None:
    for record in RECORDS:
        if record.benchmark in figure.benchmarks:
            table = figure.table([record])
            if len(table) and figure.chart:
                assert picture(figure, table).marks
            assert as_text(table) is not None


def test_measured_roofs_are_solid_and_published_ones_dashed() -> None:
    # The first value of a legend is drawn solid, whichever roof the Records name first.
    legends = picture(by_name("roofline"), RECORDS).marks["legend"]
    assert any(legend.endswith("measured roof, published roof") for legend in legends)
