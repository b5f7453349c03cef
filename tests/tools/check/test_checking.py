"""`hpml check` reports the mistake of each of these plugins with its fix, and passes a plugin
without mistakes."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil
import pytest
from support import TOY

from hpml_plugins import Metric
from hpml_plugins.host import Declared
from hpml_plugins.registry import PluginSource
from hpml_plugins.testing import Finding, check_plugin
from hpml_plugins.tools.check.check import check, find_plugin
from hpml_plugins.tools.check.fault_injection import corrupted
from hpml_plugins.tools.check.judging import Loaded, judge_definition, sample_points
from hpml_plugins.tools.check.worker import with_dependencies

Write = Callable[[str, str], Path]

#: Each benchmark is wrong in one way, which its name says.
WRONG = '''
"""Prints when it is loaded, and names nothing twice the same."""

import os
import random
from hpml_plugins import Benchmark, Metric, ProgramOutput, Requires, hookimpl

print("hello")
os.environ["LOUD"] = "1"
METRICS = [Metric("value", "1", "higher")]

def never_checks(bench):
    return {"value": 4}

def checks_a_constant(bench):
    bench.check(True, "always right")
    return {"value": 4}

def passes_what_is_corrupted(bench):
    value = bench.result(4.0)
    bench.check(value != 0, "is nothing")
    return {"value": value}

def notices_nan_only(bench):
    value = bench.result(4.0)
    bench.check(value == value, "is not a number")
    return {"value": value}

def notices(bench):
    bench.check(bench.result([2.0, 2.0]) == [2.0, 2.0], "differs")
    return {"value": 4}

def imports_more(bench):
    import yaml
    bench.check(bench.result(yaml.safe_load("4")) == 4, "differs")
    return {"value": 4}

def starts_a_program(bench):
    import subprocess
    said = subprocess.run(["echo", "4"], capture_output=True, text=True).stdout
    bench.check(bench.result(said) == "4\\\\n", "differs")
    return {"value": 4}

def wraps_a_program(bench):
    value = bench.run_program(["seq", "4", "4"], {"value": ProgramOutput("1", "^(.)$")})["value"]
    bench.check(set(value.values) == {4}, "differs")
    return {"value": value}
def runs_what_it_made(bench):
    import pathlib, subprocess, tempfile
    with tempfile.TemporaryDirectory() as folder:
        program = pathlib.Path(folder, "made")
        program.write_text("#!/bin/sh\\necho 4\\n")
        program.chmod(0o755)
        said = subprocess.run([str(program)], capture_output=True, text=True).stdout
    bench.check(bench.result(said) == "4\\n", "differs")
    return {"value": 4}

def returns_the_wrong(bench):
    return {"time": 4}

def wants_a_program(bench):
    return {"value": 4}

@hookimpl
def hpml_benchmarks():
    functions = [never_checks, checks_a_constant, passes_what_is_corrupted, notices_nan_only, notices, imports_more,
                 starts_a_program, wraps_a_program, runs_what_it_made, returns_the_wrong]
    return [Benchmark(f.__name__, f, METRICS, description="wrong") for f in functions] + [
        Benchmark("wants_a_program", wants_a_program, METRICS, requires=Requires(tools=("no-such-program",))),
        Benchmark("versioned", never_checks, METRICS, version=str(random.random()), description="no two alike")]

@hookimpl
def hpml_figures():
    return 1 / 0

@hookimpl
def hpml_data():
    return [7]
'''  # noqa: E501


@pytest.fixture(scope="module")
def findings(tmp_path_factory: pytest.TempPathFactory) -> list[Finding]:
    path = tmp_path_factory.mktemp("wrong") / "wrong.py"
    path.write_text(WRONG.lstrip("\n"))
    return list(check(find_plugin(str(path), path.parent / "registry.yaml"), limit=60))


#: subject, state, what is said, what the fix says
FOUND = [
    ("import", "broken", "prints 'hello' when loaded", "do that in measure"),
    ("import", "broken", "changes environment variables when loaded", "do that in measure"),
    (
        "determinism",
        "broken",
        "two processes got different version of versioned",
        "no sets, dates or random",
    ),
    ("hooks", "broken", "ZeroDivisionError: division by zero", ""),
    ("hooks", "broken", "hpml_data", ""),
    (
        "check",
        "broken",
        "wrong.py:15: bench.check of a constant checks nothing",
        "compare the result",
    ),
    (
        "never_checks",
        "broken",
        "1 point measured without any bench.check",
        "bench.check(result agrees",
    ),
    (
        "passes_what_is_corrupted",
        "broken",
        "its check passes for a corrupted result",
        "compare with a reference",
    ),
    ("notices_nan_only", "warning", "notices NaN but not a result 10 % off", "tighten"),
    ("notices", "ok", "its check fails for a corrupted result", ""),
    (
        "imports_more",
        "broken",
        "imports yaml, which it does not require",
        "Requires(modules=('yaml',))",
    ),
    (
        "starts_a_program",
        "warning",
        "starts echo, which it does not require",
        "Requires(tools=('echo',))",
    ),
    ("wraps_a_program", "ok", "its check fails for a corrupted result", ""),
    (
        "wraps_a_program",
        "warning",
        "starts seq, which it does not require",
        "Requires(tools=('seq',))",
    ),
    (
        "returns_the_wrong",
        "broken",
        "measure returned time, which is not a metric",
        "wrong.py` shows what",
    ),
    ("runs_what_it_made", "ok", "all that it imports and starts is required", ""),
    (
        "wants_a_program",
        "not judged",
        "1 point skipped here: needs program no-such-program",
        "",
    ),
    ("wants_a_program", "warning", "has no description", "description='one sentence'"),
    (
        "checks_a_constant",
        "warning",
        "whether its check notices a wrong result could not be tried",
        "bench.result",
    ),
]


@pytest.mark.parametrize(
    ("subject", "state", "what", "fix"), FOUND, ids=[f"{row[0]}-{row[1]}" for row in FOUND]
)
def test_mistakes_are_reported_with_their_fix(
    findings: list[Finding], subject: str, state: str, what: str, fix: str
) -> None:
    told = [each for each in findings if each.subject == subject]
    assert [
        each
        for each in told
        if each.state == state and what in each.what and fix in each.fix
    ], told


def test_a_heavy_import_is_reported(write: Write) -> None:
    path = write("heavy.py", "import numpy\n" + TOY)
    found = list(check(find_plugin(str(path)), limit=5))
    assert [each.what for each in found if each.state == "broken"] == [
        "imports numpy when loaded"
    ]


def test_a_plugin_that_ends_its_process_is_one_finding(write: Write) -> None:
    (found,) = check(find_plugin(str(write("ends.py", "import os\nos._exit(3)\n"))))
    assert (found.state, found.what) == (
        "broken",
        "the process that imported it ended with exit status 3",
    )


def test_a_process_that_a_plugin_leaves_is_ended_and_not_waited_for(
    write: Write, tmp_path: Path
) -> None:
    leaving = f"""
