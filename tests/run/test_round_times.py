"""How long a run still takes is told from earlier runs, of other machines too, and right on real
runs."""

from __future__ import annotations

import itertools
import statistics
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import msgspec
import pytest

from hpml_plugins.run import PastRound, Round, RoundTimes, TimeLeft, read_past_rounds
from hpml_plugins.store import decode_file, record_files

RESULTS = Path(__file__).parents[2] / "results"
#: The rounds of a run of the quick profile without what the node lacks something for.
LOG = Path(__file__).with_name("quick_profile.jsonl")


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


def test_first_and_later_rounds_are_told_apart_and_the_last_five_of_each_count() -> None:
    times = RoundTimes([*past("a", 9, 2), *past("a", 8, 3, 4, run="s")], "here")
    assert times.expect(this("a")) == 8.5
    assert times.expect(this("a", 1)) == 3
    runs = [each for last in (90, 5, 6, 7, 8, 9) for each in past("a", last, run=str(last))]
    assert RoundTimes(runs, "here").expect(this("a")) == 7


def test_what_was_skipped_or_failed_tells_nothing_where_the_point_was_measured() -> None:
    """As at an older commit, which does not have it."""
    records = [*past("a", 9, 5), *past("a", 0.1, status="skipped", run="s")]
    times = RoundTimes(records, "here")
    assert times.expect(this("a")) == 9
    assert times.expect(this("a", 1)) == 5


def test_later_rounds_of_this_run_tell_more_than_those_of_earlier_ones() -> None:
    times = RoundTimes(past("a", 9, 5), "here")
    before = times.left({this("a", 2): 1})
    times.learn(this("a"), 9.0, 9.0)
    times.learn(this("a", 1), 7.0, 7.0)
    after = times.left({this("a", 2): 1})
    assert times.expect(this("a", 2)) == 7
    assert after.high / after.low < before.high / before.low


def test_another_machine_of_the_same_kind_tells_before_one_of_another_kind() -> None:
    records = [*past("a", 9, machine="with", gpus=1), *past("a", 5, machine="without")]
    assert RoundTimes(records, "here", has_gpu=True).expect(this("a")) == 9
    assert RoundTimes(records, "here", has_gpu=False).expect(this("a")) == 5
    assert RoundTimes(records[:1], "here", has_gpu=False).expect(this("a")) == 9


def test_what_measure_skipped_on_a_machine_of_the_same_kind_tells_before_another_kind() -> (
    None
):
    slow = past("a", 9, machine="with", gpus=1)
    skipped = past("a", 0.1, status="skipped", machine="elsewhere")
    times = RoundTimes([*slow, *skipped], "here")
    assert times.expect(this("a")) == 0.1
    assert times.expect(this("a", 1)) == 0  # a skipped point has one round
    # where one measured it, or on a node of another kind, it does not tell
    measured = [*slow, *skipped, *past("a", 5, machine="elsewhere too")]
    assert RoundTimes(measured, "here").expect(this("a")) == 5
    assert RoundTimes([*slow, *skipped], "here", has_gpu=True).expect(this("a")) == 9


def test_a_requirement_that_another_machine_lacks_tells_nothing() -> None:
    skipped = past("a", 0, status="skipped", machine="elsewhere")
    assert RoundTimes(skipped, "here").expect(this("a")) > 1
    assert RoundTimes(past("a", 0.1, status="skipped"), "here").expect(this("a")) == 0.1


@pytest.mark.parametrize("status", ["skipped", "failed"])
def test_a_point_without_a_number_has_no_later_round(status: str) -> None:
    assert RoundTimes(past("a", 7, status=status), "here").expect(this("a", 1)) == 0


def test_a_later_round_is_shorter_by_what_a_long_first_one_compiled() -> None:
    times = RoundTimes([], "here")
    for name, seconds in (("short", 2.0), ("long", 11.0)):
        times.learn(this(name), seconds, seconds)
    assert times._expected(this("short", 1)).seconds == pytest.approx(1.9)
    assert times._expected(this("long", 1)).seconds == pytest.approx(6.05)


def test_an_unknown_point_is_like_its_benchmarks_others_and_its_own_first_round() -> None:
    known = past("a", 4, 2)
    other = Round("another point of a", "a", 0)
    times = RoundTimes(known, "here")
    # 4 s is their median; their mean is more, for a few take far longer
    assert 5 < times.expect(other) < 6
    times = RoundTimes([], "here")
    times.learn(other, 30.0, 30.0)
    assert 10 < times._expected(Round(other.point, "a", 1)).seconds < 30


