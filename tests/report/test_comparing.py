"""Two sides of the same points, and all Records as Parquet."""

from __future__ import annotations

import csv
import json
import subprocess
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import pytest
from records import a_record, a_value
from support import ROOT, call_hpml, unavailable

from hpml_plugins.analysis.verdicts import Difference
from hpml_plugins.errors import UsageError
from hpml_plugins.model.formatting import format_point
from hpml_plugins.model.record import MetricSamples, Record
from hpml_plugins.report.compare import (
    Compared,
    RefusedComparison,
    Side,
    as_lines,
    as_table,
    changed,
    check,
    compare,
    describe_one_sided,
    find_side,
    list_confounders,
    notes,
    summarise,
)
from hpml_plugins.report.known import KnownRecords
from hpml_plugins.report.points import format_samples
from hpml_plugins.report.reading import Outcome
from hpml_plugins.store import append_record, read_records, record_file

OLD, NEW = "a" * 40, "b" * 40


def record(machine: str, commit: str, seconds: float, *, run: str = "r") -> Record:
    times = [seconds * (1 + n / 10_000) for n in range(20)]
    info = {"timer": "perf_counter"}
    metrics = {
        "time": MetricSamples("s", "lower", times, info),
        "rate": MetricSamples("1/s", "higher", [1 / t for t in times], info),
    }
    return a_record(
        metrics=metrics,
        params={"size": 10},
        machine=machine,
        commit=commit,
        environment="env",
        run=run,
        node={"boot": f"boot of {machine}"},
    )


def compared(a: Side, b: Side, records: list[Record]) -> list[Compared]:
    """With other runs of each Record, by which it is known how far runs differ: 0.1 %, on other
    hosts 0.2 %."""
    repeated = [
        msgspec.structs.replace(
            record(
                each.machine,
                each.commit,
                (each.value("time") or 0) * (1 + shift),
                run=f"{shift}",
            ),
            node={"boot": f"{boot} of {each.machine}"},
        )
        for each in records
        if each.status == "ok"
        for boot, shift in (
            ("boot", 0.001),
            ("boot", -0.001),
            ("other", 0.002),
            ("other", 0.003),
        )
    ]
    return compare(a, b, KnownRecords.of(records, repeated), ORDER)[0]


def refused(a: Side, b: Side, records: list[Record]) -> list[RefusedComparison]:
    return compare(a, b, KnownRecords.of(records), ORDER)[1]


RECORDS = [
    record("one", OLD, 1.0),
    record("one", NEW, 2.0),
    record("two", NEW, 0.5),
    a_record(
        params={"size": 20}, status="skipped", reason="no GPU", machine="one", commit=NEW
    ),
]
ORDER = {OLD: 0, NEW: 1}


def test_commits_are_compared_on_each_machine_that_measured_both() -> None:
    rows = compared(Side("commit", OLD), Side("commit", NEW), RECORDS)
    assert [(row.machine, row.metric, row.difference.verdict) for row in rows] == [
        ("one", "time", "WORSE"),
        ("one", "rate", "WORSE"),
    ]
    # twice the time is half as good
    assert [row.difference.times for row in rows] == pytest.approx([0.5, 0.5])


def test_machines_are_compared_by_their_newest_records() -> None:
    rows = compared(Side("machine", "one"), Side("machine", "two"), RECORDS)
    # 2 s at the newest commit against 0.5 s
    assert [row.difference.times for row in rows] == pytest.approx([4, 4])
    assert {row.difference.verdict for row in rows} == {"BETTER"}


def test_a_machine_against_a_commit_is_compared_on_that_machine() -> None:
    records = [record("one", NEW, 1.0), record("one", OLD, 2.0), record("two", OLD, 4.0)]
    for a, b, times in (
        (Side("machine", "one"), Side("commit", OLD), 2.0),
        (Side("commit", OLD), Side("machine", "one"), 0.5),
    ):
        (time,) = [each for each in compared(a, b, records) if each.metric == "time"]
        assert (time.machine, time.difference.ratio) == ("one", times)


