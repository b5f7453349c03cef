"""Which points asv starts processes for."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest
from asv.benchmarks import Benchmarks
from repositories import commit_all, git, make_repository
from support import TOY

from hpml_plugins import Node
from hpml_plugins.asv import patches
from hpml_plugins.asv.arguments import end_at_metrics
from hpml_plugins.asv.run import (
    add_reference,
    chosen_shard,
    keep_shard,
    narrow,
    newest_commits,
    shard,
    tasks_of,
)
from hpml_plugins.errors import UsageError
from hpml_plugins.host import Declared, Host, make_host
from hpml_plugins.model.node import Gpu
from hpml_plugins.registry import PluginSource, read_registry
from hpml_plugins.suite.functions import track_functions
from hpml_plugins.suite.points import SUITE_VARIABLE, make_suite

PLUGIN = (
    TOY
    + "\nfrom hpml_plugins import Requires\nMETRICS = [Metric('time', 's', 'lower'), Metric('rate',"
    " '1/s', 'higher')]\nPAIR = Benchmark('pair', measure, METRICS, grid={'size': [10, 1000]},"
    " requires=Requires(gpus='size'))\nONE = Benchmark('one', lambda bench: {'time': 1.0},"
    " [Metric('time', 's', 'lower')])\n@hookimpl(specname='hpml_benchmarks')\ndef more():\n   "
    " return [PAIR, ONE]\n"
)


def asv_benchmarks(selection: dict[str, int], regex: list[str] | None = None) -> Any:
    entries = [
        {
            "name": name,
            "params": [[str(i) for i in range(count)]] if count else [],
            **({} if name.startswith("foreign") else {"benchmark": name.partition(".")[0]}),
        }
        for name, count in selection.items()
    ]
    return Benchmarks(SimpleNamespace(benchmark_dir="benchmarks"), entries, regex)


def declared(**points: set[int]) -> list[Declared]:
    """Benchmarks of three points, of which a profile has these."""
    plain = Declared(PluginSource("p"), "", "1", {"i": [0, 1, 2]}, 1.0, [])
    return [
        msgspec.structs.replace(
            plain, benchmark=name, chosen={"i": [*which]}, left_out=not which
        )
        for name, which in points.items()
    ]


def chosen(host: Host) -> dict[str, set[int]]:
    """What is left of all points of a host's benchmarks."""
    found = asv_benchmarks(
        {f"{each.name}.track_x": len(list(each.points())) for each in host.benchmarks()},
        [".*"],
    )
    narrow(found, host.benchmarks())
    return {
        name.partition(".")[0]: set(points)
        for name, points in found.benchmark_selection.items()
    }


def test_a_profile_chooses_points_and_what_the_node_lacks_is_asked_for_too(
    tmp_path: Path,
) -> None:
    (tmp_path / "toy.py").write_text(PLUGIN)
    (tmp_path / "registry.yaml").write_text(
        "version: 1\nplugins:\n  - {name: toy, path: toy.py, profiles: {quick: {toy: {size:"
        " [10]}}}}\n"
    )
    host = make_host(read_registry(tmp_path / "registry.yaml"))
    assert not host.broken, host.broken
    # pair needs 1000 GPUs, which a Record says
    assert chosen(host) == {"toy": {0, 1}, "pair": {0, 1}, "one": {0}}
    assert chosen(make_host(host.registry, profile="quick")) == {
        "toy": {0},
        "pair": {0, 1},
        "one": {0},
    }


def test_a_commit_that_knows_no_metric_without_direction_can_read_the_suite(
    tmp_path: Path, node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "toy.py").write_text(TOY.replace('"lower"', "None"))
    (tmp_path / "registry.yaml").write_text(
        "version: 1\nplugins:\n  - {name: toy, path: toy.py}\n"
    )
    suite = make_suite(
        make_host(read_registry(tmp_path / "registry.yaml")), node, "m", tmp_path
    )
    (tmp_path / "suite.json").write_bytes(written := msgspec.json.encode(suite))
    benchmarks = msgspec.json.decode(written)["benchmarks"]
    directions = {metric["direction"] for each in benchmarks for metric in each["metrics"]}
    assert directions <= {"lower", "higher"}  # what the types of such a commit allow
    monkeypatch.setenv(SUITE_VARIABLE, str(tmp_path / "suite.json"))
    (function,) = track_functions(tmp_path).values()
    assert function.direction == "none"  # type: ignore[attr-defined]


