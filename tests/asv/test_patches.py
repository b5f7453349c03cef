"""What is replaced of asv: few attributes, each with a reason, and another asv says which one is
different."""

from __future__ import annotations

import importlib.metadata
import inspect
import json
import math
import re
import subprocess
import sys
import tomllib
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import asv
import pytest
from asv import results, runner, step_detect, util
from asv.benchmarks import Benchmarks
from asv.commands import Command
from asv.results import Results
from packaging.requirements import Requirement
from support import ROOT

from hpml_plugins.asv import patches


def test_asv_is_what_was_tried_and_no_attribute_changed() -> None:
    required = next(
        requirement
        for text in tomllib.loads((ROOT / "pyproject.toml").read_text())["project"][
            "dependencies"
        ]
        if (requirement := Requirement(text)).name == "asv"
    )
    assert importlib.metadata.version("asv") in required.specifier
    assert not required.specifier.contains("0.7")
    assert patches.changed() == [], "see hpml_plugins/asv/patches.py"


def test_at_most_six_attributes_each_with_its_reason() -> None:
    assert len(patches.REPLACED) <= 6
    assert all(len(each.why) > 10 and "\n" not in each.why for each in patches.REPLACED)
    upstream = re.compile(r"https://github\.com/airspeed-velocity/asv/(issues|pull)/\d+")
    assert all(upstream.fullmatch(each.upstream) for each in patches.REPLACED)


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
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False
    )
    assert re.search(
        r"UserError: asv 0\.6\.6 changed asv\.runner\.log_benchmark_result; hpml-plugins works with"
        r" asv 0\.6\.6",
        done.stderr,
    )


def test_applying_twice_changes_nothing() -> None:
    patches.apply()
    before = (
        util.write_json,
        runner.get_spawner,
        runner.log_benchmark_result,
        Command.run_from_conf_args,
    )
    patches.apply()
    assert (
        util.write_json,
        runner.get_spawner,
        runner.log_benchmark_result,
        Command.run_from_conf_args,
    ) == before


def write_results(
    folder: Path, result: list[float | None], name: str = "plain.track_x"
) -> Path:
    """A file of asv's results of one benchmark with one parameter."""
    params = {"machine": "m"}
    (folder / "m").mkdir()
    (folder / "m/machine.json").write_text(json.dumps({**params, "version": 1}))
    content = {
        "commit_hash": "0" * 40,
        "env_name": "env",
        "date": 1,
        "params": params,
        "python": "3",
        "requirements": {},
        "env_vars": {},
        "result_columns": ["result", "params", "version"],
        "results": {name: [result, [list(map(str, range(len(result))))], "1"]},
        "durations": {},
        "version": 2,
    }
    path = folder / "m" / f"{'0' * 8}-env.json"
    path.write_text(json.dumps(content))
    return path


@pytest.mark.parametrize("series", [[0.25, math.inf], [1e308] * 9, [-math.inf], [0.0, 0.0]])
def test_results_with_infinities_have_levels(series: list[float], tmp_path: Path) -> None:
    patches.apply()
    stored = Results.load(str(write_results(tmp_path, series)))
    params = stored.get_result_params("plain.track_x")
    values = stored.get_result_value("plain.track_x", params)
    for _, _, level, _, _ in step_detect.detect_steps(values, [1.0] * len(values)):
        assert math.isfinite(level)


# Each attribute is needed: asv as it is, without the replacement.


def original(owner: Any, name: str) -> Any:
    """The attribute as asv has it, whether or not it is replaced in this process."""
    return inspect.unwrap(getattr(owner, name))


def test_asv_calls_nothing_of_a_plugin_around_a_command() -> None:
    callers = [
        path.name
        for path in Path(asv.__file__).parent.rglob("*.py")
        if "run_hook" in read(path)
    ]
    assert callers == ["plugin_manager.py"], "a hook: use it instead of run_from_conf_args"


def read(path: Path) -> str:
    return path.read_text(encoding="utf-8")


def test_asv_starts_a_process_for_each_metric() -> None:
    entries = [
        {"name": f"a.track_{metric}", "params": [], "benchmark": "a"} for metric in "xy"
    ]
    found = Benchmarks(SimpleNamespace(benchmark_dir="."), entries, None)
    assert len(found) == 2, "asv measures two numbers at once: discover need not narrow"
    named = inspect.signature(original(Benchmarks, "discover")).parameters
    assert "regex" in named and not {"selection", "filter"} & named.keys()


def test_asv_has_two_launch_methods_and_takes_no_other() -> None:
    with pytest.raises(ValueError, match="Invalid launch_method"):
        original(runner, "get_spawner")(None, ".", "batch")


def test_asv_prints_the_whole_grid_and_cannot_be_told_not_to() -> None:
    benchmark = {"name": "a.track_x", "params": [["1", "2", "3"]], "param_names": ["n"]}
    benchmark |= {"unit": "unit", "version": "1", "type": "track"}
    stored = Results.unnamed()
    measured = runner.BenchmarkResult(
        [1.0, math.nan, math.nan], [None] * 3, [None] * 3, 0, "", None
    )
    stored.add_result(benchmark, measured)
    _, details = results.format_benchmark_result(stored, benchmark)
    assert details.count("n/a") == 2, "asv leaves out what was not measured"


def test_asv_writes_in_place_and_forgets_what_others_declared(tmp_path: Path) -> None:
    write = original(util, "write_json")
    declared = tmp_path / "benchmarks.json"
    write(str(declared), {"of.one_node": 1}, 2)
    write(str(declared), {"of.another": 1}, 2)
    assert "of.one_node" not in read(declared), "asv unites declarations"
    with pytest.raises(TypeError):
        write(str(declared), {"a": 1, "b": object()}, 2)
    assert "of.another" not in read(declared), "asv writes atomically"


def test_asv_expects_no_json_of_another_shape(tmp_path: Path) -> None:
    (tmp_path / "3.json").write_text("3")
    with pytest.raises(TypeError):
        original(util, "load_json")(str(tmp_path / "3.json"), 2)