def test_close_values_are_the_same_and_nobody_knows_of_what_was_never_repeated() -> None:
    close = [record("one", OLD, 1.0), record("one", NEW, 1.0001)]
    rows = compared(Side("commit", OLD), Side("commit", NEW), close)
    assert {row.difference.verdict for row in rows} == {"SAME"}
    apart = [record("one", OLD, 1.0), record("one", NEW, 1.1)]
    rows, _ = compare(
        Side("commit", OLD), Side("commit", NEW), KnownRecords.of(apart), ORDER
    )
    assert {row.difference.verdict for row in rows} == {"BOUND"}
    shown = list(as_table(rows, formatted=True).rows())
    assert {row["B against A"] for row in shown} == {"1.10× (+10 %)", "0.91× (−9.1 %)"}
    assert [row["verdict"] for row in shown] == [
        row.difference.undirected.wording() for row in rows
    ]
    low, high = rows[0].difference.interval or (1.0, 1.0)
    assert low < 1 / 1.1 < high


def test_what_changed_comes_first_points_in_order_of_their_numbers_and_every_width_is_kept() -> (
    None
):
    sizes = {"9": 1.0, "10": 2.0, "64KiB": 1.0, "1MiB": 2.0}
    pairs = [
        msgspec.structs.replace(
            record("one", commit, 1.0 if commit == OLD else seconds), params={"size": size}
        )
        for size, seconds in sizes.items()
        for commit in (OLD, NEW)
    ]
    runs = [
        msgspec.structs.replace(each, run=f"{n}", started=-1.0)
        for each in pairs
        for n in range(4)
    ]
    rows, _ = compare(
        Side("commit", OLD), Side("commit", NEW), KnownRecords.of(pairs, runs), ORDER
    )
    points = [format_point({"size": size}) for size in sizes]
    assert list(dict.fromkeys(row.point for row in rows)) == points
    assert {row.point for row in changed(rows)} == {points[1], points[3]}
    assert (
        summarise(rows, "--all")
        == "8 values of 4 points: 4 WORSE, 4 SAME; --all shows the other 4"
    )

    for width in (45, 80, 200):
        lines = list(as_lines(rows, width))
        assert max(map(len, lines)) <= width
        assert [line.strip() for line in lines if "size=" in line] == [
            points[at] for at in (1, 3, 0, 2)
        ]
        text = " ".join(" ".join(lines).split())
        told = [
            "▼ 2.00× (+100 %)",
            "WORSE, at least 1.9",
            "▼ 0.50× (−50 %)",
            "WORSE, at most 0.5",
        ]
        assert [text.count(each) for each in told] == [2] * 4


def test_what_other_processes_disturbed_is_marked_and_counted() -> None:
    busy = msgspec.structs.replace(RECORDS[1], conditions={"other_cpus": 1.0, "cores": 2.0})
    rows = compared(Side("commit", OLD), Side("commit", NEW), [RECORDS[0], busy])
    assert [row.difference.ratio for row in rows] == [2.0, 0.5]
    bounds = [row.difference.interval or (1.0, 1.0) for row in rows]
    assert all(high / low > 3 for low, high in bounds)
    assert all(
        str(row["B"]).endswith(" busy") for row in as_table(rows, formatted=True).rows()
    )
    assert notes(rows, []) == [
        "2 values marked busy: other processes used the CPUs meanwhile, and the interval is"
        " wider"
    ]


def test_runs_of_another_class_than_most_cards_have_are_left_out_and_counted() -> None:
    with_a_gpu = msgspec.structs.replace(
        RECORDS[0], run="other", started=-1.0, node={"gpus": [{"name": "G", "uuid": "u"}]}
    )
    sides = Side("commit", OLD), Side("commit", NEW)
    rows = compared(*sides, [*RECORDS[:2], with_a_gpu])
    assert [row.difference.ratio for row in rows] == [2.0, 0.5]
    assert notes(rows, []) == [
        "1 run left out: timed in another way or regime than on most cards of the side"
    ]


