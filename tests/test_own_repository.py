"""The whole way in somebody's own repository, as docs/your-repository.md leads through it."""

from __future__ import annotations

import json
import os
import shutil
import socket
import sys
from pathlib import Path

import pytest
import yaml
from own_repository import PLUGIN, OwnRepository, build_wheel, dependencies, install_wheel
from support import link_packages, unavailable
from workload_pages import read_points

from hpml_plugins.model.record import Record
from hpml_plugins.store import Lock, read_records

#: As hpml init writes them into asv.conf.json.
RESULTS, HTML = Path("benchmarks/results"), Path(".asv/html")


def prepared(mine: OwnRepository) -> OwnRepository:
    """Two commits: a compiled package, and what hpml init writes with a plugin that measures it."""
    if not shutil.which("gcc"):
        unavailable("needs gcc")
    mine.write_package()
    mine.commit("first")
    mine.hpml("init")
    mine.write("benchmarks/hpml/total.py", PLUGIN)
    registry = mine.path / "registry.yaml"
    registry.write_text(
        registry.read_text() + "  - {name: total, path: benchmarks/hpml/total.py}\n"
    )
    mine.commit("hpml")
    return mine


def measured(mine: OwnRepository, benchmark: str) -> dict[str, Record]:
    """Commit → its Record."""
    found = [
        each for each in read_records(mine.path / RESULTS) if each.benchmark == benchmark
    ]
    assert {each.status for each in found} == {"ok"}, [each.reason for each in found]
    return {each.commit: each for each in found}


@pytest.mark.slow
def test_a_compiled_package_is_gated(tmp_path: Path) -> None:
    """The short version, with this Python and a pure Python comment as the harmless change."""
    mine = prepared(OwnRepository.make(tmp_path))
    configuration = mine.path / "asv.conf.json"
    # as many asv users have it: the commit of the work tree is in no repository but this
    configuration.write_text(
        configuration.read_text().replace(
            '"repo": "."', '"repo": "https://example.invalid/m.git"'
        )
    )
    mine.commit("remote")
    mine.write_package(again=3)  # not committed
    done = mine.hpml(
        "gate",
        "main",
        "--bench",
        "total",
        "--rounds",
        "3",
        "--markdown",
        "gate.md",
        status=1,
    )
    assert "refused: 1 slower beyond the budget" in done.stdout
    assert "pairs of base and head" in done.stdout
    late = mine.hpml("gate", "main", "--bench", "total", "--limit", "1s", status=3)
    assert "not judged: " in late.stdout + late.stderr
    report = (mine.path / "gate.md").read_text()
    assert (
        "`the work tree` against `" in report and "| total | size=20000 | time |" in report
    )
    assert "Repeat it: `hpml gate main --bench total --rounds 3`" in report
    assert mine.git("status", "--porcelain").splitlines() == [
        "M sums/compiled.c",
        "?? gate.md",
    ]
    assert not (mine.path / RESULTS).exists()
    mine.git("checkout", "-q", ".")
    (mine.path / "gate.md").unlink()
    assert "there is nothing to compare" in mine.hpml("gate", "main", status=2).stderr


