"""The GitLab component on a real runner, gitlab-ci-local: the gate builds and measures two commits,
refuses the slower one, and the second job writes its report to a server that answers as GitLab."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest
import yaml
from repositories import commit_all, git, make_repository
from support import ROOT, unavailable
from test_comment import NOTES, TOKEN, GitLab, gitlab

__all__ = ["gitlab"]

#: The runner and the Node.js that it needs, from npm's registry.
RUNNER = ("gitlab-ci-local@4.75.1", "node@22")
ADDRESS = "git@gitlab.example.org:us/mine.git"
PLUGIN = """
import time
from hpml_plugins import Benchmark, Metric, hookimpl

def measure(bench):
    import mine
    return {"time": bench.time(mine.work)}

@hookimpl
def hpml_benchmarks():
    return [Benchmark("work", measure, metrics=[Metric("time", "s", "lower")])]
"""
WORK = "def work():\n    return sum(range({}))\n"


@pytest.fixture
def runner(tmp_path: Path) -> Path:
    """The folder of the runner's programs."""
    folder = tmp_path / "runner"
    folder.mkdir()
    if not shutil.which("npm"):
        unavailable("no npm, which fetches gitlab-ci-local")
    if not shutil.which("rsync"):
        unavailable("no rsync, which gitlab-ci-local copies with: apt-get install rsync")
    command = ["npm", "install", "--silent", "--no-fund", *RUNNER]
    if subprocess.run(command, cwd=folder, capture_output=True, check=False).returncode:
        unavailable("gitlab-ci-local cannot be fetched: npm's registry does not answer")
    return folder / "node_modules" / ".bin"


def project(folder: Path) -> Path:
    """A repository whose branch `slow` is slower than main, with the component included."""
    top = folder / "mine"
    files = {
        "mine/__init__.py": WORK.format(100_000),
        "pyproject.toml": '[project]\nname = "mine"\nversion = "1"\n',
        "benchmarks/hpml/work.py": PLUGIN,
        ".gitlab/gate.yml": (ROOT / "templates/gate.yml").read_text(),
        ".gitlab-ci.yml": yaml.safe_dump(
            {
                "include": [
                    {
                        "local": ".gitlab/gate.yml",
                        "inputs": {
                            "tags": ["gpu"],
                            "install": str(ROOT),
                            "arguments": "--limit 2min --rounds 4",
                        },
                    }
                ]
            }
        ),
    }
    for name, text in files.items():
        (top / name).parent.mkdir(parents=True, exist_ok=True)
        (top / name).write_text(text)
    make_repository(top)
    subprocess.run(["hpml", "init"], cwd=top, check=True, capture_output=True)
    (top / "registry.yaml").write_text(
        "version: 1\nplugins:\n  - {name: work, path: benchmarks/hpml/work.py}\n"
    )
    commit_all(top, "Fast")
    git(folder, "clone", "-q", "--bare", str(top), "origin.git")
    git(top, "remote", "add", "origin", ADDRESS)
    git(top, "config", f"url.{folder / 'origin.git'}.insteadOf", ADDRESS)
    git(top, "checkout", "-q", "-b", "slow")
    (top / "mine/__init__.py").write_text(WORK.format(300_000))
    commit_all(top, "Slow")
    return top


@pytest.mark.slow
def test_the_component_refuses_a_slower_commit_and_comments(
    runner: Path, gitlab: GitLab, tmp_path: Path
) -> None:
    top = project(tmp_path)
    variables = {
        "CI_PIPELINE_SOURCE": "merge_request_event",
        "CI_MERGE_REQUEST_TARGET_BRANCH_NAME": "main",
        "CI_MERGE_REQUEST_IID": "3",
        "CI_PROJECT_ID": "42",
        "CI_API_V4_URL": f"{gitlab.address}/api/v4",
        "HPML_GITLAB_TOKEN": TOKEN,
    }
    environment = {
        name: value
        for name, value in os.environ.items()
        if name not in variables and not name.startswith(("PYTHON", "HPML_", "VIRTUAL_ENV"))
    }
    environment["PATH"] = f"{runner}:{os.environ['PATH']}"
    words = [word for pair in variables.items() for word in ("--variable", "=".join(pair))]
    done = subprocess.run(
        ["gitlab-ci-local", "--force-shell-executor", *words],
        cwd=top,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    told = done.stdout + done.stderr
    assert "refused: 1 slower beyond the budget" in told, told[-4000:]
    # a failure, not the warning of status 3; it does not keep the comment from being written
    assert re.search(r"hpml gate +finished in .* FAIL 1 ", told), told[-2000:]
    (note,) = gitlab.notes
    assert "### Benchmarks refused: 1 slower beyond the budget" in note["body"]
    assert gitlab.asked[-1] == ("POST", NOTES)