def test_ratios_without_the_cards_own_speed_are_marked_and_counted() -> None:
    plain, other = compared(Side("commit", OLD), Side("commit", NEW), RECORDS[:2])
    adjusted = replace(plain, difference=replace(plain.difference, adjusted=True))
    rows = [adjusted, other]
    verdicts = [row["verdict"] for row in as_table([plain, *rows], formatted=True).rows()]
    assert verdicts[1:] == [f"{verdicts[0]}, adjusted", verdicts[2]]
    for width in (40, 200):
        assert sum("adjusted" in line for line in as_lines(rows, width)) == 1
    assert [row["adjusted"] for row in as_table(rows, formatted=False).rows()] == [
        True,
        False,
    ]
    assert notes(rows, []) == [
        "1 ratio adjusted for the cards' own speed, from the reference steps"
    ]


def test_a_step_that_throttles_is_shown_with_its_regime() -> None:
    metric = RECORDS[0].metrics["time"]
    held = msgspec.structs.replace(
        RECORDS[0], metrics={"time": msgspec.structs.replace(metric, boost=[0.9])}
    )
    rows = compared(Side("commit", OLD), Side("commit", NEW), [held, RECORDS[1]])
    (row,) = as_table(rows, formatted=True).rows()
    assert str(row["A"]).endswith("% sustained")
    assert str(row["B"]).endswith("%")
    assert format_samples(held.metrics["time"], "s").endswith("% sustained")


def test_code_gets_the_numbers_and_the_interval_of_the_ratio() -> None:
    rows = compared(Side("commit", OLD), Side("commit", NEW), RECORDS)
    time = next(iter(as_table(rows, formatted=False).rows()))
    assert (time["ratio"], time["B / A"], time["verdict"]) == (
        pytest.approx(0.5),
        pytest.approx(2.0),
        "WORSE",
    )
    assert 1.9 < time["low"] < 2.0 < time["high"] < 2.1  # type: ignore[operator]


def test_what_else_differs_is_listed_once_for_each_machine() -> None:
    def both(
        number: int, machine: str = "one", torch: str = "2.15.0", others: float = 0.0
    ) -> list[Record]:
        old, new = record(machine, OLD, 1.0), record(machine, NEW, 1.0)
        old = msgspec.structs.replace(
            old,
            params={"size": number},
            packages={"torch": "2.11.0"},
            conditions={"other_processes": 0.0},
        )
        new = msgspec.structs.replace(
            new,
            params={"size": number},
            packages={"torch": torch},
            conditions={"other_processes": others},
        )
        return [old, new]

    records = [
        *both(1),
        *both(2, others=2.0),
        *both(3, others=3.0),
        *both(1, "two", torch="2.11.0"),
        *both(2, "two"),
    ]
    rows = compared(Side("commit", OLD), Side("commit", NEW), records)
    assert list_confounders(rows) == [
        "one, all points: torch 2.11.0 → 2.15.0",
        "one, 2 of 3 points: other processes on the card, for example 0 → 2",
        "two, 1 of 2 points: torch 2.11.0 → 2.15.0",
    ]
    told = {
        (row["machine"], row["point"]): row["differences"]
        for row in as_table(rows, formatted=False).rows()
    }
    assert told == {
        ("one", "size=1"): "torch 2.11.0 → 2.15.0",
        ("one", "size=2"): "other processes on the card 0 → 2; torch 2.11.0 → 2.15.0",
        ("one", "size=3"): "other processes on the card 0 → 3; torch 2.11.0 → 2.15.0",
        ("two", "size=1"): "",
        ("two", "size=2"): "torch 2.11.0 → 2.15.0",
    }


def test_a_changed_definition_is_another_point() -> None:
    changed = msgspec.structs.replace(record("one", NEW, 0.5), version="2")
    assert compared(Side("commit", OLD), Side("commit", NEW), [RECORDS[0], changed]) == []


def with_metric(each: Record, **changes: Any) -> Record:
    """With another declaration of `time`."""
    metric = msgspec.structs.replace(each.metrics["time"], **changes)
    return msgspec.structs.replace(each, metrics={**each.metrics, "time": metric})


COMMITS = Side("commit", OLD), Side("commit", NEW)


