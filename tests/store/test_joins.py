"""The joins by themselves: commutative, associative, idempotent, over generated contents."""

from __future__ import annotations

import functools
import itertools
import json
import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from records import a_record

from hpml_plugins.errors import HpmlError
from hpml_plugins.model.record import Record
from hpml_plugins.model.serialization import encode
from hpml_plugins.store import declarations as declared
from hpml_plugins.store import merge_results, read_file
from hpml_plugins.store.merge import join_results
from hpml_plugins.store.projection import COLUMNS

NAMES = st.sampled_from(["a.track_x", "a.track_y", "b.track_x"])
VALUES = st.one_of(st.none(), st.just(float("nan")), st.sampled_from([1.0, 2.5]))
GRID = ["1", "2", "10"]


HEAD = {
    "commit_hash": "0" * 40,
    "env_name": "env",
    "params": {"machine": "m"},
    "result_columns": list(COLUMNS),
}


@st.composite
def result(draw: st.DrawFn) -> dict[str, Any]:
    """A result file of a plain asv suite."""
    rows = {
        name: [
            draw(st.lists(VALUES, min_size=3, max_size=3)),
            [GRID],
            "1",
            draw(st.integers(1, 3)),
            1.0,
        ]
        for name in draw(st.sets(NAMES))
    }
    return {**HEAD, "date": draw(st.integers(0, 2)), "results": dict(sorted(rows.items()))}


@settings(deadline=None)
@given(st.lists(result(), min_size=1, max_size=3))
def test_result_files_join_to_the_same_in_any_order_and_again(
    items: list[dict[str, Any]],
) -> None:
    def union(parts: tuple[dict[str, Any], ...]) -> str:
        return json.dumps(
            functools.reduce(lambda one, other: join_results(set(), one, other), parts)
        )

    expected = union(tuple(items))
    assert {union(order) for order in itertools.permutations(items)} == {expected}
    assert union((*items, *items)) == expected


def test_rows_of_benchmarks_with_records_are_left_to_the_projection() -> None:
    ours = {
        **HEAD,
        "results": {"b.track_x": [[1.0], [], "1", 5], "c.time_y": [[1.0], [], "1", 5]},
    }
    theirs = {
        **HEAD,
        "results": {"b.track_x": [[9.0], [], "1", 6], "c.time_y": [[2.0], [], "1", 6]},
    }
    joined = join_results({"b"}, ours, theirs)
    assert (joined["results"]["b.track_x"][0], joined["results"]["c.time_y"][0]) == (
        [1.0],
        [2.0],
    )
    with pytest.raises(
        HpmlError, match=r"commit_hash is '1{40}', but '0{40}' in the file to join it with"
    ):
        join_results(set(), ours, {**theirs, "commit_hash": "1" * 40})


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
def test_declarations_join_to_the_same_whatever_the_order_and_lose_nothing(
    items: list[dict[str, Any]],
) -> None:
    def union(parts: tuple[dict[str, Any], ...]) -> dict[str, Any]:
        return functools.reduce(
            lambda one, other: declared.join_entries(one, other)[0], parts
        )

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


@given(
    st.lists(
        st.dictionaries(st.sampled_from("abc"), st.sampled_from("xyz")),
        min_size=1,
        max_size=3,
    )
)
def test_facts_of_a_machine_join_to_the_same_whatever_the_order(
    items: list[dict[str, str]],
) -> None:
    def union(parts: tuple[dict[str, str], ...]) -> dict[str, Any]:
        return functools.reduce(
            lambda one, other: declared.join_entries(one, other)[0], parts
        )

    assert (
        len(
            {
                json.dumps(union(order), sort_keys=True)
                for order in itertools.permutations(items)
            }
        )
        == 1
    )
    assert union((*items, *items)) == union(tuple(items))


def record(number: int, started: float) -> Record:
    return a_record(
        params={"n": number},
        started=started,
        run=f"r{number} {started}",
        commit="0" * 40,
        environment="env",
    )


@settings(deadline=None, max_examples=20)
@given(
    st.lists(
        st.sets(st.tuples(st.integers(0, 3), st.sampled_from([1.0, 2.0]))),
        min_size=1,
        max_size=3,
    )
)
def test_records_are_a_set_of_lines_in_the_order_started(
    items: list[set[tuple[int, float]]],
) -> None:
    with tempfile.TemporaryDirectory() as name:
        clones = []
        for number, part in enumerate(items):
            file = Path(name, f"clone{number}", "m", "records", "00000000.jsonl")
            file.parent.mkdir(parents=True)
            file.write_bytes(b"".join(encode(record(*pair)) + b"\n" for pair in part))
            clones.append(file.parents[2])
        merged = set()
        for number, order in enumerate(itertools.permutations(clones)):
            into = Path(name, f"into{number}")
            merge_results(order, into)
            merge_results(order, into)
            file = into / "m" / "records" / "00000000.jsonl"
            merged.add(file.read_bytes() if file.exists() else b"")
        assert len(merged) == 1
        started = [each.started for each in read_file(file)]
    assert started == sorted(started)
    assert len(started) == len(set().union(*items))


def test_grids_that_differ_are_joined_in_the_order_of_size_and_equal_ones_keep_theirs() -> (
    None
):
    def entry(*values: str) -> dict[str, Any]:
        return {"t": {"version": "1", "param_names": ["n"], "params": [list(values)]}}

    assert declared.join_entries(entry("3", "2", "1"), entry("3", "2", "1"))[0] == entry(
        "3", "2", "1"
    )
    assert declared.join_entries(entry("1", "2"), entry("3", "2", "1"))[0] == entry(
        "1", "2", "3"
    )
    assert declared.join_entries(entry("10", "2"), entry("2", "1", "'a'"))[0] == entry(
        "1", "2", "10", "'a'"
    )


def test_a_writer_of_benchmarks_json_keeps_what_others_declared() -> None:
    mine = {"t": {"version": "1", "param_names": ["n"], "params": [["2"]]}}
    there = {
        "t": {"version": "1", "param_names": ["n"], "params": [["1", "2"]]},
        "other": {"version": "1", "param_names": [], "params": []},
    }
    assert declared.keep_declared(mine, there) == {
        **there,
        "t": {
            **mine["t"],
            "params": [["1", "2"]],
        },  # in the order of the folder's other files
    }
    more = {"t": {**mine["t"], "params": [["3", "2"]]}}
    assert declared.keep_declared(more, there)["t"]["params"] == [["3", "2", "1"]]
    newer = {"t": {"version": "2", "param_names": ["n"], "params": [["2"]]}}
    assert declared.keep_declared(newer, there)["t"] == newer["t"]
