"""Records from before a fact had a field: `upgrade` reads each old form and writes none."""

from __future__ import annotations

import json
from typing import Any

import hostile
import pytest
from support import ROOT

from hpml_plugins.errors import Failure
from hpml_plugins.model.record import Record, Timer
from hpml_plugins.model.serialization import decode, encode
from hpml_plugins.registry import json_schema
from hpml_plugins.store import record_files

SCHEMA = ROOT / "docs" / "record.schema.json"
#: Keys of stored metrics that are not read any more. `throttled` numbered the samples that were
#: taken while the card held its clocks down; a warning of the same Records says that it did.
FORGOTTEN = {"throttled"}


def read(**changes: Any) -> Record:
    """A Record as it was stored, read; what was read is written with its fields, and read alike."""
    found = decode(json.dumps({**hostile.GOOD, **changes}).encode())
    assert decode(encode(found)) == found
    return found


def read_metric(info: dict[str, Any], **changes: Any) -> Any:
    metric = {**hostile.GOOD["metrics"]["time"], "info": info, **changes}
    return read(metrics={"time": metric}).metrics["time"]


@pytest.mark.parametrize(
    ("warnings", "throttled"),
    [
        (
            ["noisy", "the GPU held its clocks down while this was measured: power cap"],
            "power cap",
        ),
        (["the GPU held its clocks down"], "unknown reason"),
        (["noisy"], ""),
    ],
)
def test_throttling_was_told_by_a_warning(warnings: list[str], throttled: str) -> None:
    found = read(warnings=warnings)
    assert (found.throttled, found.is_throttled) == (throttled, bool(throttled))
    assert read(warnings=warnings, throttled="heat").throttled == "heat"


def test_noise_was_told_by_warnings() -> None:
    noise = [
        "time: the median is known to ±1.1%, not ±0.9%, after 66 samples, 23 of them effective"
        " (budget)",
        "rank 1: time: unstable, coefficient of variation 36%, of the core's rate 11%",
        "empty: 29 of 181 samples are far outliers (kept)",
    ]
    others = ["time: the first call took 25.9 times as long", "3 of 9 samples are lost"]
    found = read(warnings=[*noise, *others])
    assert (found.warnings, found.noise) == (others, noise)
    assert sorted(found.remarks) == sorted([*noise, *others])


@pytest.mark.parametrize(
    ("reason", "kind"),
    [
        ("check failed: the product differs from float64's", Failure.CHECK),
        ("rank 1: check failed: sum differs", Failure.CHECK),
        ("timed out after 60 s in wait (a.py:3)", Failure.TIMEOUT),
        ("ranks timed out after 45 s: rank 0 silent", Failure.TIMEOUT),
        ("died of SIGKILL (killed, perhaps for want of memory)", Failure.SIGNAL),
        ("ended with exit status 3 before it reported", Failure.EXIT),
        (
            "more than 2048 processes at once (HPML_PROCESS_LIMIT sets another limit)",
            Failure.LIMIT,
        ),
        ("sent a message of more than 1,074 MB", Failure.LIMIT),
        ("its supervising process was killed or stopped", Failure.SUPERVISOR),
        ("its result cannot be stored: ValueError", Failure.RESULT),
        ("it sent what cannot be read: a Record of another run", Failure.RESULT),
        ("metric 'time' is not finite: nan", Failure.RESULT),
        ("GPU 0 (NVIDIA H200) is lost: NVML says 'GPU is lost'; dmesg", Failure.GPU),
        ("GPU 1 (NVIDIA H200) had 2 memory errors that ECC could not correct", Failure.GPU),
        ("KeyError: 'device' (a.py:7: node['device'])", Failure.ERROR),
        ("", Failure.ERROR),
    ],
)
def test_the_kind_of_a_failure_was_told_by_its_reason(reason: str, kind: Failure) -> None:
    assert read(status="failed", reason=reason, metrics={}).failure is kind
    assert read(status="skipped", reason=reason, metrics={}).failure is Failure.NONE
    stored = read(status="failed", reason=reason, metrics={}, failure="gpu")
    assert stored.failure is Failure.GPU