def test_a_changed_version_is_refused_with_the_reason() -> None:
    two = msgspec.structs.replace(record("one", NEW, 0.5), version="2")
    assert compared(*COMMITS, [RECORDS[0], two]) == []
    (found,) = refused(*COMMITS, [RECORDS[0], two])
    assert str(found) == "toy: not compared: version 1 on A, 2 on B: its definition changed"
    # another grid came with it, and other machines changed too: it is said once
    other = msgspec.structs.replace(two, params={"length": 3})
    both = [RECORDS[0], msgspec.structs.replace(RECORDS[0], machine="two")]
    assert refused(
        *COMMITS, [*both, other, msgspec.structs.replace(two, machine="two")]
    ) == [found]
    # what both sides have at one version is compared, whatever else they have
    old_one = msgspec.structs.replace(record("one", NEW, 0.5), params={"size": 30})
    assert refused(*COMMITS, [RECORDS[0], record("one", NEW, 0.5), two]) == []
    assert refused(*COMMITS, [RECORDS[0], old_one]) == []


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"unit": "B"}, "unit s on A, B on B: its definition changed"),
        (
            {"direction": "higher"},
            "lower is better on A, higher on B: its definition changed",
        ),
    ],
)
def test_a_metric_with_another_unit_or_direction_is_refused_with_the_reason(
    changes: dict[str, str], reason: str
) -> None:
    records = [RECORDS[0], with_metric(RECORDS[1], **changes)]
    assert [row.metric for row in compared(*COMMITS, records)] == ["rate"]
    assert [str(each) for each in refused(*COMMITS, records)] == [
        f"toy time: not compared: {reason}"
    ]


def test_a_direction_that_became_none_is_compared_and_not_ranked() -> None:
    records = [RECORDS[0], with_metric(RECORDS[1], direction=None)]
    assert refused(*COMMITS, records) == []
    row, _ = compared(*COMMITS, records)
    assert (row.metric, row.difference.times, row.difference.verdict) == (
        "time",
        None,
        "BOUND",
    )


def test_different_problems_have_no_ratio_and_a_note() -> None:
    def sized(each: Record, size: int) -> Record:
        return msgspec.structs.replace(
            each, metrics={**each.metrics, "n": MetricSamples("1", None, [float(size)])}
        )

    rows = compared(*COMMITS, [sized(RECORDS[0], 4096), sized(RECORDS[1], 12288)])
    assert {row.metric: row.difference.times for row in rows} == {
        "time": None,
        "rate": None,
        "n": None,
    }
    shown = {
        row["metric"]: row["B against A"] for row in as_table(rows, formatted=True).rows()
    }
    assert set(shown.values()) == {"–"}
    assert notes(rows, []) == [
        "one toy size=10: no ratio: different problems: n 4096 and 12288"
    ]
    reasons = [row["reason"] for row in as_table(rows, formatted=False).rows()]
    assert reasons == ["different problems: n 4096 and 12288"] * 2 + [""]


def test_a_side_is_a_machine_an_environment_or_what_git_calls_a_commit() -> None:
    assert find_side("two", RECORDS, lambda name: None) == Side("machine", "two")
    assert find_side("env", RECORDS, lambda name: None) == Side("environment", "env")
    assert find_side("aaaa", RECORDS, lambda name: None) == Side("commit", OLD)
    assert find_side("HEAD", RECORDS, lambda name: NEW) == Side("commit", NEW)
    with pytest.raises(UsageError, match=r"'nine' is no machine \(one, two\)"):
        find_side("nine", RECORDS, lambda name: None)
    with pytest.raises(UsageError, match="nothing was measured at 'HEAD'"):
        find_side("HEAD", RECORDS, lambda name: "c" * 40)


