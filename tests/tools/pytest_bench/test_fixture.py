"""The fixture `bench`, in tests of another repository, which pytest runs in separate
processes."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from repositories import make_repository

from hpml_plugins.model import Record
from hpml_plugins.store import read_records

Write = Callable[[str, str], Path]
#: Each round sleeps as long as the file `seconds` says: the tests make it slower by that.
TESTS = """
    import time
    from pathlib import Path

    import pytest

    @pytest.mark.parametrize("size", [10])
    def test_wait(bench, size):
        seconds = float(Path("seconds").read_text())
        found = bench.time(lambda: time.sleep(seconds), budget=0.1)
        assert found.value("time") >= seconds

    def test_several(bench):
        from hpml_plugins import Metric

        bench.measure(lambda bench: {"size": 7, "rate": 2.0}, {"size": "B", "rate": Metric("rate", "1/s", "higher")})

    def test_size(bench):
        bench.measure(lambda bench: {"size": 7}, {"size": "B"})

    def test_wrong(bench):
        bench.measure(lambda bench: {"time": 1 / 0}, {"time": "s"})

    def test_twice(bench):
        bench.measure(lambda bench: {"size": 7}, {"size": "B"})
        bench.measure(lambda bench: {"size": 8}, {"size": "B"})

    def test_plain():
        import sys
        assert not {"torch", "numpy", "scipy", "asv", "msgspec", "jinja2"} & set(sys.modules)
"""  # noqa: E501


@pytest.fixture
def run(tmp_path: Path, write: Write) -> Callable[..., subprocess.CompletedProcess[str]]:
    """pytest in a repository with one commit; the plugin is named, for an older installation has no
    entry point."""
    write("tests/test_steps.py", TESTS)
    write("seconds", "0.01")
    write(".gitignore", "__pycache__\n")
    make_repository(tmp_path, "first")

    def run(*words: str) -> subprocess.CompletedProcess[str]:
        options = [
            "-q",
            "-p",
            "hpml_plugins.testing",
            "-p",
            "no:cacheprovider",
            "--rootdir",
            ".",
        ]
        command = [sys.executable, "-m", "pytest", *options, *words]
        env = {
            **os.environ,
            "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",
        }
        return subprocess.run(
            command, cwd=tmp_path, env=env, capture_output=True, text=True, check=False
        )

    return run


def test_a_test_is_measured_stored_and_compared(
    run: Callable[..., subprocess.CompletedProcess[str]], tmp_path: Path
) -> None:
    first = run("--hpml-save", "-k", "not plain and not size")
    assert "2 failed, 2 passed" in first.stdout, first.stdout
    assert "UsageError: a test is one benchmark" in first.stdout
    assert "ZeroDivisionError: division by zero (test_steps.py:" in first.stdout
    assert (
        "test_wait[10]: time 1" in first.stdout
        and "nothing stored to compare with" in first.stdout
    )
    found: dict[str, Record] = {
        each.benchmark: each for each in read_records(tmp_path / "results")
    }
    assert found.keys() == {"steps_wait", "steps_several", "steps_twice"}
    wait = found["steps_wait"]
    head = subprocess.run(
        ["git", "rev-parse", "HEAD"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=True,
    ).stdout.strip()
    assert (wait.commit, wait.params, wait.measured_rounds, wait.plugin) == (
        head,
        {"size": 10},
        3,
        "pytest",
    )
    declared = json.loads((tmp_path / "results/benchmarks.json").read_text())
    assert (
        declared["steps_wait.track_time"]["params"],
        declared["steps_several.track_rate"]["direction"],
    ) == (
        [["10"]],
        "higher",
    )
    (machine,) = tmp_path.glob("results/*/machine.json")
    assert json.loads(machine.read_text())["machine"] == wait.machine

    (tmp_path / "seconds").write_text("0.1")  # not committed
    worse = run("-k", "wait or several", "--hpml-fail")
    assert "size 7 B, 1 times 7 B at " in worse.stdout and ": SAME" in worse.stdout
    # also on a machine that others use
    assert worse.returncode == 1 and "1 failed" in worse.stdout, worse.stdout
    assert re.search(
        r"test_wait\[10\]: time 1\d\d\S* ms, \S+ times 1\S+ ms at [0-9a-f]{8}: WORSE",
        worse.stdout,
    )
    # nothing was stored without --hpml-save
    assert len(list(read_records(tmp_path / "results"))) == 3


def test_what_cannot_be_judged_is_counted_and_has_a_status_of_its_own(
    run: Callable[..., subprocess.CompletedProcess[str]], tmp_path: Path
) -> None:
    nothing_stored = run("-k", "wait or size", "--hpml-fail", "--hpml-save")
    assert nothing_stored.returncode == 3, nothing_stored.stdout
    assert (
        "2 of 2 values not judged (exit status 3 where nothing fails)"
        in nothing_stored.stdout
    )
    assert run("-k", "size", "--hpml-fail").returncode == 0
    (file,) = tmp_path.glob("results/*/records/*.jsonl")
    stored = [json.loads(line) for line in file.read_text().splitlines()]
    for each in stored:  # somebody else used a CPU of two
        each["conditions"] = {"other_cpus": 1.0, "cores": 2.0}
    file.write_text("".join(json.dumps(each) + "\n" for each in stored))
    (tmp_path / "seconds").write_text("0.013")
    little = run("-k", "wait or size", "--hpml-fail")
    assert little.returncode == 3 and "1 of 2 values not judged" in little.stdout, (
        little.stdout
    )
    assert run("-k", "wait").returncode == 0  # nobody asked for a verdict
    (tmp_path / "seconds").write_text("0.063")
    much = run("-k", "wait or size", "--hpml-fail", "-p", "xdist", "-n", "1")
    assert much.returncode == 1 and ": WORSE" in much.stdout, much.stdout


def test_lines_come_from_the_processes_of_xdist_too(
    run: Callable[..., subprocess.CompletedProcess[str]],
) -> None:
    done = run("-p", "xdist", "-n", "1", "-k", "several")
    assert re.search(r"hpml benchmarks.*test_several: size 7 B", done.stdout, re.DOTALL), (
        done.stdout
    )


def test_a_test_that_does_not_ask_for_it_loads_nothing(
    run: Callable[..., subprocess.CompletedProcess[str]],
) -> None:
    done = run("-k", "plain")
    assert "1 passed" in done.stdout and "hpml benchmarks" not in done.stdout