import subprocess
with open({str(tmp_path / "left")!r}, "a") as left:
    print(subprocess.Popen(["sleep", "1000"]).pid, file=left)
"""
    list(check(find_plugin(str(write("leaves.py", leaving + TOY))), limit=5))
    left = {int(line) for line in (tmp_path / "left").read_text().split()}
    assert len(left) > 2
    living = [each for each in psutil.process_iter() if each.pid in left]
    assert psutil.wait_procs(living, timeout=10)[1] == []


def test_the_command_passes_a_good_plugin_and_says_a_bad_name(
    write: Write, hpml: Callable[..., subprocess.CompletedProcess[str]]
) -> None:
    write("toy.py", TOY.replace("sum(range(size)) ==", "bench.result(sum(range(size))) =="))
    write("registry.yaml", "version: 1\nplugins:\n  - {name: toy, path: toy.py}\n")
    done = hpml("check", "toy")
    assert (done.returncode, "nothing to fix" in done.stderr) == (0, True), done.stdout
    assert "its check fails for a corrupted result" in done.stdout
    for name, told in (
        ("no-such", "or a module"),
        ("no_such", "or a module"),
        ("tyo", "mean 'toy'"),
        ("a.py", "no such file"),
    ):
        done = hpml("check", name)
        assert (done.returncode, done.stdout, done.stderr.count("\n")) == (2, "", 1)
        assert told in done.stderr
    write("toy.py", TOY.replace("// 2", "// 3"))
    done = hpml("check", "toy")
    assert done.returncode == 1
    assert "`hpml --debug run toy -p size=10` shows what the point printed" in done.stdout


def test_a_few_points_stand_for_a_grid_and_every_value_of_a_short_parameter_is_among_them() -> (
    None
):
    grid = {
        "size": ["64KiB", "2MiB", "1GiB", "1KiB"],
        "n": list(range(100, 0, -1)),
        "mode": ["b", "a"],
        "on": [True],
    }
    sample = sample_points(grid)
    assert sample == sample_points(grid)
    assert sample[0] == {"size": "1KiB", "n": 1, "mode": "b", "on": True}
    assert [point["n"] for point in sample] == [1, 26, 51, 75, 100]
    assert {point["size"] for point in sample} == set(grid["size"])
    assert {point["mode"] for point in sample} == {"a", "b"}
    assert len(sample_points(grid, None)) == 4 * 100 * 2
    assert sample_points({}) == [{}]
    assert sample_points({"on": [True], "off": [False]}) == [{"on": True, "off": False}]


def test_the_rest_of_the_grid_is_measured_when_asked_for(write: Write) -> None:
    path = write("many.py", TOY.replace("[10, 1000]", "list(range(1, 10))"))
    for most, told in (
        (5, "5 of 9 points measured; --all measures the others"),
        (None, "9 of 9 points measured"),
    ):
        found = check(find_plugin(str(path)), most=most)
        assert told in [each.what for each in found if each.subject == "toy"]


def loaded(**changed: object) -> Loaded:
    values = {
        "plugin": PluginSource("p"),
        "benchmark": "b",
        "version": "1",
        "metrics": (Metric("time", "s", "lower"),),
        "grid": {"size": (1,)},
        "description": "",
        "timeout": 1.0,
        **changed,
    }
    return Loaded("", 0.0, [Declared(**values)], [])  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({}, ""),
        ({"grid": {"size": [1, 2]}}, ""),  # more points are no other definition
        ({"version": "2", "grid": {"length": [1]}}, ""),
        ({"grid": {"length": [1]}}, "parameters were size, are length"),
        (
            {"metrics": (Metric("time", "B/s", "higher"),)},
            "metric time was [s, lower], is [B/s, higher]",
        ),
        ({"metrics": (Metric("rate", "1/s", "higher"),)}, "metric time is gone"),
        (
            {"metrics": (Metric("time", "1", "higher"),)},
            "metric time was [s, lower], is [1, higher]",
        ),
        # to rank it or not changes nothing of what is measured
        ({"metrics": (Metric("time", "s", None),)}, ""),
        (
            {"metrics": (Metric("time", "B", None),)},
            "metric time was [s, lower], is [B, None]",
        ),
    ],
)
def test_a_definition_changed_under_one_version_is_reported(
    tmp_path: Path, changed: dict[str, object], said: str
) -> None:
    old = {
        "benchmark": "b",
        "version": "1",
        "metric": "time",
        "si_unit": "s",
        "direction": "lower",
    }
    (tmp_path / "benchmarks.json").write_text(
        json.dumps({"b.track_time": {**old, "param_names": ["size"]}, "version": 2})
    )
    broken = [
        each
        for each in judge_definition(loaded(**changed), tmp_path)
        if each.state == "broken"
    ]
    assert [said in each.what for each in broken] == [True] * bool(said)


def test_a_reversed_direction_is_reported(tmp_path: Path) -> None:
    entry = {
        "benchmark": "b",
        "version": "1",
        "metric": "time",
        "si_unit": "1",
        "direction": "lower",
    }
    (tmp_path / "benchmarks.json").write_text(
        json.dumps({"b.track_time": {**entry, "param_names": ["size"]}})
    )
    found = judge_definition(loaded(metrics=(Metric("time", "1", "higher"),)), tmp_path)
    (broken,) = [each for each in found if each.state == "broken"]
    assert "metric time was [1, lower], is [1, higher]" in broken.what


@pytest.mark.parametrize("now", [None, "lower"])
def test_a_metric_that_was_recorded_without_direction_may_get_one(
    tmp_path: Path, now: Any
) -> None:
    entry = {
        "benchmark": "b",
        "version": "1",
        "metric": "time",
        "si_unit": "s",
        "direction": "none",
    }
    (tmp_path / "benchmarks.json").write_text(
        json.dumps({"b.track_time": {**entry, "param_names": ["size"]}})
    )
    found = list(judge_definition(loaded(metrics=(Metric("time", "s", now),)), tmp_path))
    assert [each.state for each in found] == ["ok"]


def test_what_is_spoilt_differs_by_hand() -> None:
    assert corrupted(10, "off") == 12  # 10 + 1 + 1
    assert corrupted(10.0, "off") == 12.0
    assert corrupted(True, "off") is False
    assert corrupted((1, {"a": "x"}), "off") == (2, {"a": "x?"})
    with pytest.raises(TypeError, match="cannot corrupt a object"):
        corrupted(object(), "off")


def test_what_a_required_module_needs_itself_need_not_be_required() -> None:
    assert with_dependencies({"numba", "no_such"}) >= {
        "numba",
        "llvmlite",
        "numpy",
        "no_such",
    }


def test_a_point_that_the_checks_own_time_ends_is_no_fault_of_the_plugin(
    write: Write,
) -> None:
    text = TOY.replace(
        "    bench.check(", "    import time; time.sleep(size)\n    bench.check("
    ).replace("[10, 1000]", "[30]")
    found = list(check(find_plugin(str(write("slow.py", text))), limit=1))
    assert [each.what for each in found if each.state == "not judged"] == [
        "1 of 1 points, of which 1 did not end within the limit"
    ]
    assert not [each for each in found if each.state == "broken"]


#: Whatever does not end within a short limit, alone or behind a point that does.
ENDLESS = """
    import time
    from hpml_plugins import Benchmark, Metric, Requires, hookimpl

    def loops(bench):
        while True:
            pass

    def hoards(bench):
        kept = []
        while True:
            kept.append(bytearray(1_000_000))
            time.sleep(0.05)

    def loops_behind_a_good_point(bench, size):
        bench.check(bench.result(size) == size, "differs")
        while size > 1:
            pass
        return {"value": size}

    def loops_when_wrong(bench):
        while bench.result(1.0) != 1.0:
            pass
        bench.check(True and 1 == 1, "is right")
        return {"value": 1.0}

    def lacks(bench):
        return {"value": 1.0}

    @hookimpl
    def hpml_benchmarks():
        metrics = [Metric("value", "1", "higher")]
        return [
            Benchmark("loops", loops, metrics),
            Benchmark("hoards", hoards, metrics),
            Benchmark("behind", loops_behind_a_good_point, metrics, grid={"size": [1, 2, 3]}),
            Benchmark("wrong", loops_when_wrong, metrics),
            Benchmark("lacks", lacks, metrics, requires=Requires(tools=("no-such-program",))),
        ]