@pytest.mark.parametrize(
    ("words", "benchmark"),
    [
        (("one", "two"), None),
        (("one", "two"), "other"),
        (("one", NEW[:4]), "toy"),
        ((OLD, NEW), None),
    ],
)
def test_what_is_kept_of_records_is_compared_as_the_records_are(
    tmp_path: Path, words: tuple[str, str], benchmark: str | None
) -> None:
    boosted = MetricSamples("s", "lower", [2.0, 2.1], boost=[1.0, 1.1])
    of_reference = a_record("reference", {"copy": 1.0}, gpu="H200", card="GPU-1", run="r")
    made = [
        *RECORDS,
        *(record("one", NEW, 2.0 + n / 1000, run=f"{n}") for n in range(3)),
        a_record("other", {"time": boosted}, machine="one", commit=NEW, gpu="H200"),
        a_record("other", {"time": boosted}, machine="two", commit=NEW, gpu="H100"),
        of_reference,
        a_record("other", {"time": 0.0}, params={"n": 7}, machine="one", commit=OLD),
    ]
    for each in made:
        append_record(record_file(tmp_path, each.machine, each.commit), each)
    stored = list(read_records(tmp_path))

    def is_asked(each: Any) -> bool:
        return benchmark in (None, each.benchmark)

    records = list(filter(is_asked, stored))
    others = [each for each in stored if not is_asked(each)]
    for _ in range(2):  # from the files, and from what was kept of them
        known = KnownRecords.read(
            tmp_path, pytest.fail, is_asked, lambda names: any(map(names.may_be, words))
        )
        a, b = (find_side(word, known.names, lambda _: "") for word in words)
        assert (a, b) == tuple(find_side(word, records, lambda _: "") for word in words)
        found = compare(a, b, known, ORDER)
        assert found == compare(a, b, KnownRecords.of(records, others), ORDER)
        assert describe_one_sided(a, b, known.records) == describe_one_sided(a, b, records)


def test_a_name_that_no_record_has_is_refused_with_the_nearest_before_records_are_read(
    tmp_path: Path,
) -> None:
    side = "no machine, environment or commit with Records is called"
    damaged = tmp_path / "results" / "two" / "records" / "cccccccc.jsonl"
    damaged.parent.mkdir(parents=True)
    damaged.write_text("a reader would report this line\n")
    for words, message in (
        (("tow", "one"), f"{side} 'tow'; did you mean 'two'?"),
        (("one", "tow"), f"{side} 'tow'; did you mean 'two'?"),
        (
            ("one", "two", "--machine", "tow"),
            "no Records of machine 'tow'; did you mean 'two'?",
        ),
    ):
        done = hpml(tmp_path, "compare", *words)
        assert (done.returncode, done.stderr) == (2, f"hpml: {message}\n")
    for known in ("one", "env", OLD, OLD[:4]):
        assert "is called" not in hpml(tmp_path, "compare", known, "two").stderr


