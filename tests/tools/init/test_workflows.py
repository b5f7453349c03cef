"""The workflows that `hpml init --ci` writes: their permissions, and that the name of a folder can
neither run code in them nor break them."""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml
from repositories import make_repository

from hpml_plugins import __version__
from hpml_plugins.tools.init.command import write_all

NAMES = [
    "plain",
    "with a space",
    "it's",
    'say "hi"',
    "$(touch ran)",
    "`touch ran`",
    "$HOME",
    "${HOME}",
    "a; touch ran",
    "a && touch ran",
    "a | touch ran",
    "-rf",
    "--help",
    "line\nbreak",
    "line\r\nbreak",
    "touch ran\n",
    "tab\there",
    "back\\slash",
    "back\\nslash",
    "# comment",
    "key: value",
    "{braces}",
    "[brackets]",
    "*star",
    "&anchor",
    "!tag",
    "%percent",
    "@at",
    "~",
    "~root",
    "null",
    "yes",
    "1e3",
    "${{ github.token }}",
    "{{ folder }}",
    "{% raw %}",
    "$$",
    "'",
    '"',
    "grüße",
    "rocket 🚀",
    "\u202eturned",
    "\u2028separated",
    "\x85next",
    "\x1b[31mred",
    "a" * 200,
]
PYTHON = """#!/bin/sh
# stands for the runner's python3: makes a "virtual environment"
for last; do :; done
mkdir -p "$last/bin" && cp "$0" "$last/bin/python"
cat > "$last/bin/hpml" <<'X'
#!/bin/sh
pwd > "$SEEN"; printf '%s\\n' "$@" >> "$SEEN"
exit "$STATUS"
X
chmod +x "$last/bin/hpml"
"""


def written(tmp_path: Path, name: str, service: str) -> tuple[Path, dict[Any, Any]]:
    """A repository with a project in a folder of this name, and the workflow written for it."""
    top = tmp_path / "repository"
    folder = top / name
    folder.mkdir(parents=True)
    make_repository(top)
    write_all(folder, top, service)
    place = ".github/workflows/hpml.yml" if service == "github" else ".gitlab-ci.yml"
    return top, yaml.safe_load((top / place).read_text(encoding="utf-8"))


def evaluated(text: str) -> str:
    """As GitHub fills in the expressions of a text."""
    known = {"'${{'": "${{", "github.base_ref": "main", "runner.temp": "/tmp"}
    return re.sub(r"\$\{\{ (.*?) \}\}", lambda match: known[match[1]], text)


def run_scripts(
    top: Path, scripts: list[str], variables: dict[str, str], status: int
) -> tuple[int, list[str]]:
    """Run scripts as the service does; the exit status of the last, and what hpml saw."""
    tools = top.parent / "tools"
    tools.mkdir()
    (tools / "python3").write_text(PYTHON)
    (tools / "python3").chmod(0o755)
    (tools / "git").write_text("#!/bin/sh\n")
    (tools / "git").chmod(0o755)
    seen = top.parent / "seen"
    environment = {
        **os.environ,
        "PATH": f"{tools}:/usr/bin:/bin",
        "SEEN": str(seen),
        "STATUS": str(status),
        **variables,
    }
    done = 0
    for script in scripts:
        command = ["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", script]
        done = subprocess.run(command, cwd=top, env=environment, check=False).returncode
    return done, seen.read_bytes().decode().removesuffix("\n").split("\n")


def check_folder(top: Path, name: str, seen: list[str], base: str) -> None:
    where = "\n".join(seen[:-6])
    assert Path(where) == top / name
    assert seen[-6:-3] == ["gate", base, "--markdown"] and seen[-2] == "--svg"
    assert not list(top.parent.rglob("ran"))


@pytest.mark.parametrize("name", NAMES)
def test_no_name_of_a_folder_runs_or_breaks_the_workflow_of_github(
    name: str, tmp_path: Path
) -> None:
    top, workflow = written(tmp_path, name, "github")
    install, gate = (step for step in workflow["jobs"]["gate"]["steps"] if "run" in step)
    variables = {key: evaluated(value) for key, value in gate["env"].items()}
    assert variables["FOLDER"] == name
    runner = {
        "RUNNER_TEMP": str(tmp_path / "temp"),
        "GITHUB_STEP_SUMMARY": str(tmp_path / "sum"),
    }
    status, seen = run_scripts(
        top, [install["run"], gate["run"]], {**variables, **runner}, 0
    )
    assert status == 0
    check_folder(top, name, seen, "origin/main")


