"""Different tests are different benchmarks, and different parameters are different points."""

from __future__ import annotations

import itertools
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from repositories import make_repository

from hpml_plugins.model.benchmark import check_name
from hpml_plugins.store import read_records
from hpml_plugins.tools.pytest_bench.naming import TestName

FOLDERS = [
    "",
    "tests/",
    "tests/gpu/",
    "gpu/tests/",
    "test/",
    "tests/test/",
    "Tests/",
    "tests-2/",
]
FILES = [
    "test_sort",
    "test_Sort",
    "test_sort_x",
    "sort_test",
    "test_sört",
    "test_sort-x",
    "test_",
]
CLASSES = ["", "TestSort::", "TestX::", "Test_Sort::", "TestSort::TestX::"]
FUNCTIONS = [
    "test_x",
    "test_X",
    "test_sort_x",
    "test_x_",
    "test__x",
    "test_é",
    "test_sort",
    "testx",
]


def test_no_two_tests_have_one_name() -> None:
    tests = [
        f"{folder}{file}.py::{group}{function}"
        for folder, file, group, function in itertools.product(
            FOLDERS, FILES, CLASSES, FUNCTIONS
        )
    ]
    names = [TestName(test).benchmark for test in tests]
    assert len(set(names)) == len(tests) == 2240
    for name in names:
        check_name("benchmark", name)


@given(st.sets(st.text("ab_AB/é[.:", min_size=1, max_size=12), max_size=20))
def test_different_names_give_different_benchmarks(parts: set[str]) -> None:
    tests = {f"tests/test_{part}.py::test_x" for part in parts}
    tests |= {f"tests/test_x.py::test_{part}" for part in parts}
    names = {TestName(test).benchmark for test in tests}
    assert len(names) == len(tests)


@pytest.mark.parametrize(
    ("test", "name"),
    [
        ("tests/test_sort.py::test_long_list", "sort_long_list"),
        ("tests/gpu/test_sort.py::TestSort::test_x", "gpu_sort_testsort_x__"),
        ("tests/test_é.py::test_ß", "test__"),
        (f"tests/test_{'long' * 60}.py::test_x", "long" * 20 + "__"),
    ],
)
def test_a_name_is_readable_and_fits(test: str, name: str) -> None:
    found = TestName(test).benchmark
    assert found.startswith(name)
    assert len(found) == len(name) + (8 if name.endswith("__") else 0)


TESTS = """
import enum
import pytest

class Shape:
    pass

class Size(enum.IntEnum):
    SMALL = 1
    LARGE = 2

@pytest.mark.parametrize("f", [lambda: 1, lambda: 2], ids=["one", "two"])
def test_function(bench, f):
    bench.measure(lambda bench: {"m": f()}, {"m": "1"})

@pytest.mark.parametrize("shape", [Shape()])
def test_object(bench, shape):
    bench.measure(lambda bench: {"m": 1}, {"m": "1"})

@pytest.mark.parametrize("n", [10, 20])
@pytest.mark.parametrize("f", [sum, max])
def test_both(bench, f, n):
    bench.measure(lambda bench: {"m": f([n])}, {"m": "1"})

@pytest.mark.parametrize(("f", "n"), [(sum, 1), (max, 1)])
def test_shared(bench, f, n):
    bench.measure(lambda bench: {"m": n}, {"m": "1"})

@pytest.mark.parametrize("n", [1, 1, "1", True], ids=["a", "b", "c", "d"])
def test_same_value(bench, n):
    bench.measure(lambda bench: {"m": 1}, {"m": "1"})

@pytest.mark.parametrize("id", [1, 1])
def test_named_id(bench, id):
    bench.measure(lambda bench: {"m": 1}, {"m": "1"})

@pytest.mark.parametrize("size", list(Size))
@pytest.mark.parametrize("x", [float("nan"), None, b"b", "é", 10**30])
def test_odd(bench, x, size):
    bench.measure(lambda bench: {"m": 1}, {"m": "1"})

@pytest.fixture(params=[1.5, {"a": 1}])
def made(request):
    return request.param

def test_fixture(bench, made):
    bench.measure(lambda bench: {"m": 1}, {"m": "1"})

@pytest.mark.parametrize("shape", [Shape()], ids=str)
def test_address(bench, shape):
    bench.measure(lambda bench: {"m": 1}, {"m": "1"})
"""