@pytest.mark.parametrize("has_gpu", [False, True])
def test_what_is_not_known_well_is_told_as_a_range(has_gpu: bool) -> None:
    known = []
    for name, run in itertools.product("abcdefghij", "rst"):
        known += past(name, 10, run=run, gpus=int(has_gpu))
    times = RoundTimes(known, "here", has_gpu=has_gpu)
    names = "abcdefghij"
    left = times.left({this(name): 1 for name in names})
    assert left.is_one_number and left.seconds == pytest.approx(100, rel=0.02)
    left = times.left({this(name): 1 for name in names.upper()})
    assert not left.is_one_number and left.low < left.seconds < left.high
    assert times.left({}) == (0, 0, 0)


def test_each_further_commit_is_built_as_long_as_earlier_ones() -> None:
    records = [*past("a", 10), *past("a", 10, run="s")]
    for each, commit, started in zip(records, "ab", (0.0, 40.0), strict=True):
        each.run, each.commit, each.started = "r", commit, started
    times = RoundTimes(records, "here")
    assert times.build == 30
    with_builds, without = (
        times.left({this("a"): 10}, commits).seconds for commits in (2, 0)
    )
    assert with_builds - without == pytest.approx(60, abs=2)
    times.learn_build(50.0)
    assert times.build == 40


def test_a_run_that_is_slower_than_the_last_one_corrects_what_is_left() -> None:
    names = "abcdefghij"
    times = RoundTimes([each for name in names for each in past(name, 10, 10)], "here")
    before = times.expect(this("j"))
    for name in names[:6]:
        times.learn(this(name), 20.0, 20.5)
    assert before == 10
    assert 17 < times.expect(this("j")) < 21  # half a second between two rounds is in it
    # later rounds were not seen yet, and a fresh machine is slow at first ones alone
    assert 12 < times.expect(this("j", 1)) < 16


class _Logged(PastRound):
    """A stored round. rounds: that were planned of its point."""

    rounds: int = 1


def read_log(paths: Iterable[Path]) -> list[_Logged]:
    """Stored rounds, in the order of time."""
    decode = msgspec.json.Decoder(_Logged).decode
    found = [each for path in paths for _, each in decode_file(path, decode)]
    return sorted(
        (each for each in found if each.status != "retracted"),
        key=lambda each: each.started,
    )


@pytest.fixture(scope="module")
def stored() -> list[_Logged]:
    return read_log(record_files(RESULTS))


def plan_of(rounds: Sequence[_Logged]) -> Counter[Round]:
    """What a run planned: what this node lacks something for is known before, and is not in it. A
    commit from before there were rounds says that it planned one."""
    measured = Counter((each.commit, each.point) for each in rounds)
    return Counter(
        Round(each.point, each.benchmark, number)
        for place, each in {(each.commit, each.point): each for each in rounds}.items()
        for number in range(max(each.rounds, measured[place]))
    )


class _Told(NamedTuple):
    """What was told at the beginning of a round. share: of the run, that was gone.  ratio: the time
    left, to the true one."""

    share: float
    ratio: float
    left: TimeLeft
    true: float

    @property
    def is_right(self) -> bool:
        """One number within a fifth, or a range that the truth is in."""
        if self.left.is_one_number:
            return 0.8 < self.ratio < 1.2
        return self.left.low <= self.true <= self.left.high


def told_while(
    rounds: Sequence[_Logged], before: Sequence[PastRound], machine: str
) -> list[_Told]:
    """What the bar told in a run."""
    times = RoundTimes(before, machine, has_gpu=bool(rounds[0].node.gpus))
    planned = plan_of(rounds)
    counts: Counter[tuple[str, str]] = Counter()
    started = last = rounds[0].started
    ended = rounds[-1].started + rounds[-1].duration
    commit = rounds[0].commit
    commits = sum(a.commit != b.commit for a, b in itertools.pairwise(rounds))
    found = []
    for each in rounds:
        if each.commit != commit:
            times.learn_build(each.started - last)
            last, commit, commits = each.started, each.commit, commits - 1
        left, true = times.left(planned, commits), ended - each.started
        share = (each.started - started) / (ended - started)
        found.append(_Told(share, left.seconds / true, left, true))
        place = each.commit, each.point
        this_round = Round(each.point, each.benchmark, counts[place])
        counts[place] += 1
        if each.status != "skipped":
            times.learn(this_round, each.duration, each.started + each.duration - last)
        last = each.started + each.duration
        planned[this_round] -= 1
        if each.status != "ok":  # no further round of it is needed
            for number in range(this_round.number + 1, each.rounds):
                planned[Round(each.point, each.benchmark, number)] -= 1
        planned = +planned
    return found


