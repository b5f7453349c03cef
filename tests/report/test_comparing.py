"""Two sides of the same points, and all Records as Parquet."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from support import ROOT, unavailable

from hpml_plugins.errors import UsageError
from hpml_plugins.model.record import MetricSamples, Record
from hpml_plugins.report.compare import Side, compare, find_side
from hpml_plugins.store import append_record, record_file

OLD, NEW = "a" * 40, "b" * 40


def record(machine: str, commit: str, seconds: float, *, started: float = 0.0, count: int = 20) -> Record:
    times = [seconds * (1 + n / 10_000) for n in range(count)]
    return Record(
        benchmark="toy", plugin="toy", version="1", params={"size": 10}, status="ok", machine=machine, commit=commit,
        environment="env", started=started,
        metrics={
            "time": MetricSamples("s", "lower", times),
            "rate": MetricSamples("1/s", "higher", [1 / t for t in times]),
        },
    )  # fmt: skip


RECORDS = [
    record("one", OLD, 1.0),
    record("one", NEW, 2.0),
    record("two", NEW, 0.5),
    Record(benchmark="toy", plugin="toy", version="1", params={"size": 20}, status="skipped", reason="no GPU",
           machine="one", commit=NEW),
]  # fmt: skip
ORDER = {OLD: 0, NEW: 1}


def test_commits_are_compared_on_each_machine_that_measured_both() -> None:
    rows = compare(Side("commit", OLD), Side("commit", NEW), RECORDS, ORDER)
    assert [(row.machine, row.metric, row.verdict) for row in rows] == [
        ("one", "time", "worse"),
        ("one", "rate", "worse"),
    ]
    assert [row.ratio for row in rows] == pytest.approx([0.5, 0.5])  # twice the time is half as good


def test_machines_are_compared_by_their_newest_records() -> None:
    rows = compare(Side("machine", "one"), Side("machine", "two"), RECORDS, ORDER)
    assert [row.ratio for row in rows] == pytest.approx([4, 4])  # 2 s at the newest commit against 0.5 s
    assert {row.verdict for row in rows} == {"better"}


def test_overlapping_intervals_and_too_few_samples_are_no_verdict() -> None:
    close = [record("one", OLD, 1.0), record("one", NEW, 1.0001)]
    few = [record("one", OLD, 1.0, count=2), record("one", NEW, 2.0, count=2)]
    for records, verdict in ((close, "~"), (few, "?")):
        rows = compare(Side("commit", OLD), Side("commit", NEW), records, ORDER)
        assert {row.verdict for row in rows} == {verdict}


def test_a_changed_definition_is_another_point() -> None:
    import msgspec

    changed = msgspec.structs.replace(record("one", NEW, 0.5), version="2")
    assert compare(Side("commit", OLD), Side("commit", NEW), [RECORDS[0], changed], ORDER) == []


def test_a_side_is_a_machine_an_environment_or_what_git_calls_a_commit() -> None:
    assert find_side("two", RECORDS, lambda name: None) == Side("machine", "two")
    assert find_side("env", RECORDS, lambda name: None) == Side("environment", "env")
    assert find_side("aaaa", RECORDS, lambda name: None) == Side("commit", OLD)
    assert find_side("HEAD", RECORDS, lambda name: NEW) == Side("commit", NEW)
    with pytest.raises(UsageError, match=r"'nine' is no machine \(one, two\)"):
        find_side("nine", RECORDS, lambda name: None)
    with pytest.raises(UsageError, match="nothing was measured at 'HEAD'"):
        find_side("HEAD", RECORDS, lambda name: "c" * 40)


def hpml(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    (folder / "registry.yaml").write_text("version: 1\nplugins: []\n")
    for each in RECORDS:
        append_record(record_file(folder / "results", each.machine, each.commit), each)
    command = [sys.executable, "-m", "hpml_plugins", *words]
    return subprocess.run(command, cwd=folder, env={"PYTHONPATH": str(ROOT)}, capture_output=True, text=True)


def test_the_command_spells_units_and_signs(tmp_path: Path) -> None:
    done = hpml(tmp_path, "compare", "one", "two", "--format", "markdown")
    assert done.returncode == 0, done.stderr
    assert "| toy | size=10 | time | 2.002 s ± 0.045 % | 500.5 ms ± 0.045 % | ▲ 4.00× |" in done.stdout
    refused = hpml(tmp_path, "compare", "one", "nine")
    assert (refused.returncode, refused.stderr.count("\n")) == (2, 1)


def _queries() -> dict[str, str]:
    """The queries of docs/reading-the-site.md: the text below each heading of the section on export."""
    text = (ROOT / "docs" / "reading-the-site.md").read_text(encoding="utf-8")
    blocks = [part.split("```")[0] for part in text.split("```python\n")[1:]]
    return {"duckdb" if "duckdb" in block else "pandas": block for block in blocks}


@pytest.mark.parametrize("library", ["duckdb", "pandas"])
def test_the_queries_of_the_docs_run_on_what_export_writes(
    tmp_path: Path, library: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for needed in ("pyarrow", library):
        try:
            __import__(needed)
        except ImportError:
            unavailable(f"no {needed}: pip install 'hpml-plugins[test]'")
    done = hpml(tmp_path, "export", "records.parquet")
    assert done.returncode == 0, done.stderr
    assert done.stdout == "records.parquet: 7 rows\n"  # 3 Records of 2 metrics, and 1 that was skipped
    monkeypatch.chdir(tmp_path)
    exec(_queries()[library], {})
    said = capsys.readouterr().out
    assert "toy" in said and "two" in said
