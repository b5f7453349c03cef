"""The tables of benchmarks/pages/measuring.md from made Records, whose spread is known."""

from __future__ import annotations

import itertools
import random
import statistics
from pathlib import Path
from typing import Any

import measurement_tables as tables
import pytest
from msgspec.structs import replace
from records import a_record

from hpml_plugins.model.record import MetricSamples, Record, Series
from hpml_plugins.model.rounds import retract
from hpml_plugins.store import append_record

CARDS = "AB"
MOMENTS = itertools.count()
RUNS = 4


def record(
    benchmark: str,
    params: dict[str, Any],
    metrics: dict[str, MetricSamples],
    card: str,
    run: str,
) -> Record:
    return a_record(
        benchmark,
        metrics,
        params=params,
        machine="h200-x1",
        run=run,
        commit="c" * 40,
        started=float(next(MOMENTS)),
        source={"sha256": "code"},
        node={"cpu": "a CPU", "gpus": [{"name": "NVIDIA H200", "uuid": card}]},
    )


def timed(value: float, boost: float | None = None) -> MetricSamples:
    """A time in three rounds, of two regimes where `boost` is given."""
    info: dict[str, str | float] = {"timer": "cuda events"} | (
        {"regime": "sustained"} if boost else {}
    )
    boosted = [boost] * 3 if boost else []
    ones = [1, 1, 1]
    return MetricSamples(
        "s",
        "lower",
        [value] * 3,
        info,
        boosted,
        rounds=ones,
        boost_rounds=ones if boost else [],
    )


def slowed(
    deviation: float, *, boost_deviation: float = 0.0, kernel: str = "registers"
) -> list[Record]:
    """RUNS runs on each card of a kernel with slow-downs of 0 and 5 %; the runs vary by so much."""
    draw = random.Random(1)
    made = []
    for card, run, percent in itertools.product(CARDS, range(RUNS), (0, 5)):
        level = 3e-5 * (1 + percent / 100)
        boost = 0.9 * level * draw.gauss(1, boost_deviation) if boost_deviation else None
        metrics = {"time": timed(level * draw.gauss(1, deviation), boost)}
        made.append(
            record(
                "harness_slowdown",
                {"kernel": kernel, "slowdown": percent},
                metrics,
                card,
                f"{card}{run}",
            )
        )
    return made


def cells(table: str) -> list[list[str]]:
    """The rows of a Markdown table below its header."""
    return [
        [cell.strip() for cell in line.strip("|").split("|")]
        for line in table.splitlines()
        if "|" in line
    ][2:]


def first_percent(text: str) -> int:
    return int(text.partition("%")[0])


def test_a_slow_down_far_above_the_spread_is_always_found_and_none_is_invented() -> None:
    records = slowed(0.001)
    rows = {(row[2], row[3]): row for row in cells(tables.power(records, records))}
    pairs = {"same": len(CARDS) * RUNS * (RUNS - 1), "other": len(CARDS) * RUNS * RUNS}
    for card, count in pairs.items():
        kernel, regime, *_, worse, among, better, number = rows["5 %", card]
        assert (kernel, regime, number) == ("registers", "not throttled", str(count))
        assert (
            worse.startswith("100%")
            and among.startswith("100%")
            and better.startswith("0%")
        )
        assert rows["0 %", card][5].startswith("0%")
    assert float(rows["5 %", "same"][4].rstrip("%")) == pytest.approx(5, abs=0.2)


def test_the_spread_of_the_runs_hides_a_slow_down_and_asking_for_more_hides_it_earlier() -> (
    None
):
    def found(deviation: float) -> tuple[int, int]:
        records = slowed(deviation)
        row = next(
            row
            for row in cells(tables.power(records, records))
            if row[2:4] == ["5 %", "same"]
        )
        return first_percent(row[5]), first_percent(row[6])

    assert found(0.05) == (pytest.approx(0, abs=10), 0)
    alone, among = found(0.012)
    assert among < alone


