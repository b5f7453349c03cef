"""Which queue measures what, and how much GPUs disturb one another."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest
from asv.benchmarks import Benchmarks

from hpml_plugins.asv.sharding import keep_part, share_out
from hpml_plugins.errors import HpmlError
from hpml_plugins.model.node import Gpu
from hpml_plugins.model.record import MetricSamples, Record
from hpml_plugins.tools.cluster.side_by_side import (
    Queue,
    SideBySide,
    compare,
    gpu_names,
    gpus_side_by_side,
    share_queues,
)


def test_the_heaviest_goes_first_to_the_lightest_part() -> None:
    # 7 → 0; 6 → 1; 5 → 1 (6 < 7) = 11; 4 → 0 (7 < 11) = 11; 3 → 0 (a tie: the first) = 14; 2 → 1 = 13
    weights = {"two": 2.0, "three": 3.0, "four": 4.0, "five": 5.0, "six": 6.0, "seven": 7.0}
    assert share_out(weights, 2) == [["seven", "four", "three"], ["six", "five", "two"]]
    assert share_out(dict(reversed(weights.items())), 2) == share_out(weights, 2)
    assert share_out({"b": 1, "a": 1}, 3) == [["a"], ["b"], []]


def test_commits_are_shared_out_whole_where_there_are_enough_and_benchmarks_otherwise() -> None:
    assert share_queues(["c1", "c2", "c3"], ["GPU-a", "GPU-b"]) == [
        Queue(0, "GPU-a", ("c1", "c3")),
        Queue(1, "GPU-b", ("c2",)),
    ]
    assert share_queues(["c1"], ["GPU-a", "GPU-b"]) == [
        Queue(0, "GPU-a", ("c1",), 0, 2),
        Queue(1, "GPU-b", ("c1",), 1, 2),
    ]


class _Found(dict):  # type: ignore[type-arg]
    """asv's Benchmarks as far as a part looks at them."""

    def __init__(self, selection: dict[str, list[int] | None]) -> None:
        super().__init__(dict.fromkeys(selection))
        self.benchmark_selection = selection


def _kept(selection: dict[str, list[int] | None], index: int, count: int) -> set[str]:
    found = _Found(selection)
    keep_part(found, index, count)  # type: ignore[arg-type]
    return set(found)


def test_all_metrics_of_a_benchmark_are_in_one_part_and_the_parts_are_everything() -> None:
    # a has 3 points in its first metric, b 2, c one: a → part 0, b and c → part 1
    selection = {"a.track_x": [0, 1, 2], "a.track_y": [0], "b.track_x": [0, 1], "c.track_x": None}
    assert issubclass(Benchmarks, dict)
    assert _kept(selection, 0, 2) == {"a.track_x", "a.track_y"}
    assert _kept(selection, 1, 2) == {"b.track_x", "c.track_x"}
    assert _kept(selection, 0, 1) == set(selection)


def test_a_part_of_nothing_ends_well_and_a_selection_of_nothing_is_left_to_asv() -> None:
    with pytest.raises(SystemExit) as ended:
        _kept({"a.track_x": None}, 1, 2)
    assert ended.value.code == 0
    assert _kept({}, 1, 2) == set()


def test_gpus_are_named_by_what_stays_the_same_and_must_be_of_one_type(monkeypatch: pytest.MonkeyPatch) -> None:
    first, second, other = Gpu("H200", 1, "GPU-a"), Gpu("H200", 1), Gpu("L4", 1, "GPU-c")
    assert gpu_names([second, first], [first, second]) == ["1", "GPU-a"]
    with pytest.raises(HpmlError, match=r"2 types \(H200, L4\)"):
        gpu_names([first, other], [first, other])
    assert gpus_side_by_side({"CUDA_VISIBLE_DEVICES": "", "HPML_QUEUES": "0,1"}) == ["0", "1"]
    with pytest.raises(HpmlError, match="no GPU"):
        gpus_side_by_side({"CUDA_VISIBLE_DEVICES": ""})


def _record(seconds: list[float], started: float = 0.0, duration: float = 1.0) -> Record:
    time = MetricSamples("s", "lower", seconds)
    return Record(
        benchmark="b", plugin="p", version="1", params={"n": 1}, status="ok", metrics={"time": time},
        started=started, duration=duration,
    )  # fmt: skip


def test_interference_is_each_gpus_time_beside_the_others_over_its_own_alone() -> None:
    alone = [[_record([1.0, 2.0, 9.0])], [_record([4.0])]]
    together = [[_record([3.0], 10.0, 4.0)], [_record([4.0], 11.0, 5.0)]]
    (ratio,) = compare(alone, together)
    assert ratio.ratios == [1.5, 1.0]  # 3 / median 2, 4 / 4
    assert ratio.overlap == 0.6  # 11 to 14 of the 5 s that the longer takes
    assert ratio.line() == (
        "interference: b n=1 time (lower is better): together / alone 1.2500, of 2 GPUs 1.0000 to 1.5000; "
        "60% of the time at once"
    )
    (apart,) = compare(alone, [[_record([1.0], 0.0, 1.0)], [_record([1.0], 2.0, 1.0)]])
    assert apart.overlap == 0.0


def test_a_queue_that_died_is_named_with_its_part_and_its_reason(tmp_path: Path) -> None:
    job = SideBySide(str(tmp_path), str(tmp_path), "h200-x1")
    queues = share_queues(["c1"], ["GPU-a", "GPU-b"])
    (tmp_path / "queue-1.log").write_text("[ 10.00%] x\nhpml: no such profile\n")
    assert job._outcome(queues, [0, 2]) == (2, "")
    assert job._outcome(queues, [0, 1]) == (
        1,
        "queue-1 (GPU GPU-b, part 2 of 2 of the benchmarks of 1 commit) ended with status 1: no such profile; "
        "what it measured and the other 1 queues' results are kept",
    )
    assert "was ended by SIGKILL" in job._outcome(queues, [-signal.SIGKILL, 0])[1]
    assert job._outcome(queues, [-signal.SIGTERM] * 2) == (-signal.SIGTERM, "")
