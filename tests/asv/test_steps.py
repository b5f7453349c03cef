"""The faster step detection gives what asv's own gives."""

from __future__ import annotations

import math
import random

import pytest
from asv import step_detect

from hpml_plugins.asv.steps import choose_levels


@pytest.mark.parametrize("seed", range(6))
def test_the_faster_step_detection_finds_asv_s_levels(seed: int) -> None:
    dice = random.Random(seed)
    level, series = 1.0, []
    for _ in range(120):
        if dice.random() < 0.03:
            level *= dice.choice((0.7, 0.9, 1.1, 1.4))
        series.append(level * math.exp(dice.gauss(0, 0.01)))
    weights = [dice.uniform(0.5, 2) for _ in series]
    theirs = step_detect.solve_potts_autogamma(series, weights)
    ours = choose_levels(series, weights)
    assert ours[0] == theirs[0]
    assert ours[1] == theirs[1]


@pytest.mark.parametrize("series", [[], [1.0], [2.0, 2.0, 2.0], [0.0, 0.0], [1.0, 5.0]])
def test_short_and_constant_series_are_taken_as_asv_takes_them(series: list[float]) -> None:
    weights = [1.0] * len(series)
    assert choose_levels(series, weights)[:3] == step_detect.solve_potts_autogamma(series, weights)[:3]