def test_boost_is_judged_by_its_own_spread() -> None:
    records = slowed(0.05, boost_deviation=0.001, kernel="products")
    rows = {
        row[1]: row
        for row in cells(tables.power(records, records))
        if row[2:4] == ["5 %", "same"]
    }
    assert set(rows) == {"boost", "sustained"}
    assert first_percent(rows["boost"][5]) == 100
    assert first_percent(rows["sustained"][5]) < 20


def test_runs_are_compared_not_points_of_one_run() -> None:
    made = [each for each in slowed(0.001) if each.run == "A0"]
    assert list(tables.slowed_pairs(made)) == []


def test_fidelity_tells_short_kernels_in_microseconds_and_throttled_ones_in_two_regimes() -> (
    None
):
    def fidelity(case: str, hot: MetricSamples, ncu: float) -> Record:
        others = dict.fromkeys(("cold", "ncu_cold", "dirty", "do_bench"), timed(ncu))
        return record(
            "harness_fidelity",
            {"case": case},
            {"hot": hot, "ncu_hot": timed(ncu), **others},
            "A",
            "r",
        )

    made = [
        fidelity("vecadd_1m", timed(4.5e-6), 4.4e-6),
        fidelity("matmul_4096", timed(204e-6, 178e-6), 176e-6),
    ]
    rows = {row[0]: row[2:5] for row in cells(tables.fidelity([], made))}
    assert rows == {
        "vecadd_1m": ["4.50", "4.40", "+0.10 µs"],
        "matmul_4096, boost": ["178.00", "176.00", "+1.14%"],
        "matmul_4096, sustained": ["204.00", "176.00", "+15.91%"],
    }


def test_the_spread_between_cards_has_its_interval() -> None:
    def spread(card: str, time: float, variation: float) -> Record:
        values = {
            "time": time,
            "boost": time,
            "time_variation": variation,
            "boost_variation": variation,
        }
        metrics = {
            name: MetricSamples("1", "lower", [value]) for name, value in values.items()
        }
        made = record("harness_spread", {"case": "vecadd_100m"}, metrics, card, card)
        return replace(made, series={"runs": Series({"time": [1.0] * 10})})

    [row] = cells(
        tables.spread([], [spread("A", 1.00e-4, 0.003), spread("B", 1.02e-4, 0.004)])
    )
    assert row[:3] == ["vecadd_100m", "not throttled", "100 to 102"]
    assert row[3] == tables.deviation((0.5 * (0.003**2 + 0.004**2)) ** 0.5, 18)
    assert row[5].startswith("1.40%")  # log 1.02 / √2
    assert row[6] == "2"
    # s √(ν / χ²): for ν = 9, χ² is 2.70 at 2.5 % and 19.02 at 97.5 %
    assert tables.deviation(0.01, 9) == "1.00% (0.69% to 1.83%)"


