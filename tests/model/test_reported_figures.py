"""What others report: sourced and dated, of known types, and apart from everything that
compares."""

from __future__ import annotations

import datetime
import re

import msgspec
import pytest
from support import ROOT

from hpml_plugins import gpu_types, published_figures
from hpml_plugins.model.units import unit
from hpml_plugins.published import ROWS, ReportedFigure, reported_figures
from hpml_plugins.report.site.page import fill
from hpml_plugins.report.site.reported import reported

#: Row → its unit.
UNITS = {row: "FLOP/s" if "product" in row or row == "attention" else "B/s" for row in ROWS}


@pytest.mark.parametrize(
    "figure", reported_figures(), ids=lambda each: f"{each.row}-{each.gpu}-{each.value:g}"
)
def test_every_figure_has_a_source_a_date_a_unit_and_a_known_type(
    figure: ReportedFigure,
) -> None:
    assert figure.source.startswith("https://")
    assert datetime.date(2020, 1, 1) < figure.date <= datetime.date(2026, 11, 25)
    assert figure.unit == unit(figure.unit).symbol == UNITS[figure.row]
    (gpu,) = [each for each in gpu_types() if each.name == figure.gpu]
    assert figure.how
    assert (figure.gpus > 1) == (figure.row == "all_reduce")
    # Consumer cards clock above the rated boost; beyond a tenth it is another unit, or sparse.
    highest = {
        "copy": gpu.bandwidth,
        "bf16_product": gpu.bfloat16,
        "fp8_product": gpu.fp8,
    }.get(figure.row)
    assert figure.value < 1.1 * (highest or gpu.fp8 or gpu.bfloat16 or 0)


def test_the_same_is_not_listed_twice() -> None:
    seen = [
        (each.row, each.gpu, each.gpus, each.source, each.value)
        for each in reported_figures()
    ]
    assert len(set(seen)) == len(seen)


@pytest.mark.parametrize("key", ["source", "date", "how", "unit", "value", "gpu", "row"])
def test_a_figure_without_one_of_its_keys_is_an_error(key: str) -> None:
    written = msgspec.to_builtins(reported_figures()[0])
    del written[key]
    with pytest.raises(msgspec.ValidationError, match=key):
        msgspec.convert(written, ReportedFigure)


def test_a_source_is_an_address() -> None:
    written = msgspec.to_builtins(reported_figures()[0])
    with pytest.raises(msgspec.ValidationError, match="source"):
        msgspec.convert({**written, "source": "somebody told us"}, ReportedFigure)


def test_nothing_that_compares_or_measures_reads_them() -> None:
    readers = {
        str(path.relative_to(ROOT / "hpml_plugins"))
        for path in (ROOT / "hpml_plugins").rglob("*.py")
        if re.search(r"reported_figures|ReportedFigure|site\.reported", path.read_text())
    }
    assert readers == {"published.py", "report/site/reported.py", "report/site/page.py"}
    callers = {
        path.name
        for path in (ROOT / "hpml_plugins/report/site/templates").iterdir()
        if "reported" in path.read_text().replace("reported_by", "")
    }
    assert callers == {"evidence.html", "reported.html"}


def test_plugins_do_not_find_them_among_the_published_figures() -> None:
    sources = {figure.source for figure in published_figures()}
    assert not sources & {each.source for each in reported_figures()}


def test_the_page_lists_each_under_its_row_apart_with_its_source() -> None:
    lines = reported()
    assert list(lines) == list(ROWS.values())
    assert sum(map(len, lines.values())) == len(reported_figures())
    html = fill("reported.html")
    assert "Reported by others, not measured here" in html
    for each in reported_figures():
        assert f'href="{each.source}"'.replace("&", "&amp;") in html
    assert (
        '<td class="number">1.610 TB/s</td><td class="number">79 %</td><td>2024-09-25</td>'
        in html
    )
