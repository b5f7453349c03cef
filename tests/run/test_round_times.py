"""How long a run still takes is told from earlier runs, of other machines too, and right on real
runs."""

from __future__ import annotations

from collections import Counter, defaultdict
from pathlib import Path

import pytest

from hpml_plugins.run import PastRound, Round, RoundTimes, read_past_rounds

RESULTS = Path(__file__).parents[2] / "results"


def past(
    name: str,
    *seconds: float,
    machine: str = "here",
    status: str = "ok",
    gpus: int = 0,
    run: str = "r",
) -> list[PastRound]:
    found = [
        PastRound(name, "1", {}, status, float(number), each, machine, "", run)
        for number, each in enumerate(seconds)
    ]
    for each in found:
        each.node.gpus = [{}] * gpus
    return found


def this(name: str, number: int = 0) -> Round:
    return Round(past(name, 1.0)[0].point, name, number)


def test_first_and_later_rounds_are_told_apart_and_the_last_run_counts() -> None:
    times = RoundTimes([*past("a", 9, 2), *past("a", 8, 3, 4, run="s")], "here")
    assert times.expect(this("a")) == 8
    assert times.expect(this("a", 1)) == 4


def test_another_machine_of_the_same_kind_tells_before_one_of_another_kind() -> None:
    records = [*past("a", 9, machine="with", gpus=1), *past("a", 5, machine="without")]
    assert RoundTimes(records, "here", has_gpu=True).expect(this("a")) == 9
    assert RoundTimes(records, "here", has_gpu=False).expect(this("a")) == 5
    assert RoundTimes(records[:1], "here", has_gpu=False).expect(this("a")) == 9


def test_what_another_machine_skipped_tells_nothing_and_what_this_one_skipped_does() -> (
    None
):
    skipped = past("a", 0.1, status="skipped", machine="elsewhere")
    assert RoundTimes(skipped, "here").expect(this("a")) > 1
    assert RoundTimes(past("a", 0.1, status="skipped"), "here").expect(this("a")) == 0.1


def test_an_unknown_point_is_like_its_benchmarks_others_and_its_own_first_round() -> None:
    known = past("a", 4, 2)
    other = Round("another point of a", "a", 0)
    times = RoundTimes(known, "here")
    assert times.expect(other) == 4
    times = RoundTimes([], "here")
    times.learn(other, 30.0, 30.0)
    assert 10 < times._expected(Round(other.point, "a", 1)) < 30


def test_a_run_that_is_slower_than_the_last_one_corrects_what_is_left() -> None:
    names = "abcdefghij"
    times = RoundTimes([each for name in names for each in past(name, 10, 10)], "here")
    before = times.expect(this("j"))
    for name in names[:6]:
        times.learn(this(name), 20.0, 20.5)
    assert before == 10
    assert 17 < times.expect(this("j")) < 21  # half a second between two rounds is in it
    assert times.expect(this("j", 1)) < 11  # later rounds were not seen yet


def real_runs() -> dict[str, list[PastRound]]:
    """Runs of results/: of the profile core on a fresh H100, and whole runs of CPUs that nothing
    interrupted."""
    found: dict[str, list[PastRound]] = defaultdict(list)
    for each in read_past_rounds(RESULTS):
        found[each.run].append(each)
    return found


@pytest.mark.parametrize(
    "run",
    [
        "b348f4",  # one H100, fresh: core
        "c5f44a",  # the same, a choice of 602 points, ended after 100 rounds
    ],
)
def test_after_a_tenth_the_time_left_is_right_within_a_fifth(run: str) -> None:
    everything = read_past_rounds(RESULTS)
    rounds = [each for each in everything if each.run.startswith(run)]
    before = [each for each in everything if each.started < rounds[0].started]
    times = RoundTimes(before, rounds[0].machine, has_gpu=True)
    counts: Counter[str] = Counter()
    planned = []
    for each in rounds:
        planned.append(Round(each.point, each.benchmark, counts[each.point]))
        counts[each.point] += 1
    # what this node lacks something for is known before, and takes no time
    measured = [n for n, each in enumerate(rounds) if each.status != "skipped"]
    started = rounds[0].started
    whole = rounds[-1].started + rounds[-1].duration - started
    last = started
    checked = 0
    for place, n in enumerate(measured):
        each = rounds[n]
        gone = (each.started - started) / whole
        if 0.1 <= gone <= 0.6:
            left = times.expect_all(planned[m] for m in measured[place:])
            assert left == pytest.approx(started + whole - each.started, rel=0.2), (
                f"after {gone:.0%}"
            )
            checked += 1
        ended = each.started + each.duration
        times.learn(planned[n], each.duration, ended - last)
        last = ended
    assert checked > 5
