"""The parts of `asv publish` that we replace give what asv's own gave."""

from __future__ import annotations

import math
import random

import pytest
from asv import graph, results, step_detect
from asv.graph import Graph

from hpml_plugins.asv.publishing import _compatible, reduced
from hpml_plugins.asv.steps import choose_levels
from hpml_plugins.asv.summaries import carry, make_summary_graph

_asv_s_summary, _asv_s_compatible = graph.make_summary_graph, results._compatible_results


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


def test_gaps_of_a_series_keep_its_last_number() -> None:
    import numpy as np

    nan = float("nan")
    gaps = np.array([[nan, nan], [1.0, nan], [nan, nan], [nan, nan], [3.0, nan], [nan, nan]])
    assert str(carry(gaps)[:, 0].tolist()) == "[1.0, 1.0, 1.0, 1.0, 3.0, 3.0]"
    assert np.isnan(carry(gaps)[:, 1]).all()


def test_a_summary_is_asv_s_where_nothing_is_missing() -> None:
    dice = random.Random(3)
    graphs = [Graph("b", {"machine": name}) for name in "pq"]
    for revision in range(900):
        for of in graphs:
            of.add_data_point(revision, [dice.uniform(-1, 9), dice.randrange(1, 9)], [1.0, 1.0])
    assert make_summary_graph(graphs).get_data() == _asv_s_summary(graphs).get_data()


@pytest.mark.parametrize("params", [[["1", "2"], ["a", "b"]], [["1", "1"], ["a", "b"]], [], [["1", "2"], ["b", "a"]]])
@pytest.mark.parametrize("result", [[1, 2, 3, 4], [1], [], None])
def test_numbers_are_put_in_place_as_asv_puts_them(params: list[list[str]], result: list[float] | None) -> None:
    for old in ([["1", "2"], ["a", "b"]], params):
        assert _compatible(_asv_s_compatible)(result, old, params) == _asv_s_compatible(result, old, params)


@pytest.mark.parametrize("twice", [False, True])
def test_a_graph_is_reduced_as_asv_reduces_it(twice: bool) -> None:
    nan = float("nan")
    for several in (False, True):
        of = Graph("b", {"machine": "m"})
        for revision, value in ((7, 1.0), (2, nan), (3, 2.0), (9, None), (5, nan)):
            values = [value, 2.0 if revision == 3 else nan] if several and value is not None else value
            of.add_data_point(revision, values, [0.5, nan] if several and value is not None else 0.5)
            if twice and revision == 3:
                of.add_data_point(revision, values, [1.5, 1.0] if several else 1.5)
        assert reduced(of) == Graph.get_data(of)
        assert [row[0] for row in reduced(of)] == [3, 5, 7]
    assert reduced(Graph("empty", {})) == []
