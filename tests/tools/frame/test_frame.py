"""`hpml_plugins.load`: Records as frames of pandas and Polars, and in a notebook."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import nbclient
import nbformat
import pytest
from records import a_record
from support import PATIENCE, ROOT

import hpml_plugins as hpml
from hpml_plugins.errors import UsageError
from hpml_plugins.model.record import MetricSamples, Record
from hpml_plugins.model.serialization import encode
from hpml_plugins.store import append_record, record_file

MILLISECOND = 1e-3


def timed(seconds: float, card: str, run: str, **facts: object) -> Record:
    samples = MetricSamples(
        "s", "lower", [seconds, seconds * 1.01, seconds * 1.02], {"timer": "cuda events"}
    )
    found = {"gpu": "NVIDIA H200", "card": card, "run": run, "params": {"size": 4}, **facts}
    return a_record(metrics={"time": samples, "count": 3.0}, units={"count": "1"}, **found)


@pytest.fixture
def results(tmp_path: Path) -> Path:
    folder = tmp_path / "results"
    records = [
        timed(MILLISECOND, "GPU-1", "a", started=1.0),
        timed(1.1 * MILLISECOND, "GPU-2", "b", started=2.0),
        a_record("other", {"time": 2.0}, params={"mode": "fast"}, run="c", started=3.0),
        a_record("other", status="skipped", reason="no GPU", run="d", started=4.0),
    ]
    for record in records:
        append_record(record_file(folder, record.machine, record.commit), record)
    return folder


def test_a_row_has_value_interval_class_cards_and_parameters(results: Path) -> None:
    frame = hpml.load(results).to_pandas()
    times = frame[(frame.benchmark == "toy") & (frame.metric == "time")]
    assert list(times["value"]) == pytest.approx([1.01e-3, 1.111e-3])
    assert list(times.cards) == ["GPU-1", "GPU-2"]
    assert set(times["class"]) == {"never throttled"}
    assert list(times["params.size"]) == [4, 4]
    # two cards that differ by 10 %: the next one may lie further than either run's samples
    assert (times.low < times["value"] * 0.95).all()
    assert (times.high > times["value"] * 1.05).all()
    assert list(times.samples.iloc[0]) == pytest.approx([1e-3, 1.01e-3, 1.02e-3])


def test_a_record_without_metrics_is_a_row_with_its_reason(results: Path) -> None:
    frame = hpml.load(results).to_pandas()
    skipped = frame[frame.status == "skipped"]
    assert list(skipped.reason) == ["no GPU"]
    assert skipped["value"].isna().all()


def test_the_same_in_polars(results: Path) -> None:
    frame = hpml.load(results)
    assert frame.to_polars()["value"].to_list()[0] == 1.01 * MILLISECOND
    assert frame.to_polars().height == len(frame.to_pandas())


def test_selected_records_keep_the_intervals_of_all(results: Path) -> None:
    frame = hpml.load(results)
    one = frame.select("t*", size=4)
    assert [record.run for record in one.records] == ["a", "b"]
    record = one.records[0]
    alone = hpml.Frame([record], frame.variability).readings(record)["time"].estimate
    assert alone == frame.readings(record)["time"].estimate
    assert len(frame.select(machine="n*")) == len(frame.select(size=5)) == 0


def test_both_regimes_of_a_throttled_metric_have_a_row(tmp_path: Path) -> None:
    samples = MetricSamples("s", "lower", [2.0, 2.0, 2.0], boost=[1.0, 1.0, 1.0])
    path = tmp_path / "toy.jsonl"
    path.write_bytes(encode(a_record(metrics={"time": samples}, gpu="NVIDIA H200")) + b"\n")
    frame = hpml.load(path).to_pandas()
    assert list(frame.regime) == ["sustained", "boost"]
    assert list(frame["value"]) == [2.0, 1.0]


@pytest.mark.parametrize("name", ["nothing", "empty.jsonl", "other.txt"])
def test_a_place_without_results_is_refused_in_one_line(
    tmp_path: Path, name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "empty.jsonl").touch()
    (tmp_path / "other.txt").write_text("no Record\n" * 9)
    with pytest.raises(UsageError, match=r"no results here|no Record in this file"):
        hpml.load(tmp_path / name)
    assert capsys.readouterr().err == ""


def test_a_damaged_line_among_records_is_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "toy.jsonl"
    path.write_bytes(b"no Record\n" + encode(a_record(metrics={"time": 1.0})) + b"\n")
    assert len(hpml.load(path)) == 1
    (line,) = capsys.readouterr().err.splitlines()
    assert "toy.jsonl:1: not a complete Record" in line


def test_it_shows_itself_as_a_chart_and_a_table(results: Path) -> None:
    frame = hpml.load(results)
    assert repr(frame) == "<Frame: 4 Records of 2 benchmarks on 1 machine>"
    shown = frame.select("toy")._repr_mimebundle_()
    assert "<svg" in shown["text/html"] and "never throttled" in shown["text/html"]
    spec = shown["application/vnd.vegalite.v6+json"]
    drawn = [row["value"] for row in spec["data"]["values"]]
    assert drawn == pytest.approx([1.01e-3, 1.111e-3])
    assert "<svg" in frame._repr_html_()


def test_texts_of_records_are_no_html(tmp_path: Path) -> None:
    path = tmp_path / "toy.jsonl"
    record = a_record(metrics={"time": 1.0}, params={"name": "<script>"})
    path.write_bytes(encode(record) + b"\n")
    assert "<script>" not in hpml.load(path)._repr_html_()


def test_a_frame_without_records_shows_itself(results: Path) -> None:
    shown = hpml.load(results).select("none")._repr_html_()
    assert "0 Records" in shown


def test_importing_the_package_imports_none_of_it() -> None:
    code = "import hpml_plugins, sys; print([n for n in ('pandas', 'scipy', 'hpml_plugins.tools') if n in sys.modules])"  # noqa: E501
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True)
    assert done.stdout.strip() == b"[]"


@pytest.mark.slow
def test_the_notebook_of_the_documentation_runs() -> None:
    notebook = nbformat.read(ROOT / "docs/results.ipynb", as_version=4)
    resources = {"metadata": {"path": str(ROOT)}}
    nbclient.NotebookClient(
        notebook, timeout=PATIENCE, startup_timeout=PATIENCE, resources=resources
    ).execute()
    outputs = [each for cell in notebook.cells for each in cell.get("outputs", ())]
    shown = [output["data"] for output in outputs if "data" in output]
    charts = [data for data in shown if "application/vnd.vegalite.v6+json" in data]
    assert len(charts) == 2 and all("<svg" in data["text/html"] for data in charts)
    assert "h200-x1" in shown[-2]["text/plain"]
    stored = nbformat.read(ROOT / "docs/results.ipynb", as_version=4)
    assert not any(cell.get("outputs") for cell in stored.cells), "clear the outputs"