@pytest.mark.slow
def test_a_gate_that_cannot_be_is_refused_in_one_line_before_anything_is_built(
    tmp_path: Path,
) -> None:
    mine = prepared(OwnRepository.make(tmp_path))
    mine.write("README.md", "Sums.\n")

    def refused(*words: str) -> str:
        done = mine.hpml("gate", *words, status=2)
        (line,) = done.stderr.strip().splitlines()
        assert done.stdout == ""
        return line

    assert "'mian' is not a branch, tag or commit here" in refused("mian")
    assert "'-x' is not a branch, tag or commit here" in refused("--", "-x")
    assert "no benchmark or metric 'totl'; did you mean 'total'?" in refused(
        "main", "--budget", "totl=3"
    )
    assert "'-1' is not PERCENT" in refused("main", "--budget", "-1")
    assert "'[' is not a regular expression" in refused("main", "--bench", "[")
    assert "/dev/null" in refused("main", "--markdown", "/dev/null/gate.md")
    assert "no profile 'quik'" in refused("main", "--profile", "quik")
    registry = mine.path / "registry.yaml"
    good = registry.read_text().rstrip().removesuffix("}")
    registry.write_text(f"{good}, gate: {{total: {{tme: 3}}}}}}\n")
    line = len(good.splitlines())
    assert refused("main").startswith(
        f"hpml: registry.yaml:{line}: gate of 'total': no metric with a direction 'tme'"
    )
    registry.write_text(f"{good}, gates: {{total: 3}}}}\n")
    assert "unknown key 'gates'; did you mean 'gate'?" in refused("main")
    registry.write_text(f"{good}, gate: {{total: 1000}}}}\n")
    assert f"registry.yaml:{line}: " in refused("main")
    registry.write_text(f"{good}}}\n")
    with Lock(
        mine.path / ".asv" / "env" / "gate.lock"
    ):  # another gate builds and measures there
        assert (
            f".asv/env/gate.lock: held by {socket.gethostname()} (process {os.getpid()}"
            in refused("main")
        )


@pytest.mark.slow
def test_five_commits_from_the_wheel_without_a_network(tmp_path: Path) -> None:
    wheel = build_wheel(tmp_path)
    mine = prepared(OwnRepository.make(tmp_path, install_wheel(wheel, tmp_path / "env")))
    mine.write("README.md", "Sums.\n")
    mine.commit("documentation")
    mine.write_package(again=2)
    slower = mine.commit("slower")
    mine.write_package()
    newest = mine.commit("as fast as before")

    assert "import_time" in mine.hpml("run", "import_time").stdout
    ran = mine.asv("run", "ALL")
    assert "Measured 10 points of 2 benchmarks" in ran.stdout
    totals = measured(mine, "total")
    assert len(totals) == len(measured(mine, "import_time")) == 5
    seconds = {commit: record.metrics["time"].value for commit, record in totals.items()}
    assert min(seconds, key=lambda commit: -seconds[commit]) == slower
    # the package of the third commit is that of the second: repetitions for the variances
    assert len({record.source["package"] for record in totals.values()}) == 2
    mine.asv("publish")
    summary = json.loads((mine.path / HTML / "summary.json").read_text())
    assert (summary["commit"], summary["benchmarks"]) == (newest, 2)
    assert "<svg" in (mine.path / HTML / "badge.svg").read_text()
    mine.commit("results")

    mine.git("checkout", "-qb", "work")
    mine.write_package(again=2)
    mine.commit("planted slow-down")
    assert "refused" in mine.hpml("gate", "main", "--bench", "total", status=1).stdout
    mine.write_package()
    mine.write("sums/__init__.py", '"""Sums."""\n')
    mine.commit("harmless")
    mine.hpml("gate", "main", "--bench", "total", "--budget", "50", status=0)

    with (mine.path / "registry.yaml").open("a") as registry:
        registry.write("  - {name: vecadd, module: hpml_plugins.plugins.vecadd}\n")
    chosen = ("-p", "millions=1", "-p", "implementation=numpy")
    assert (
        json.loads(
            mine.hpml("run", "vecadd_cpu", *chosen, "--rounds", "1", "--json").stdout
        )["status"]
        == "ok"
    )
    submitted = mine.hpml("submit", "--yes", "--bench", "import_time")
    assert "Measured 1 point of 1 benchmark" in submitted.stdout


#: As `asv quickstart` leaves it, shortened.
THEIR_CONFIGURATION = """
    {
        // The version of the config file format.  Do not change, unless
        "version": 1,
        "project": "theirs",
        "repo": ".",
        "branches": ["main"],
        "environment_type": "existing",
        "env_dir": ".asv/env",
        "results_dir": ".asv/results",
        "html_dir": ".asv/html",
    }
"""


