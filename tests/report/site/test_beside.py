"""Work beside the block is done by its end, and its error is raised."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from hpml_plugins.report.site.beside import beside


def test_the_work_is_done_by_the_end_of_the_block(tmp_path: Path) -> None:
    mine = tmp_path / "mine"
    with beside(lambda: (tmp_path / "theirs").write_text(str(os.getpid())) and None):
        mine.write_text("here")
    assert mine.read_text() == "here"
    assert (tmp_path / "theirs").read_text()


def test_an_error_of_the_work_is_raised_and_one_of_the_block_comes_first() -> None:
    def fail() -> None:
        raise ValueError("no history")

    with pytest.raises(ValueError, match="no history"), beside(fail):
        pass
    with pytest.raises(KeyError), beside(fail):
        raise KeyError("of the block")