@pytest.mark.parametrize("name", NAMES)
def test_no_name_of_a_folder_runs_or_breaks_the_workflow_of_gitlab(
    name: str, tmp_path: Path
) -> None:
    top, workflow = written(tmp_path, name, "gitlab")
    job = workflow["hpml gate"]
    assert job["variables"]["HPML_FOLDER"] == {"value": name, "expand": False}
    variables = {
        "HPML_FOLDER": name,
        "CI_PROJECT_DIR": str(top),
        "CI_MERGE_REQUEST_TARGET_BRANCH_NAME": "main",
    }
    status, seen = run_scripts(top, ["\n".join(job["script"])], variables, 0)
    assert status == 0
    check_folder(top, name, seen, "FETCH_HEAD")
    assert f"hpml-plugins=={__version__}" in str(job["script"])
    assert job["allow_failure"] == {"exit_codes": [3]}


@pytest.mark.parametrize(("status", "ends"), [(0, 0), (1, 1), (2, 2), (3, 0)])
def test_the_status_of_the_gate_is_that_of_the_step_and_not_judged_is_neutral(
    status: int, ends: int, tmp_path: Path
) -> None:
    top, workflow = written(tmp_path, "plain", "github")
    install, gate = (step for step in workflow["jobs"]["gate"]["steps"] if "run" in step)
    variables = {key: evaluated(value) for key, value in gate["env"].items()}
    runner = {
        "RUNNER_TEMP": str(tmp_path / "temp"),
        "GITHUB_STEP_SUMMARY": str(tmp_path / "sum"),
    }
    found, _ = run_scripts(
        top, [install["run"], gate["run"]], {**variables, **runner}, status
    )
    assert found == ends


def test_only_the_step_that_comments_has_the_token(tmp_path: Path) -> None:
    top, workflow = written(tmp_path, "plain", "github")
    text = (top / ".github/workflows/hpml.yml").read_text()
    assert text.count("github.token") == 1
    assert "secrets." not in text
    assert workflow["permissions"] == {}
    gate, comment = workflow["jobs"]["gate"], workflow["jobs"]["comment"]
    assert gate["permissions"] == {"contents": "read"}
    assert comment["permissions"] == {"pull-requests": "write", "checks": "write"}
    assert not [step for step in comment["steps"] if "run" in step]
    assert "github.token" in comment["steps"][-1]["with"]["github-token"]
    (checkout,) = (step for step in gate["steps"] if "checkout" in step.get("uses", ""))
    assert checkout["with"]["persist-credentials"] is False
    for step in [*gate["steps"], *comment["steps"]]:
        assert "uses" not in step or re.fullmatch(
            r"actions/[\w-]+@[0-9a-f]{40}", step["uses"]
        )
        # expressions are filled in as text: in a script they would be code
        assert "${{" not in step.get("run", "") + step.get("with", {}).get("script", "")
    assert f"hpml-plugins=={__version__}" in text


@pytest.mark.parametrize(
    ("origin", "wanted"),
    [
        (
            {
                "url": "https://host/us/hpml.git",
                "vcs_info": {"vcs": "git", "commit_id": "0a1b"},
            },
            "hpml-plugins @ git+https://host/us/hpml.git@0a1b",
        ),
        (
            {"url": "https://host/hpml_plugins-1-py3-none-any.whl", "archive_info": {}},
            "hpml-plugins @ https://host/hpml_plugins-1-py3-none-any.whl",
        ),
        ({"url": "https://host/$(touch ran)", "archive_info": {}}, ""),
        ({"url": "file:///home/me/hpml.whl", "archive_info": {}}, ""),
        (None, ""),
    ],
)
@pytest.mark.parametrize("service", ["github", "gitlab"])
def test_a_runner_installs_what_is_installed_here_where_it_has_an_address(
    service: str,
    origin: dict[str, Any] | None,
    wanted: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    info = tmp_path / "site" / f"hpml_plugins-{__version__}.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text(f"Name: hpml-plugins\nVersion: {__version__}\n")
    if origin:
        (info / "direct_url.json").write_text(json.dumps(origin))
    monkeypatch.syspath_prepend(str(info.parent))
    top = tmp_path / "repository"
    top.mkdir()
    make_repository(top)
    writer, _ = write_all(top, top, service)
    told = [line for line in writer.wrote if "its runner installs" in line]
    place = ".github/workflows/hpml.yml" if service == "github" else ".gitlab-ci.yml"
    workflow = yaml.safe_load((top / place).read_text())
    if service == "github":
        script = workflow["jobs"]["gate"]["steps"][1]["run"]
    else:
        script = "\n".join(workflow["hpml gate"]["script"])
    (line,) = [each for each in script.splitlines() if "hpml-plugins" in each]
    assert shlex.split(line)[-1] == (wanted or f"hpml-plugins=={__version__}")
    assert bool(told) == (not wanted)
