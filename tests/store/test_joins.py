"""The joins by themselves: commutative, associative, idempotent, over generated contents."""

from __future__ import annotations

import copy
import functools
import itertools
import json
from typing import Any

from asv.results import Results
from hypothesis import given, settings
from hypothesis import strategies as st

from hpml_plugins.model.record import Record, decode, encode
from hpml_plugins.store import merge_declarations as declared
from hpml_plugins.store import merge_records as lines
from hpml_plugins.store import merge_results as results

NAMES = st.sampled_from(["a.track_x", "a.track_y", "b.track_x"])
VALUES = st.one_of(st.none(), st.just(float("nan")), st.sampled_from([1.0, 2.5]))
GRID = ["1", "2", "10"]


@st.composite
def result(draw: st.DrawFn) -> Results:
    facts = {"machine": "m", "ram": draw(st.sampled_from(["1", "2"]))}
    made = Results(facts, {}, "0" * 40, draw(st.integers(0, 2)), "3.11", "env", {})
    for name in draw(st.sets(NAMES)):
        made._results[name] = draw(st.lists(VALUES, min_size=3, max_size=3))
        made._benchmark_params[name] = [GRID]
        made._samples[name] = made._stats[name] = made._profiles[name] = None
        made._started_at[name] = draw(st.integers(1, 3))
        made._duration[name] = 1.0
        made._benchmark_version[name] = draw(st.sampled_from(["1", "2"]))
    if draw(st.booleans()):
        made._duration["<build>"] = draw(st.sampled_from([1.0, 2.0]))
    return made


def joined(items: tuple[Results, ...]) -> str:
    first, *others = (copy.deepcopy(item) for item in items)
    for other in others:
        results.join(first, other)
    return results.spelled(first)


@settings(deadline=None)
@given(st.lists(result(), min_size=1, max_size=3))
def test_results_join_to_the_same_whatever_the_order_and_however_often(items: list[Results]) -> None:
    expected = joined(tuple(items))
    for order in itertools.permutations(items):
        assert joined(order) == expected
    assert joined((*items, *items)) == expected
    if len(items) == 3:
        right = copy.deepcopy(items[1])
        results.join(right, items[2])
        assert joined((items[0], right)) == expected


ENTRIES = st.dictionaries(
    NAMES,
    st.fixed_dictionaries(
        {
            "version": st.sampled_from(["1", "2", "10", "hash"]),
            "param_names": st.just(["size"]),
            "params": st.lists(st.permutations(GRID), min_size=1, max_size=1).flatmap(
                lambda grids: st.integers(1, 3).map(lambda count: [grids[0][:count]])
            ),
            "description": st.sampled_from(["p", "q"]),
        }
    ),
)


@given(st.lists(ENTRIES, min_size=1, max_size=3))
def test_declarations_join_to_the_same_whatever_the_order_and_lose_nothing(items: list[dict[str, Any]]) -> None:
    def union(parts: tuple[dict[str, Any], ...]) -> dict[str, Any]:
        return functools.reduce(lambda one, other: declared.join_benchmarks(one, other)[0], parts)

    expected = union(tuple(items))
    for order in itertools.permutations(items):
        assert union(order) == expected
    assert union((*items, *items)) == expected
    if len(items) == 3:
        assert union((items[0], union((items[1], items[2])))) == expected
    assert set(expected) == {name for item in items for name in item}
    for item in items:
        for name, entry in item.items():
            if entry["version"] == expected[name]["version"]:
                assert set(entry["params"][0]) <= set(expected[name]["params"][0])


@given(st.lists(st.dictionaries(st.sampled_from("abc"), st.sampled_from("xyz")), min_size=1, max_size=3))
def test_facts_of_a_machine_join_to_the_same_whatever_the_order(items: list[dict[str, str]]) -> None:
    def union(parts: tuple[dict[str, str], ...]) -> dict[str, Any]:
        return functools.reduce(lambda one, other: declared.join_machine(one, other)[0], parts)

    assert len({json.dumps(union(order), sort_keys=True) for order in itertools.permutations(items)}) == 1
    assert union((*items, *items)) == union(tuple(items))


def record(number: int, started: float) -> Record:
    return Record(
        benchmark="toy", plugin="p", version="1", params={"n": number}, status="ok", started=started, run=f"r{number}"
    )


@given(st.lists(st.sets(st.tuples(st.integers(0, 3), st.sampled_from([1.0, 2.0]))), min_size=1, max_size=3))
def test_records_are_a_set_of_lines_in_the_order_started(items: list[set[tuple[int, float]]]) -> None:
    def spell(parts: tuple[set[tuple[int, float]], ...]) -> bytes:
        found = [encode(record(*pair)) for part in parts for pair in part]
        return lines.spell({line: decode(line) for line in found})

    expected = spell(tuple(items))
    assert {spell(order) for order in itertools.permutations(items)} == {expected}
    started = [decode(line).started for line in expected.splitlines()]
    assert started == sorted(started)
    assert len(started) == len(set().union(*items))


def test_the_newer_measurement_of_a_benchmark_counts_and_what_it_lacks_is_said() -> None:
    old = Results({"machine": "m"}, {}, "0" * 40, 1, "3.11", "env", {})
    new = copy.deepcopy(old)
    for made, started, values in ((old, 5, [1.0, 2.0]), (new, 6, [1.5, float("nan")])):
        made._results["toy.track_x"], made._benchmark_params["toy.track_x"] = values, [["10", "20"]]
        made._started_at["toy.track_x"], made._benchmark_version["toy.track_x"] = started, "1"
        made._stats["toy.track_x"] = made._samples["toy.track_x"] = None
    said = results.join(old, new)
    assert old.get_result_value("toy.track_x", [["10", "20"]])[0] == 1.5
    assert said == ["toy.track_x: the newer run has no number for 1 point that an older has; the Records keep them"]


def test_a_grid_keeps_the_order_of_the_one_that_has_all_values() -> None:
    def entry(*values: str) -> dict[str, Any]:
        return {"t": {"version": "1", "param_names": ["n"], "params": [list(values)]}}

    # the second has all values of both, so its order stays; of two that each lack one, numbers are sorted
    assert declared.join_benchmarks(entry("1", "2"), entry("3", "2", "1"))[0] == entry("3", "2", "1")
    assert declared.join_benchmarks(entry("10", "2"), entry("2", "1"))[0] == entry("1", "2", "10")


def test_a_writer_of_benchmarks_json_keeps_what_others_declared() -> None:
    mine = {"t": {"version": "1", "param_names": ["n"], "params": [["2"]]}}
    there = {
        "t": {"version": "1", "param_names": ["n"], "params": [["1", "2"]]},
        "other": {"version": "1", "param_names": [], "params": []},
    }
    assert declared.keep_known(mine, there) == {**there, "t": {**mine["t"], "params": [["2", "1"]]}}
    newer = {"t": {"version": "2", "param_names": ["n"], "params": [["2"]]}}
    assert declared.keep_known(newer, there)["t"] == newer["t"]
