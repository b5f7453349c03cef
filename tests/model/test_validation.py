"""What `decode` believes: every Record that the project has stored, and none of a hostile third
party's."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import hostile
import msgspec
import pytest
from support import ROOT

from hpml_plugins.errors import DefinitionError, HpmlError
from hpml_plugins.model import Benchmark, Metric, Record
from hpml_plugins.model.checking import MOST_TEXT
from hpml_plugins.model.record import MetricSamples
from hpml_plugins.model.serialization import decode, encode
from hpml_plugins.model.validation import abridge, bounded
from hpml_plugins.store import append_record, record_files
from hpml_plugins.store.records import misplaced

VARIANTS = list(hostile.variants())


def decoded(record: dict[str, Any]) -> Record:
    return decode(hostile.line_of(record).rstrip(b"\n"))


def test_every_stored_record_is_taken_and_stands_in_its_place(
    capsys: pytest.CaptureFixture[str],
) -> None:
    counts = {}
    for folder in (ROOT / "results", ROOT / "examples" / "planted_regressions" / "results"):
        lines = 0
        for path in record_files(folder):
            for line in path.read_bytes().splitlines():
                assert misplaced(path, decode(line)) == ""
                lines += 1
        counts[folder] = lines
    assert min(counts.values()) > 500
    print("stored Records decoded:", ", ".join(f"{count:,}" for count in counts.values()))


def test_the_good_record_and_odd_but_right_ones_are_taken() -> None:
    assert decoded(hostile.GOOD).benchmark == "toy"
    for what, record in hostile.odd_but_right():
        try:
            decoded(record)
        except msgspec.ValidationError as error:
            pytest.fail(f"{what}: {error}")


def test_what_is_not_to_be_believed_is_refused_in_one_short_line() -> None:
    assert len(VARIANTS) >= 300
    taken = []
    for what, record in VARIANTS:
        try:
            decoded(record)
        except msgspec.ValidationError as error:
            assert len(str(error)) < 500, what
        except msgspec.DecodeError:
            pass  # JSON that no number or text is made of
        else:
            taken.append(what)
    assert taken == []
    print(
        f"{len(VARIANTS)} Records of {len({what.partition(' ')[0] for what, _ in VARIANTS})} kinds"
        " refused"
    )


def test_a_later_schema_is_named_whatever_else_has_changed() -> None:
    for changes in ({}, {"metrics": [1, 2]}, {"params": "n=1"}):
        with pytest.raises(
            msgspec.ValidationError,
            match=r"schema 99 is unknown; this version reads up to 1; upgrade",
        ):
            decoded({**hostile.GOOD, "schema": 99, **changes})


def test_a_clock_may_be_ahead_by_less_than_a_day() -> None:
    assert decoded({**hostile.GOOD, "started": time.time() + 80_000}).status == "ok"
    with pytest.raises(
        msgspec.ValidationError, match="in the future: the clock of its machine was wrong"
    ):
        decoded({**hostile.GOOD, "started": time.time() + 90_000})


def test_what_no_reader_would_take_is_not_stored(tmp_path: Path) -> None:
    path = tmp_path / "records.jsonl"
    good = decoded(hostile.GOOD)
    append_record(path, good)
    before = path.read_bytes()
    for changes in (
        {"environment": "../x"},
        {"reason": "x" * 10_001},
        {"started": 1e308},
        {"energy": float("nan")},
    ):
        with pytest.raises(HpmlError, match="cannot be stored"):
            append_record(path, msgspec.structs.replace(good, **changes))
    with pytest.raises(HpmlError, match="brings its own interval"):
        metric = MetricSamples("s", "lower", [1.0], interval=(1.0, 1.0))
        append_record(path, msgspec.structs.replace(good, metrics={"time": metric}))
    assert path.read_bytes() == before


def test_texts_keep_their_head_and_tail_and_say_what_is_missing() -> None:
    text = "head " + "x" * 10**8 + " tail"
    kept = abridge(text)
    assert len(kept) == MOST_TEXT
    assert kept.startswith("head x") and kept.endswith("x tail")
    assert f"[{len(text) - MOST_TEXT:,} of {len(text):,} characters left out]" in kept
    assert abridge("x" * MOST_TEXT) == "x" * MOST_TEXT
    record = msgspec.structs.replace(
        decoded(hostile.GOOD),
        reason=text,
        output=text,
        warnings=[text] * 3,
        checks=["right"] * 5000,
    )
    stored = decode(encode(bounded(record)))
    assert len(stored.checks) == 1000 and stored.checks[-1] == "4,001 more checks left out"
    assert len(encode(stored)) < 300_000


@pytest.mark.parametrize(
    ("unit", "direction", "possible", "said"),
    [
        ("s", "higher", None, "higher is never better in s; use 'lower' or None"),
        ("FLOP/s", "lower", None, "lower is never better in FLOP/s"),
        (
            "s",
            "lower",
            (-1.0, None),
            "s cannot be negative; a difference can be, with the direction None",
        ),
    ],
)
def test_what_could_not_be_stored_cannot_be_declared(
    unit: str, direction: Any, possible: Any, said: str
) -> None:
    with pytest.raises(DefinitionError, match=said):
        Metric("time", unit, direction, possible=possible)
    Metric("time", unit, None, possible=possible)


def test_a_benchmark_that_no_record_could_hold_is_refused() -> None:
    def measure(bench: Any, *, n: Any) -> dict[str, float]:
        return {}

    metrics = [Metric("time", "s", "lower")]
    for changes, said in (
        ({"grid": {"n": ["x" * 10_001]}}, "10,001 characters"),
        ({"grid": {"n": [2**65]}}, "more than 64 bits"),
        ({"grid": {"n": [1]}, "version": "x" * 201}, "at most 200 printable characters"),
        ({"grid": {"n": [1]}, "version": "1\n2"}, "printable characters"),
        (
            {
                "grid": {"n": [1]},
                "metrics": [Metric(f"m{each}", "s", "lower") for each in range(1001)],
            },
            "1,001 metrics",
        ),
    ):
        with pytest.raises(DefinitionError, match=said):
            Benchmark("toy", measure, **{"metrics": metrics, **changes})
