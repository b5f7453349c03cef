from __future__ import annotations

import itertools
import json
import re
import xml.etree.ElementTree as ElementTree
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest
from records import a_record
from support import DRAWN

from hpml_plugins import (
    Axis,
    Figure,
    HpmlError,
    Record,
    Series,
    Table,
    dot_chart,
    line_chart,
)
from hpml_plugins.host import LoadedPlugin, load_plugin
from hpml_plugins.model.record import MetricSamples
from hpml_plugins.published import gpu_types
from hpml_plugins.registry import PluginEntry
from hpml_plugins.report.charts import COLOURS, GREY, complete, look, without_cpus
from hpml_plugins.report.figures import Drawable, collect, note_of, render, tabulate
from hpml_plugins.report.tables import as_csv, as_markdown, as_text
from hpml_plugins.store import current_records

Load = Callable[[str], LoadedPlugin]


@pytest.fixture
def load(tmp_path: Path) -> Load:
    """Load a plugin from its text."""

    def load(text: str) -> LoadedPlugin:
        (tmp_path / "toy.py").write_text(text)
        return load_plugin(PluginEntry("toy", path="toy.py"), tmp_path, "registry.yaml:3")

    return load


def record(
    size: int, seconds: float, *, machine: str = "m", commit: str = "", started: float = 0.0
) -> Record:
    metrics = {"time": [seconds, seconds, 100.0]}
    facts = {"machine": machine, "commit": commit, "started": started}
    return a_record(metrics=metrics, params={"size": size}, **facts)


RECORDS = [record(10, 1e-6), record(1000, 5e-5), record(10, 2e-6, machine="n|2")]


def test_a_table_s_columns_must_be_of_one_length_and_its_units_known() -> None:
    with pytest.raises(HpmlError, match="different length"):
        Table({"a": [1, 2], "b": [1]})
    with pytest.raises(HpmlError, match="unit 'ms' is not known"):
        Table({"a": [1]}, {"a": "ms"})
    with pytest.raises(HpmlError, match="column 'b', which it lacks"):
        Table({"a": [1]}, {"b": "s"})


def test_a_table_of_records_has_machine_parameters_and_medians() -> None:
    table = Table.of_records(RECORDS, "time", "bandwidth")
    assert next(table.rows()) == {
        "machine": "m",
        "size": 10,
        "time": 1e-6,
        "bandwidth": None,
    }
    assert table.units == {"time": "s"}
    assert {machine: len(rows) for (machine,), rows in table.groups("machine").items()} == {
        "m": 2,
        "n|2": 1,
    }


def test_tables_are_written_with_units_for_readers_and_in_full_for_programs() -> None:
    table = Table.of_records(RECORDS, "time", "bandwidth")
    assert as_csv(table).splitlines()[:2] == [
        "machine,size,time [s],bandwidth",
        "m,10,1e-06,",
    ]
    assert "| n\\|2 | 10 | 2.000 µs | – |" in as_markdown(table)
    assert as_text(table).splitlines()[1] == "m          10  1.000 µs          –"


def test_numbers_without_unit_are_shown_as_chosen_or_to_four_digits() -> None:
    table = Table({"rate": [0.001, 10], "share": [0.49952860291162493, None]})
    assert [line.split() for line in as_text(table).splitlines()[1:]] == [
        ["0.001", "0.4995"],
        ["10", "–"],
    ]
    assert as_csv(table).splitlines()[1] == "0.001,0.49952860291162493"


def test_the_newest_record_of_a_point_is_of_the_newest_commit_not_the_one_measured_last() -> (
    None
):
    old_commit_measured_later = record(10, 9.0, commit="aaa", started=200)
    new_commit = record(10, 1.0, commit="bbb", started=100)
    again = record(10, 2.0, commit="bbb", started=150)
    unknown_commit = record(10, 7.0, commit="zzz", started=300)
    found = current_records(
        [new_commit, again, old_commit_measured_later, unknown_commit], {"aaa": 0, "bbb": 1}
    )
    assert found == [again]


def test_records_without_a_number_do_not_stand_for_a_point_and_each_version_is_one() -> (
    None
):
    import msgspec

    failed = msgspec.structs.replace(record(10, 1.0), status="failed")
    assert current_records([failed], {}) == []
    both = [record(10, 1.0), msgspec.structs.replace(record(10, 2.0), version="2")]
    assert current_records(both, {}) == both


