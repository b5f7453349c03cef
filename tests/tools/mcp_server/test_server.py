"""`hpml mcp`, asked by the SDK's own client."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest
from mcp import Client, StdioServerParameters
from records import a_record
from support import run_async

from hpml_plugins.model.record import MetricSamples
from hpml_plugins.store import append_record, record_file
from hpml_plugins.tools.frame import Frame, load
from hpml_plugins.tools.mcp_server.server import Results, make_server

REGISTRY = """version: 1
plugins:
  - {name: toy, path: toy.py}
"""
TOY = """
from hpml_plugins import Benchmark, Metric, hookimpl

def measure(bench):
    return {"time": 1.0}

@hookimpl
def hpml_benchmarks():
    metrics = [Metric("time", "s", "lower")]
    return [Benchmark("toy", measure, metrics, description="A toy."), Benchmark("new", measure, metrics)]
"""  # noqa: E501


@pytest.fixture
def results(tmp_path: Path) -> Results:
    (tmp_path / "registry.yaml").write_text(REGISTRY)
    (tmp_path / "toy.py").write_text(TOY)
    folder = tmp_path / "results"
    for number in range(6):
        for machine, seconds in (("fast", 1.0), ("slow", 2.0)):
            values = [seconds * (1 + 0.001 * ((number + step) % 3)) for step in range(9)]
            record = a_record(
                "toy",
                {"time": MetricSamples("s", "lower", values, {"timer": "perf_counter"})},
                params={"size": 1},
                machine=machine,
                run=f"run-{number}",
                started=1e9 + number,
                node={"boot": f"boot-{number}"},
            )
            append_record(record_file(folder, machine, ""), record)
    return Results(tmp_path / "registry.yaml", folder)


def ask(results: Results, name: str, **arguments: str) -> Any:
    """What a tool answers, by way of a client in this process."""

    async def call() -> Any:
        async with Client(make_server(results)) as client:
            return await client.call_tool(name, arguments)

    return run_async(call())


def content(answer: Any) -> dict[str, Any]:
    assert not answer.is_error, answer.content
    found: dict[str, Any] = json.loads(answer.content[0].text)
    return found


def test_it_has_four_tools_that_only_read(results: Results) -> None:
    async def tools() -> Any:
        async with Client(make_server(results)) as client:
            return (await client.list_tools()).tools

    found = run_async(tools())
    names = ["list_benchmarks", "compare", "history", "explain_verdict"]
    assert [tool.name for tool in found] == names
    assert all(tool.annotations.read_only_hint for tool in found)
    assert all(tool.description for tool in found)


def test_benchmarks_are_listed_with_their_machines(results: Results) -> None:
    found = content(ask(results, "list_benchmarks"))
    assert found["benchmarks"]["toy"] == {
        "plugin": "toy",
        "machines": ["fast", "slow"],
        "description": "A toy.",
        "metrics": {"time": "s"},
    }
    assert found["not measured yet"] == ["new"]


def test_without_the_plugin_the_metrics_are_those_of_the_records(results: Results) -> None:
    found = Results(results.folder / "no-registry.yaml", results.folder).list_benchmarks()
    toy = {"plugin": "toy", "machines": ["fast", "slow"], "description": ""}
    assert found["benchmarks"]["toy"] == {**toy, "metrics": {"time": "s"}}


def test_two_machines_are_compared(results: Results) -> None:
    (row,) = content(ask(results, "compare", a="fast", b="slow"))["rows"]
    assert (row["benchmark"], row["point"], row["verdict"]) == ("toy", "size=1", "WORSE")
    assert float(row["B / A"]) == pytest.approx(2.0, rel=0.01)


def test_a_history_is_newest_first_and_limited_to_what_is_asked(results: Results) -> None:
    found = content(ask(results, "history", benchmark="toy", machine="fast", metric="time"))
    starts = [row["started"] for row in found["rows"]]
    assert len(starts) == 6 and starts == sorted(starts, reverse=True)
    assert {row["machine"] for row in found["rows"]} == {"fast"}
    assert found["rows"][0]["low"] < found["rows"][0]["value"] < found["rows"][0]["high"]


def test_a_verdict_is_explained(results: Results) -> None:
    place = {"benchmark": "toy", "point": "size=1", "metric": "time"}
    found = content(ask(results, "explain_verdict", a="fast", b="slow", **place))
    assert "significantly worse" in found["meaning"]["WORSE"]
    assert "WORSE" in found["report"] and found["values"][0]["metric"] == "time"


def test_results_are_read_again_only_when_they_have_changed(
    results: Results, monkeypatch: pytest.MonkeyPatch
) -> None:
    readings: list[Path] = []

    def noted(place: Path) -> Frame:
        readings.append(place)
        return load(place)

    monkeypatch.setattr("hpml_plugins.tools.frame.load", noted)
    for _ in range(2):
        assert "later" not in content(ask(results, "list_benchmarks"))["benchmarks"]
        assert len(content(ask(results, "history", benchmark="toy"))["rows"]) == 12
    assert readings == [results.folder]
    append_record(record_file(results.folder, "slow", ""), a_record("later"))
    assert "later" in content(ask(results, "list_benchmarks"))["benchmarks"]
    assert len(readings) == 2


@pytest.mark.parametrize(
    ("name", "arguments", "fault"),
    [
        ("compare", {"a": "fast", "b": "slwo"}, "did you mean 'slow'?"),
        ("compare", {"a": "--help", "b": "slow"}, "no machine, environment or commit"),
        ("history", {"benchmark": "tyo"}, "no measured value of 'tyo'"),
        (
            "explain_verdict",
            {
                "a": "fast",
                "b": "slow",
                "benchmark": "toy",
                "point": "size=2",
                "metric": "time",
            },
            "known: size=1: time",
        ),
    ],
)
def test_a_wrong_name_is_an_error_that_says_which_there_are(
    results: Results, name: str, arguments: dict[str, str], fault: str
) -> None:
    answer = ask(results, name, **arguments)
    assert answer.is_error and fault in answer.content[0].text


def test_a_client_starts_it_as_a_command(results: Results) -> None:
    words = ["-m", "hpml_plugins", "--registry", str(results.registry), "mcp"]
    started = StdioServerParameters(
        command=sys.executable, args=[*words, "--results", str(results.folder)]
    )

    async def call() -> Any:
        async with Client(started) as client:
            return client.server_info.name, await client.call_tool("list_benchmarks", {})

    name, answer = run_async(call())
    assert name == "hpml-plugins" and "toy" in content(answer)["benchmarks"]
