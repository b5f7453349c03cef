from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import urllib.request
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest
from support import DRAWN, PATIENCE

Hpml = Callable[..., subprocess.CompletedProcess[str]]
Write = Callable[[str, str], Path]


@pytest.fixture
def measured(write: Write, hpml: Hpml) -> None:
    """A registry with the drawn toy, measured once."""
    write("registry.yaml", "version: 1\nplugins:\n  - {name: toy, path: toy.py}\n")
    write("toy.py", DRAWN)
    assert (
        hpml(
            "run",
            "toy",
            "--budget",
            "0.05",
            "--record",
            "results/m/records/uncommitted.jsonl",
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
    assert [line.split(",")[1] for line in one.stdout.splitlines()] == [
        "size",
        "10",
        "1000",
    ]


@pytest.mark.usefixtures("measured")
def test_plot_writes_the_charts(hpml: Hpml, tmp_path: Path) -> None:
    done = hpml("plot", "toy", "--format", "pdf", "--to", "charts")
    assert done.stdout.split() == ["charts/toy-over_size.pdf", "charts/toy-freely.pdf"]
    assert all(
        (tmp_path / path).read_bytes().startswith(b"%PDF") for path in done.stdout.split()
    )


@pytest.mark.usefixtures("measured")
def test_a_figure_that_fails_costs_itself(write: Write, hpml: Hpml, tmp_path: Path) -> None:
    numbers = 'Figure("numbers", "The numbers", ("toy",), table),'
    bad = 'Figure("bad", "Bad", ("toy",), lambda records: 1 / 0),'
    write("toy.py", DRAWN.replace(numbers, f"{bad} {numbers}"))
    tables = hpml("table", "toy")
    assert "Time against size" in tables.stdout and "The numbers" in tables.stdout
    charts = hpml("plot", "toy", "--format", "svg", "--to", "charts")
    assert charts.stdout.split() == ["charts/toy-over_size.svg", "charts/toy-freely.svg"]
    for done in (tables, charts):
        assert done.returncode == 2
        assert "bad" in done.stderr and len(done.stderr.splitlines()) == 1


@pytest.fixture
def file_alone(write: Write, hpml: Hpml) -> Path:
    """A plugin's file without a project, measured once."""
    file = write("alone.py", DRAWN)
    done = hpml("run", "alone.py", "--budget", "0.05", "--rounds", "1", "--record")
    assert done.returncode == 0, done.stderr
    assert "\\n" not in done.stdout  # each line of a table is one
    return file


@pytest.mark.usefixtures("file_alone")
def test_a_file_s_own_tables_and_charts_are_there_before_any_project(
    hpml: Hpml, tmp_path: Path
) -> None:
    assert {path.name for path in tmp_path.iterdir()} >= {"alone.py", "alone.jsonl"}
    for words in (("alone.py",), ("alone.py", "--results", "alone.jsonl")):
        tables = hpml("table", *words)
        assert tables.returncode == 0, tables.stderr
        assert "Time against size" in tables.stdout and "The numbers" in tables.stdout
    done = hpml("plot", "alone.py", "--format", "svg", "--to", "charts")
    assert done.stdout.split() == ["charts/alone-over_size.svg", "charts/alone-freely.svg"]
    (tmp_path / "alone.jsonl").unlink()
    nothing = hpml("table", "alone.py")
    assert "run `hpml run alone.py --record`" in nothing.stderr
    assert (nothing.returncode, len(nothing.stderr.splitlines())) == (2, 1)


@pytest.mark.usefixtures("file_alone")
def test_a_file_s_site_is_there_before_any_project(hpml: Hpml, tmp_path: Path) -> None:
    again = hpml("run", "alone.py", "--budget", "0.05", "--rounds", "1", "--record")
    assert again.returncode == 0, again.stderr
    done = hpml("preview", "alone.py", "--to", "site")
    assert done.returncode == 0, done.stderr
    assert "Time against size" in (tmp_path / "site" / "plugin-alone.html").read_text()
    assert "2 commits" in (tmp_path / "site" / "index.html").read_text()  # one for each run
    pages = [page.read_text() for page in (tmp_path / "site").rglob("*.html")]
    commands = re.findall(r'<p class="command"><code>(.*?)</code>', "".join(pages))
    assert commands
    for command in commands:  # no project has these commits
        assert command.startswith(f"hpml run {tmp_path / 'alone.py'}"), command
    assert hpml("preview", "alone.py", "--to", "site").returncode == 0  # it replaces a site
    (tmp_path / "empty.jsonl").touch()
    empty = hpml("preview", "alone.py", "--results", "empty.jsonl", "--to", "site")
    assert empty.returncode == 2
    assert "empty.jsonl: has no Record; measure first: hpml run alone.py" in empty.stderr
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.txt").write_text("x")
    for target in ("mine", ".", "alone.py"):
        refused = hpml("preview", "alone.py", "--to", target)
        assert refused.returncode == 2
        assert (
            "not a site, and would be deleted; name a new or empty folder" in refused.stderr
        )
    assert (tmp_path / "mine" / "thesis.txt").exists()
    assert (tmp_path / "alone.py").exists()
    missing = hpml("preview", "alone.py", "--results", "other.jsonl")
    assert missing.returncode == 2
    assert "measure first: hpml run alone.py --record" in missing.stderr


@pytest.mark.usefixtures("file_alone")
def test_a_file_s_site_is_served_until_interrupted(tmp_path: Path) -> None:
    serving = subprocess.Popen(
        [sys.executable, "-m", "hpml_plugins", "preview", "alone.py"],
        cwd=tmp_path,
        env={**os.environ, "HOME": str(tmp_path), "TMPDIR": str(tmp_path)},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        # a test run in the background of a script ignores SIGINT, which children inherit
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )
    assert serving.stdout
    said = ""
    while not (address := re.search(r"Serving at (http://\S+)", said)):
        line = serving.stdout.readline()
        assert line, said
        said += line
    with urllib.request.urlopen(address[1]) as page:
        assert "Which GPU for what" in page.read().decode()
    assert address[1].startswith("http://127.0.0.1:")
    process = psutil.Process(serving.pid)
    assert {each.laddr.ip for each in process.net_connections()} == {"127.0.0.1"}
    serving.send_signal(signal.SIGINT)
    assert serving.wait(PATIENCE) == 0
    assert not list(tmp_path.glob("hpml-*"))


@pytest.mark.usefixtures("measured")
def test_a_table_fits_the_terminal_and_is_whole_in_a_pipe(hpml: Hpml) -> None:
    piped = hpml("table", "toy.numbers").stdout.splitlines()
    longest = max(map(len, piped[2:]))
    narrow = hpml("table", "toy.numbers", COLUMNS=str(longest - 1)).stdout.splitlines()
    assert max(map(len, narrow[2:])) < longest
    assert piped[2].split()[:2] == ["machine", "size"]
    assert [line.split()[0] for line in narrow[2:4]] == ["machine", "size"]


@pytest.mark.usefixtures("measured")
def test_plot_writes_where_it_is_told_and_only_what_was_asked(
    hpml: Hpml, write: Write, tmp_path: Path
) -> None:
    done = hpml("plot", "toy.freely", "--to", "new/b.svg")
    assert (done.stdout, done.returncode) == ("new/b.svg\n", 0)
    assert b"<svg" in (tmp_path / "new/b.svg").read_bytes()
    for arguments, message in [
        (
            ("toy", "--to", "b.png"),
            "--to b.png is one file, and 'toy' has 2 charts (toy.over_size,",
        ),
        (
            ("toy.freely", "--to", "b.png", "--format", "pdf"),
            "--to b.png is not of --format pdf",
        ),
        (
            ("toy.freely", "--to", "b.gif"),
            "--to b.gif: charts are written as svg, png, pdf",
        ),
    ]:
        refused = hpml("plot", *arguments)
        assert (refused.returncode, message in refused.stderr) == (2, True)
    assert not (tmp_path / "b.png").exists()
    # a figure of another plugin has this plugin's name
    write("other.py", DRAWN.replace("over_size", "toy"))
    registry = "version: 1\nplugins:\n  - {name: toy, path: toy.py}\n"
    write("registry.yaml", registry + "  - {name: other, path: other.py}\n")
    done = hpml("plot", "toy", "--to", "charts")
    assert done.stdout.split() == ["charts/toy-over_size.png", "charts/toy-freely.png"]


@pytest.mark.usefixtures("measured")
def test_wrong_names_and_empty_results_are_one_line(hpml: Hpml) -> None:
    for arguments, message in [
        (("table", "toi"), "no figure or plugin with figures 'toi'; did you mean 'toy'?"),
        (
            ("table", "toy", "--results", "nowhere"),
            "nothing measured for 'toy' under nowhere; run `asv run`",
        ),
        (
            ("plot", "toy.numbers"),
            "has tables but no chart; print them: hpml table toy.numbers",
        ),
    ]:
        done = hpml(*arguments)
        assert done.returncode == 2
        assert message in done.stderr
        assert len(done.stderr.splitlines()) == 1