"""


@pytest.mark.slow
def test_unfinished_and_skipped_points_are_not_judged(
    write: Write, hpml: Callable[..., subprocess.CompletedProcess[str]]
) -> None:
    file = write("endless.py", ENDLESS)
    done = hpml("check", "endless.py", "--limit", "5", "--json")
    found = [Finding(**each) for each in json.loads(done.stdout)]
    assert done.returncode == 3, found
    not_judged = {each.subject: each.what for each in found if each.state == "not judged"}
    assert not_judged.keys() == {"loops", "hoards", "behind", "wrong", "lacks"}
    assert not_judged["behind"].startswith("2 of 3 points")
    assert "whether its check notices" in not_judged["wrong"]
    assert "nothing to fix in what was judged; 5 not judged" in done.stderr
    with pytest.warns(UserWarning, match="not judged: "):
        check_plugin(str(file), limit=5)


TWICE = """
    import sys
    from hpml_plugins import Benchmark, Metric, hookimpl

    def measure(bench):
        bench.check(bench.result(4.0) == 4.0, "differs")
        print("outside of the step")
        return {"time": bench.time(lambda: None, budget=0.02)}

    @hookimpl
    def hpml_benchmarks():
        benchmark = Benchmark("twice", measure, [Metric("time", "s", "lower")], description="it")
        return [benchmark] * COUNT
