from __future__ import annotations

import math
from pathlib import Path

import pytest

from hpml_plugins.errors import HpmlError
from hpml_plugins.store import read_object, read_object_or_empty


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"[" * 100_000, "nested too deep"),
        (b'{"a":' * 20_000, "nested too deep"),
        (b'{"gpu": "\\ud800"}', "it is not UTF-8 text"),
        (b'{"gpu": "\xff"}', "it is not UTF-8 text"),
        (b'{"a": ' + b"9" * 5000 + b"}", "4300 digits"),
        (b'{"a": 1', "Expecting"),
        (b"[1, 2]", "not a JSON object"),
    ],
)
def test_what_is_no_object_that_can_be_written_again_is_one_line(
    content: bytes, message: str, tmp_path: Path
) -> None:
    path = tmp_path / "machine.json"
    path.write_bytes(content)
    with pytest.raises(HpmlError, match=message) as caught:
        read_object(path)
    assert str(caught.value).isprintable()
    assert read_object_or_empty(path) == {}


def test_whole_characters_and_asvs_nan_are_read(tmp_path: Path) -> None:
    (tmp_path / "machine.json").write_text(
        '{"a": "\\ud83d\\ude80 ünï", "b": NaN}', encoding="utf-8"
    )
    found = read_object(tmp_path / "machine.json")
    assert found["a"] == "🚀 ünï"
    assert math.isnan(found["b"])
