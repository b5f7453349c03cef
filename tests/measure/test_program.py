"""External programs: their numbers are found, sampled by the plan, warned of; what they do wrong is
named."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from hpml_plugins import Bench, HpmlError, Node, ProgramOutput
from hpml_plugins.measure import SamplingPlan

#: Prints one line each time, and counts its runs in a file beside it.
PROGRAM = """
import os, pathlib, sys
file = pathlib.Path(__file__).with_name("runs")
run = len(file.read_text()) if file.exists() else 0
file.write_text("x" * (run + 1))
rates = eval(sys.argv[1])
print(f"loss 0.5\\nrate {rates[run % len(rates)]} GB/s", file=sys.stderr if run % 2 else sys.stdout)
"""
RATE = {
    "rate": ProgramOutput("B/s", r"^rate ([\d.]+) GB/s$", scale=1e9),
    "loss": ProgramOutput("1", r"loss (\S+)"),
}
PLAN = SamplingPlan(budget=0.3, warm_up=0.1, fewest=4, most=8)


@pytest.fixture
def program(tmp_path: Path) -> Path:
    path = tmp_path / "program.py"
    path.write_text(PROGRAM)
    return path


def run(
    node: Node,
    *command: str,
    outputs: dict[str, ProgramOutput] = RATE,
    plan: SamplingPlan = PLAN,
):  # type: ignore[no-untyped-def]
    bench = Bench(node, {}, plan=plan)
    return bench, bench.run_program([sys.executable, *command], outputs)


def test_a_steady_program_converges_and_every_number_has_its_unit(
    node: Node, program: Path
) -> None:
    bench, found = run(node, str(program), "[2.5]")
    assert set(found["rate"].values) == {2.5e9}
    assert found["rate"].unit == "B/s"
    assert found["loss"].values == (0.5,) * len(found["rate"])
    assert found["rate"].info["stopped"] == "converged"
    assert found["rate"].info["timer"] == f"printed by {Path(sys.executable).name}"
    assert bench.collected.warnings == bench.collected.noise == []
    # warmed up before: the program ran more often than there are samples
    assert len(program.with_name("runs").read_text()) > len(found["rate"]) >= 4


def test_a_program_that_varies_is_warned_of_as_a_step_is(node: Node, program: Path) -> None:
    bench, found = run(node, str(program), "[1.0, 3.0, 2.0]")
    assert len(found["rate"]) >= 4
    assert found["rate"].info["stopped"] in ("budget", "most samples")
    noise = bench.collected.noise
    assert [text for text in noise if text.startswith("rate: noisy: ± ")]
    assert [text for text in noise if text.startswith("rate: unstable: CV ")]
    assert not [text for text in noise if text.startswith("loss")]
    assert bench.collected.warnings == []


def test_under_hpml_check_every_number_is_altered(node: Node, program: Path) -> None:
    bench = Bench(node, {}, plan=PLAN)
    bench.corrupt = lambda values: [value + 1 for value in values]
    assert set(
        bench.run_program([sys.executable, str(program), "[2.5]"], RATE)["rate"].values
    ) == {2.5e9 + 1}


def test_a_number_is_found_in_json() -> None:
    printed = json.dumps({"jobs": [{"read": {"99.0": "12", "mean": 3}}], "name": "x"})
    assert (
        ProgramOutput("s", json=("jobs", 0, "read", "mean"), scale=1e-3).read(printed)
        == 0.003
    )
    assert ProgramOutput("s", json=("jobs", 0, "read", "99.0")).read(printed) == 12
    with pytest.raises(
        HpmlError, match=r"keys \('jobs', 1\) lead to no number in its output: '\{"
    ):
        ProgramOutput("s", json=("jobs", 1)).read(printed)
    with pytest.raises(HpmlError, match=r"keys \('name',\) lead to no number"):
        ProgramOutput("s", json=("name",)).read(printed)
    with pytest.raises(
        HpmlError, match=r"keys \('name',\) lead to no number in its output: 'rate 3'"
    ):
        ProgramOutput("s", json=("name",)).read("rate 3")


@pytest.mark.parametrize(
    ("code", "message"),
    [
        ("print('rate fast')", r"pattern .* finds no number in its output: 'rate fast'"),
        (
            "import sys; sys.exit('no such device')",
            r"-c .* ended with status 1: no such device",
        ),
        (
            "import os; os.kill(os.getpid(), 9)",
            r"died of SIGKILL \(killed, .*\): it printed nothing",
        ),
    ],
)
def test_what_a_program_does_wrong_is_named(node: Node, code: str, message: str) -> None:
    with pytest.raises(HpmlError, match=message) as caught:
        run(node, "-c", code)
    assert "\n" not in str(caught.value)


def test_a_program_that_is_not_there_is_named(node: Node) -> None:
    with pytest.raises(
        HpmlError,
        match=r"cannot run '/no/such': No such file or directory; name it in Requires",
    ):
        Bench(node, {}).run_program(["/no/such"], RATE)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (
            {"unit": "GB/s", "pattern": "(.)"},
            "unit 'GB/s' is not known; use one of 1, s, B",
        ),
        ({"unit": "s"}, "either a pattern or the keys"),
        ({"unit": "s", "pattern": "(.)", "json": ("a",)}, "either a pattern or the keys"),
        (
            {"unit": "s", "pattern": "time"},
            "'time' has 0 groups; put one around the number",
        ),
        (
            {"unit": "s", "pattern": "(time"},
            r"'\(time' is not a regular expression: missing \)",
        ),
    ],
)
def test_an_output_that_cannot_be_read_is_refused_when_it_is_declared(
    given: dict[str, str], message: str
) -> None:
    with pytest.raises(HpmlError, match=message):
        ProgramOutput(**given)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("printed", "message"),
    [
        ("t=nan", "it printed nan, not a finite number"),
        ("t=inf", "it printed inf, not a finite number"),
        ("t=-inf", "it printed -inf, not a finite number"),
        ("t=1e999", "it printed 1e999, not a finite number"),
        ("t=-1", "it printed -1, but s cannot be negative"),
    ],
)
def test_a_printed_number_that_cannot_be_meant_is_refused_as_what_it_is(
    printed: str, message: str
) -> None:
    with pytest.raises(HpmlError, match=message):
        ProgramOutput("s", pattern=r"t=(\S+)").read(printed)


@pytest.mark.parametrize(
    "document", ['{"t": true}', '{"t": false}', '{"t": null}', '{"t": [1]}']
)
def test_what_json_has_in_place_of_a_number_is_refused(document: str) -> None:
    with pytest.raises(HpmlError, match="lead to no number in its output"):
        ProgramOutput("s", json=["t"]).read(document)
    with pytest.raises(HpmlError, match="it printed nan, not a finite number"):
        ProgramOutput("s", json=["t"]).read('{"t": NaN}')
