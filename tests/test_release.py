"""What is released, and the files that do it: `make dist`, the workflow, the action of the gate."""

from __future__ import annotations

import hashlib
import os
import re
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path
from typing import Any

import pytest
import yaml
from support import ROOT

#: A program in the place of hpml: notes its arguments, writes a report, ends with a status.
FAKE = """#!/bin/sh
printf '%s\\n' "$@" > "$RUNNER_TEMP/words"
while [ $# -gt 0 ]; do [ "$1" = --markdown ] && echo '### report' > "$2"; shift; done
exit $STATUS
"""


def build(folder: Path, umask: int, zone: str) -> list[Path]:
    """The wheel and the source distribution, made in that folder."""
    subprocess.run(
        [sys.executable, str(ROOT / ".ci/dist.py"), str(folder)],
        check=True,
        capture_output=True,
        cwd=folder,
        umask=umask,
        env={**os.environ, "TZ": zone},
    )
    return sorted(folder.iterdir())


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """The wheel and the source distribution."""
    return build(tmp_path_factory.mktemp("dist"), 0o022, "UTC3")


@pytest.mark.slow
def test_both_are_the_same_bytes_wherever_they_are_built(
    built: list[Path], tmp_path: Path
) -> None:
    again = build(tmp_path, 0o077, "UTC4")
    here, there = (
        [hashlib.sha256(path.read_bytes()).hexdigest() for path in paths]
        for paths in (built, again)
    )
    assert len(here) == 2 and here == there


def test_they_hold_the_package_alone_under_one_licence(built: list[Path]) -> None:
    wheel, sdist = built[:2]
    with tarfile.open(sdist) as archive:
        members = archive.getmembers()
    names = [member.name.partition("/")[2] for member in members]
    tops = {name.partition("/")[0] for name in names} - {""}
    assert tops == {
        *("LICENSE", "PKG-INFO", "README.md", "MANIFEST.in", "docs", "hpml_plugins"),
        *("hpml_plugins.egg-info", "pyproject.toml", "setup.cfg"),
    }
    assert [name for name in names if "LICEN" in name.upper()] == ["LICENSE"]
    # pictures have licences of their own
    assert not [name for name in names if re.search(r"\.(png|jpe?g|gif)$", name)]
    assert {(member.uid, member.gid, member.uname) for member in members} == {(0, 0, "")}
    packed = {name for name in zipfile.ZipFile(wheel).namelist() if "dist-info" not in name}
    sources = {name for name in names if name.startswith("hpml_plugins/")}
    assert packed <= sources


def read_yaml(path: str) -> Any:
    # a component of GitLab has its inputs as a document of its own
    return [*yaml.safe_load_all((ROOT / path).read_text())][-1]


@pytest.mark.parametrize("path", [".github/workflows/release.yml", "action.yml"])
def test_actions_are_pinned_by_their_commits(path: str) -> None:
    found = re.findall(r"uses: (\S+)", (ROOT / path).read_text())
    assert all(re.fullmatch(r"[\w./-]+@[0-9a-f]{40}", each) for each in found)


def test_only_a_tag_is_published_and_by_a_job_that_builds_nothing() -> None:
    jobs = read_yaml(".github/workflows/release.yml")["jobs"]
    assert jobs["build"]["permissions"] == {"contents": "read"}
    publish = jobs["publish"]
    assert publish["permissions"] == {"id-token": "write"}
    assert (publish["if"], publish["environment"]) == ("github.ref_type == 'tag'", "pypi")
    assert not [step for step in publish["steps"] if "run" in step]
    assert publish["steps"][-1]["with"]["attestations"] is True


@pytest.mark.parametrize(("tag", "status"), [("v0.1.0", 0), ("v9.9.9", 1), ("v0.1", 1)])
def test_a_tag_that_is_not_the_version_is_refused(tag: str, status: int) -> None:
    steps = read_yaml(".github/workflows/release.yml")["jobs"]["build"]["steps"]
    (check,) = [step["run"] for step in steps if step.get("name", "").startswith("Tag")]
    done = subprocess.run(
        ["bash", "-e", "-c", check],
        cwd=ROOT,
        env={**os.environ, "GITHUB_REF_NAME": tag},
        check=False,
    )
    assert done.returncode == status


@pytest.mark.parametrize(("status", "ends"), [(0, 0), (1, 1), (2, 2), (3, 0)])
def test_the_action_of_the_gate_hands_on_its_status_and_report(
    tmp_path: Path, status: int, ends: int
) -> None:
    (gate,) = [step for step in read_yaml("action.yml")["runs"]["steps"] if "id" in step]
    program = tmp_path / "hpml/bin/hpml"
    program.parent.mkdir(parents=True)
    program.write_text(FAKE)
    program.chmod(0o755)
    env = {
        **os.environ,
        "RUNNER_TEMP": str(tmp_path),
        "GITHUB_OUTPUT": str(tmp_path / "output"),
        "GITHUB_STEP_SUMMARY": str(tmp_path / "summary"),
        "BASE": "origin/main; touch x",
        "FOLDER": ".",
        "ARGUMENTS": "--profile quick",
        "STATUS": str(status),
    }
    done = subprocess.run(
        ["bash", "-e", "-c", gate["run"]], cwd=tmp_path, env=env, check=False
    )
    assert done.returncode == ends
    words = (tmp_path / "words").read_text().splitlines()
    report, picture = (str(tmp_path / f"gate.{kind}") for kind in ("md", "svg"))
    assert words == [
        *("gate", "origin/main; touch x", "--markdown", report, "--svg", picture),
        *("--profile", "quick"),
    ]
    outputs = (tmp_path / "output").read_text().splitlines()
    assert outputs == [f"status={status}", f"report={report}", f"picture={picture}"]
    assert (tmp_path / "summary").read_text() == "### report\n"


def test_the_component_runs_the_gate_as_the_written_file_does() -> None:
    """`hpml init --ci gitlab` and the component differ in their inputs alone."""
    job = read_yaml("templates/gate.yml")["hpml gate"]
    template = ROOT / "hpml_plugins/tools/init/gitlab.yml.jinja"
    written = template.read_text()
    assert job["allow_failure"] == {"exit_codes": [3]} and "exit_codes: [3]" in written
    for line in job["script"]:
        plain = line.replace(" $HPML_ARGUMENTS", "")
        assert "pip install" in plain or plain in written