def test_what_asv_was_asked_for_and_the_profile_both_hold() -> None:
    points = {"a.track_x": 3, "b.track_x": 2, "c.track_x": 0, "foreign.track_y": 2}
    found = asv_benchmarks(points, [r"^a.*\([12]\)", "^b", "^c", "^foreign"])
    narrow(found, declared(a={0, 1}, b=set(), c={0}))
    assert sorted(found) == ["a.track_x", "c.track_x", "foreign.track_y"]
    assert found.benchmark_selection["a.track_x"] == [1]
    assert found.benchmark_selection["foreign.track_y"] == [0, 1]


def test_a_profile_without_a_point_of_what_was_asked_for_is_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    points = {"a.track_x": 3, "b.track_x": 2}
    suite = SimpleNamespace(benchmarks=declared(a=set(), b={0}))
    prepared = SimpleNamespace(profile="quick", suite=suite)
    monkeypatch.setattr(patches, "_prepared", [prepared])
    asked = end_at_metrics(["^a$"])
    found = asv_benchmarks(points, asked)
    assert list(found) == ["a.track_x"]
    with pytest.raises(UsageError) as refused:
        patches.discover(lambda *_, **__: found, None, None, None, [], [], regex=asked)
    assert str(refused.value).startswith(
        "profile 'quick' chooses no point that matches --bench '^a$'; "
    )


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (["^toy$", "tyo"], "--bench: no benchmark matches 'tyo'; did you mean 'toy'?"),
        (["one", "^x$", "^y$"], "--bench: no benchmark matches '^x$' or '^y$'; known: "),
        (
            ["one", "^pair$"],
            "profile 'quick' chooses no point that matches --bench '^pair$'; ",
        ),
    ],
)
def test_each_of_several_patterns_must_choose_a_point(
    given: list[str], said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    points = {"toy.track_x": 3, "pair.track_x": 2, "one.track_x": 0}
    suite = SimpleNamespace(benchmarks=declared(toy={0}, pair=set(), one={0}))
    prepared = SimpleNamespace(profile="quick", suite=suite)
    monkeypatch.setattr(patches, "_prepared", [prepared])
    asked = end_at_metrics(given)
    found = asv_benchmarks(points, asked)
    assert found
    with pytest.raises(UsageError) as refused:
        patches.discover(lambda *_, **__: found, None, None, None, [], [], regex=asked)
    assert str(refused.value).startswith(said)


def test_one_metric_measures_for_all_and_it_is_one_that_was_asked_for() -> None:
    metrics = ["a.track_x", "a.track_y", "a.track_z"]
    found = asv_benchmarks(dict.fromkeys(metrics, 2))
    narrow(found, declared(a={0, 1}))
    assert list(found) == ["a.track_x"]
    found = asv_benchmarks(dict.fromkeys(metrics, 2), ["track_[yz]"])
    narrow(found, declared(a={0, 1}))
    assert list(found) == ["a.track_y"]


def test_a_dollar_ends_the_name_of_a_benchmark_too() -> None:
    points = dict.fromkeys(("tta.track_time", "tta_cpu.track_time", "a.track_tta"), 2)
    chosen = {
        pattern: set(asv_benchmarks(points, end_at_metrics([pattern])))
        for pattern in ("^tta$", "tta$", r"tta\$", "_time$", "^tta")
    }
    assert chosen == {
        "^tta$": {"tta.track_time"},
        "tta$": {"tta.track_time", "a.track_tta"},
        r"tta\$": set(),
        "_time$": {"tta.track_time", "tta_cpu.track_time"},
        "^tta": {"tta.track_time", "tta_cpu.track_time"},
    }


def test_a_benchmark_without_parameters_that_is_left_out_is_not_run() -> None:
    found = asv_benchmarks({"c.track_x": 0})
    narrow(found, declared(c=set()))
    assert not found


def test_the_heaviest_goes_first_to_the_lightest_shard() -> None:
    # 7 → 0; 6 → 1; 5 → 1 (6 < 7) = 11; 4 → 0 (7 < 11) = 11; 3 → 0 (a tie: the first) = 14; 2 → 1 =
    # 13
    weights = {"two": 2.0, "three": 3.0, "four": 4.0, "five": 5.0, "six": 6.0, "seven": 7.0}
    assert shard(weights, 2) == [["seven", "four", "three"], ["six", "five", "two"]]
    assert shard(dict(reversed(weights.items())), 2) == shard(weights, 2)
    assert shard({"b": 1, "a": 1}, 3) == [["a"], ["b"], []]


def test_shards_are_disjoint_and_together_everything(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    # a has 3 points, b 2, c one: a → shard 0, b and c → shard 1
    def kept(variable: str) -> set[str]:
        monkeypatch.setenv("HPML_SHARD", variable)
        found = asv_benchmarks({"a.track_x": 3, "b.track_x": 2, "c.track_x": 0})
        keep_shard(found)
        return set(found)

    assert (kept("0/2"), kept("1/2")) == ({"a.track_x"}, {"b.track_x", "c.track_x"})
    assert kept("0/1") == {"a.track_x", "b.track_x", "c.track_x"}
    with pytest.raises(SystemExit) as ended:
        kept("3/4")
    assert ended.value.code == 0
    assert (
        "shard 4 of 4 has nothing to measure: there are 3 benchmarks"
        in capsys.readouterr().out
    )


@pytest.fixture
def node() -> Node:
    return Node(os="Linux", arch="x86_64", cpu="c", num_cpu=1, ram=1.0, python="3.11")


def with_reference() -> list[Declared]:
    """A CPU benchmark, one that needs a GPU, and the reference."""
    a, b, reference = declared(a={0, 1}, b={0}, reference={0, 1, 2})
    return [
        msgspec.structs.replace(a, needs_gpu=False),
        b,
        msgspec.structs.replace(reference, grid={}, chosen={}),
    ]


@pytest.mark.parametrize(
    ("regex", "gpus", "added"),
    [
        ("^b", 1, True),  # something on the GPU was asked for
        ("^b", 0, False),  # this node has none
        ("^a", 1, False),  # nothing on the GPU was asked for
    ],
)
def test_a_visit_to_a_gpu_measures_the_reference_too(
    regex: str, gpus: int, added: bool
) -> None:
    node = Node(
        os="Linux",
        arch="x86_64",
        cpu="c",
        num_cpu=2,
        ram=1e9,
        python="3.12.0",
        gpus=(Gpu("G", 8e10),) * gpus,
    )
    found = asv_benchmarks(
        {"a.track_x": 3, "b.track_x": 3, "reference.track_x": 0}, [regex]
    )
    of_ours = with_reference()
    narrow(found, of_ours)
    add_reference(found, of_ours, node)
    assert ("reference.track_x" in found) == added
    tasks = [each.declared.benchmark for each in tasks_of(found, of_ours)]
    assert ("reference" in tasks) == added and len(tasks) > added


def test_tasks_are_in_the_order_of_the_registry_not_of_the_alphabet() -> None:
    found = asv_benchmarks({"a.track_x": 3, "b.track_x": 3})
    of_ours = declared(b={0, 2}, a={0, 1, 2})
    narrow(found, of_ours)
    assert [each.declared.benchmark for each in tasks_of(found, of_ours)] == [
        "b",
        "b",
        "a",
        "a",
        "a",
    ]


@pytest.mark.parametrize(
    "text", ["9/2", "2/2", "0/0", "-1/2", "1", "a/b", "1/2/3", "", "0/" + "9" * 5000]
)
def test_what_is_no_shard_is_refused_in_one_line(
    text: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HPML_SHARD", text)
    with pytest.raises(
        UsageError, match=r"HPML_SHARD is '.{0,40}', not I/N with I from 0 to N - 1"
    ):
        chosen_shard()


def test_asv_without_git_ends_in_one_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from types import SimpleNamespace

    from hpml_plugins.asv.patches import run_command

    def without_git(*_: object, **__: object) -> None:
        raise OSError("Could not find 'git' in PATH")

    monkeypatch.setenv("PATH", "")
    conf = SimpleNamespace(results_dir="nowhere", env_dir="nowhere", matrix={}, repo=".")
    with pytest.raises(SystemExit) as ended:
        run_command(without_git, type("Show", (), {}), conf, SimpleNamespace())
    assert ended.value.code == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert "git is not installed" in line


def test_of_a_branch_that_a_clone_lacks_the_remotes_newest_commit_is_measured(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    origin, clone = tmp_path / "origin", tmp_path / "clone"
    origin.mkdir()
    (origin / "file").write_text("1")
    make_repository(origin, "of main")
    main = git(origin, "rev-parse", "HEAD")
    git(origin, "checkout", "-qb", "feature")
    (origin / "file").write_text("2")
    feature = commit_all(origin, "of a feature")
    git(tmp_path, "clone", "-q", "-b", "feature", str(origin), str(clone))
    assert newest_commits(clone, ["main"]) == [main]
    assert newest_commits(clone, ["feature", "main"]) == [feature, main]
    assert capfd.readouterr().err == ""
    git(clone, "remote", "remove", "origin")
    assert newest_commits(clone, ["main"]) == [feature]
    assert "no branch 'main'; using the current checkout instead" in capfd.readouterr().err


def test_asv_finds_the_commits_of_branches_that_are_there(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("1")
    make_repository(tmp_path, "first")
    assert newest_commits(tmp_path, ["main"]) is None
    assert newest_commits(tmp_path, [None]) is None