@pytest.mark.parametrize("name", ["over_size", "freely"])
def test_figures_of_a_plugin_become_files(load: Load, name: str) -> None:
    plugin = load(DRAWN)
    drawables = {
        drawable.figure.name: drawable
        for drawable in tabulate(plugin, collect(plugin), RECORDS)
    }
    assert {len(drawable.table) for drawable in drawables.values()} == {3}
    assert render(drawables["numbers"], "svg") is None
    svg, png, pdf = (render(drawables[name], form) or b"" for form in ("svg", "png", "pdf"))
    texts = {
        node.text
        for node in ElementTree.fromstring(svg).iter("{http://www.w3.org/2000/svg}text")
    }
    assert {"size", "m", "n|2"} <= texts
    assert {"time", "10 µs"} <= texts or "time in s" in texts
    # Vega numbers its clips on and on
    assert name == "over_size" or svg == render(drawables[name], "svg")
    assert png.startswith(b"\x89PNG")
    assert pdf.startswith(b"%PDF")


def test_a_free_picture_holds_no_character_that_xml_may_not(load: Load) -> None:
    plugin = load(DRAWN)
    (freely,) = [
        one
        for one in tabulate(plugin, collect(plugin), [record(10, 1e-6, machine="a\x0cb")])
        if one.figure.draw
    ]
    assert b"ab" in (render(freely, "svg") or b"")


def test_series_columns_panels_and_sizes_follow_from_the_table() -> None:
    chart = line_chart(
        Axis("size", "size", "B", log=True, base=2),
        Axis("time", "time", "s"),
        ("machine", "{size} B"),
        panel="machine",
    )
    one = complete(chart, Table.of_records(RECORDS[:2], "time"))
    three = complete(
        chart,
        Table.of_records(
            [*RECORDS, record(10, float("nan"), machine="odd.one[1]")], "time"
        ),
    )
    assert (one["columns"], three["columns"]) == (1, 2)
    assert one["spec"]["width"] > three["spec"]["width"]
    (point,) = [layer for layer in three["spec"]["layer"] if "shape" in layer["encoding"]]
    assert point["encoding"]["color"]["scale"]["domain"] == [
        "m, 10 B",
        "m, 1000 B",
        "n|2, 10 B",
    ]
    assert three["data"]["values"][3]["time"] is None  # JSON has no NaN
    assert "usermeta" not in three


def test_rows_that_lack_a_number_have_no_entry_in_the_legend() -> None:
    chart = line_chart(Axis("size", "size"), Axis("time", "time", "s"), "machine")
    made = complete(
        chart, Table({"size": [1, 2], "time": [1.0, None], "machine": ["a", "b"]})
    )
    domains = [
        layer["encoding"]["color"]["scale"]["domain"]
        for layer in made["layer"]
        if "color" in layer["encoding"]
    ]
    assert domains == [["a"], ["a"]]


def test_a_series_may_be_made_of_parts_and_other_columns() -> None:
    chart = line_chart(
        Axis("size", "size"),
        Axis("value", "time", "s"),
        ("machine", "part"),
        parts=("first_half", "second_half"),
    )
    rows = {
        "machine": ["a", "b"],
        "size": [1, 1],
        "first_half": [1.0, 2.0],
        "second_half": [3.0, 4.0],
    }
    made = complete(chart, Table(rows), looks={"a": look("NVIDIA L4")})
    (domain,) = {
        tuple(layer["encoding"]["color"]["scale"]["domain"]) for layer in made["layer"]
    }
    # as the transform of the chart itself names them: others would be drawn in no colour
    assert domain == ("a, first half", "a, second half", "b, first half", "b, second half")


def test_series_of_other_cells_than_text_are_drawn_in_their_colours() -> None:
    rows = {"x": [1, 2], "y": [1.0, 2.0], "on": [True, False], "rate": [4.0, 0.5]}
    chart = line_chart(Axis("x", "x"), Axis("y", "y"), ("on", "{rate} /s"))
    figure = Figure("cells", "Cells", ("toy",), lambda records: Table(rows), chart)
    svg = render(Drawable("plugin", figure, Table(rows)), "svg")
    paths = ElementTree.fromstring(svg or b"").iter("{http://www.w3.org/2000/svg}path")
    points = [path for path in paths if path.get("aria-roledescription") == "point"]
    told = {(path.get("aria-label") or "").partition("series: ")[2][:12] for path in points}
    assert told == {"true, 4 /s; ", "false, 0.5 /"}
    assert [path.get("fill") for path in points] == [*COLOURS[:2]]


