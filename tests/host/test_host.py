from __future__ import annotations

import importlib.metadata
import os
import py_compile
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from support import TOY

from hpml_plugins.errors import HpmlError, UsageError
from hpml_plugins.host import Host, make_host
from hpml_plugins.model.node import Node
from hpml_plugins.registry import read_registry
from hpml_plugins.suite.points import make_suite

HostOf = Callable[..., Host]

ONE = "version: 1\nplugins:\n  - {name: toy, path: toy.py}\n"


def test_a_file_a_module_and_an_entry_point_all_give_a_plugin(
    host_of: HostOf, monkeypatch: pytest.MonkeyPatch, tmp_path: object
) -> None:
    monkeypatch.syspath_prepend(str(tmp_path))
    point = importlib.metadata.EntryPoint("packed", "toy_entry", "hpml")
    monkeypatch.setattr(
        importlib.metadata,
        "entry_points",
        lambda group: importlib.metadata.EntryPoints([point]),
    )
    host = host_of(
        """
        version: 1
        plugins:
          - {name: a, path: toy.py}
          - {name: b, module: toy_module}
          - {name: c, entry_point: packed}
        """,
        toy=TOY,
        toy_module=TOY.replace('"toy"', '"toy_b"'),
        toy_entry=TOY.replace('"toy"', '"toy_c"'),
    )
    assert host.broken == []
    assert [(benchmark.plugin.name, benchmark.name) for benchmark in host.benchmarks()] == [
        ("a", "toy"),
        ("b", "toy_b"),
        ("c", "toy_c"),
    ]
    assert all(len(plugin.source["sha256"]) == 64 for plugin in host.plugins)


