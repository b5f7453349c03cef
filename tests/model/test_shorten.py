"""What is stored of samples: nine significant digits, and counts as they are."""

from __future__ import annotations

from records import a_record

from hpml_plugins.model.record import MetricSamples, Record
from hpml_plugins.model.serialization import encode, shorten


def record_of(**metrics: MetricSamples) -> Record:
    return a_record("b", metrics=metrics)


def test_samples_are_shortened_and_keep_their_regime_and_rounds() -> None:
    time = MetricSamples(
        "s",
        "lower",
        [0.00041816199995992065, 2 / 3],
        {"timer": "perf_counter"},
        [1 / 3, 2e-7 / 3],
        [1, 1],
        [2],
    )
    found = shorten(record_of(time=time)).metrics["time"]
    assert found.samples == [0.000418162, 0.666666667]
    assert found.boost == [0.333333333, 6.66666667e-8]
    assert (found.info, found.rounds, found.boost_rounds) == (time.info, [1, 1], [2])
    assert b"0.000418162," in encode(shorten(record_of(time=time)))


def test_counts_stay_exact() -> None:
    """12345678901 FLOP rounded to nine digits would still look exact."""
    flop = MetricSamples("FLOP", None, [12345678901.0])
    share = MetricSamples("1", "higher", [2 / 3])
    found = shorten(record_of(flop=flop, share=share))
    assert (found.metrics["flop"].samples, found.metrics["share"].samples) == (
        [12345678901.0],
        [2 / 3],
    )