def test_a_layout_leaves_room_for_wider_letters() -> None:
    chart = dot_chart("machine", Axis("time", "time", "s"), ("machine", "format"))
    rows = [{"machine": "m" * 40, "format": "fp8", "time": 1.0}]
    made = complete(chart, Table.of(rows))
    assert made["padding"] == {"left": 45, "right": 5 + 45, "top": 5, "bottom": 5}
    (legend,) = {
        layer["encoding"]["color"]["legend"]["columnPadding"] for layer in made["layer"]
    }
    assert legend == 10 + 45


def test_a_text_of_a_chart_names_one_column() -> None:
    with pytest.raises(HpmlError, match=r"'\{a}, \{b}' names two columns"):
        line_chart(Axis("x", "x"), Axis("y", "y"), "{a}, {b}")


def test_more_series_than_colours_differ_in_their_markers() -> None:
    chart = line_chart(Axis("x", "x"), Axis("y", "y"), "name")
    ranges = [
        layer["encoding"]["shape"]["scale"]["range"]
        for layer in chart["layer"]
        if "shape" in layer.get("encoding", {})
    ]
    for markers in ranges:
        looks = {(n % len(COLOURS), marker) for n, marker in enumerate(markers)}
        assert len(looks) == len(markers) == 2 * len(COLOURS)
    assert ranges


def test_known_gpu_types_and_counts_are_told_apart_with_and_without_colour() -> None:
    found = [look(re.sub(r"\(\w+ \)\?", "", each.patterns[0])) for each in gpu_types()]
    assert len(set(found)) == len(found)
    assert all(
        a != b
        for one, other in itertools.pairwise(found)
        for a, b in zip(one, other, strict=True)
    )
    counts = [look("NVIDIA H200", gpus) for gpus in (1, 2, 4, 8)]
    assert len({each.colour for each in counts}) == 1
    assert len({each.marker for each in counts}) == 4


def test_a_gpu_type_looks_the_same_in_every_chart_whichever_others_there_are(
    load: Load,
) -> None:
    def on(machine: str, gpu: str, count: int) -> Record:
        node = {"gpus": [{"name": gpu}] * count, "cpu": "A CPU"}
        return msgspec.structs.replace(record(10, 1e-6, machine=machine), node=node)

    h200, others = (
        on("z", "NVIDIA H200", 2),
        [on("a", "NVIDIA L4", 1), on("b", "Unheard of", 1)],
    )

    def scales(records: list[Record]) -> dict[str, dict[str, str]]:
        """Channel → series → what it has."""
        plugin = load(DRAWN)
        chart = next(
            one.chart for one in tabulate(plugin, collect(plugin), records) if one.chart
        )
        points = next(
            layer["encoding"] for layer in chart["layer"] if "shape" in layer["encoding"]
        )
        ranges = {name: points[name]["scale"] for name in ("color", "shape")}
        return {
            name: dict(zip(each["domain"], each["range"], strict=True))
            for name, each in ranges.items()
        }

    alone, beside = scales([h200]), scales([*others, h200])
    assert (alone["color"]["z"], alone["shape"]["z"]) == look("NVIDIA H200", 2)
    assert all(beside[channel]["z"] == alone[channel]["z"] for channel in alone)
    twins = scales([on("y", "NVIDIA H200", 2), h200])
    assert len(set(twins["color"].values())) == 1
    assert len(set(twins["shape"].values())) == 2
    cards = line_chart(Axis("size", "size"), Axis("time", "time", "s"), ("card", "data"))
    rows = [
        {"size": 1, "time": 1.0, "card": card, "data": "d"}
        for card in ("NVIDIA L4", "V100, published")
    ]
    made = complete(cards, Table.of(rows), looks={"NVIDIA L4": look("NVIDIA L4")})
    assert made["layer"][0]["encoding"]["color"]["scale"]["range"] == [
        look("NVIDIA L4").colour,
        GREY,
    ]