@pytest.mark.parametrize("kept", [b"cut off", None], ids=["cut off", "of the file before"])
def test_byte_code_beside_a_file_is_neither_read_nor_written(
    kept: bytes | None, host_of: HostOf, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Python takes it by the time of the file in seconds, and its size."""
    monkeypatch.setattr(sys, "dont_write_bytecode", False)
    monkeypatch.setattr(sys, "pycache_prefix", None)
    host = host_of(ONE, toy=TOY)
    assert [each.name for each in host.benchmarks()] == ["toy"]
    assert not (tmp_path / "__pycache__").exists()
    file = tmp_path / "toy.py"
    compiled = Path(str(py_compile.compile(str(file), doraise=True)))
    if kept is not None:
        compiled.write_bytes(compiled.read_bytes()[:100])
    moment = file.stat()
    file.write_text(TOY.replace('"toy"', '"tea"'))
    os.utime(file, (moment.st_atime, moment.st_mtime))
    host = make_host(read_registry(tmp_path / "registry.yaml"))
    assert [each.name for each in host.benchmarks()] == ["tea"]


def test_a_disabled_plugin_is_not_even_imported(host_of: HostOf) -> None:
    host = host_of(
        "version: 1\nplugins:\n  - {name: toy, path: toy.py, enabled: false}\n",
        toy="raise SystemExit(9)",
    )
    assert host.plugins == ()


#: what the plugin does → (its text, what the error must say)
BROKEN = {
    "does not import": (
        "import no_such_module",
        "plugin 'bad' cannot be loaded: ModuleNotFoundError",
    ),
    "exits while imported": (
        "raise SystemExit(3)",
        "plugin 'bad' cannot be loaded: SystemExit: 3",
    ),
    "is not Python": ("def (", "plugin 'bad' cannot be loaded: SyntaxError"),
    "has no hook": (
        "x = 1",
        "implements no hook; mark `def hpml_benchmarks()` with `@hookimpl`",
    ),
    "misspells the hook": (
        "from hpml_plugins import hookimpl\n@hookimpl\ndef hpml_benchmark(): return []",
        "unknown hook 'hpml_benchmark'",
    ),
    "raises while being asked": (
        "from hpml_plugins import hookimpl\n@hookimpl\ndef hpml_benchmarks(): return 1 / 0",
        "ZeroDivisionError: division by zero",
    ),
    "returns something else": (
        "from hpml_plugins import hookimpl\n@hookimpl\ndef hpml_benchmarks(): return ['toy']",
        "plugin 'bad': returned str, not a list of Benchmark values",
    ),
    "declares a metric without unit": (
        TOY.replace('"s"', '""'),
        "metric 'time' has no unit",
    ),
    "declares an unknown unit": (TOY.replace('"s"', '"ms"'), "unit 'ms' is not known"),
    "declares another direction": (
        TOY.replace('"lower"', '"down"'),
        "direction is 'down', not 'lower', 'higher' or None",
    ),
    "declares no metric": (
        TOY.replace('[Metric("time", "s", "lower")]', "[]"),
        "declares no metric",
    ),
    "misspells a grid key": (
        TOY.replace('{"size"', '{"sise"'),
        "grid key 'sise' is not a parameter of hpml_file_bad.measure (size)",
    ),
    "explains no parameter": (
        TOY.replace("grid={", "terms={'sise=10': 'small'}, grid={"),
        "terms explain 'sise=10', whose parameter its grid lacks",
    ),
    "leaves a parameter out": (
        TOY.replace('grid={"size": [10, 1000]}', "grid={}"),
        "parameters that the grid does not define: size",
    ),
    "has an empty grid": (TOY.replace("[10, 1000]", "[]"), "grid of 'size' is empty"),
    "gives a string for a grid": (
        TOY.replace("[10, 1000]", "'10'"),
        "is not a list of values",
    ),
    "repeats a grid value": (TOY.replace("[10, 1000]", "[10, 10]"), "has value 10 twice"),
    "uses a name that asv cannot": (
        TOY.replace('"toy"', '"to-y"'),
        "must be at most 100 lower-case letters",
    ),
    "wants no time at all": (
        TOY.replace("grid=", "timeout=0, grid="),
        "timeout=0: expected `float` > 0.0",
    ),
}


@pytest.mark.parametrize("what", BROKEN)
def test_a_broken_plugin_is_kept_with_its_reason_and_takes_no_other_down(
    host_of: HostOf, what: str
) -> None:
    text, message = BROKEN[what]
    host = host_of(
        "version: 1\nplugins:\n  - {name: bad, path: bad.py}\n  - {name: toy, path: toy.py}\n",
        bad=text,
        toy=TOY,
    )
    assert [plugin.entry.name for plugin in host.broken] == ["bad"]
    error = host.broken[0].error
    assert error is not None
    assert message in str(error)
    assert ".py:" in error.where or "registry.yaml:3" in error.where
    assert "\n" not in str(error)
    assert [benchmark.name for benchmark in host.benchmarks()] == ["toy"]
    with pytest.raises(HpmlError, match="bad"):
        host.find("bad")


def test_two_plugins_offering_one_name_names_both(host_of: HostOf) -> None:
    host = host_of(
        "version: 1\nplugins:\n  - {name: a, path: a.py}\n  - {name: b, path: b.py}\n",
        a=TOY,
        b=TOY,
    )
    assert "benchmark 'toy' is offered by plugin 'a' and by 'b'" in str(
        host.broken[0].error
    )
    assert [benchmark.plugin.name for benchmark in host.benchmarks()] == ["a"]


#: what the registry says of a good plugin → what the error must say
WRONG = {
    "grid: {tey: {size: [1]}}": "offers no benchmark 'tey'; did you mean 'toy'?",
    "grid: {toy: {sise: [1]}}": (
        "grid key 'sise' is not a parameter of hpml_file_toy.measure (size)"
    ),
    "profiles: {quick: {toy: {size: [7]}}}": "size 7 is not in the grid (10, 1000)",
    "profiles: {quick: {toy: {sise: [10]}}}": "no parameter 'sise'; did you mean 'size'?",
    "profiles: {quick: {tey: {size: [10]}}}": "no benchmark 'tey'; did you mean 'toy'?",
    "gate: {toy: {tme: 5}}": (
        "gate of 'toy': no metric with a direction 'tme'; did you mean 'time'?"
    ),
    "gate: {tey: 5}": "gate of 'toy': no benchmark 'tey'; did you mean 'toy'?",
    "profiles: {quick: {tey: false}}": "no benchmark 'tey'; did you mean 'toy'?",
    "profiles: {quick: {'*': {size: [10]}}}": "no benchmark '*'; ",
}


@pytest.mark.parametrize("line", WRONG)
def test_a_registry_that_does_not_fit_its_plugin_is_told_the_line(
    host_of: HostOf, line: str
) -> None:
    host = host_of(
        f"version: 1\nplugins:\n  - name: toy\n    path: toy.py\n    {line}\n", toy=TOY
    )
    assert WRONG[line] in str(host.broken[0].error)
    assert "registry.yaml:5: " in str(host.broken[0].error)


def test_a_grid_and_a_timeout_of_the_registry_replace_the_plugins(host_of: HostOf) -> None:
    host = host_of(
        "version: 1\nplugins:\n  - {name: toy, path: toy.py, timeout: 7, grid: {toy: {size: [1, 2,"
        " 3]}}}\n",
        toy=TOY,
    )
    benchmark, *_ = host.benchmarks()
    assert (benchmark.timeout, list(benchmark.points())) == (
        7.0,
        [{"size": 1}, {"size": 2}, {"size": 3}],
    )


def test_a_profile_chooses_points_and_never_changes_the_grid(host_of: HostOf) -> None:
    host = host_of(
        "version: 1\nplugins:\n  - {name: toy, path: toy.py, profiles: {quick: {toy: {size:"
        " [10]}}}}\n",
        toy=TOY,
    )
    for each, points in (
        (host, [{"size": 10}, {"size": 1000}]),
        (make_host(host.registry, profile="quick"), [{"size": 10}]),
    ):
        (benchmark,) = each.benchmarks()
        assert list(benchmark.chosen_points().values()) == points
        assert list(benchmark.points()) == [{"size": 10}, {"size": 1000}]
    with pytest.raises(UsageError, match=r"no profile 'quik'; did you mean 'quick'\?"):
        make_host(host.registry, profile="quik")


def test_a_profile_may_leave_a_benchmark_out(host_of: HostOf, node: Node) -> None:
    host = host_of(
        "version: 1\nplugins:\n  - {name: toy, path: toy.py, profiles: {quick: {toy: false}, night:"
        " {toy: true}, day: {}}}\n",
        toy=TOY,
    )
    hosts = [
        make_host(host.registry, profile=profile) for profile in ("quick", "night", "day")
    ]
    declared = [make_suite(each, node, "here", "").benchmarks[0] for each in hosts]
    assert [len(each.chosen_points()) for each in declared] == [0, 2, 2]
    assert [{"size": 10} in each.chosen_points().values() for each in declared] == [
        False,
        True,
        True,
    ]


def test_a_profile_may_leave_out_all_benchmarks_that_it_does_not_name(
    host_of: HostOf,
) -> None:
    text = TOY.replace(
        "return [TOY]",
        "import dataclasses; return [TOY, dataclasses.replace(TOY, name='other')]",
    )
    host = host_of(
        "version: 1\nplugins:\n  - {name: toy, path: toy.py, profiles: {few: {'*': false, toy:"
        " {size: [10]}}}}\n",
        toy=text,
    )
    chosen = {
        each.name: len(each.chosen_points())
        for each in make_host(host.registry, profile="few").benchmarks()
    }
    assert chosen == {"toy": 1, "other": 0}


def test_an_unknown_name_is_answered_with_the_nearest(host_of: HostOf) -> None:
    with pytest.raises(
        UsageError, match=r"no benchmark or plugin 'tyo'; did you mean 'toy'\?"
    ):
        host_of(ONE, toy=TOY).find("tyo")


def test_a_parameter_with_a_default_may_be_left_out_of_the_grid(host_of: HostOf) -> None:
    host = host_of(ONE, toy=TOY.replace("*, size):", '*, size, way="plain"):'))
    assert host.broken == []
    assert [dict(each.grid) for each in host.benchmarks()] == [{"size": [10, 1000]}]