def test_a_table_is_printed_of_the_chosen_commits(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for each in slowed(0.001):
        append_record(tmp_path / "h200-x1" / "records" / f"{each.commit[:8]}.jsonl", each)
    tables.main(["power", "--results", str(tmp_path), "--commit", "cccc"])
    of_slowdowns = capsys.readouterr().out
    tables.main(["power", "--results", str(tmp_path), "--commit", "dddd"])
    assert len(cells(of_slowdowns)) == 4
    assert cells(capsys.readouterr().out) == []
    tables.main(["repeats", "--results", str(tmp_path)])
    printed = capsys.readouterr().out
    pairs = (
        len(CARDS) * RUNS * (len(CARDS) * RUNS - 1)
    )  # of each of two points, every two runs
    assert [int(row[1]) for row in cells(printed)] == [pairs, pairs]
    assert "SAME" in printed
    assert statistics.fmean(float(row[2].rstrip("%")) for row in cells(printed)) < 10


def test_energy_tells_which_cards_agree_and_how_far_the_counter_is_from_the_power() -> None:
    def energy(card: str, run: str, joules: float, counted: float) -> Record:
        info: dict[str, str | float] = {"idle_power": 100.0, "power": 650.0}
        metrics = {
            "energy": MetricSamples("J", "lower", [joules] * 3, info, rounds=[1, 1, 1]),
            "counted": MetricSamples("W", None, [counted]),
            "integrated": MetricSamples("W", None, [606.0]),
        }
        made = record(
            "harness_energy", {"case": "vecadd_100m", "load": 1.0}, metrics, card, run
        )
        return replace(made, version="2")

    runs = [
        energy("A", "1", 0.200, 600.0),
        energy("A", "2", 0.201, 600.0),
        energy("B", "3", 0.202, 606.0),
    ]
    agreement, validation = (
        cells(table) for table in tables.energy(runs, runs).split("\n\n")
    )
    assert [(row[1], row[2].split(" ±")[0], row[3], row[4]) for row in agreement] == [
        ("1", "201.0 mJ", "100 of 650", "1 of 1"),
        ("2", "202.0 mJ", "100 of 650", "1 of 1"),
    ]
    assert [(row[2], row[5]) for row in validation] == [("1", "+1.00%"), ("2", "+0.00%")]


def test_what_predicts_a_host_bound_time_is_told_over_hosts() -> None:
    records = []
    for boot, slower in (("a", 1.0), ("b", 1.5), ("c", 2.0)):
        facts = {
            "node": {"gpus": [{"name": "NVIDIA H200"}], "boot": boot},
            "plugin": "machine",
        }
        core = record(
            "machine_core",
            {},
            {"python": timed(1e7 / slower), "page_fault": timed(1e-6)},
            "A",
            boot,
        )
        launch = record("machine_launch", {}, {"eager": timed(8e-6 * slower)}, "A", boot)
        records += [replace(each, **facts) for each in (core, launch)]
    rows = {row[1]: row for row in cells(tables.hosts(records, records))}
    assert rows["machine_core.python"][0] == "machine_launch.eager"
    hosts, rounds, *numbers = rows["machine_core.python"][2:]
    assert (hosts, rounds) == ("3", "–") and list(map(float, numbers)) == [1, 2, 2]
    assert rows["machine_core.page_fault"][4] == "–"  # the same everywhere
    assert not cells(tables.hosts(records, [replace(each, node={}) for each in records]))


def test_how_far_the_rate_of_the_core_explains_a_time_is_told_over_rounds() -> None:
    """One time is inversely proportional to the rate, one does not depend on it, one has too few
    rounds."""
    draw = random.Random(2)
    rounds = []
    for number in range(40):
        rate = draw.choice([36e6, 71e6])
        of_rate = {"launch": 500 / rate, "memory": 1e-3 * draw.gauss(1, 0.02), "few": 1.0}
        metrics = {
            name: MetricSamples(
                "s", "lower", [value], {"timer": "perf_counter", "core_rate": rate}
            )
            for name, value in of_rate.items()
            if name != "few" or number < 3
        }
        rounds.append(record("b", {"n": 1}, metrics, "A", str(number)))
    lasted = MetricSamples(
        "s", "lower", [1.0], {"timer": "perf_counter", "core_rate": 71e6}
    )
    wrong = [
        replace(rounds[0], run="wrong", started=number, metrics={"launch": lasted})
        for number in (100.0, 101.0)
    ]
    launch, memory = cells(tables.core([], [*rounds, *wrong, retract(wrong[0], "wrong")]))
    assert launch == [
        "a CPU",
        "`b.launch` n=1",
        "40",
        "-1.00",
        "-1.00",
        "1.97",
        "1.97",
        "1.00",
    ]
    assert memory[1] == "`b.memory` n=1" and abs(float(memory[4])) < 0.05
    assert float(memory[6]) == pytest.approx(float(memory[7]), abs=0.02)
