"""What plugins offer beside benchmarks reaches the points, in order, and one that raises costs only
its own."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from support import TOY

from hpml_plugins.model import Benchmark, Metric, Node, Requires
from hpml_plugins.model.serialization import decode
from hpml_plugins.node import unmet

#: Two of these differ in NUMBER only: the first stands.
OFFERING = """
import numpy
from hpml_plugins import Arrays, DataSource, hookimpl

def load(path):
    images = numpy.full((8, 1, 2, 2), NUMBER, dtype=numpy.uint8)
    labels = numpy.arange(8, dtype=numpy.int64) % 2
    return Arrays(images, labels, images, labels, ("a", "b"))

def find(root):
    return root / "mine.txt" if (root / "mine.txt").exists() else None

@hookimpl
def hpml_data():
    return [DataSource("mine_NAME", find, load, "mine.txt", "touch mine.txt"),
            DataSource("shared", find, load, "mine.txt", "touch mine.txt")]

"""

READING = """
from hpml_plugins import Benchmark, Metric, Requires, hookimpl

def measure(bench, *, data):
    loaded = bench.data(data)
    bench.check(len(loaded.train) == 8, "sizes")
    return {"value": int(loaded.train.images.max())}

@hookimpl
def hpml_benchmarks():
    metrics = [Metric("value", "1", "higher")]
    grid = {"data": ["mine_a", "mine_b", "shared"]}
    return [Benchmark("reading", measure, metrics, grid, Requires(data="data")),
            Benchmark("choosing", measure, metrics, {"data": ["mine_b"]})]
"""


def offering(name: str, number: int) -> str:
    return OFFERING.replace("NAME", name).replace("NUMBER", str(number))


REGISTRY = """
version: 1
plugins:
  - {name: a, path: a.py}
  - {name: b, path: b.py}
  - {name: readers, path: readers.py}
"""


def two_that_offer_and_readers(
    write: Callable[[str, str], Path], folder: Path
) -> dict[str, str]:
    """The plugins' files and a data file; the variables under which it is found."""
    for name, text in (
        ("a", offering("a", 1)),
        ("b", offering("b", 2)),
        ("readers", READING),
    ):
        write(f"{name}.py", text)
    write("data/mine.txt", "")
    return {"HPML_DATA": str(folder / "data"), "XDG_CACHE_HOME": str(folder / "cache")}


def test_points_get_what_other_plugins_offer_and_the_first_of_a_name_stands(
    write: Callable[[str, str], Path],
    hpml: Callable[..., subprocess.CompletedProcess[str]],
    tmp_path: Path,
) -> None:
    env = two_that_offer_and_readers(write, tmp_path)
    write("registry.yaml", REGISTRY)
    done = hpml("run", "readers", "--json", "--rounds", "1", **env)
    every = [decode(line.encode()) for line in done.stdout.splitlines()]
    assert {
        (each.benchmark, each.params["data"]): each.reason
        for each in every
        if each.status != "ok"
    } == {}
    records = {
        str(each.params["data"]): each for each in every if each.benchmark == "reading"
    }
    # A parameter's value may name a data set without a requirement, where other values name none.
    assert [
        set(each.metrics["value"].samples) for each in every if each.benchmark == "choosing"
    ] == [{2.0}]
    values = {
        name: set(record.metrics["value"].samples) for name, record in records.items()
    }
    assert values == {"mine_a": {1.0}, "mine_b": {2.0}, "shared": {1.0}}
    assert (
        "data set 'shared' is offered by plugin 'a' and by 'b'; the first one is used"
        in done.stderr
    )
    assert "mine_b" in hpml("data", **env).stdout


def test_a_file_that_is_in_no_registry_gets_what_the_registrys_plugins_offer(
    write: Callable[[str, str], Path],
    hpml: Callable[..., subprocess.CompletedProcess[str]],
    tmp_path: Path,
) -> None:
    env = two_that_offer_and_readers(write, tmp_path)
    write("registry.yaml", REGISTRY.replace("  - {name: readers, path: readers.py}\n", ""))
    done = hpml("run", "readers.py", "--json", "--rounds", "1", **env)
    every = [decode(line.encode()) for line in done.stdout.splitlines()]
    values = {
        (each.benchmark, str(each.params["data"])): set(each.metrics["value"].samples)
        for each in every
        if each.status == "ok"
    }
    assert values == {
        ("reading", "mine_a"): {1.0},
        ("reading", "mine_b"): {2.0},
        ("reading", "shared"): {1.0},
        ("choosing", "mine_b"): {2.0},
    }


@pytest.mark.parametrize(
    ("hook", "body", "said"),
    [
        (
            "hpml_data",
            "raise OSError('no disk')",
            "hpml_data of plugin 'bad': OSError: no disk (raise OSError('no disk'))",
        ),
        (
            "hpml_data",
            "return ['H200']",
            "of plugin 'bad': returned str, not a list of LoadableData values",
        ),
    ],
)
def test_a_hook_that_raises_is_named_and_its_plugins_benchmarks_stay(
    write: Callable[[str, str], Path], hook: str, body: str, said: str
) -> None:
    from hpml_plugins.host import make_host
    from hpml_plugins.registry import read_registry

    write("bad.py", f"{TOY}\n@hookimpl\ndef {hook}():\n    {body}\n")
    registry = read_registry(
        write("registry.yaml", "version: 1\nplugins:\n  - {name: bad, path: bad.py}\n")
    )
    host = make_host(registry)
    assert [benchmark.name for benchmark in host.benchmarks()] == ["toy"]
    (problem,) = host.offers.problems
    assert said in problem
    assert "registry.yaml:3: " in problem or "bad.py:1" in problem


def test_a_requirement_of_a_plugins_own_skips_with_its_reason_and_one_that_raises_is_named(
    node: Node,
) -> None:
    def measure(bench: object, *, size: int) -> dict[str, float]:
        return {}

    def needs_a_rack(node: Node, point: dict[str, object]) -> str:
        return f"size {point['size']} needs a rack"

    def raises(node: Node, point: dict[str, object]) -> str:
        raise KeyError("rack")

    requires = Requires(also=(needs_a_rack, raises))
    benchmark = Benchmark(
        "b", measure, [Metric("time", "s", "lower")], {"size": [1]}, requires
    )
    assert unmet(benchmark, {"size": 1}, node) == [
        "size 1 needs a rack",
        "requirement raises raised KeyError: 'rack'",
    ]