@pytest.mark.slow
def test_the_old_results_of_an_asv_user_show_beside_ours(tmp_path: Path) -> None:
    mine = OwnRepository.make(tmp_path)
    mine.write("asv.conf.json", THEIR_CONFIGURATION)
    mine.write(
        "setup.py",
        "from setuptools import setup\nsetup(name='theirs', version='1', packages=['theirs'])\n",
    )
    mine.write("theirs/__init__.py", "")
    mine.write("benchmarks/__init__.py", "")
    mine.write("benchmarks/old.py", "def track_size():\n    return 7\n")
    first = mine.commit("theirs")
    mine.asv("machine", "--yes", "--machine", "old-machine")
    mine.asv("run", "--machine", "old-machine", "--set-commit-hash", first)
    assert "filed under 'old-machine', as asv measured" in mine.hpml("init").stdout
    assert "old.track_size" in mine.hpml("list").stdout
    assert "old-machine" in mine.hpml("table", "old.track_size").stdout
    same = mine.hpml("compare", "old-machine", "old-machine", "--all").stdout
    assert "old.track_size" in same
    assert "all.parquet: 1 row" in mine.hpml("export", "all.parquet").stdout
    (mine.path / "all.parquet").unlink()
    second = mine.commit("hpml init")
    mine.asv("run", "-E", "node")
    mine.asv("publish")
    html = mine.path / ".asv" / "html"
    index = json.loads((html / "index.json").read_text())["benchmarks"]
    assert {"old.track_size", "import_time.track_time"} <= index.keys()
    rows = read_points(html)
    assert "old.track_size" in rows and "workload-import_time.html#time" in rows
    summary = json.loads((html / "summary.json").read_text())
    assert (
        summary["commit"],
        summary["benchmarks"],
        "old-machine" in summary["machines"],
    ) == (
        second,
        2,
        True,
    )


@pytest.mark.slow
def test_a_bundle_measures_somebody_elses_repository(tmp_path: Path) -> None:
    """Its packages come from uv's cache or the machine's index; the node has none of them, and no
    network."""
    if not shutil.which("gcc"):
        unavailable("needs gcc")
    mine = prepared(OwnRepository.make(tmp_path))
    sys.path.insert(0, str(Path(__file__).parent / "tools" / "bundle"))
    from bare_node import make_bare_node

    python = str(make_bare_node(tmp_path / "node"))
    ask = mine.hpml("bundle", "--ask").stdout
    (tmp_path / "ask.py").write_text(ask)
    (tmp_path / "node.json").write_text(mine.run(python, str(tmp_path / "ask.py")).stdout)
    networked = OwnRepository(mine.path, Path.home(), mine.python)
    done = networked.run(
        sys.executable,
        "-m",
        "hpml_plugins",
        "bundle",
        "--node",
        str(tmp_path / "node.json"),
        status=None,
        network=True,
    )
    if "no package index answers" in done.stderr:
        pytest.skip(done.stderr)
    assert done.returncode == 0, done.stderr
    there = OwnRepository(tmp_path / "there", tmp_path / "home", python)
    there.path.mkdir()
    shutil.copy(mine.path / "hpml-bundle.sh", there.path)
    there.run("sh", "hpml-bundle.sh", "--python", python)
    there.run("hpml/asv", "run", "--bench", "total", "--machine", "there")
    (record,) = read_records(there.path / "hpml" / "repository" / RESULTS)
    assert (record.status, record.benchmark) == ("ok", "total"), record.reason


def make_unjudgeable(mine: OwnRepository) -> None:
    """Commit a state of which the gate can judge nothing: its only benchmark is skipped."""
    skipping = PLUGIN.replace(
        "    numbers = ", '    bench.skip("not today")\n        numbers = '
    )
    mine.write("benchmarks/hpml/total.py", skipping)
    mine.write(
        "registry.yaml",
        "version: 1\nplugins: [{name: total, path: benchmarks/hpml/total.py}]\n",
    )
    mine.commit("skips")