def run_pytest(folder: Path, *words: str) -> str:
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"]
    found = subprocess.run(
        [*command, "-p", "hpml_plugins.testing", "--rootdir", ".", *words],
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
    )
    return found.stdout + found.stderr


@pytest.fixture
def repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
    (tmp_path / ".gitignore").write_text("results\n__pycache__\n")
    return tmp_path


def test_parameters_of_any_kind_are_points_that_the_next_run_finds_again(
    repository: Path,
) -> None:
    (repository / "test_params.py").write_text(TESTS)
    make_repository(repository, "first")
    output = run_pytest(repository, "--hpml-save")
    assert "28 passed" in output, output
    points: dict[str, list[dict[str, Any]]] = {}
    records = list(read_records(repository / "results"))
    for record in records:
        assert record.measured_rounds == record.planned_rounds == 3
        points.setdefault(record.benchmark.partition("__")[0], []).append(record.params)
    assert points["params_function"] == [{"f": "one"}, {"f": "two"}]
    assert points["params_object"] == [{"shape": "shape0"}]
    assert points["params_both"] == [
        {"f": "sum", "n": 10},
        {"f": "sum", "n": 20},
        {"f": "max", "n": 10},
        {"f": "max", "n": 20},
    ]
    assert points["params_shared"] == [{"n": 1, "id": "sum-1"}, {"n": 1, "id": "max-1"}]
    assert [json.dumps(point) for point in points["params_same_value"]] == [
        '{"n": 1, "id": "a"}',
        '{"n": 1, "id": "b"}',
        '{"n": "1", "id": "c"}',
        '{"n": true, "id": "d"}',
    ]
    assert len({record.point for record in records}) == len(records) == 28
    again = run_pytest(repository)
    assert again.count("nothing stored to compare with") == 1, again  # of the address
    assert again.count("test_address[<test_params.Shape object at 0x") >= 2
    assert (
        "the id has a memory address, so that nothing stored is compared with it" in again
    )


def test_tests_with_similar_names_are_stored_separately(repository: Path) -> None:
    one = "def test_x(bench):\n    bench.measure(lambda bench: {'m': 1}, {'m': '1'})\n"
    two = one.replace("test_x", "test_sort_x")
    grouped = "class TestSort:\n" + "".join(f"    {line}\n" for line in one.splitlines())
    grouped = grouped.replace("(bench):\n", "(self, bench):\n")
    for folder in ("tests/a", "tests/b"):
        (repository / folder).mkdir(parents=True)
        (repository / folder / "__init__.py").touch()
    (repository / "tests" / "__init__.py").touch()
    (repository / "tests/a/test_sort.py").write_text(one)
    (repository / "tests/b/test_sort.py").write_text(one)
    more = [one, two, grouped, one.replace("_x", "_X"), one.replace("_x", "_é")]
    (repository / "tests/test_more.py").write_text("\n".join(more))
    make_repository(repository, "first")
    output = run_pytest(repository, "--hpml-save")
    assert "7 passed" in output, output
    records = list(read_records(repository / "results"))
    assert len({record.benchmark for record in records}) == 7
    assert {record.measured_rounds for record in records} == {3}


@pytest.mark.skipif(os.getuid() != 0, reason="only root can give a folder to another user")
def test_a_repository_that_git_refuses_is_reported(repository: Path) -> None:
    (repository / "test_one.py").write_text(
        "def test_x(bench):\n    bench.measure(lambda bench: {'m': 1}, {'m': '1'})\n"
    )
    make_repository(repository, "first")
    os.chown(repository, 65534, -1)
    os.chown(repository / ".git", 65534, -1)
    output = run_pytest(repository, "--hpml-save")
    assert "1 failed" in output, output
    assert "git refuses the repository" in output
    assert "dubious ownership" in output
    assert "hpml_plugins/git.py" not in output  # the reason alone
    assert not (repository / "results").exists()
