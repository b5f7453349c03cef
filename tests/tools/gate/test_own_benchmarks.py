"""The gate judges benchmarks of asv's own: `time_`, `peakmem_` and `track_`."""

from __future__ import annotations

from pathlib import Path

import pytest
from own_repository import OwnRepository

from hpml_plugins.errors import UsageError
from hpml_plugins.tools.gate.budgets import Budgets

THEIRS = """
    import theirs


    class Work:
        params = [[1, 2], ["a", "b"]]
        param_names = ["times", "letter"]

        def setup_cache(self):
            return {"a": 3, "b": 4}

        def setup(self, cache, times, letter):
            if (times, letter) == (2, "b"):
                raise NotImplementedError

        def track_steps(self, cache, times, letter):
            return theirs.STEPS * times * cache[letter]


    def time_work():
        theirs.work()


    def peakmem_work():
        return [0] * theirs.STEPS


    def track_broken():
        return 1 // theirs.FINE


    def track_text():
        return "text"


    track_text.unit = "words"
"""
CODE = """
    import time

    STEPS, FINE = {steps}, {fine}


    def work():
        end = time.perf_counter() + STEPS / 1e3
        while time.perf_counter() < end:
            pass
"""


@pytest.fixture
def mine(tmp_path: Path) -> OwnRepository:
    """An asv user's repository after `hpml init`."""
    found = OwnRepository.make(tmp_path)
    setup = "from setuptools import setup\nsetup(name='theirs', version='1', packages=['theirs'])\n"
    found.write("setup.py", setup)
    found.write("theirs/__init__.py", CODE.format(steps=1, fine=1))
    found.commit("theirs")
    found.hpml("init")
    found.write("benchmarks/old.py", THEIRS)
    found.commit("hpml init")
    return found


@pytest.mark.slow
def test_benchmarks_of_asv_and_of_plugins_are_judged_together(mine: OwnRepository) -> None:
    mine.write("theirs/__init__.py", CODE.format(steps=2, fine=0))
    done = mine.hpml("gate", "main", "--rounds", "3", "--bench", "old", status=1)
    said = " ".join(done.stdout.split())
    assert "old.Work.track_steps times=1, letter=a value 3.000 6.000 2.00× (+100 %)" in said
    assert "letter=b value 4 8.000" in said
    assert "old.time_work value" in said and "refused" in said
    # within its budget; a few kB less are a row too, "faster"
    row = (
        said.partition("old.peakmem_work")[2]
        .partition(" Measured on ")[0]
        .partition("old.")[0]
    )
    assert "refused" not in row and "undecided" not in row
    assert "Broken: old.track_broken: ZeroDivisionError" in said
    assert "Not compared: asv skips it, or it returned no finite number (1 point)" in said
    assert "Not judged: base failed: it did not return a number (1 point)" in said


PLUGIN = """
    from hpml_plugins import Benchmark, Metric, hookimpl

    def measure(bench):
        return {"steps": 1}

    @hookimpl
    def hpml_benchmarks():
        metrics = [Metric("steps", "1", "lower")]
        return [Benchmark(name, measure, metrics) for name in NAMES]
"""


@pytest.mark.slow
def test_a_removed_benchmark_is_counted_as_not_judged(mine: OwnRepository) -> None:
    """asv measures both commits with the files of head, which lacks it. Ours too."""
    mine.write("benchmarks/steps.py", PLUGIN.replace("NAMES", "['kept', 'gone']"))
    registry = mine.path / "registry.yaml"
    added = "\n  - name: steps\n    path: benchmarks/steps.py\n"
    registry.write_text(registry.read_text().rstrip() + added)
    mine.commit("a plugin")
    mine.write("benchmarks/steps.py", PLUGIN.replace("NAMES", "['kept']"))
    mine.write("benchmarks/old.py", THEIRS.replace("time_work", "time_other"))
    options = ["--rounds", "3", "--bench", "track_steps|time_|steps"]
    done = mine.hpml("gate", "main", *options, status=3)
    said = " ".join(done.stdout.split())
    assert " 2 points not judged" in said
    assert "Not judged: head no longer has the benchmark old.time_work (1 point)." in said
    assert "Not judged: head no longer has the benchmark gone (1 point)." in said
    assert "track_broken" not in said and "kept" not in said
    # one of several patterns selects nothing: refused, unless it may be what was removed
    done = mine.hpml("gate", "main", "--bench", "kept", "--bench", "kpet", status=2)
    assert "--bench: no benchmark matches 'kpet'; did you mean 'kept'?" in done.stderr
    done = mine.hpml("gate", "main", "--bench", "^kept$", "--bench", "gone", status=3)
    assert "1 within the budget" in done.stdout
    assert "head no longer has the benchmark gone (1 point)" in done.stdout
    # nothing of the selection is left
    done = mine.hpml("gate", "main", "--bench", "time_work", status=3)
    assert "not judged: 1 point not judged" in done.stdout


@pytest.mark.slow
def test_a_suite_of_base_that_does_not_import_leaves_unknown_what_it_had(
    mine: OwnRepository,
) -> None:
    mine.write("benchmarks/old.py", "import nowhere")
    mine.commit("broken")
    mine.write("benchmarks/old.py", THEIRS)
    done = mine.hpml("gate", "main", "--rounds", "3", "--bench", "peakmem", status=3)
    assert "Not judged: the benchmarks of base are unknown: " in done.stdout


def test_a_suite_that_does_not_import_at_head_is_no_branchs(mine: OwnRepository) -> None:
    """asv would install the tip of a branch instead, and measure that."""
    mine.write("theirs/__init__.py", "import nowhere")
    said = mine.hpml("gate", "main", "--bench", "old", status=2).stderr
    assert "the suite does not import at head" in said


def test_what_builds_no_commits_is_refused(mine: OwnRepository) -> None:
    configuration = mine.path / "asv.conf.json"
    text = configuration.read_text()
    configuration.write_text(text.replace('"node"', '"existing"'))
    mine.commit("existing")
    mine.write("theirs/__init__.py", CODE.format(steps=2, fine=0))
    said = mine.hpml("gate", "main", status=2).stderr
    assert "environment_type 'existing' of asv.conf.json builds no commits" in said


def test_a_budget_may_name_one() -> None:
    budgets = Budgets(["old.time_work=50"])
    budgets.refuse_unknown([], ["old.time_work"])
    with pytest.raises(UsageError, match=r"no benchmark or metric 'old.time_work'"):
        budgets.refuse_unknown([])
