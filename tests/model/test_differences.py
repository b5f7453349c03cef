from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace
from records import a_record

from hpml_plugins.model.differences import (
    Confounder,
    describe_share,
    differences,
    unusual_conditions,
    why_cause_is_open,
)
from hpml_plugins.model.record import MetricSamples, Record

CARD = {
    "name": "NVIDIA H200",
    "uuid": "GPU-a7d00f32-64fa-041e",
    "power_limit": 700.0,
    "links": "PCIe 5 x16",
}
NODE: dict[str, Any] = {
    "os": "Linux 6",
    "cpu": "Xeon",
    "num_cpu": 16,
    "python": "3.12",
    "driver": "580.159.04",
    "host": "0123456789",
    "boot": "ec0f18809c",
    "virtual": True,
    "host_cpus": 32,
    "host_gpus": 2,
    "gpus": [CARD],
}
RECORD = a_record(
    "b",
    machine="h200-x1",
    commit="a" * 40,
    metrics={"time": MetricSamples("s", "lower", [1.0, 2.0], {"timer": "cuda events"})},
    node=NODE,
    packages={"torch": "2.11.0", "hpml-plugins": "0.1"},
    source={"sha256": "801897ec4e04"},
    data={"cifar10": {"fingerprint": "sha256:e9e276a52837cd23", "train": 50000.0}},
    conditions={
        "cores": 16.0,
        "other_cpus": 0.0,
        "other_processes": 0.0,
        "other_gpus": 1.0,
        "other_gpus_power": 75.0,
        "other_gpus_utilization": 0.0,
    },
)


def node(**changes: Any) -> Record:
    return replace(RECORD, node={**NODE, **changes})


def conditions(**changes: float) -> Record:
    return replace(RECORD, conditions={**RECORD.conditions, **changes})


def timed(rate: float | None) -> Record:
    """RECORD with a time of the CPU, whose core had this rate; None: it was not looked at."""
    info: dict[str, str | float] = {"timer": "perf_counter"} | (
        {"core_rate": rate} if rate else {}
    )
    time = MetricSamples("s", "lower", [1.0, 2.0], info)
    return replace(RECORD, metrics={**RECORD.metrics, "host": time})


def told(b: Record, a: Record = RECORD) -> list[str]:
    return [str(each) for each in differences(a, b)]


def test_a_record_does_not_differ_from_itself() -> None:
    assert told(RECORD) == []
    assert told(replace(RECORD, started=9.0, run="another", seed=0, duration=3.0)) == []


@pytest.mark.parametrize(
    ("b", "text"),
    [
        (node(gpus=[{**CARD, "uuid": "GPU-faeac8f1-0a8c"}]), "card a7d00f32 → faeac8f1"),
        (node(gpus=[{**CARD, "power_limit": 600.0}]), "power limit 700 W → 600 W"),
        (
            node(gpus=[{**CARD, "links": "NVLink x18"}]),
            "links of the card PCIe 5 x16 → NVLink x18",
        ),
        (node(boot="ef9d6b04c5"), "boot ec0f1880 → ef9d6b04"),
        (node(host="ffff6789ab", boot="ef9d6b04c5"), "host 01234567 → ffff6789"),
        (node(driver="570.86"), "driver 580.159.04 → 570.86"),
        (node(python="3.11"), "Python 3.12 → 3.11"),
        (replace(RECORD, packages={"torch": "2.15.0"}), "torch 2.11.0 → 2.15.0"),
        (replace(RECORD, source={"sha256": "ffff"}), "code of the plugin 801897ec → ffff"),
        (
            replace(RECORD, data={"cifar10": {"fingerprint": "sha256:0000"}}),
            "data set cifar10 e9e276a5 → 0000",
        ),
        (conditions(other_processes=2.0), "other processes on the card 0 → 2"),
        (
            conditions(other_cpus=4.1),
            "CPUs used by other processes 0.0 of 16 CPUs → 4.1 of 16 CPUs",
        ),
        (
            conditions(other_gpus_power=402.0, other_gpus_utilization=0.5),
            "other GPUs of the host idle (75 W, 0%) → in use (402 W, 50%)",
        ),
        (
            conditions(other_gpus_power=303.0),
            "other GPUs of the host idle (75 W, 0%) → in use (303 W, 0%)",
        ),
    ],
)
def test_each_confounder_is_named_once(b: Record, text: str) -> None:
    assert told(b) == [text]