def whole_runs(stored: Sequence[_Logged]) -> Iterator[list[_Logged]]:
    """The runs of a minute and 20 rounds or more of which no round is missing."""
    runs = defaultdict(list)
    for each in stored:
        if each.run and (each.status != "skipped" or each.duration):
            runs[each.run, each.machine].append(each)
    for rounds in runs.values():
        planned = plan_of([each for each in rounds if each.status == "ok"])
        measured = Counter(each.point for each in rounds if each.status == "ok")
        took = rounds[-1].started + rounds[-1].duration - rounds[0].started
        if len(rounds) >= 20 and took >= 60 and planned.total() == measured.total():
            yield rounds


@pytest.mark.parametrize(
    "before", ["earlier runs", pytest.param("all other runs", marks=pytest.mark.slow)]
)
def test_in_nine_runs_of_ten_a_number_or_range_is_right_after_a_tenth(
    before: str, stored: list[_Logged]
) -> None:
    """Of all whole runs of results/, none of which is predicted from itself. A number is told only
    where it is right as often, and most of what is told is no wide range."""
    found = []
    for rounds in whole_runs(stored):
        known = [
            each
            for each in stored
            if each.run != rounds[0].run
            and (before == "all other runs" or each.started < rounds[0].started)
        ]
        told = told_while(rounds, known, rounds[0].machine)
        found.append(next(each for each in told if each.share >= 0.1))
    numbers = [each for each in found if each.left.is_one_number]
    widths = [
        1.0 if each.left.is_one_number else each.left.high / each.left.low for each in found
    ]
    assert len(found) >= 84
    assert sum(each.is_right for each in found) >= 0.9 * len(found)
    assert sum(each.is_right for each in numbers) >= 0.95 * len(numbers)
    assert len(numbers) >= 0.3 * len(found)
    assert statistics.median(widths) < 1.8


#: A choice of the whole runs of results/, of the profile core on a fresh H100, and on CPUs, in
#: which the middle of what is told is right, be it a range or not.
WHOLE = ["b348f4", "3a7486", "d9cca4", "23efce", "c3ab31"]
WHOLE += ["add2fb", "f6032e", "532dd6", "41de86", "0a547e", "24605f"]
#: A choice of 602 points on the same H100, ended after 100 rounds: planned is what was measured.
ENDED = "c5f44a"


@pytest.mark.parametrize("machine", ["", "new here"])
@pytest.mark.parametrize("run", [*WHOLE, ENDED])
def test_after_a_tenth_the_time_left_is_right_within_a_fifth(
    run: str, machine: str, stored: list[_Logged]
) -> None:
    """On the machine as it is known, and on one of which nothing is stored."""
    rounds = [each for each in stored if each.run.startswith(run)]
    rounds = [each for each in rounds if each.status != "skipped" or each.duration]
    before = [each for each in stored if each.started < rounds[0].started]
    if run == ENDED:
        measured = Counter(each.point for each in rounds)
        for each in rounds:
            each.rounds = measured[each.point]
    found = told_while(rounds, before, machine or rounds[0].machine)
    checked = [each.ratio for each in found if 0.1 <= each.share <= 0.6]
    assert len(checked) > 5
    assert min(checked) > 0.8 and max(checked) < 1.2


def test_what_make_bench_says_first_is_what_it_takes_on_an_idle_machine(
    stored: list[_Logged],
) -> None:
    """The log is of the quick profile at commit 7bed04a0, whose 56 points an idle machine of the
    same kind measured in 4 min 11 s. It was told 5 min 55 s before: 16 rounds were in it of points
    that only GPUs or several nodes measure, as long as GPUs take for them."""
    rounds = read_log([LOG])
    planned = plan_of(rounds)
    assert (len({each.point for each in planned}), planned.total()) == (56, 128)
    before = [each for each in stored if each.started < rounds[0].started]
    for machine in (rounds[0].machine, "new here"):
        told = RoundTimes(before, machine).left(planned)
        assert told.seconds == pytest.approx(251, rel=0.2)


def test_a_retraction_is_no_round(tmp_path: Path) -> None:
    records = tmp_path / "m" / "records" / "uncommitted.jsonl"
    records.parent.mkdir(parents=True)
    lines = past("a", 5.0, machine="m") + past("a", 0, machine="m", status="retracted")
    records.write_bytes(b"".join(msgspec.json.encode(each) + b"\n" for each in lines))
    found = read_past_rounds(tmp_path)
    assert [each.duration for each in found] == [5.0]