def hpml(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    (folder / "registry.yaml").write_text("version: 1\nplugins: []\n")
    for each in RECORDS:
        append_record(record_file(folder / "results", each.machine, each.commit), each)
    return call_hpml(folder, *words)


def test_the_command_writes_units_and_signs(tmp_path: Path) -> None:
    done = hpml(tmp_path, "compare", "one", "two", "--format", "markdown")
    assert done.returncode == 0, done.stderr
    # Nothing was measured twice: the stated guess of 3 % gives a factor of exp(4.30 · √2 · 3 %)
    # either way, of which the longer side is 21 %.
    assert (
        "| toy | size=10 | time | 2.002 s ± 21 % | 500.5 ms ± 21 % | ▲ 0.25× (−75 %) | BETTER,"
        " at most 0.29× |" in done.stdout
    )
    assert "differs" not in done.stdout
    newer = msgspec.structs.replace(
        record("one", NEW, 1.0, run="later"), started=9.0, node={"boot": "later"}
    )
    append_record(record_file(tmp_path / "results", "one", NEW), newer)
    done = hpml(tmp_path, "compare", OLD, NEW)
    assert (
        "\nWhat else differs, A → B:\n\n  one, all points: boot boot of  → later\n"
        in done.stdout
    )
    refused = hpml(tmp_path, "compare", "one", "nine")
    assert (refused.returncode, refused.stderr.count("\n")) == (2, 1)
    misspelt = hpml(tmp_path, "compare", "one", "two", "--benchmark", "tyo")
    assert misspelt.returncode == 2
    told = "no Record of benchmark 'tyo' under results; did you mean 'toy'?"
    assert misspelt.stderr == f"hpml: {told}\n"


def test_what_was_refused_stands_below_the_table_or_is_the_error(tmp_path: Path) -> None:
    changed = msgspec.structs.replace(with_metric(RECORDS[2], unit="B"), machine="three")
    newer = msgspec.structs.replace(RECORDS[2], machine="four", version="2")
    for each in (changed, newer):
        append_record(record_file(tmp_path / "results", each.machine, each.commit), each)
    told = "toy time: not compared: unit s on A, B on B: its definition changed"
    assert hpml(tmp_path, "compare", "one", "three").stdout.endswith(f"\n\n{told}\n")
    assert hpml(
        tmp_path, "compare", "one", "three", "--format", "markdown"
    ).stdout.endswith(f"\n\n- {told}\n")
    *_, last = csv.DictReader(
        hpml(tmp_path, "compare", "one", "three", "--format", "csv").stdout.splitlines()
    )
    assert (last["benchmark"], last["metric"], last["verdict"]) == ("toy", "time", "")
    assert f"toy time: {last['reason']}" == told
    done = hpml(tmp_path, "compare", "one", "four")
    assert (done.returncode, done.stdout) == (2, "")
    assert (
        done.stderr
        == "hpml: toy: not compared: version 1 on A, 2 on B: its definition changed\n"
    )


@pytest.mark.parametrize(
    ("verdicts", "refused", "one_sided", "status", "said"),
    [
        (["SAME", "BETTER", "BOUND"], [], "", 0, "nothing is worse"),
        (
            ["SAME", "WORSE", "AMBIGUOUS"],
            [],
            "",
            1,
            "1 value worse; not judged: 1 AMBIGUOUS",
        ),
        (["SAME", "AMBIGUOUS", "AMBIGUOUS"], [], "", 3, "not judged: 2 AMBIGUOUS"),
        (
            ["SAME", "busy WORSE"],
            [],
            "",
            3,
            "not judged: 1 worse while other processes used",
        ),
        (["WORSE", "busy WORSE"], [], "", 1, "1 value worse; not judged: 1 worse while"),
        (["busy SAME", "busy BETTER"], [], "", 0, "nothing is worse"),
        (
            ["SAME"],
            [RefusedComparison("b", "", "changed")],
            "",
            3,
            "1 of another definition",
        ),
        (
            ["SAME"],
            [
                RefusedComparison("b", "", "changed"),
                RefusedComparison("c", "value", "of A", "not finite"),
            ],
            "",
            3,
            "1 of another definition, 1 not finite",
        ),
        (
            ["SAME"],
            [],
            "points that are not compared: 1",
            3,
            "points that are not compared: 1",
        ),
    ],
)
def test_a_check_tells_worse_from_what_could_not_be_judged(
    verdicts: list[Any],
    refused: list[RefusedComparison],
    one_sided: str,
    status: int,
    said: str,
) -> None:
    quiet = a_value(1.0)
    busy = a_value(1.0, is_busy=True)
    found = [
        Compared(
            *("", "b", "", "time", "s", quiet, busy if "busy" in each else quiet),
            Difference(each.split()[-1]),
            (),
        )
        for each in verdicts
    ]
    found_status, told = check(found, refused, one_sided)
    assert found_status == status
    assert said in told


def test_an_older_version_says_nothing_of_how_far_the_declared_one_varies() -> None:
    def runs(version: str, commit: str, step: float) -> list[Record]:
        return [
            msgspec.structs.replace(
                record("m", commit, 1.0 + step * n, run=f"{commit[0]}{n}"),
                version=version,
                node={"boot": f"{n % 2}"},
            )
            for n in range(6)
        ]

    calm, wild = runs("1", NEW, 0.001), runs("0", OLD, 0.5)

    def spread(records: list[Record], asked: str = NEW) -> float:
        known = KnownRecords(
            [(Outcome.of(each), each) for each in records],
            lambda _: True,
            lambda names: names.commit == asked,
            {"toy": "1"},
        )
        found = known.records[0].readings["time"].spread
        assert found
        return found.any_card

    assert spread([*calm, *wild]) == spread(calm)
    assert spread([*calm, *wild], OLD) > 10 * spread(calm)


@pytest.mark.parametrize(
    ("direction", "low", "high", "status"),
    [
        ("lower", 0.9, 1.04, 0),
        ("lower", 0.9, 1.06, 3),
        ("higher", 0.94, 1.1, 3),
        ("higher", 0.96, 1.1, 0),
        (None, 0.5, 2.0, 0),
    ],
)
def test_an_undecided_value_that_may_be_much_worse_was_not_judged(
    direction: str | None, low: float | None, high: float | None, status: int
) -> None:
    value = a_value(1.0)
    difference = Difference("BOUND", 1.0, low, high, direction=direction)
    found = Compared("", "b", "", "time", "s", value, value, difference, ())
    told = "not judged: 1 undecided, perhaps more than 5 % worse"
    expected = told if status else "nothing is worse"
    assert check([found], [], "") == (status, f"check: {expected}")


def _write_asv_results(results: Path, samples: dict[str, dict[str, list[float]]]) -> None:
    """A plain asv project's folder.  samples: machine → benchmark → what asv recorded."""
    for machine, recorded in samples.items():
        folder = results / machine
        folder.mkdir(parents=True)
        (folder / "machine.json").write_text("{}")
        file = {
            "commit_hash": OLD,
            "env_name": "e",
            "params": {"machine": machine},
            "result_columns": ["result", "params", "version", "samples"],
            "results": {
                name: [[values[0]], [], "1", [values]] for name, values in recorded.items()
            },
            "version": 2,
        }
        (folder / f"{OLD[:8]}-e.json").write_text(json.dumps(file))
    entry = {"version": "1", "unit": "seconds", "param_names": [], "params": []}
    names = {name for recorded in samples.values() for name in recorded}
    (results / "benchmarks.json").write_text(
        json.dumps({"version": 2, **dict.fromkeys(names, entry)})
    )


def test_a_value_that_is_not_finite_is_said_and_not_judged(tmp_path: Path) -> None:
    half = 1.5e308  # the median of two of these is beyond what a float holds
    one = {"suite.time_a": [1.0, 1.0], "suite.time_b": [half, half]}
    two = {"suite.time_a": [1.0, 1.0], "suite.time_b": [1.0, 1.0]}
    _write_asv_results(tmp_path / "results", {"slow": one, "quick": two})
    told = "suite.time_b value: not compared: its value on A is not finite"
    for words in (("slow", "quick"), ("slow", "quick", "--check")):
        done = hpml(tmp_path, "compare", *words)
        assert told in " ".join(done.stdout.split()), done
    assert done.returncode == 3
    assert "1 not finite" in done.stderr


def _queries() -> dict[str, str]:
    """The queries of docs/reading-the-site.md: the text below each heading of the section on
    export."""
    text = (ROOT / "docs" / "reading-the-site.md").read_text(encoding="utf-8")
    blocks = [part.split("```")[0] for part in text.split("```python\n")[1:]]
    return {"duckdb" if "duckdb" in block else "pandas": block for block in blocks}


@pytest.mark.parametrize("library", ["duckdb", "pandas"])
def test_the_queries_of_the_docs_run_on_what_export_writes(
    tmp_path: Path,
    library: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    for needed in ("pyarrow", library):
        try:
            __import__(needed)
        except ImportError:
            unavailable(f"no {needed}: pip install 'hpml-plugins[test]'")
    # a name that pyarrow by itself takes for an address
    assert hpml(tmp_path, "export", "a:.parquet").returncode == 0
    done = hpml(tmp_path, "export", "records.parquet")
    assert done.returncode == 0, done.stderr
    # 3 Records of 2 metrics, and 1 that was skipped
    assert done.stdout == "records.parquet: 7 rows\n"
    monkeypatch.chdir(tmp_path)
    exec(_queries()[library], {})
    said = capsys.readouterr().out
    assert "toy" in said and "two" in said


def test_an_export_that_is_not_named_parquet_is_refused(tmp_path: Path) -> None:
    done = hpml(tmp_path, "export", "out.csv")
    assert (done.returncode, done.stdout) == (2, "")
    assert "out.csv: export writes Parquet; name the file out.parquet" in done.stderr
    assert not (tmp_path / "out.csv").exists()


def test_an_export_of_no_record_is_refused_and_keeps_the_file(tmp_path: Path) -> None:
    (tmp_path / "earlier.parquet").write_text("kept")
    done = hpml(tmp_path, "export", "earlier.parquet", "--results", "nowhere")
    assert (done.returncode, done.stdout) == (2, "")
    assert "no Record under nowhere" in done.stderr
    assert (tmp_path / "earlier.parquet").read_text() == "kept"
