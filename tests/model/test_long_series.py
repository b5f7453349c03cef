"""The autocorrelation of a long series, computed for all lags at once, is that of shifting the
series."""

from __future__ import annotations

from random import Random

import pytest
from support import ROOT

from hpml_plugins.model import samples
from hpml_plugins.model.samples import count_effective
from hpml_plugins.store import read_records


def series(kind: str, count: int, random: Random) -> list[float]:
    if kind == "noise":
        return [random.gauss(1, 0.1) for _ in range(count)]
    if kind == "ramp":
        return [float(number) for number in range(count)]
    if kind == "ties":
        return [float(number // 50 % 7) for number in range(count)]
    memory = {"walk": 1.0, "slow": 0.99}[kind]
    found = [0.0]
    while len(found) < count:
        found.append(memory * found[-1] + random.gauss(0, 1))
    return found


@pytest.mark.parametrize("kind", ["noise", "ramp", "ties", "walk", "slow"])
def test_both_ways_count_the_same(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    random = Random(kind)
    for count in (15, 16, 57, 1000, 3001):
        values = series(kind, count, random)
        ordered = sorted(values)
        by_shifting = count_effective(values, ordered)
        with monkeypatch.context() as patched:
            patched.setattr(samples, "MANY_VALUES", 0)
            patched.setattr(samples, "NEAR_LAGS", 0)
            assert count_effective(values, ordered) == by_shifting


def test_both_ways_count_the_same_of_every_series_of_a_machine(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    looked = 0
    for record in read_records(ROOT / "examples" / "planted_regressions" / "results"):
        for metric in record.metrics.values():
            ordered = sorted(metric.samples)
            by_shifting = count_effective(metric.samples, ordered)
            with monkeypatch.context() as patched:
                patched.setattr(samples, "MANY_VALUES", 0)
                patched.setattr(samples, "NEAR_LAGS", 0)
                assert count_effective(metric.samples, ordered) == by_shifting
            looked += len(ordered) > 15
    assert looked > 100


def test_a_million_correlated_values_are_counted() -> None:
    """One by one, that took minutes; the runner's time limit is the test."""
    values = series("ramp", 10**6, Random(1))
    assert count_effective(values, values) == 1
