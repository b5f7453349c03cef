"""Which Record of a point counts, for every reader alike."""

from __future__ import annotations

import itertools

import pytest
from msgspec.structs import replace
from records import a_record

from hpml_plugins.model.record import Record
from hpml_plugins.store import CommitOrder, Index

OLD, NEW, TOPIC, LOST, NOWHERE = ("0" * 40, "1" * 40, "2" * 40, "3" * 40, "4" * 40)
#: A topic branch went through OLD, and was not merged; the repository lacks LOST.
ORDER = CommitOrder(
    {OLD: 0, TOPIC: 1, NEW: 2, LOST: 3},
    {"main": frozenset({OLD, NEW}), "topic": frozenset({OLD, TOPIC})},
    by_date=frozenset({LOST}),
    known=frozenset({OLD, NEW, TOPIC}),
)
PLACE = "a point on a machine"
PLAIN = a_record("b", commit=NEW, started=5.0)
#: Each counts before all behind it.
RANKED = [
    replace(PLAIN, started=6.0),
    PLAIN,
    replace(PLAIN, status="failed", started=9.0),
    replace(PLAIN, commit=OLD, started=9.0),
    replace(PLAIN, commit=LOST, started=9.0),
    replace(PLAIN, commit=NOWHERE, started=9.0),
    replace(PLAIN, of_stack=True, started=9.0),
]


def index(*records: Record) -> Index[str, Record]:
    found = Index[str, Record](ORDER)
    for record in records:
        found.add(PLACE, record)
    return found


@pytest.mark.parametrize("seed", range(5))
def test_of_all_records_the_rule_has_one_order(seed: int) -> None:
    orders = itertools.islice(itertools.permutations(RANKED), seed, None, 997)
    for records in itertools.islice(orders, 10):
        assert [*index(*records).on_line(PLACE)] == RANKED[::-1]


def test_what_is_outside_the_line_is_kept_apart_for_the_branch_that_has_it() -> None:
    outside = replace(PLAIN, commit=TOPIC, started=99.0)
    found = index(outside, PLAIN, RANKED[3])
    assert found.current(PLACE) == PLAIN
    assert [*found.outside(PLACE)] == [outside]
    assert found.lines() == {PLACE: [RANKED[3], PLAIN]}
    assert found.lines("topic") == {PLACE: [RANKED[3], outside]}
    assert found.branches == ["", "topic"]
    assert index(RANKED[3]).lines("topic") == {}  # nothing of its own was measured


def test_a_failure_is_the_newest_and_not_the_current_record() -> None:
    failed = replace(PLAIN, status="failed", commit=NEW)
    found = index(replace(PLAIN, commit=OLD), failed)
    assert found.newest(PLACE) == failed
    assert (current := found.current(PLACE)) and current.commit == OLD


def test_what_was_retracted_counts_where_there_is_nothing_else() -> None:
    retracted = replace(PLAIN, status="retracted", started=9.0)
    assert index(PLAIN, retracted).newest(PLACE) == PLAIN
    assert index(retracted).newest(PLACE) == retracted
    assert index(retracted).current(PLACE) is None
    assert index().newest(PLACE) is None


def test_what_is_added_later_is_seen() -> None:
    found = index(RANKED[3])
    assert found.lines() == {PLACE: [RANKED[3]]}
    found.add(PLACE, PLAIN)
    assert found.current(PLACE) == PLAIN
    assert found.lines() == {PLACE: [RANKED[3], PLAIN]}
