"""What is replaced of asv: few attributes, each with a reason, and another asv says which one is
different."""

from __future__ import annotations

import importlib.metadata
import re
import subprocess
import sys
import tomllib

import pytest
from asv import runner, step_detect, util
from asv.commands import Command
from asv.results import Results
from packaging.requirements import Requirement
from support import ROOT

from hpml_plugins.asv import patches


def test_asv_is_what_was_tried_and_no_attribute_changed() -> None:
    required = next(
        requirement
        for text in tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["dependencies"]
        if (requirement := Requirement(text)).name == "asv"
    )
    assert importlib.metadata.version("asv") in required.specifier
    assert not required.specifier.contains("0.7")
    assert patches.changed() == [], "see hpml_plugins/asv/patches.py"


def test_at_most_twelve_attributes_each_with_its_reason() -> None:
    assert len(patches.REPLACED) <= 12
    assert all(len(each.why) > 10 and "\n" not in each.why for each in patches.REPLACED)


def test_no_other_module_replaces_anything_of_asv() -> None:
    assigned = re.compile(
        r"^\s*(?:asv|runner|results|util|Results|Benchmarks|graph|publish|step_detect)\.\w+(?:\.\w+)* = "  # noqa: E501
    )
    for path in (ROOT / "hpml_plugins").rglob("*.py"):
        for number, line in enumerate(path.read_text().splitlines(), 1):
            assert not assigned.match(line), f"{path}:{number}: {line}"


@pytest.mark.parametrize(
    "change",
    [
        "from asv import runner; del runner.log_benchmark_result",
        (
            "from asv import runner; runner.log_benchmark_result = lambda results, benchmark,"
            " verbosity: None"
        ),
    ],
)
def test_another_asv_is_refused_in_one_line_that_names_the_attribute(change: str) -> None:
    code = f"{change}\nfrom hpml_plugins.asv import patches\npatches.apply()"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert re.search(
        r"UserError: asv 0\.6\.6 changed asv\.runner\.log_benchmark_result; hpml-plugins works with"
        r" asv 0\.6\.6",
        done.stderr,
    )


def test_applying_twice_changes_nothing() -> None:
    patches.apply()
    before = (
        util.write_json,
        Results.save,
        runner.log_benchmark_result,
        Command.run_from_conf_args,
    )
    patches.apply()
    assert (
        util.write_json,
        Results.save,
        runner.log_benchmark_result,
        Command.run_from_conf_args,
    ) == before


@pytest.mark.parametrize(
    ("value", "unit", "error", "text"),
    [
        (750.7371575936468e12, "FLOP/s (1 multiply-add = 2 FLOP)", 6e12, "750.7 TFLOP/s ± 0.8 %"),
        (0.00123, "seconds", 0.00000492, "1.230 ms ± 0.4 %"),
        (2**30, "bytes", None, "1.074 GB"),
        (float("nan"), "seconds", None, "n/a"),
        (None, "seconds", None, "failed"),
    ],
)
def test_asv_prints_numbers_as_we_do(
    value: float | None, unit: str, error: float | None, text: str
) -> None:
    patches.apply()
    assert util.human_value(value, unit, err=error) == text


@pytest.mark.parametrize("series", [[0.25, float("inf")], [1e308] * 9, [float("-inf")], [0.0, 0.0]])
def test_a_series_with_infinities_has_a_level(series: list[float]) -> None:
    patches.apply()
    assert step_detect.detect_steps(series, [1.0] * len(series))[0][:2] == (0, len(series))
