"""The files of base, without its results."""

from __future__ import annotations

from pathlib import Path

from repositories import git

from hpml_plugins.tools.gate.removed import export


def test_results_that_changed_since_base_are_left_out(tmp_path: Path) -> None:
    top = tmp_path / "mine"
    results = top / "results"
    results.mkdir(parents=True)
    git(top, "init", "-q")
    (top / "code.py").write_text("pass\n")
    for text in ("of base", "of head"):
        (results / "benchmarks.json").write_text(text)
        git(top, "add", "--all")
        git(top, "commit", "-q", "-m", text)
    (results / "benchmarks.json").write_text("of the work tree")
    export(top, "HEAD~1", tmp_path / "base", results)
    assert [path.name for path in (tmp_path / "base").iterdir()] == ["code.py"]
    assert (results / "benchmarks.json").read_text() == "of the work tree"
    assert git(top, "status", "--short") == "M results/benchmarks.json"
