"""Verdicts of the gate on simulated rounds: how often equal code is refused, and how often a
slow-down is found."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import pytest
from msgspec.structs import replace
from numpy.random import Generator

from hpml_plugins.errors import UsageError
from hpml_plugins.host import Declared
from hpml_plugins.model import Gpu, Metric, Node, Record
from hpml_plugins.model.record import MetricSamples
from hpml_plugins.registry import PluginEntry, PluginSource
from hpml_plugins.tools.gate.command import Budgets
from hpml_plugins.tools.gate.pull_request import GateResult, as_comment, as_lines
from hpml_plugins.tools.gate.sides import Commits
from hpml_plugins.tools.gate.verdicts import Gate, GatedValue, judge

BUDGET = 0.05


def one_round(
    value: float, number: int, side: int, *, direction: str = "lower", point: int = 0, **more: float
) -> Record:
    """A round of a point: one time, measured on CPUs that others use too."""
    unit = "s" if direction == "lower" else "B/s"
    info: dict[str, str | float] = {"timer": "perf_counter"}
    metrics = {"time": MetricSamples(unit, direction, [value], info)}  # type: ignore[arg-type]
    metrics |= {name: MetricSamples("B", "lower", [each]) for name, each in more.items()}
    return Record(
        benchmark="step",
        plugin="p",
        version="1",
        params={"point": point},
        status="ok",
        metrics=metrics,
        started=100.0 * side + number,
        machine="m",
        commit=f"{side}" * 40,
        run="r",
        node={"boot": "b"},
        source={"sha256": "same", "package": f"{side}"},
        conditions={"other_cpus": 2.0, "cores": 2.0},
    )


Sides = tuple[list[Record], list[Record]]


def draw(
    random: Generator,
    slower: float,
    sigma: float,
    counts: Sequence[int],
    before: Sequence[Sides] = (),
    **more: str,
) -> list[Sides]:
    """Rounds of each point, continued from `before` up to `counts`. The first point is slower at
    head."""
    found = []
    for point, count in enumerate(counts):
        sides: Sides = (list(before[point][0]), list(before[point][1])) if before else ([], [])
        for side, rounds in enumerate(sides):
            level = (1 + slower * (side and point == 0)) ** (
                -1 if more.get("direction") == "higher" else 1
            )
            for number in range(len(rounds), count):
                value = level * math.exp(random.normal(0, sigma))
                rounds.append(one_round(value, 1000 * point + number, side, point=point, **more))  # type: ignore[arg-type]
        found.append(sides)
    return found


def verdicts(points: Sequence[Sides]) -> list[GatedValue]:
    return judge(
        [(f"point={number}", sides) for number, sides in enumerate(points)],
        [{"time": BUDGET}] * len(points),
    )


def simulate(
    random: Generator, slower: float, *, sigma: float, count: int, points: int = 1, **more: str
) -> list[GatedValue]:
    """The verdicts on points of which the first is slower at head."""
    return verdicts(draw(random, slower, sigma, [count] * points, **more))


def gated(random: Generator, slower: float, *, sigma: float, points: int) -> list[GatedValue]:
    """As the command does it: a pilot of three rounds, then as many as the power asks for."""
    pilot = draw(random, slower, sigma, [3] * points)
    gate = Gate([each for sides in pilot for side in sides for each in side])
    counts = [max(3, gate.rounds_needed(base[0], {"time": BUDGET}, points)) for base, _ in pilot]
    return verdicts(draw(random, slower, sigma, counts, pilot))


def rate(outcomes: Sequence[bool]) -> float:
    return sum(outcomes) / len(outcomes)


def test_equal_code_is_hardly_ever_refused_and_twice_the_budget_nearly_always() -> None:
    random, sigma, points = np.random.default_rng(1), 0.02, 4
    equal = [gated(random, 0.0, sigma=sigma, points=points) for _ in range(30)]
    assert rate([any(each.outcome == "refused" for each in found) for found in equal]) <= 0.02
    at_budget = [gated(random, BUDGET, sigma=sigma, points=points)[0] for _ in range(60)]
    assert rate([each.difference.verdict == "WORSE" for each in at_budget]) >= 0.8  # planned: 0.9
    twice = [gated(random, 2 * BUDGET, sigma=sigma, points=points)[0] for _ in range(20)]
    assert rate([each.outcome == "refused" for each in twice]) >= 0.95


@pytest.mark.parametrize("direction", ["lower", "higher"])
def test_worse_is_worse_in_either_direction(direction: str) -> None:
    random = np.random.default_rng(2)
    (found,) = simulate(random, 0.3, sigma=0.01, count=6, direction=direction)
    assert found.outcome == "refused" and found.slower == pytest.approx(1.3, rel=0.03)
    assert found.interval and found.interval[0] < 1.3 < found.interval[1]
    (better,) = simulate(random, -0.3, sigma=0.01, count=6, direction=direction)
    assert (better.outcome, better.difference.verdict) == ("within", "BETTER")
    (unclear,) = simulate(np.random.default_rng(1), 0.0, sigma=0.1, count=3, direction=direction)
    assert unclear.outcome == "undecided" and unclear.finds > BUDGET


def test_what_is_counted_needs_one_round_and_one_byte_more_is_judged_exactly() -> None:
    base, head = (
        [
            one_round(1.0 + number / 1e4, number, side, size=1000.0 + 100 * side)
            for number in range(3)
        ]
        for side in (0, 1)
    )
    gate = Gate([*base, *head])
    assert gate.rounds_needed(base[0], {"size": 0.05}, 1) == 1
    (size,) = judge([("", (base, head))], [{"size": 0.05}])
    assert (size.outcome, size.slower, size.finds) == ("refused", 1.1, 0.0)
    (size,) = judge([("", (base, head))], [{"size": 0.2}])
    assert size.outcome == "within"


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
    for wrong in ("", "x", "-3", "0", "nan", "a=b", "inf"):
        with pytest.raises(UsageError, match="is not PERCENT or NAME=PERCENT"):
            Budgets([wrong])


def test_the_registry_names_budgets_and_the_command_line_overrides_one_of_the_same_name() -> None:
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


def test_the_comment_shows_what_changed_and_text_of_the_code_as_text() -> None:
    values = simulate(np.random.default_rng(2), 0.3, sigma=0.01, count=6, points=3)
    card = Gpu(name="NVIDIA H200", memory=141e9)
    node = Node(
        os="L", arch="x", cpu="C", num_cpu=1, ram=1.0, python="3", gpus=(card, card), driver="580"
    )
    result = GateResult(
        Commits("a" * 40, "b" * 40, uncommitted=False),
        node,
        "h200-x2",
        values,
        again="hpml gate main",
    )
    result.broken, result.left_out, result.rounds, result.most = (
        ["step <img src=x>: @team [x](y)"],
        {"needs 4 GPUs": 2},
        (6, 6),
        6,
    )
    result.page = "https://example.invalid/site"
    text = as_comment(result)
    assert text.startswith(
        "### Benchmarks refused: 1 slower beyond the budget, 1 broken, 2 within the budget\n"
    )
    assert "`bbbbbbbb` against `aaaaaaaa`" in text and "2 × NVIDIA H200, driver 580" in text
    assert text.count("\n| step | point=") == 1 and "| point=0 |" in text
    assert "Broken: step &lt;img src=x&gt;: @&#8203;team \\[x\\](y)" in text
    assert "Not compared: needs 4 GPUs (2 points)." in text
    assert "- Repeat it: `hpml gate main`\n- History: https://example.invalid/site\n" in text
    assert "6 rounds of each point and side" in text and "is found in 90 of 100 cases" in text
    assert as_lines(result)[0] == result.headline


def test_no_value_passes_and_says_so() -> None:
    node = Node(os="L", arch="x", cpu="C", num_cpu=1, ram=1.0, python="3")
    result = GateResult(Commits("a" * 40, "b" * 40, uncommitted=True), node, "m")
    assert (result.refused, result.headline) == (False, "passed: nothing was compared")


def test_a_count_that_rises_from_zero_is_refused_whatever_the_budget() -> None:
    base, head = (
        [one_round(1.0 + number / 1e4, number, side, size=5.0 * side) for number in range(3)]
        for side in (0, 1)
    )
    (risen,) = judge([("", (base, head))], [{"size": 0.5}])
    assert (risen.outcome, risen.slower, risen.difference.wording("B")) == ("refused", None, "+5 B")
    (fallen,) = judge([("", (head, base))], [{"size": 0.5}])
    assert fallen.outcome == "within"
    (equal,) = judge([("", (base, base))], [{"size": 0.5}])
    assert equal.outcome == "within"