def test_a_core_that_was_slower_is_named_where_both_tell() -> None:
    assert told(timed(36e6), timed(71e6)) == ["core's rate 71.00 M/s → 36.00 M/s"]
    assert told(timed(65e6), timed(71e6)) == []
    assert told(timed(36e6), timed(None)) == []


def test_cores_and_the_share_of_the_host() -> None:
    assert told(node(num_cpu=8)) == [
        "cores 16 → 8",
        (
            "share of the host 1 of 2 GPUs, 16 of 32 CPUs of a virtual machine → "
            "1 of 2 GPUs, 8 of 32 CPUs of a virtual machine"
        ),
    ]
    old = node(host_cpus=0)
    assert describe_share(old) == ""
    assert told(old) == [
        "share of the host 1 of 2 GPUs, 16 of 32 CPUs of a virtual machine → not known"
    ]
    assert told(old, old) == []


def test_rounds_regime_and_timer() -> None:
    timed = RECORD.metrics["time"]
    rounds = replace(RECORD, metrics={"time": replace(timed, rounds=[1, 1])})
    assert told(rounds) == ["rounds 1 → 2"]
    sustained = replace(RECORD, metrics={"time": replace(timed, boost=[0.9])})
    assert told(sustained) == ["regime not throttled → sustained"]
    before = replace(RECORD, throttled="power cap")
    assert told(sustained, before) == ["regime throttled → sustained"]
    wall = replace(
        RECORD, metrics={"time": replace(timed, info={"timer": "perf_counter: no events"})}
    )
    assert told(wall) == ["timer cuda events → perf_counter"]


def test_what_was_asked_is_not_listed() -> None:
    changed = node(
        gpus=[{**CARD, "uuid": "GPU-faeac8f1"}], host="ffff", cpu="EPYC", driver="570.86"
    )
    assert told(replace(changed, machine="another")) == ["driver 580.159.04 → 570.86"]
    assert told(replace(RECORD, commit="b" * 40, source={"sha256": "ffff"})) == []


def test_what_one_side_does_not_tell_is_no_difference() -> None:
    assert told(replace(RECORD, conditions={}, packages={}, data={})) == []
    assert told(replace(RECORD, node={})) == [
        "share of the host 1 of 2 GPUs, 16 of 32 CPUs of a virtual machine → not known"
    ]


def test_a_machine_is_busy_where_others_use_a_quarter_of_its_cpus() -> None:
    quiet, busy = conditions(other_cpus=4.0), conditions(other_cpus=4.1)
    assert (
        quiet.is_busy,
        busy.is_busy,
        replace(RECORD, conditions={"other_cpus": 4.1}).is_busy,
    ) == (
        False,
        True,
        False,
    )
    assert told(quiet) == unusual_conditions(quiet) == []
    assert unusual_conditions(busy) == ["other processes used 4.1 of 16 CPUs"]


def test_neighbours_of_a_record_without_any_are_idle_only_where_that_is_known() -> None:
    busy = conditions(other_gpus_utilization=1.0)
    alone = replace(node(host_gpus=1), conditions={})
    assert "other GPUs of the host idle → in use (75 W, 100%)" in told(busy, alone)
    assert told(busy, replace(RECORD, conditions={})) == []


@pytest.mark.parametrize(
    ("before", "after", "text"),
    [
        (
            {"mig": False},
            {"mig": True},
            "MIG off → on, which part of the card is not known",
        ),
        (
            {"mig": False},
            {"mig": True, "name": "NVIDIA H200 MIG 1g.18gb"},
            "MIG off → 1g.18gb",
        ),
        ({"memory": 12.6e9}, {"memory": 8.4e9}, "memory of the card 12.60 GB → 8.400 GB"),
    ],
)
def test_what_was_done_to_the_card_is_named(
    before: dict[str, Any], after: dict[str, Any], text: str
) -> None:
    assert told(node(gpus=[CARD | after]), node(gpus=[CARD | before])) == [text]


