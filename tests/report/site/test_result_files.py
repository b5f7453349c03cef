"""asv's result files, read into one row of all points."""

from __future__ import annotations

from typing import Any

import numpy as np

from hpml_plugins.report.site.result_files import NOTHING, OK, Layout, ResultFile

COLUMNS = ["result", "params", "version"]
NAME = "toy.track_time"
LAYOUT = Layout({NAME: {"params": [["1", "2", "3"], ["'a'", "'b'"]], "version": "1"}})


def read(params: Any, values: list[float]) -> tuple[list[float | None], list[int]]:
    numbers, status = LAYOUT.numbers(ResultFile("c" * 40, {}, COLUMNS, {NAME: [values, params, "1"]}))
    return [None if np.isnan(value) else float(value) for value in numbers[0]], [int(each) for each in status]


def test_points_of_another_grid_come_to_their_place_in_this_one() -> None:
    # (2, b), (2, c), (1, b), (1, c) of a file that had the values in another order, and one that is gone
    values, status = read([["2", "1"], ["'b'", "'c'"]], [10.0, 11.0, 12.0, 13.0])
    # (1, a), (1, b), (2, a), (2, b), (3, a), (3, b)
    assert values == [None, 12.0, None, 10.0, None, None]
    assert status == [NOTHING, OK, NOTHING, OK, NOTHING, NOTHING]


def test_a_grid_of_fewer_parameters_has_none_of_these_points() -> None:
    assert read([["1", "2"]], [10.0, 11.0]) == ([None] * 6, [NOTHING] * 6)


def test_a_grid_that_no_memory_holds_is_not_written_out() -> None:
    # 1000³² points: this would not end.
    assert read([["1"] * 1000, ["'a'"] * 1000, *[["x"] * 1000] * 30], [1.0]) == ([None] * 6, [NOTHING] * 6)