"""


def test_a_name_used_twice_is_reported(write: Write) -> None:
    write(
        "registry.yaml",
        "version: 1\nplugins: [{name: a, path: a.py}, {name: b, path: b.py}]\n",
    )

    def broken(name: str) -> list[str]:
        found = check(find_plugin(name, registry), limit=20)
        return [each.what for each in found if each.state == "broken"]

    registry = write("a.py", TWICE.replace("COUNT", "1")).parent / "registry.yaml"
    write("b.py", TWICE.replace("COUNT", "1").replace('"twice"', '"once"'))
    assert broken("a") == broken(str(registry.parent / "a.py")) == []
    write("b.py", TWICE.replace("COUNT", "1"))
    assert broken("a") == ["the plugin 'b' of the registry has a benchmark of this name"]
    assert broken("b") == ["the plugin 'a' of the registry has a benchmark of this name"]
    write(
        "b.py",
        "from hpml_plugins import hookimpl\n\n@hookimpl\ndef hpml_data():\n    return []\n",
    )
    write("a.py", TWICE.replace("COUNT", "2"))
    assert broken("a") == ["2 benchmarks have this name"]


@pytest.mark.parametrize(
    "step",
    [
        "print('x')",
        "sys.stderr.write('x')",
        "__import__('os').write(1, b'x')",
        "__import__('subprocess').run(['echo', 'x'])",
    ],
)
def test_a_timed_step_that_prints_is_reported(write: Write, step: str) -> None:
    text = TWICE.replace("COUNT", "1").replace("lambda: None", f"lambda: {step}")
    found = check(find_plugin(str(write("prints.py", text))), limit=20)
    broken = [each.what for each in found if each.state == "broken"]
    assert broken == ["a timed step prints, so that its time is that of printing too"]


def test_an_array_is_spoilt_in_a_copy() -> None:
    import numpy

    array = numpy.array([1.0, 10.0], dtype=numpy.float32)
    assert corrupted(array, "off").tolist() == pytest.approx(
        [2.1, 12.0]
    )  # 1 + 0.1 + 1, 10 + 1 + 1
    assert numpy.isnan(corrupted(array, "nan")).all()
    assert corrupted(numpy.array([1, 2]), "nan").tolist() == [2, 3]
    assert array.tolist() == [1.0, 10.0]


def test_a_point_that_failed_proves_nothing_about_its_imports(
    findings: list[Finding],
) -> None:
    of_failed = [each.what for each in findings if each.subject == "returns_the_wrong"]
    assert of_failed
    assert "all that it imports and starts is required" not in of_failed