def test_a_little_less_memory_and_a_card_without_mig_are_no_difference() -> None:
    assert (
        told(
            node(gpus=[{**CARD, "memory": 150.1e9}]),
            node(gpus=[{**CARD, "memory": 150.7e9}]),
        )
        == []
    )
    assert (
        told(node(gpus=[{**CARD, "mig": None}]), node(gpus=[{**CARD, "mig": False}])) == []
    )


def test_what_neighbours_did_is_not_guessed() -> None:
    silent = replace(
        RECORD, conditions={"cores": 16.0, "other_cpus": 0.0, "other_gpus": 1.0}
    )
    assert "other GPUs of the host idle (75 W, 0%) → not known" in told(silent)
    assert unusual_conditions(silent) == []


def test_shares_of_hosts() -> None:
    assert describe_share(node(num_cpu=32, gpus=[CARD, CARD])) == "a whole virtual machine"
    assert (
        describe_share(node(num_cpu=32, gpus=[CARD, CARD], virtual=False))
        == "a whole machine"
    )
    assert (
        describe_share(node(host_gpus=1, cpu_quota=4.0))
        == "16 of 32 CPUs, the time of 4 CPUs of a virtual machine"
    )


def test_facts_of_another_kind_than_expected_are_survived() -> None:
    odd = node(
        gpus=[{"uuid": 7, "power_limit": "much"}],
        host_cpus="many",
        cpu_numa=3,
        boot=[1],
        driver={},
    )
    assert Confounder("boot", "ec0f1880", "[1]") in differences(RECORD, odd)


def test_the_cause_of_a_change_is_known_only_where_nothing_unseen_can_have_caused_it() -> (
    None
):
    alone = {"virtual": False, "num_cpu": 32, "gpus": [CARD, CARD]}

    def rounds(*starts: float, code: str, **facts: Any) -> list[Record]:
        changed = {"source": {"sha256": code}, "node": {**NODE, **facts}}
        return [replace(RECORD, started=start, **changed) for start in starts]

    def told(a: list[Record], b: list[Record], *, on_host: bool = True) -> str:
        return why_cause_is_open(a, b, on_host=on_host)

    old = rounds(10, 20, code="a")
    shared = "on a shared host, not measured in turns"
    same = "the plugin's files are the same"
    # other guests of a virtual machine's host leave no trace
    assert told(old, rounds(30, 40, code="b")) == shared
    assert told(old, rounds(30, 40, code="b"), on_host=False) == ""
    assert told(old, rounds(30, 40, code="a")) == f"{shared}; {same}"
    assert told(old, rounds(30, 40, code="a"), on_host=False) == same
    # rounds in turns have the same neighbours, in one boot
    assert told(old, rounds(15, 25, code="a")) == ""
    assert told(old, rounds(15, 25, code="b", boot="another")) == shared
    # a whole machine has no neighbours, unless other processes run on it
    whole = rounds(10, 20, code="a", **alone)
    assert told(whole, rounds(30, 40, code="b", **alone)) == ""
    busy = [
        replace(each, conditions={"cores": 32.0, "other_cpus": 30.0})
        for each in rounds(30, 40, code="b", **alone)
    ]
    assert told(whole, busy) == shared
    # Records from before hosts were told
    unknown = rounds(30, 40, code="b", host_cpus=None)
    assert told(old, unknown) == "which host, and what share of it, is not known"


def test_the_load_at_settled_clocks_is_told() -> None:
    def settled(**info: str) -> Record:
        samples = MetricSamples("s", "lower", [1.0, 2.0], info, settled=True)
        return replace(RECORD, metrics={"time": samples})

    found = {each.name: each for each in differences(settled(), settled(load="continuous"))}
    assert found["load"] == Confounder("load", "with rests", "continuous")
    assert "load" not in {each.name for each in differences(RECORD, settled())}