def test_colours_mean_formats_where_a_gpu_type_has_several() -> None:
    chart = line_chart(
        Axis("size", "size"), Axis("time", "time", "s"), ("machine", "format")
    )
    rows = [
        {"size": 1, "time": 1.0, "machine": machine, "format": form}
        for machine in ("a", "b")
        for form in ("fp8", "int8", "bfloat16")
    ]
    looks = {"a": look("NVIDIA H200"), "b": look("NVIDIA L4")}
    (scales,) = {
        json.dumps([layer["encoding"][name]["scale"] for name in ("color", "shape")])
        for layer in complete(chart, Table.of(rows), looks=looks)["layer"]
        if "shape" in layer["encoding"]
    }
    colours, shapes = (each["range"] for each in json.loads(scales))
    assert colours == [*COLOURS[:3], *COLOURS[:3]]
    assert shapes == [looks["a"].marker] * 3 + [looks["b"].marker] * 3


def test_a_cpu_that_would_stretch_a_logarithmic_axis_is_in_the_table_alone() -> None:
    chart = line_chart(
        Axis("size", "size"), Axis("time", "time", "s", log=True), ("machine", "format")
    )
    rows = [
        {"size": 1, "time": 1e-3, "machine": "gpu"},
        {"size": 2, "time": 1.4e-3, "machine": "gpu"},
        {"size": 1, "time": 1.0, "machine": "cpu"},
    ]
    far, near = Table.of(rows), Table.of([*rows[:2], {**rows[2], "time": 2e-3}])
    assert list(without_cpus(chart, far, {"cpu"}).rows()) == rows[:2]
    assert without_cpus(chart, near, {"cpu"}) is near
    assert without_cpus(chart, far, {"cpu", "gpu"}) is far
    plain = line_chart(Axis("size", "size"), Axis("time", "time", "s"), "machine")
    assert without_cpus(plain, far, {"cpu"}) is far


def test_a_figure_is_read_by_its_table_s_docstring_unless_it_has_a_caption() -> None:
    def table(records: object) -> Table:
        """How to
        read it.
        """
        return Table({})

    assert Figure("a", "A", ("toy",), table).caption == "How to read it."
    assert Figure("a", "A", ("toy",), table, caption="Otherwise.").caption == "Otherwise."


def test_a_figure_has_a_chart_or_draws_freely() -> None:
    with pytest.raises(HpmlError, match="'both' has a chart and draws freely"):
        Figure(
            "both",
            "Both",
            ("toy",),
            lambda records: Table({}),
            {"mark": "bar"},
            draw=lambda sheet, table: None,
        )
    with pytest.raises(HpmlError, match="chart must be a Vega-Lite specification"):
        Figure("old", "Old", ("toy",), lambda records: Table({}), lambda sheet, table: None)  # type: ignore[arg-type]


def test_a_table_can_be_selected_extended_filtered_and_sorted() -> None:
    table = Table({"a": [2, None, 1], "b": [0.5, 1.5, 2.5]}, {"b": "s"})
    assert table.select("a", time="b") == Table(
        {"a": [2, None, 1], "time": [0.5, 1.5, 2.5]}, {"time": "s"}
    )
    assert table.sorted("a").columns["a"] == [None, 1, 2]
    double = table.filtered(lambda row: row["b"] > 1).extended(
        lambda row: {"c": 2 * row["b"]}, {"c": "s"}
    )
    assert double == Table(
        {"a": [None, 1], "b": [1.5, 2.5], "c": [3.0, 5.0]}, {"b": "s", "c": "s"}
    )


def test_a_table_of_a_series_has_its_units_and_what_more_is_known_of_the_record() -> None:
    import msgspec

    series = {"curve": Series({"time": [0.1, 0.2]}, {"time": "s"})}
    one = msgspec.structs.replace(RECORDS[0], series=series)
    table = Table.of_series(
        [one, RECORDS[1]], "curve", "size", more=lambda record: {"n": 1}
    )
    assert list(table.rows()) == [
        {"machine": "m", "size": 10, "n": 1, "time": t} for t in (0.1, 0.2)
    ]
    assert table.units == {"time": "s"}


