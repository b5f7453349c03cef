"""What the project stands on: pinned by name, version and hash, from no index that is named, under
known licences."""

from __future__ import annotations

import os
import pty
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import licences
import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from support import ROOT, closure, link_packages

PINS = ROOT / "constraints.txt"


def read_pins() -> dict[str, list[str]]:
    """name==version → its marker, where it has one, and hashes."""
    text = PINS.read_text().replace("\\\n", "").splitlines()[1:]
    return {
        pin: rest
        for pin, *rest in (re.split(" +--hash=sha256:| ; ", line.rstrip()) for line in text)
    }


def test_the_pins_are_names_versions_and_hashes_and_name_no_index() -> None:
    assert PINS.read_text().startswith("# ")
    assert "://" not in PINS.read_text()
    assert list(read_pins()) == sorted(read_pins(), key=lambda pin: pin.split("=="))
    for pin, rest in read_pins().items():
        assert re.fullmatch(r"[a-z0-9.-]+==[A-Za-z0-9.]+", pin)
        hashes = [each for each in rest if "_" not in each]
        assert hashes, pin
        assert all(re.fullmatch("[0-9a-f]{64}", each) for each in hashes), pin


def test_make_installs_nothing_without_a_hash_but_the_project_itself() -> None:
    done = subprocess.run(
        ["make", "-nB", ".venv/installed"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    installing = [line for line in done.stdout.splitlines() if " pip install " in line]
    assert [line for line in installing if "--require-hashes" not in line] == [
        installing[-1]
    ]
    assert "--no-deps --no-build-isolation -e ." in installing[-1]


def test_a_file_with_another_hash_is_not_installed(tmp_path: Path) -> None:
    """pluggy, from uv's cache or the machine's index."""
    uv = Path(sys.executable).with_name("uv")
    if not uv.exists():
        pytest.skip("no uv beside this Python: make .venv/installed")
    found = re.search(r"^pluggy==(?:.*\\\n)+.*\n", PINS.read_text(), re.MULTILINE)
    assert found
    pins = tmp_path / "pins.txt"
    command = [
        uv,
        "pip",
        "install",
        "--quiet",
        "--require-hashes",
        "--no-deps",
        "-r",
        pins,
        "--target",
    ]
    for text, wrong in (
        (found[0], False),
        (re.sub("sha256:.{4}", "sha256:beef", found[0]), True),
    ):
        pins.write_text(text)
        done = subprocess.run(
            [*command, tmp_path / str(wrong)], capture_output=True, text=True, timeout=300
        )
        if re.search(r"Failed to fetch|error sending request|dns", done.stderr):
            pytest.skip("no package index can be reached")
        assert ("Hash mismatch" in done.stderr, bool(done.returncode)) == (
            wrong,
            wrong,
        ), done.stderr


def test_every_requirement_is_pinned_within_what_it_asks() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    versions = dict(pin.split("==") for pin in read_pins())
    asked = [
        *project["dependencies"],
        *(each for extra in project["optional-dependencies"].values() for each in extra),
    ]
    for each in (each for each in map(Requirement, asked) if each.name != project["name"]):
        assert each.specifier.contains(versions[canonicalize_name(each.name)]), each


def test_every_pinned_package_states_a_licence_that_was_looked_at(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert licences.main(PINS) == 0, capsys.readouterr().err
    said = capsys.readouterr().out
    assert re.search(r"^fvcore +\S+ +Apache 2\.0$", said, re.MULTILINE)
    assert f"{len(licences.pinned(PINS))} packages: " in said


def test_a_package_without_a_licence_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, line in (
        ("said_nothing", ""),
        ("said_unknown", "License: UNKNOWN\n"),
        ("said_mit", "License: MIT\n"),
    ):
        folder = tmp_path / f"{name}-1.0.dist-info"
        folder.mkdir()
        (folder / "METADATA").write_text(
            f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n{line}"
        )
    monkeypatch.syspath_prepend(str(tmp_path))
    (tmp_path / "pins.txt").write_text(
        "said_nothing==1.0\nsaid_unknown==1.0\nsaid_mit==1.0\n"
    )
    assert [
        licences.licence(name) for name in ("said_nothing", "said_unknown", "said_mit")
    ] == [
        "",
        "",
        "MIT",
    ]
    assert licences.main(tmp_path / "pins.txt") == 1


#: Commands that measure nothing, run one after the other by one process.
LIGHT = """
import sys
from hpml_plugins.cli import group
for line in sys.argv[1:]:
    group.main(line.split(), standalone_mode=False)
"""


#: Of the project: what commands read.
FILES = ("registry.yaml", "asv.conf.json", "benchmarks", "pyproject.toml")
MACHINE = "h100-80gb-hbm3-x1"


def bare_project(folder: Path, *extras: str) -> dict[str, str]:
    """The project in this folder, with Records of one machine to merge. Returns the variables for a
    Python that has no package but the dependencies of pyproject.toml, these extras, and what those
    require."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    asked = [*project["dependencies"]]
    for extra in extras:
        asked += project["optional-dependencies"][extra]
    site = folder / "site"
    site.mkdir()
    link_packages(closure(Requirement(text).name for text in asked), site)
    missing = (
        "torch",
        "torchvision",
        "numba",
        "fvcore",
        "torchao",
        "nvmath",
        "sklearn",
        "triton",
    )
    assert not [name for name in missing if (site / name).exists()]
    (site / "hpml_plugins").symlink_to(ROOT / "hpml_plugins")
    for name in FILES:
        (folder / name).symlink_to(ROOT / name)
    shutil.copytree(ROOT / "results" / MACHINE, folder / "stored" / MACHINE)
    shutil.copy(ROOT / "results" / "benchmarks.json", folder / "stored")
    return {
        "PATH": os.environ["PATH"],
        "HOME": str(folder),
        "PYTHONPATH": str(site),
        "COLUMNS": "100",
    }


def run_bare(
    folder: Path, env: dict[str, str], *words: str
) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-S", *words]
    return subprocess.run(
        command,
        cwd=folder,
        env=env,
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )


@pytest.mark.slow
def test_commands_that_measure_nothing_need_only_the_core_packages(tmp_path: Path) -> None:
    env = bare_project(tmp_path)
    lines = ("list -v", "merge stored", f"compare {MACHINE} {MACHINE}", "table tta")
    done = run_bare(tmp_path, env, "-c", LIGHT, *lines)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr
    assert "needs module torch (pip install torch)" in done.stdout
    needing = {
        "publish --results results": ("publish", "vl_convert"),
        "plot tta": ("publish", "vl_convert"),
        "submit --yes": ("cluster", "submitit"),
        "export records.parquet": ("export", "pyarrow"),
    }
    for line, (extra, package) in needing.items():
        done = run_bare(tmp_path, env, "-m", "hpml_plugins", *line.split())
        said = done.stderr.splitlines()[-1]
        assert f"this needs the package {package}, which is not installed" in said, (
            done.stderr
        )
        assert f"pip install 'hpml-plugins[{extra}]'" in said
        assert done.returncode == 2, line


@pytest.mark.slow
def test_publishing_needs_the_core_packages_and_the_extra_publish(tmp_path: Path) -> None:
    env = bare_project(tmp_path, "publish")
    done = run_bare(tmp_path, env, "-c", LIGHT, "merge stored", "publish --results results")
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr
    assert (tmp_path / "html" / "workload-tta.html").exists()


@pytest.mark.slow
def test_the_pins_fit_together_and_are_what_one_command_writes(tmp_path: Path) -> None:
    """Asks the machine's package index."""
    uv = Path(sys.executable).with_name("uv")
    if not uv.exists():
        pytest.skip("no uv beside this Python: make .venv/installed")
    again = tmp_path / "pins.txt"
    shutil.copy(PINS, again)
    command = ["sh", "tests/pins.sh", str(uv), sys.executable, str(again)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=300)
    if done.returncode and re.search(
        r"Failed to fetch|error sending request|dns", done.stderr
    ):
        pytest.skip("no package index can be reached")
    assert done.returncode == 0, done.stderr
    assert again.read_text() == PINS.read_text()


@pytest.mark.parametrize(
    ("wanted", "answer", "installs"),
    [
        ("no", "", False),
        ("yes", "", True),
        ("ask", "n\n", False),
        ("ask", "y\n", True),
        ("ask", "", True),
    ],
)
def test_system_wide_packages_are_named_and_may_be_refused(
    tmp_path: Path, wanted: str, answer: str, installs: bool
) -> None:
    """With an apt-get that notes what it is asked for, by root. answer: what is typed on a
    terminal, "" without one."""
    programs = tmp_path / "bin"
    programs.mkdir()
    for name in ("sh", "cat"):
        (programs / name).symlink_to(shutil.which(name) or "")
    for name, does in (("id", "echo 0"), ("apt-get", f"echo $@ >> {tmp_path}/asked")):
        (programs / name).write_text(f"#!/bin/sh\n{does}\n")
        (programs / name).chmod(0o755)
    (tmp_path / ".tools").mkdir()
    (tmp_path / ".tools" / "axe.min.js").touch()
    terminal, stdin = pty.openpty()
    os.write(terminal, answer.encode())
    done = subprocess.run(
        ["/bin/sh", str(ROOT / "tests" / "get-tools.sh"), "/bin/false", wanted],
        cwd=tmp_path,
        env={"PATH": str(programs)},
        stdin=stdin if answer else subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=True,
    )
    asked = tmp_path / "asked"
    assert (asked.exists() and "openmpi-bin" in asked.read_text()) == installs
    assert ("installed system-wide" in done.stdout) == (wanted != "no")
    assert "NO SLURM: the tests on a real Slurm will be skipped." in done.stdout
