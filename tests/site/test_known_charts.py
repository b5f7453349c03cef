"""Charts are drawn again when their table or the code that draws them is another, and only then."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from hpml_plugins import Figure, Table
from hpml_plugins.figures import Drawable
from hpml_plugins.records.packs import Packs
from hpml_plugins.site.known_charts import KnownCharts

CODE = {"sha256": "one"}
TABLE = Table({"size": [1, 2], "time": [0.5, None], "name": ["a", "b"]}, {"time": "s"})


@pytest.fixture
def drawn() -> list[str]:
    """What was drawn, by name."""
    return []


def chart(drawn: list[str], table: Table = TABLE, name: str = "line", empty: bool = False) -> Drawable:
    def draw(sheet: Any, table: Table) -> None:
        drawn.append(name)
        if not empty:
            sheet.subplots().plot(table.columns["size"], [1, 2])

    return Drawable("toy", Figure(name, "Title", ("toy",), lambda records: table, draw), table)


def publish(
    folder: Path, *charts: Drawable, code: dict[str, str] = CODE, made_by: bytes = b"0" * 16
) -> list[bytes | None]:
    known = KnownCharts(Packs(folder, made_by))
    made = [known.draw(each, code) for each in charts]
    known.save()
    return made


def test_what_is_the_same_is_drawn_once_and_looks_the_same(tmp_path: Path, drawn: list[str]) -> None:
    charts = [chart(drawn), chart(drawn, name="nothing", empty=True)]
    first = publish(tmp_path, *charts)
    assert first[0]
    assert b"<svg" in first[0]
    assert first[1] is None
    assert publish(tmp_path, *charts) == first
    assert drawn == ["line", "nothing"]


def test_another_number_unit_name_or_code_is_drawn_anew(tmp_path: Path, drawn: list[str]) -> None:
    publish(tmp_path, chart(drawn))
    number = Table({**TABLE.columns, "time": [0.5, 1.0]}, TABLE.units)
    unit = Table(TABLE.columns, {"time": "J"})
    publish(tmp_path, chart(drawn, number), chart(drawn, unit), chart(drawn, name="other"))
    assert drawn == ["line", "line", "line", "other"]
    publish(tmp_path, chart(drawn, number), code={"sha256": "two"})
    publish(tmp_path, chart(drawn, number), code={"sha256": "two"}, made_by=b"1" * 16)
    assert len(drawn) == 6


def test_of_code_without_a_digest_nothing_is_known(tmp_path: Path, drawn: list[str]) -> None:
    publish(tmp_path, chart(drawn), code={})
    publish(tmp_path, chart(drawn), code={"sha256": ""})
    assert len(drawn) == 2


def test_what_a_publish_did_not_use_is_forgotten_and_a_damaged_file_is_nothing(
    tmp_path: Path, drawn: list[str]
) -> None:
    publish(tmp_path, chart(drawn))
    publish(tmp_path)
    publish(tmp_path, chart(drawn))
    assert len(drawn) == 2
    (file,) = tmp_path.iterdir()
    file.write_bytes(file.read_bytes()[:-1])
    assert publish(tmp_path, chart(drawn))[0]
    assert len(drawn) == 3
