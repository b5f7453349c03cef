from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from support import DRAWN

Hpml = Callable[..., subprocess.CompletedProcess[str]]
Write = Callable[[str, str], Path]


@pytest.fixture
def measured(write: Write, hpml: Hpml) -> None:
    """A registry with the drawn toy, measured once."""
    write("registry.yaml", "version: 1\nplugins:\n  - {name: toy, path: toy.py}\n")
    write("toy.py", DRAWN)
    assert (
        hpml(
            "run", "toy", "--budget", "0.05", "--record", "results/m/records/uncommitted.jsonl"
        ).returncode
        == 0
    )


@pytest.mark.usefixtures("measured")
def test_table_prints_a_plugin_s_tables_and_one_of_them(hpml: Hpml) -> None:
    both = hpml("table", "toy")
    assert both.returncode == 0, both.stderr
    assert "Time against size" in both.stdout
    assert "The numbers" in both.stdout
    one = hpml("table", "toy.numbers", "--format", "csv")
    assert [line.split(",")[1] for line in one.stdout.splitlines()] == ["size", "10", "1000"]


@pytest.mark.usefixtures("measured")
def test_plot_writes_the_charts(hpml: Hpml, tmp_path: Path) -> None:
    done = hpml("plot", "toy", "--format", "pdf", "--to", "charts")
    assert done.stdout.split() == ["charts/toy-over_size.pdf", "charts/toy-freely.pdf"]
    assert all((tmp_path / path).read_bytes().startswith(b"%PDF") for path in done.stdout.split())


@pytest.mark.usefixtures("measured")
def test_wrong_names_and_empty_results_are_one_line(hpml: Hpml) -> None:
    for arguments, message in [
        (("table", "toi"), "no figure or plugin with figures 'toi'; did you mean 'toy'?"),
        (
            ("table", "toy", "--results", "nowhere"),
            "nothing measured for 'toy' under nowhere; run `asv run`",
        ),
        (("plot", "toy.numbers"), "has tables but no chart; print them: hpml table toy.numbers"),
    ]:
        done = hpml(*arguments)
        assert done.returncode == 2
        assert message in done.stderr
        assert len(done.stderr.splitlines()) == 1
