"""The exercise of examples/planted_regressions: its repository, its count of what was found, its
stored Records."""

from __future__ import annotations

import importlib.util
import json
import math
import random
import shutil
import sys
from pathlib import Path
from types import ModuleType

import pytest
from records import a_record
from support import ROOT, unavailable

from hpml_plugins.model.record import MetricSamples
from hpml_plugins.store import append_record, read_records, record_file

FOLDER = ROOT / "examples" / "planted_regressions"


@pytest.fixture(scope="module")
def exercise() -> ModuleType:
    spec = importlib.util.spec_from_file_location("exercise", FOLDER / "exercise.py")
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    sys.modules["exercise"] = module  # its dataclasses look their module up
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def commits(exercise: ModuleType, tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    return list(exercise.make_repository(tmp_path_factory.mktemp("planted") / "repository"))


def write_results(
    exercise: ModuleType,
    results: Path,
    commits: list[str],
    noise: float,
    busy: bool = False,
) -> None:
    """Records of kernel_cpu on a made machine. noise: the standard deviation between runs."""
    dice = random.Random(1)
    entry = {
        "name": "kernel_cpu.track_time",
        "plugin": "planted",
        "benchmark": "kernel_cpu",
        "metric": "time",
        "si_unit": "s",
        "unit": "seconds",
        "direction": "lower",
        "version": "1",
        "param_names": ["percent"],
        "params": [["0", "3", "10", "30"]],
        "type": "track",
        "pretty_name": "kernel_cpu · time",
        "code": "",
    }
    (results / "made" / "records").mkdir(parents=True)
    (results / "benchmarks.json").write_text(
        json.dumps({entry["name"]: entry, "version": 2})
    )
    (results / "made" / "machine.json").write_text(
        json.dumps({"machine": "made", "gpu": "none", "version": 1})
    )
    for place, commit in enumerate(commits):
        planted = any(step.plants == "kernel" for step in exercise.PLAN[: place + 1])
        for percent in (0, 3, 10, 30):
            level = 1e-3 * (1 + planted * percent / 100) * math.exp(dice.gauss(0, noise))
            rounds = [level * math.exp(dice.gauss(0, noise / 2)) for _ in range(3)]
            samples = [
                each * (1 + share) for each in rounds for share in (-0.001, 0, 0.001)
            ]
            record = a_record(
                "kernel_cpu",
                plugin="planted",
                params={"percent": percent},
                metrics={
                    "time": MetricSamples(
                        "s", "lower", samples, {"timer": "perf_counter"}, rounds=[3, 3, 3]
                    )
                },
                started=1.79e9 + 86400 * place + percent,
                machine="made",
                commit=commit,
                planned_rounds=3,
                source={"sha256": "1"},
                conditions={"cores": 2.0, "other_cpus": 1.5 * busy},
                node={"gpus": [], "cpu": "made"},
            )
            append_record(record_file(results, "made", commit), record)


def test_the_repository_has_the_same_commits_wherever_it_is_made(
    exercise: ModuleType, commits: list[str], tmp_path: Path
) -> None:
    assert commits == exercise.make_repository(tmp_path / "one")
    assert len(set(commits)) == len(exercise.PLAN)
    namespace: dict[str, dict[str, bool]] = {}
    exec(
        (tmp_path / "one/planted_work/__init__.py").read_text().partition("\n\n\n")[0],
        namespace,
    )
    assert all(namespace["SLOWER"].values())


def test_planted_slow_downs_are_found_and_false_alarms_counted(
    exercise: ModuleType, commits: list[str], tmp_path: Path
) -> None:
    write_results(exercise, tmp_path / "results", commits, noise=0.01)
    report = exercise.analyse(tmp_path / "results", commits)
    found = {point: each for (_, _, point), each in report.series.items()}
    assert (
        found["percent=30"].verdict,
        found["percent=30"].suspected,
        found["percent=30"].listed,
    ) == ("WORSE", 1, 2)
    assert found["percent=30"].at_end and found["percent=30"].ratio == pytest.approx(
        1.3, rel=0.02
    )
    assert found["percent=10"].listed == 2
    # three times the noise of a run: no verdict on two runs, and listed when there are some
    # readings
    assert found["percent=3"].verdict == "BOUND" and found["percent=3"].listed in (3, 4)
    assert found["percent=0"].planted is None
    # 11 pairs of commits of 4 series, of which 3 changed once
    assert sum(report.equal["made"].values()) == 11 * 4 - 3
    assert report.looks["made"] == 11 * 4
    alarms = report.false.get("made", {}).get("open regression", set())
    assert {point for _, point, _ in alarms} <= {
        "percent=3"
    }  # placed two commits late for a while
    text = exercise.format_report(report)
    assert (
        "| made | kernel: longer loop | cpu | +30 % | +" in text
        and "2 readings" in text
        and "never" in text
    )


def test_a_false_alarm_is_counted(
    exercise: ModuleType, commits: list[str], tmp_path: Path
) -> None:
    """Where nothing is planted in the plan, the same Records are all false alarms."""
    write_results(exercise, tmp_path / "results", commits, noise=0.01)
    report = exercise.analyse(
        tmp_path / "results", commits, [exercise.Step("nothing")] * len(commits)
    )
    alarms = {
        (benchmark, point)
        for benchmark, point, _ in report.false["made"]["open regression"]
    }
    assert alarms == {("kernel_cpu", f"percent={percent}") for percent in (3, 10, 30)}
    assert report.equal["made"]["WORSE"] >= 2


def test_on_a_busy_machine_two_runs_give_bounds_and_the_page_finds_what_changes_while_it_stays_busy(
    exercise: ModuleType, commits: list[str], tmp_path: Path
) -> None:
    write_results(exercise, tmp_path / "results", commits, noise=0.01, busy=True)
    report = exercise.analyse(tmp_path / "results", commits)
    assert report.equal["made"] == {"BOUND": 41}
    assert {each.verdict for each in report.series.values() if each.planted} == {"BOUND"}
    found = {point: each for (_, _, point), each in report.series.items()}
    assert found["percent=30"].listed == found["percent=10"].listed == 2
    alarms = report.false.get("made", {}).get("open regression", set())
    assert {point for _, point, _ in alarms} <= {"percent=3"}
    assert "not judged: busy" in exercise.format_report(report)


@pytest.mark.slow  # 15 s of CPU time, of which asv's processes and torch take most
def test_it_measures_and_keeps_the_records(
    exercise: ModuleType,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    """Two commits, one workload, a short budget: asv run, the Records kept, the tables. No verdict
    is expected."""
    if not importlib.util.find_spec("torch"):
        unavailable("needs torch")
    monkeypatch.setenv("HOME", str(tmp_path))
    small = [
        "--commits",
        "2",
        "--budget",
        "0.03",
        "--rounds",
        "1",
        "--results",
        str(tmp_path / "kept"),
    ]
    assert exercise.main([*small, "--bench", "kernel"]) == 0
    records = list(read_records(tmp_path / "kept"))
    assert {each.status for each in records if each.benchmark == "kernel_cpu"} == {"ok"}
    assert len(records) == 2 * 2 * 4
    assert "comparisons of equal code" in capfd.readouterr().out
    assert exercise.main([*small, "--report"]) == 0
    assert "comparisons of equal code" in capfd.readouterr().out


def test_the_stored_records_are_of_this_repository(
    exercise: ModuleType, commits: list[str], tmp_path: Path
) -> None:
    records = list(read_records(exercise.RESULTS)) if exercise.RESULTS.is_dir() else []
    assert {each.commit for each in records} <= set(commits)
    if records:  # a table is quoted in the README, and is what the Records give
        report = exercise.format_report(exercise.analyse(exercise.RESULTS, commits))
        assert report.strip() in (FOLDER / "README.md").read_text()


def test_the_records_of_another_machine_are_stored_beside_the_others(
    exercise: ModuleType, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    kept = exercise.RESULTS
    one = sorted(each.parent for each in kept.glob("*/records"))[-1]
    shutil.copytree(one, tmp_path / "there" / one.name)
    shutil.copy(kept / "benchmarks.json", tmp_path / "there")
    (tmp_path / "here" / "another" / "records").mkdir(parents=True)
    to = ["--commits", "2", "--results", str(tmp_path / "here")]
    assert exercise.main([*to, "--add", str(tmp_path / "there")]) == 0
    assert one.name in capsys.readouterr().out
    assert {each.name for each in (tmp_path / "here").iterdir()} == {
        "another",
        one.name,
        "benchmarks.json",
    }
    with pytest.raises(SystemExit) as stopped:
        exercise.main([*to, "--add", str(tmp_path)])
    assert stopped.value.code == 2 and "no Records there" in capsys.readouterr().err


def test_the_tables_replace_the_older_ones_in_the_readme(
    exercise: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "README.md").write_text((FOLDER / "README.md").read_text())
    monkeypatch.setattr(exercise, "HERE", tmp_path)
    for tables in ("| a |\n\n", "| b |\n"):
        exercise.write_readme(tables)
    head, _, found = (
        (tmp_path / "README.md").read_text().partition("<!-- written by exercise.py -->\n")
    )
    assert "## What was found" in head and found == "\n| b |\n"
