"""Verdicts of the gate on simulated rounds: how often equal code is refused, how often a slow-down
is detected, and how often the interval contains the truth."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from random import Random
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from msgspec.structs import replace
from numpy.random import Generator
from records import a_record

from hpml_plugins.errors import UsageError
from hpml_plugins.host import Declared
from hpml_plugins.model import Gpu, Metric, Node, Record
from hpml_plugins.model.record import MetricSamples
from hpml_plugins.registry import PluginEntry, PluginSource
from hpml_plugins.run import TimeLimit
from hpml_plugins.tools.gate.budgets import Budgets
from hpml_plugins.tools.gate.command import MOST, _judge, _prepare_files
from hpml_plugins.tools.gate.pull_request import (
    GateResult,
    as_comment,
    as_lines,
    format_change,
)
from hpml_plugins.tools.gate.sides import BASE, HEAD, Commits, balanced_orders
from hpml_plugins.tools.gate.verdicts import (
    FIRST_LOOK,
    GatedValue,
    Pair,
    _Mean,
    judge,
    looks,
)

BUDGET = 0.05


def one_round(
    value: float,
    number: int,
    side: int,
    *,
    direction: str = "lower",
    point: int = 0,
    **more: float,
) -> Record:
    """A round of a point: one time, measured on CPUs that others use too."""
    unit = "s" if direction == "lower" else "B/s"
    info: dict[str, str | float] = {"timer": "perf_counter"}
    metrics = {"time": MetricSamples(unit, direction, [value], info)}  # type: ignore[arg-type]
    metrics |= {name: MetricSamples("B", "lower", [each]) for name, each in more.items()}
    return a_record(
        "step",
        metrics,
        params={"point": point},
        started=100.0 * side + number,
        commit=f"{side}" * 40,
        run="r",
        node={"boot": "b"},
        source={"sha256": "same", "package": f"{side}"},
        conditions={"other_cpus": 2.0, "cores": 2.0},
    )


def pair(base: float, head: float, number: int = 0, **more: Any) -> Pair:
    """A round of each side."""
    return one_round(base, number, 0, **more), one_round(head, number, 1, **more)


def judged(pairs: Sequence[Pair], budget: float = BUDGET, most: int = MOST) -> GatedValue:
    (values,) = judge([pairs], lambda _: {"time": budget}, len(looks(most)))
    return values[0]


def loaded(random: Generator, count: int) -> np.ndarray[Any, Any]:
    """By how much other processes slow two rounds of each pair down: bursts that begin and end."""
    busy = np.cumsum(random.integers(-1, 2, 2 * count)) % 5 < 2
    factors = np.where(busy, random.uniform(1.2, 2.0, 2 * count), 1.0)
    found: np.ndarray[Any, Any] = random.permuted(factors.reshape(count, 2), axis=1)
    return found


def gated(
    random: Generator, slower: float, *, sigma: float, load: bool = False
) -> GatedValue:
    """As the loop does it: a look after 4, 8, … pairs, until it is decided."""
    pairs: list[Pair] = []
    factors = loaded(random, MOST) if load else np.ones((MOST, 2))
    for base, head in factors * np.exp(random.normal(0, sigma, (MOST, 2))):
        pairs.append(pair(base, head * (1 + slower), len(pairs)))
        if len(pairs) in looks(MOST) and judged(pairs).outcome != "undecided":
            break
    return judged(pairs)


def rate(outcomes: Sequence[bool]) -> float:
    return sum(outcomes) / len(outcomes)


@pytest.mark.parametrize("load", [False, True])
@pytest.mark.parametrize("slower", [0.0, 0.2])
def test_intervals_contain_the_truth_under_load_and_with_early_ends(
    load: bool, slower: float
) -> None:
    random = np.random.default_rng(1)
    found = [gated(random, slower, sigma=0.03, load=load) for _ in range(60)]
    bounds = [each.interval or (0.0, 0.0) for each in found]
    assert rate([low <= 1 + slower <= high for low, high in bounds]) >= 0.95
    if slower == 0:
        assert rate([each.outcome == "refused" for each in found]) <= 0.02


def test_a_slow_down_of_twice_the_budget_is_refused_and_equal_code_is_not() -> None:
    random = np.random.default_rng(1)
    twice = [gated(random, 2 * BUDGET, sigma=0.02) for _ in range(50)]
    assert rate([each.outcome == "refused" for each in twice]) >= 0.9
    equal = [gated(random, 0.0, sigma=0.02) for _ in range(50)]
    assert rate([each.outcome == "within" for each in equal]) >= 0.9


def test_code_is_not_slower_where_the_second_round_of_a_pair_always_is() -> None:
    noise = np.random.default_rng(1)
    for seed in range(40):
        orders = balanced_orders(Random(seed))
        pairs: list[Pair] = []
        for number in range(FIRST_LOOK):
            first, second = next(orders)
            first_time, second_time = [1.0, 1.1] * np.exp(noise.normal(0, 0.01, 2))
            times = {first: first_time, second: second_time}
            pairs.append(pair(times[BASE], times[HEAD], number))
        found = judged(pairs, most=FIRST_LOOK)
        low, high = found.interval or (0.0, 0.0)
        assert found.outcome == "undecided" and low <= 1 <= high, seed


def test_looks_are_at_twice_as_many_pairs_each_time() -> None:
    assert [looks(most) for most in (3, 4, 6, 32)] == [[3], [4], [4, 6], [4, 8, 16, 32]]


@pytest.mark.parametrize("direction", ["lower", "higher"])
def test_worse_is_worse_in_either_direction(direction: str) -> None:
    random = np.random.default_rng(2)
    noise = np.exp(random.normal(0, 0.01, (6, 2)))
    factor = 1.3 if direction == "lower" else 1 / 1.3
    pairs = [pair(base, head * factor, direction=direction) for base, head in noise]
    found = judged(pairs)
    assert found.outcome == "refused" and found.slower == pytest.approx(1.3, rel=0.03)
    assert found.interval and found.interval[0] < 1.3 < found.interval[1]
    better = judged([(head, base) for base, head in pairs])
    assert (better.outcome, better.is_better) == ("within", True)
    noise = np.exp(np.random.default_rng(1).normal(0, 0.1, (3, 2)))
    assert judged([pair(*each) for each in noise]).outcome == "undecided"


def test_one_byte_more_is_judged_exactly() -> None:
    pairs = [
        (one_round(1.0, number, 0, size=1000.0), one_round(1.0, number, 1, size=1100.0))
        for number in range(3)
    ]
    ((size,),) = judge([pairs], lambda _: {"size": 0.05}, 4)
    assert (size.outcome, size.slower) == ("refused", pytest.approx(1.1))
    ((size,),) = judge([pairs], lambda _: {"size": 0.2}, 4)
    assert size.outcome == "within"


def test_a_changed_unit_is_no_ratio() -> None:
    base, head = pair(1.0, 1.0)
    metric = replace(head.metrics["time"], unit="J")
    found = judged([(base, replace(head, metrics={"time": metric}))] * 4)
    assert (found.outcome, found.reason) == ("undecided", "its unit or direction changed")


def test_each_file_of_a_gate_is_its_own(tmp_path: Path) -> None:
    page, picture = tmp_path / "new" / "a.md", tmp_path / "a.svg"
    assert _prepare_files(page, picture, None) == [page, picture, None]
    assert page.parent.is_dir()
    with pytest.raises(UsageError, match="need files of their own"):
        _prepare_files(page, page, None)


def test_budgets_are_of_all_of_a_benchmark_or_of_a_metric() -> None:
    budgets = Budgets(["7", "step=2%", "step.size=0.5"])
    record = one_round(1.0, 1, 0, size=3.0)
    assert budgets.of(record) == pytest.approx({"time": 0.02, "size": 0.005})
    metrics = [Metric("time", "s", "lower"), Metric("size", "B", "lower")]
    step = Declared(PluginSource("p", path="p.py"), "step", "1", {}, 1.0, metrics)
    budgets.refuse_unknown([step])
    with pytest.raises(
        UsageError, match=r"no benchmark or metric 'step.sise'; did you mean 'step.size'\?"
    ):
        Budgets(["step.sise=3"]).refuse_unknown([step])
    for twice, name in ((["5", "6"], "all"), (["step=1", "2", "step=3"], "step")):
        with pytest.raises(UsageError, match=f"given twice for {name}"):
            Budgets(twice)
    for wrong in ("", "x", "-3", "0", "nan", "a=b", "inf"):
        with pytest.raises(UsageError, match="is not PERCENT or NAME=PERCENT"):
            Budgets([wrong])


def test_the_registry_names_budgets_and_the_command_line_overrides_one_of_the_same_name() -> (
    None
):
    entries = [
        PluginEntry("p", path="p.py", gate={"step": {"size": 1.0}}),
        PluginEntry("q", path="q.py", gate={"other": 8.0}),
    ]
    record = one_round(1.0, 1, 0, size=3.0)
    assert Budgets([], entries).of(record) == pytest.approx({"time": 0.05, "size": 0.01})
    assert Budgets(["7", "step=2"], entries).of(record) == pytest.approx(
        {"time": 0.02, "size": 0.01}
    )
    assert Budgets(["step.size=3"], entries).of(record) == pytest.approx(
        {"time": 0.05, "size": 0.03}
    )
    other = replace(record, benchmark="other")
    assert Budgets(["7"], entries).of(other) == pytest.approx({"time": 0.08, "size": 0.08})
    Budgets([], entries).refuse_unknown([])  # the host has held it against its plugin


def result_of(values: Sequence[GatedValue] = ()) -> GateResult:
    card = Gpu(name="NVIDIA H200", memory=141e9)
    node = Node(
        os="L",
        arch="x",
        cpu="C",
        num_cpu=1,
        ram=1.0,
        python="3",
        gpus=(card, card),
        driver="580",
    )
    commits = Commits("a" * 40, "b" * 40, uncommitted=False)
    return GateResult(commits, node, "h200-x2", list(values), again="hpml gate main")


def test_the_comment_shows_what_changed_and_text_of_the_code_as_text() -> None:
    noise = np.exp(np.random.default_rng(2).normal(0, 0.01, (3, 6, 2)))
    noise[0, :, 1] *= 1.3
    points = [
        [pair(*each, point=number) for each in pairs]
        for number, pairs in enumerate(noise.tolist())
    ]
    found = judge(points, lambda _: {"time": BUDGET}, 2)
    values = [each for of_point in found for each in of_point]
    result = result_of(values)
    result.broken, result.left_out, result.rounds = (
        ["step <img src=x>: @team [x](y)"],
        {"needs 4 GPUs": 2},
        (6, 6),
    )
    result.page = "https://example.invalid/site"
    text = as_comment(result)
    assert text.startswith(
        "### Benchmarks refused: 1 slower beyond the budget, 1 broken, 2 within the budget,"
        " 2 points not compared\n"
    )
    assert "`bbbbbbbb` against `aaaaaaaa`" in text and "2 × NVIDIA H200, driver 580" in text
    assert text.count("\n| step | point=") == 1 and "| point=0 |" in text
    assert "Broken: step &lt;img src=x&gt;: @&#8203;team \\[x\\](y)" in text
    assert "Not compared: needs 4 GPUs (2 points)." in text
    assert (
        "- Repeat it: `hpml gate main`\n- History: https://example.invalid/site\n" in text
    )
    assert "6 rounds of each point and side" in text
    assert as_lines(result)[0] == result.headline


@pytest.mark.parametrize("direction", ["lower", "higher"])
def test_a_ratio_is_head_over_base_for_either_direction(direction: str) -> None:
    slower = _Mean(math.log(1.25), math.log(1.25), 0.0)
    base, head = (1.0, 1.25) if direction == "lower" else (1.25, 1.0)
    value = GatedValue("step", "", "m", "s", base, head, 0.05, slower)
    said = {
        "lower": "1.25× (+25 %), 1.00 to 1.56×",
        "higher": "0.80× (−20 %), 0.64 to 1.00×",
    }
    assert format_change(value) == said[direction]


def test_an_interval_of_any_width_can_be_written() -> None:
    wide = _Mean(math.log(1.25), 1e4, 1.0)
    value = GatedValue("step", "", "rate", "B/s", 1.25, 1.0, 0.05, wide)
    assert format_change(value) == "0.80× (−20 %), <0.0001 to >1000000×"


@pytest.mark.parametrize("values", [(1e-9, 3.0), (3.0, 1e-9)])
def test_a_value_near_0_is_written_and_no_ratio(values: tuple[float, float]) -> None:
    base, head = values
    said = {1e-9: "1.000 ns", 3.0: "3.000 s"}
    found = judged([pair(base, head, number) for number in range(4)])
    assert format_change(found) == f"from {said[base]} to {said[head]}"


def test_an_outcome_with_unjudged_values_is_not_passed() -> None:
    nothing = result_of()
    assert (nothing.refused, nothing.not_judged) == (False, True)
    assert nothing.headline == "not judged: nothing was compared"
    equal = judged([pair(1.0, 1.0)] * 4)
    passed = result_of([equal])
    passed.left_out = {"needs 4 GPUs": 2}
    assert not passed.not_judged
    assert passed.headline == "passed: 1 within the budget, 2 points not compared"
    unclear = judged([pair(1.0, factor) for factor in (0.8, 1.0, 1.3, 1.1)])
    undecided = result_of([equal, unclear])
    assert undecided.not_judged and undecided.headline.startswith(
        "not judged: 1 of 2 values undecided, 1 within"
    )
    timeless = result_of([equal])
    timeless.not_judged_points = {"the limit of 5 min left no time": 3}
    assert timeless.not_judged and "3 points not judged" in timeless.headline
    assert "Not judged: the limit of 5 min left no time (3 points)." in as_lines(timeless)


def test_fewer_pairs_than_the_first_look_needs_are_not_judged() -> None:
    """Under load the limit may end after three pairs, of which each can be slow on one side."""
    declared = Declared(PluginSource("p", path="p.py"), "step", "1", {}, 1.0, [])
    task = SimpleNamespace(declared=declared, params={"point": 0})

    def result(count: int, most: int) -> GateResult:
        loop: Any = SimpleNamespace(
            sides=SimpleNamespace(removed={}, prepared=SimpleNamespace(tasks=[task])),
            pairs=[[pair(1.0, 0.0055, number) for number in range(count)]],
            limit=TimeLimit(300),
            most=most,
        )
        return _judge(loop, Budgets([]), result_of())

    for count in range(4):
        few = result(count, MOST)
        assert (few.values, few.refused, few.not_judged) == ([], False, True)
        assert few.headline == "not judged: 1 point not judged"
        (said,) = few.not_judged_points
        assert said == "the limit of 5 min left no time for 4 pairs of rounds"
    assert result(4, MOST).headline == "passed: 1 within the budget"
    assert result(3, 3).headline == "passed: 1 within the budget"  # --rounds 3 asks for it


def test_a_count_that_rises_from_zero_is_refused_whatever_the_budget() -> None:
    pairs = [pair(1.0, 1.0, size=5.0 * number) for number in (0, 1)]
    none, five = (found[0] for found in pairs)

    def outcome(base: Record, head: Record) -> GatedValue:
        ((found,),) = judge([[(base, head)] * 3], lambda _: {"size": 0.5}, 1)
        return found

    risen = outcome(none, five)
    assert (risen.outcome, risen.slower, format_change(risen)) == ("refused", None, "+5 B")
    assert outcome(five, none).outcome == outcome(none, none).outcome == "within"