@pytest.mark.slow
@pytest.mark.parametrize("ci", ["github", "gitlab"])
def test_the_steps_of_the_ci_files_refuse_a_slow_down(tmp_path: Path, ci: str) -> None:
    """The shell steps as they stand in the file, run here: only the index is replaced by a folder
    with the wheel."""
    wheel = build_wheel(tmp_path)
    site, programs = tmp_path / "site", tmp_path / "bin"
    site.mkdir()
    programs.mkdir()
    link_packages(dependencies() - {"pip"}, site)
    (programs / "python3").write_text(
        f'#!/bin/sh\nexec {getattr(sys, "_base_executable", sys.executable)} "$@"\n'
    )
    for program in programs.iterdir():
        program.chmod(0o755)
    origin = prepared(OwnRepository.make(tmp_path))
    origin.write(".gitignore", "build/\n*.egg-info/\n")  # what pip leaves in a checkout
    origin.hpml("init", "--ci", ci)
    origin.commit("ci")
    (tmp_path / "runner").mkdir()
    (tmp_path / "checkout").mkdir()
    env = {
        "PATH": f"{programs}:{os.environ['PATH']}",
        "PYTHONPATH": str(site),
        "PIP_NO_INDEX": "1",
        "ASV_PYTHONPATH": str(site),  # asv removes the other from what builds a commit
        "PIP_FIND_LINKS": str(wheel.parent),
        "PIP_NO_BUILD_ISOLATION": "false",  # pip's word for no isolation: setuptools is in `site`
        "RUNNER_TEMP": str(tmp_path / "runner"),
        "CI_PROJECT_DIR": ".",
        "GITHUB_STEP_SUMMARY": str(tmp_path / "summary.md"),
        "BASE": "origin/main",
        "CI_MERGE_REQUEST_TARGET_BRANCH_NAME": "main",
    }
    checkout = OwnRepository(tmp_path / "checkout" / "mine", tmp_path / "home", env=env)
    checkout.path.mkdir()
    checkout.git("clone", "-q", str(origin.path), ".")
    checkout.env["CI_PROJECT_DIR"] = str(checkout.path)
    checkout.git("checkout", "-qb", "work")
    checkout.write_package(again=4)
    checkout.commit("slower")
    if ci == "github":
        file = yaml.safe_load((checkout.path / ".github/workflows/hpml.yml").read_text())
        steps = {
            step["name"]: step["run"]
            for step in file["jobs"]["gate"]["steps"]
            if "run" in step
        }
        assert list(steps) == ["Install", "Gate"]
        checkout.run("bash", "-e", "-c", steps["Install"])
        refused = checkout.run("bash", "-e", "-c", steps["Gate"], status=1)
        report, picture = tmp_path / "summary.md", tmp_path / "gate.svg"
        shutil.copy(Path(checkout.env["RUNNER_TEMP"]) / "gate.svg", picture)
        make_unjudgeable(checkout)
        neutral = checkout.run("bash", "-e", "-c", steps["Gate"], status=0)
        assert "::warning title=hpml gate::not judged" in neutral.stdout
    else:
        job = yaml.safe_load((checkout.path / ".gitlab-ci.yml").read_text())["hpml gate"]
        refused = checkout.run("bash", "-e", "-c", "\n".join(job["script"]), status=1)
        report, picture = checkout.path / "gate.md", checkout.path / "gate.svg"
        assert job["allow_failure"] == {"exit_codes": [3]}
    assert "refused" in refused.stdout
    assert "the work tree" not in refused.stdout  # nothing beside the commit was measured
    assert "| total | size=20000 | time |" in report.read_text()
    assert "refused</text>" in picture.read_text()