def test_the_interval_of_a_metric_is_that_of_its_estimate() -> None:
    table = Table.of_records([record(10, 1.0)], intervals=("time", "none"))
    assert table.units == dict.fromkeys(("time", "time_low", "time_high"), "s")
    (row,) = table.rows()
    assert (row["time"], row["time_low"], row["time_high"], row["none"]) == (
        1.0,
        1.0,
        100.0,
        None,
    )


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        (
            '("toy",), table, CHART',
            '("other",), table, CHART',
            "'over_size' of plugin 'toy' is drawn from 'other'",
        ),
        ('Figure("numbers"', 'Figure("over_size"', "two figures called 'over_size'"),
        (
            '    return [\n        Figure("over',
            '    return [\n        7, Figure("over',
            "toy.py:27: hpml_figures of plugin 'toy': returned int, not a list of Figure values",
        ),
        (
            "def hpml_figures():",
            "def hpml_figures():\n    1 / 0",
            "hpml_figures of plugin 'toy': ZeroDivisionError",
        ),
    ],
)
def test_a_plugin_whose_figures_cannot_be_is_told_why(
    load: Load, old: str, new: str, message: str
) -> None:
    with pytest.raises(HpmlError, match=message):
        collect(load(DRAWN.replace(old, new)))


def test_a_table_that_raises_costs_its_own_figure_and_is_named(load: Load) -> None:
    broken = DRAWN.replace(
        "def table(records):", "def broken(records):\n    1 / 0\n\ndef table(records):"
    )
    plugin = load(broken.replace('("toy",), table)', '("toy",), broken)'))
    chart, numbers, _ = tabulate(plugin, collect(plugin), RECORDS)
    assert len(chart.table) == 3
    assert (
        str(numbers.error)
        == "figure 'numbers' of plugin 'toy': ZeroDivisionError: division by zero"
    )


def test_a_figure_says_which_of_its_points_are_sustained_rates(load: Load) -> None:
    plugin = load(DRAWN)
    metric = MetricSamples(
        "s", "lower", [3e-5] * 3, {"regime": "sustained"}, boost=[2e-5] * 3
    )
    throttled = msgspec.structs.replace(record(1000, 5e-5), metrics={"time": metric})
    for made in tabulate(plugin, collect(plugin), [RECORDS[0], throttled]):
        assert "1 of 2 points are sustained rates" in made.note
        assert "(size=1000)" in made.note
    assert {made.note for made in tabulate(plugin, collect(plugin), RECORDS)} == {""}


def test_a_figure_of_gpus_says_that_it_is_of_the_newest_records_unless_it_has_every_card() -> (
    None
):
    told = "From the newest Record of each point, not the mean over the cards."
    of_one, of_all = (
        Figure("of", "Of", ("toy",), lambda records: Table({}), every_card=every)
        for every in (False, True)
    )
    on_a_card = a_record(gpu="NVIDIA H200", card="GPU-1")
    assert note_of(of_one, [on_a_card]) == told
    assert note_of(of_all, [on_a_card]) == note_of(of_one, [a_record()]) == ""


def test_of_a_table_with_nothing_to_draw_there_is_no_chart() -> None:
    figure = Figure(
        "bare", "Bare", ("toy",), lambda records: Table({}), draw=lambda sheet, table: None
    )
    assert render(Drawable("toy", figure, Table({"a": [1]})), "svg") is None


def test_a_chart_that_raises_is_named() -> None:
    def draw(sheet: object, table: Table) -> None:
        raise KeyError("launch")

    figure = Figure("broken", "Broken", ("toy",), lambda records: Table({}), draw=draw)
    with pytest.raises(
        HpmlError,
        match="figure 'broken' of plugin 'toy' cannot be drawn: KeyError: 'launch'",
    ):
        render(Drawable("toy", figure, Table({"a": [1]})), "svg")


@pytest.mark.parametrize(
    "chart",
    [
        {"mark": {"type": "point", "href": "//evil.example"}},
        {"mark": "point", "encoding": {"href": {"field": "a", "type": "nominal"}}},
        {"layer": [{"hconcat": [{"config": {"point": {"href": "//evil.example"}}}]}]},
        {"mark": {"type": "image", "url": "//evil.example/x.png"}},
        {"data": {"url": "//evil.example/x.json"}, "mark": "point"},
        {
            "transform": [{"lookup": "a", "from": {"data": {"url": "x"}, "key": "a"}}],
            "mark": "point",
        },
        {
            "$schema": "https://vega.github.io/schema/vega/v6.json",
            "marks": [{"encode": {"update": {"href": {"value": "x"}}}}],
        },
    ],
)
def test_a_chart_leads_nowhere(chart: dict[str, Any]) -> None:
    figure = Figure("out", "Out", ("toy",), lambda records: Table({}), chart)
    with pytest.raises(
        HpmlError,
        match=r"figure 'out' of plugin 'toy' cannot be drawn: a chart must not have '(href|url)'",
    ):
        render(Drawable("toy", figure, Table({"a": [1]})), "svg")


