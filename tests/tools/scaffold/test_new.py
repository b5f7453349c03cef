"""The files that `hpml new` writes work unchanged."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from repositories import make_repository

from hpml_plugins.errors import HpmlError
from hpml_plugins.registry import read_registry
from hpml_plugins.tools.scaffold.command import register, write_plugin

Hpml = Callable[..., subprocess.CompletedProcess[str]]


@pytest.mark.slow
def test_a_new_package_passes_its_own_tests_unchanged(hpml: Hpml, tmp_path: Path) -> None:
    assert hpml("new", "row_sum").returncode == 0
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"],
        cwd=tmp_path / "hpml-row-sum",
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, "2 passed" in done.stdout) == (0, True), done.stdout


def test_a_new_file_is_registered_and_its_benchmark_is_there(
    hpml: Hpml, tmp_path: Path
) -> None:
    (tmp_path / "registry.yaml").write_text("# mine\nversion: 1\nplugins: []\n")
    done = hpml("new", "row_sum", "--single-file", "--register")
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "registry.yaml").read_text().startswith("# mine\n")
    assert [entry.path for entry in read_registry(tmp_path / "registry.yaml").plugins] == [
        "row_sum.py"
    ]
    assert "row_sum" in hpml("list").stdout
    again = hpml("new", "row_sum", "--single-file")
    assert (again.returncode, "'row_sum' is there already" in again.stderr) == (2, True)
    assert hpml("new", "Row-Sum").returncode == 2


def test_without_torch_it_measures_with_numpy(
    hpml: Hpml, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("hpml_plugins.tools.scaffold.command.find_spec", lambda name: None)
    file = write_plugin("row_sum", tmp_path, single_file=True)
    assert "torch" not in file.read_text()
    done = hpml("check", str(file))
    assert done.returncode == 0, done.stdout
    package = write_plugin("col_sum", tmp_path, single_file=False)
    assert "torch" not in (package / "pyproject.toml").read_text()


def test_a_name_that_exists_is_refused_and_nothing_is_written(
    hpml: Hpml, tmp_path: Path
) -> None:
    (tmp_path / "registry.yaml").write_text("version: 1\nplugins: []\n")
    assert hpml("new", "first", "--single-file", "--register").returncode == 0
    (tmp_path / "first.py").write_text(
        (tmp_path / "first.py").read_text().replace('"first"', '"x"')
    )
    before = sorted(tmp_path.rglob("*.py"))
    for words, told in (
        (
            ("first", "--single-file"),
            "registry.yaml:4: the plugin 'first' is there already",
        ),
        (("x", "--single-file"), "the plugin 'first' has a benchmark 'x' already"),
        (("plugins",), "a package hpml_plugins is installed already"),
        (("other", "--register"), "nowhere.yaml: no such file"),
    ):
        registry = ("--registry", "nowhere.yaml") if "nowhere" in told else ()
        done = hpml(*registry, "new", *words)
        assert (done.returncode, told in done.stderr) == (2, True), done.stderr
        assert len(done.stderr.splitlines()) == 1
    assert sorted(tmp_path.rglob("*.py")) == before


def test_a_file_is_written_beside_the_asv_benchmarks_like_the_first_one_of_init(
    hpml: Hpml, tmp_path: Path
) -> None:
    make_repository(tmp_path)
    assert hpml("init").returncode == 0
    assert hpml("new", "row_sum", "--single-file", "--register").returncode == 0
    paths = [entry.path for entry in read_registry(tmp_path / "registry.yaml").plugins]
    assert paths == ["benchmarks/hpml/export_time.py", "benchmarks/hpml/row_sum.py"]


def test_a_minimal_plugin_is_twenty_lines_or_fewer_and_a_new_file_is_short(
    tmp_path: Path,
) -> None:
    lines = write_plugin("row_sum", tmp_path, single_file=True).read_text().splitlines()
    assert len([line for line in lines if line.strip()]) <= 36


def test_a_registry_that_an_entry_cannot_be_appended_to_is_left_as_it_was(
    tmp_path: Path,
) -> None:
    registry = tmp_path / "registry.yaml"
    registry.write_text("plugins:\n  - {name: a, module: b}\nversion: 1\n")
    before = registry.read_text()
    with pytest.raises(HpmlError, match="write it there by hand: - "):
        register(registry, "- {name: c, module: d}")
    assert registry.read_text() == before


def test_a_registry_is_replaced_in_one_step(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A reader sees the old file or the new one, also after a kill; a symbolic link is kept."""
    registry = tmp_path / "registry.yaml"
    (tmp_path / "kept.yaml").write_text("version: 1\nplugins: []\n")
    registry.symlink_to("kept.yaml")
    seen = []
    original = Path.replace

    def replace(self: Path, target: Path) -> Path:
        seen.append((registry.read_text(), read_registry(self).plugins[0].name))
        return original(self, target)

    monkeypatch.setattr(Path, "replace", replace)
    register(registry, "- {name: c, module: d}")
    assert seen == [("version: 1\nplugins: []\n", "c")]
    assert registry.is_symlink()
    assert read_registry(registry).plugins[0].module == "d"


@pytest.mark.parametrize("name", [".", "a.b", "..", "a-b"])
def test_what_cannot_name_a_package_is_refused_as_a_name(
    hpml: Callable[..., subprocess.CompletedProcess[str]], name: str
) -> None:
    ended = hpml("new", "--", name)
    assert (ended.returncode, "cannot name a plugin" in ended.stderr) == (2, True), (
        ended.stderr
    )
