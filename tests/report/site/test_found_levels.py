"""The levels of a series, kept for the next publish until something that decides them changes."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from msgspec.structs import replace
from records import a_value

import hpml_plugins.report.site.found_levels as module
from hpml_plugins.analysis.levels import Readings
from hpml_plugins.analysis.measured import EXACT, MeasuredValue
from hpml_plugins.analysis.physics import Physics
from hpml_plugins.analysis.variance import Spread
from hpml_plugins.report.site.found_levels import FoundLevels, find_levels, kept_levels

SPREAD = Spread(1e-4, 10.0, 2e-4, 8.0)
#: What decides the levels, each with another value than READINGS have.
DECIDING: dict[str, dict[str, Any]] = {
    "value": {"value": 1.5},
    "card": {"card": "B"},
    "reference step": {"reference": 0.1},
    "busy CPUs": {"is_busy": True},
    "variance": {"spread": SPREAD._replace(same_card=1.1e-4)},
    "variance between cards": {"spread": SPREAD._replace(any_card=2.1e-4)},
    "degrees of freedom": {"spread": SPREAD._replace(same_freedom=11.0)},
    "a count": {"spread": EXACT},
    "no spread": {"spread": None},
    "no interval": {"physics": Physics.FOREIGN, "low": None},
}


def readings() -> Readings:
    """Two levels on two cards."""
    made = [
        a_value(value, "AB"[number % 2 if number < 4 else 0], spread=SPREAD)
        for number, value in enumerate([1.0, 1.01, 0.99, 1.0, 1.3, 1.31, 1.3, 1.29])
    ]
    return Readings(np.arange(len(made)), made)


def changed(**values: Any) -> Readings:
    """With another last reading."""
    *others, last = readings().readings
    return Readings(np.arange(8), [*others, replace(last, **values)])


class Counted:
    """`find_levels`, counting its calls."""

    calls = 0

    def __call__(self, found: Readings, direction: str) -> FoundLevels:
        self.calls += 1
        return find_levels(found, direction)


@pytest.fixture
def counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Counted]:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    made = Counted()
    monkeypatch.setattr(module, "find_levels", made)
    yield made


def publish(found: Readings, direction: str = "lower", results: str = "") -> FoundLevels:
    with kept_levels(Path("results", results)) as find:
        return find(found, direction)


def test_the_levels_of_an_unchanged_series_are_searched_once(counted: Counted) -> None:
    first = publish(readings())
    assert len(first.levels) == 2
    assert publish(readings()) == first == find_levels(readings(), "lower")
    assert counted.calls == 1


@pytest.mark.parametrize("values", DECIDING.values(), ids=DECIDING.keys())
def test_they_are_searched_again_when_a_reading_changes(
    counted: Counted, values: dict[str, Any]
) -> None:
    publish(readings())
    assert publish(changed(**values)) == find_levels(changed(**values), "lower")
    assert counted.calls == 2


def test_they_are_searched_again_at_another_commit_direction_and_version(
    counted: Counted, monkeypatch: pytest.MonkeyPatch
) -> None:
    publish(readings())
    publish(Readings(np.arange(1, 9), readings().readings))
    assert counted.calls == 2, "commits"
    publish(readings(), "higher")
    assert counted.calls == 3, "direction"
    monkeypatch.setattr(module, "package_digest", lambda: b"another version")
    publish(readings(), "higher")
    assert counted.calls == 4, "the package"


def test_a_variance_that_other_runs_changed_in_the_fifth_digit_does_not_count(
    counted: Counted,
) -> None:
    def pooled(variance: float) -> list[MeasuredValue]:
        spread = SPREAD._replace(same_card=variance)
        return [replace(each, spread=spread) for each in readings().readings]

    first = publish(Readings(np.arange(8), pooled(1e-4)))
    again = Readings(np.arange(8), pooled(1.0001e-4))
    assert publish(again) == first == find_levels(again, "lower")
    assert counted.calls == 1


def test_a_damaged_entry_is_made_again_and_only_the_last_publish_is_kept(
    counted: Counted, tmp_path: Path
) -> None:
    first = publish(readings())
    (kept,) = (tmp_path / "cache" / "hpml" / "levels").iterdir()
    kept.write_bytes(kept.read_bytes()[:-3])
    assert publish(readings()) == first
    assert counted.calls == 2
    publish(changed(value=1.5))
    publish(readings())
    assert counted.calls == 4
    publish(changed(value=1.5), results="others")
    publish(readings())
    assert counted.calls == 5, "other results have an entry of their own"