def test_a_column_may_be_called_url_and_what_vega_embed_would_read_of_a_chart_is_left_out() -> (
    None
):
    settings = {
        "embedOptions": {
            "actions": True,
            "editorUrl": "//evil.example",
            "patch": "//evil.example/p.json",
        }
    }
    made = complete(
        {"mark": "point", "usermeta": settings}, Table({"url": ["x"], "href": ["y"]})
    )
    assert made["data"]["values"] == [{"url": "x", "href": "y"}]
    assert "evil" not in str(made)


def test_a_free_picture_leads_nowhere() -> None:
    def draw(sheet: Any, table: Table) -> None:
        sheet.subplots().set_title("x", url="//evil.example")

    figure = Figure("out", "Out", ("toy",), lambda records: Table({}), draw=draw)
    with pytest.raises(HpmlError, match="the picture has a link"):
        render(Drawable("toy", figure, Table({"a": [1]})), "svg")


def test_a_plugin_of_figures_and_no_benchmarks_loads(load: Load) -> None:
    plugin = load(
        "from hpml_plugins import hookimpl\n\n@hookimpl\ndef hpml_figures():\n    return []\n"
    )
    assert plugin.error is None
    assert collect(plugin) == []


SWEPT = """
from hpml_plugins import Benchmark, Metric, hookimpl

def swept(bench, *, size, kind):
    return {}

def alone(bench):
    return {}

METRICS = [Metric("time", "s", "lower", "of one call"), Metric("share", "1", None)]

@hookimpl
def hpml_benchmarks():
    return [Benchmark("swept", swept, METRICS, {"size": [1, 10, 100], "kind": ["a", "b"]}),
            Benchmark("named", swept, METRICS, {"size": [1], "kind": ["a", "b"]}), Benchmark("alone", alone, METRICS)]
"""  # noqa: E501


def test_benchmarks_without_a_figure_have_a_default_one_for_each_metric(load: Load) -> None:
    plugin = load(SWEPT)
    metrics = {"time": MetricSamples("s", "lower", [1e-3, 2e-3, 3e-3])}
    records = [
        msgspec.structs.replace(
            record(10, 1.0, machine=machine),
            benchmark=benchmark.name,
            params=params,
            metrics=metrics,
        )
        for machine in ("m", "n")
        for benchmark in plugin.benchmarks
        for params in benchmark.points()
    ]
    found = {made.figure.name: made for made in tabulate(plugin, collect(plugin), records)}
    assert list(found) == [
        f"{name}_{metric}"
        for name in ("swept", "named", "alone")
        for metric in ("time", "share")
    ]
    assert {name: len(made.table) for name, made in found.items() if "time" in name} == {
        "swept_time": 12,
        "named_time": 4,
        "alone_time": 2,
    }
    # nowhere measured
    assert not any(len(made.table) for name, made in found.items() if "share" in name)
    assert list(found["swept_time"].table.columns) == [
        "machine",
        "size",
        "kind",
        "time",
        "time_low",
        "time_high",
    ]
    assert found["swept_time"].figure.caption.startswith("Of one call. Lower is better.")
    texts = {
        name: {
            node.text
            for node in ElementTree.fromstring(render(made, "svg") or b"").iter()
            if node.text
        }
        for name, made in found.items()
        if len(made.table)
    }
    assert {"size", "time", "m, kind a", "n, kind b", "100", "2 ms"} <= texts["swept_time"]
    assert {"kind a", "kind b", "m", "n", "time"} <= texts["named_time"]
    assert {"m", "n", "time"} <= texts["alone_time"]


def test_a_benchmark_with_a_figure_of_the_plugin_has_no_default_one(load: Load) -> None:
    assert [figure.name for figure in collect(load(DRAWN))] == [
        "over_size",
        "numbers",
        "freely",
    ]


def test_a_chart_names_the_column_that_its_table_lacks() -> None:
    chart = line_chart(Axis("n", "n"), Axis("nosuch", "another"))
    with pytest.raises(HpmlError, match="lacks the chart's column 'nosuch'"):
        complete(chart, Table.of([{"n": 1.0}]))
