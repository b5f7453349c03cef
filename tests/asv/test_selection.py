"""Which points asv starts processes for."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from asv.benchmarks import Benchmarks
from support import TOY

from hpml_plugins import Node
from hpml_plugins.asv.selection import narrow, selection_of
from hpml_plugins.host import make_host
from hpml_plugins.registry import read_registry
from hpml_plugins.suite.declaration import declare

PLUGIN = TOY + (
    "\nfrom hpml_plugins import Requires\n"
    "METRICS = [Metric('time', 's', 'lower'), Metric('rate', '1/s', 'higher')]\n"
    "PAIR = Benchmark('pair', measure, METRICS, grid={'size': [10, 1000]}, requires=Requires(gpus='size'))\n"
    "ONE = Benchmark('one', lambda bench: {'time': 1.0}, [Metric('time', 's', 'lower')])\n"
    "@hookimpl(specname='hpml_benchmarks')\ndef more():\n    return [PAIR, ONE]\n"
)


def asv_benchmarks(selection: dict[str, int], regex: list[str] | None = None) -> Any:
    entries = [
        {"name": name, "params": [[str(i) for i in range(count)]] if count else []} for name, count in selection.items()
    ]
    return Benchmarks(SimpleNamespace(benchmark_dir="benchmarks"), entries, regex)


def test_a_point_that_the_node_lacks_something_for_is_asked_for_once(tmp_path: Path, node: Node) -> None:
    (tmp_path / "toy.py").write_text(PLUGIN)
    (tmp_path / "registry.yaml").write_text(
        "version: 1\nplugins:\n  - {name: toy, path: toy.py, profiles: {quick: {toy: {size: [10]}}}}\n"
    )
    host = make_host(read_registry(tmp_path / "registry.yaml"))
    assert not host.broken, host.broken
    full = selection_of(declare(host, node, "m", tmp_path), host, node)
    assert full["pair.track_time"] == {0, 1}  # needs 10 and 1000 GPUs: said by the first metric
    assert full["pair.track_rate"] == set()
    assert full["toy.track_time"] == {0, 1}
    quick = selection_of(declare(host, node, "m", tmp_path, profile="quick"), host, node)
    assert quick["toy.track_time"] == {0}
    assert quick["one.track_time"] == {0}


def test_what_asv_was_asked_for_and_the_profile_are_both_held() -> None:
    points = {"a.track_x": 3, "b.track_x": 2, "c.track_x": 0, "foreign.track_y": 2}
    found = asv_benchmarks(points, [r"^a.*\([12]\)", "^b", "^c", "^foreign"])
    selection = {"a.track_x": {0, 1}, "b.track_x": set(), "c.track_x": {0}}
    narrow(found, selection)
    assert sorted(found) == ["a.track_x", "c.track_x", "foreign.track_y"]
    assert found.benchmark_selection["a.track_x"] == [1]
    assert found.benchmark_selection["foreign.track_y"] == [0, 1]


def test_a_benchmark_without_parameters_that_is_left_out_is_not_run() -> None:
    found = asv_benchmarks({"c.track_x": 0})
    narrow(found, {"c.track_x": set()})
    assert not found


@pytest.fixture
def node() -> Node:
    return Node(os="Linux", arch="x86_64", cpu="c", num_cpu=1, ram=1.0, python="3.11")
