"""A built-in plugin is a folder and an entry of registry.yaml: deleting both leaves everything else
working."""

from __future__ import annotations

import ast
import itertools
import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from support import PATIENCE, ROOT

from hpml_plugins.registry import read_registry

BUILT_IN = [
    path.name
    for path in (ROOT / "hpml_plugins" / "plugins").iterdir()
    if (path / "__init__.py").exists()
]
#: `make test` deletes three of them, one of each kind: of one file, with programs, with services.
SOME = [
    name
    if name in ("reference", "vecadd", "machine")
    else pytest.param(name, marks=pytest.mark.slow)
    for name in BUILT_IN
]


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    """The project without its history, results and environment."""
    for name in ("hpml_plugins", "benchmarks"):
        shutil.copytree(
            ROOT / name, tmp_path / name, ignore=shutil.ignore_patterns("__pycache__")
        )
    for name in ("registry.yaml", "asv.conf.json", "pyproject.toml"):
        shutil.copy(ROOT / name, tmp_path / name)
    return tmp_path


def hpml(folder: Path, *args: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "hpml_plugins", *args]
    return subprocess.run(
        command, cwd=folder, capture_output=True, text=True, check=False, timeout=PATIENCE
    )


def test_every_built_in_plugin_is_in_the_registry() -> None:
    modules = {entry.module for entry in read_registry(ROOT / "registry.yaml").plugins}
    assert modules >= {f"hpml_plugins.plugins.{name}" for name in BUILT_IN}
    assert BUILT_IN


@pytest.mark.parametrize("name", SOME)
def test_deleting_a_plugin_leaves_the_others_working(name: str, copy: Path) -> None:
    before = json.loads(hpml(copy, "list", "--json").stdout)
    shutil.rmtree(copy / "hpml_plugins" / "plugins" / name)
    delete_entry(copy / "registry.yaml", name)
    done = hpml(copy, "list", "--json")
    assert (done.returncode, done.stderr) == (0, "")
    assert json.loads(done.stdout) == [row for row in before if row["plugin"] != name]
    code = (
        "from pathlib import Path; from hpml_plugins.suite import track_functions;"
        " print(len(track_functions(Path())))"
    )
    suite = subprocess.run(
        [sys.executable, "-c", code], cwd=copy, capture_output=True, text=True, check=False
    )
    assert int(suite.stdout) == sum(
        len(row["metrics"]) for row in before if row["plugin"] != name
    )


@pytest.mark.parametrize("name", SOME)
def test_deleting_only_the_folder_is_said_and_the_others_still_run(
    name: str, copy: Path
) -> None:
    shutil.rmtree(copy / "hpml_plugins" / "plugins" / name)
    done = hpml(copy, "list")
    assert done.returncode == 2
    assert (
        f"plugin '{name}': module 'hpml_plugins.plugins.{name}' does not import"
        in done.stderr
    )


@pytest.mark.parametrize("name", BUILT_IN)
def test_the_core_does_not_name_a_built_in_plugin(name: str) -> None:
    core = [
        path
        for path in (ROOT / "hpml_plugins").rglob("*.py")
        if "plugins" not in path.parts[len(ROOT.parts) + 1 :]
    ]
    assert len(core) > 30
    assert [path for path in core if f"plugins.{name}" in path.read_text()] == []


@pytest.mark.parametrize("name", BUILT_IN)
def test_a_built_in_plugin_imports_only_public_names(name: str) -> None:
    own = f"hpml_plugins.plugins.{name}"
    for path in (ROOT / "hpml_plugins" / "plugins" / name).rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith(
                "hpml_plugins"
            ):
                # what hpml_plugins or one of its packages exports; import-linter names which of
                # them
                package = ROOT.joinpath(*node.module.split("."), "__init__.py").exists()
                public = node.module.count(".") < 2 or (
                    package and node.module.startswith("hpml_plugins.workloads.")
                )
                assert public or node.module.startswith(own), (
                    f"{path.name}:{node.lineno} imports {node.module}"
                )


@pytest.mark.parametrize("name", BUILT_IN)
def test_a_built_in_plugin_measures_through_its_bench_alone(name: str) -> None:
    """It makes no Bench of its own, uses no private name of a Bench or a Rank, and assigns to none
    of theirs."""
    for path in (ROOT / "hpml_plugins" / "plugins" / name).rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            where = f"{path.name}:{getattr(node, 'lineno', 0)}"
            if isinstance(node, ast.Call):
                assert getattr(node.func, "id", "") not in ("Bench", "Rank"), where
            if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
                of_bench = node.value.id in ("bench", "rank")
                assert not (of_bench and node.attr.startswith("_")), where
            targets = node.targets if isinstance(node, ast.Assign | ast.Delete) else []
            assert not [
                each for each in targets if ast.unparse(each).startswith("bench.")
            ], where


def delete_entry(registry: Path, name: str) -> None:
    lines = registry.read_text().splitlines(keepends=True)
    starts = [
        number for number, line in enumerate(lines) if line.startswith("  - name:")
    ] + [len(lines)]
    kept = lines[: starts[0]]
    for start, end in itertools.pairwise(starts):
        if lines[start].strip() != f"- name: {name}":
            kept += lines[start:end]
    registry.write_text("".join(kept))