@pytest.mark.parametrize(
    ("facts", "unmet"),
    [
        ({"reason": "needs data set mnist: not found"}, True),
        ({"reason": "needs 1 GPU", "requirement_unmet": True}, True),
        ({"reason": "not available at this commit: its metrics differ"}, False),
        ({"reason": "needs 2 nodes of a Slurm job", "duration": 1.5}, False),
        ({"reason": "needs 1 GPU", "source": {"path": "a.py"}}, False),  # by its process
        ({"reason": "needs 1 GPU", "status": "failed"}, False),
    ],
)
def test_an_unmet_requirement_was_told_by_the_reason_of_a_point_that_was_not_started(
    facts: dict[str, Any], unmet: bool
) -> None:
    found = read(
        **{"status": "skipped", "metrics": {}, "duration": 0.0, "source": {}, **facts}
    )
    assert found.requirement_unmet == unmet


@pytest.mark.parametrize(
    ("environment", "of_stack"),
    [
        ("stack-py3.11-torch2.14.1", True),
        ("node-py3.12-torch2.11.0-cuda13.0", False),
        ("existing-py_stack-3", False),
    ],
)
def test_an_installed_stack_was_told_by_the_name_of_the_environment(
    environment: str, of_stack: bool
) -> None:
    assert read(environment=environment).of_stack == of_stack


@pytest.mark.parametrize(
    ("info", "facts"),
    [
        ({}, ([], False, False, False)),
        (
            {"timer": "cuda events", "launch": "hidden", "regime": "sustained"},
            ([Timer.EVENTS], False, False, True),
        ),
        (
            {
                "timer": "cuda events",
                "launch": "hidden; visible: the step waits for the GPU",
            },
            ([Timer.EVENTS], True, False, False),
        ),
        (
            {
                "timer": "cuda events",
                "launch": "visible in part: some launches outlasted it",
            },
            ([Timer.EVENTS], False, False, False),
        ),
        ({"timer": "cuda events", "cpus": "0-7"}, ([Timer.EVENTS], False, True, False)),
        (
            {
                "timer": "perf_counter; perf_counter with device synchronisation: other streams"
            },
            ([Timer.CLOCK, Timer.SYNCHRONISED], False, False, False),
        ),
        ({"timer": "printed by bench"}, ([Timer.OTHER], False, False, False)),
    ],
)
def test_how_a_metric_was_timed_was_told_by_its_info(
    info: dict[str, str], facts: tuple[list[Timer], bool, bool, bool]
) -> None:
    found = read_metric(info)
    told = (found.timers, found.launch_visible, found.crosses_host, found.settled)
    assert told == facts
    assert found.regime == ("sustained" if found.settled else "")


def test_a_stored_fact_counts_more_than_the_words() -> None:
    found = read_metric(
        {"timer": "perf_counter", "launch": "visible"}, timers=["cuda events"]
    )
    assert (found.timers, found.launch_visible) == ([Timer.EVENTS], False)


def test_the_schema_in_docs_is_the_one_that_is_read() -> None:
    assert json.loads(SCHEMA.read_text()) == json_schema(Record), "run `make docs`"


def test_the_schema_knows_every_key_of_the_stored_records() -> None:
    known = json.loads(SCHEMA.read_text())["$defs"]
    keys: dict[str, set[str]] = {"Record": set(), "MetricSamples": set()}
    for path in record_files(ROOT / "results"):
        for line in path.read_bytes().splitlines():
            record = json.loads(line)
            keys["Record"] |= record.keys()
            for metric in record.get("metrics", {}).values():
                keys["MetricSamples"] |= metric.keys()
    keys["MetricSamples"] -= FORGOTTEN
    assert len(keys["Record"]) > 20
    for name, found in keys.items():
        assert found <= known[name]["properties"].keys()


def test_reading_and_writing_are_found_beside_the_record() -> None:
    import hpml_plugins.model.record as record
    from hpml_plugins.model import serialization

    assert record.decode is serialization.decode and record.encode is serialization.encode
    with pytest.raises(AttributeError, match="no attribute 'absent'"):
        record.absent  # noqa: B018
