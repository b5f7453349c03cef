"""The wheel: what is in it, what it says of itself, and that it works in an environment outside any
checkout."""

from __future__ import annotations

import email
import json
import re
import subprocess
import zipfile
from pathlib import Path

import pytest
from own_repository import OwnRepository, build_wheel, install_wheel
from support import ROOT

LIGHT = """
import sys
import hpml_plugins, hpml_plugins.testing
from hpml_plugins import Benchmark, Metric, hookimpl
print(hpml_plugins.__file__)
print([name for name in ("torch", "numpy", "matplotlib", "scipy", "asv", "pytest") if name in sys.modules])
"""  # noqa: E501


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_wheel(tmp_path_factory.mktemp("build"))


def test_every_file_of_the_package_is_in_the_wheel(wheel: Path) -> None:
    command = [
        "git",
        "ls-files",
        "--cached",
        "--others",
        "--exclude-standard",
        "hpml_plugins",
    ]
    tracked = subprocess.run(
        command, cwd=ROOT, check=True, capture_output=True, text=True
    ).stdout.splitlines()
    packed = [
        name for name in zipfile.ZipFile(wheel).namelist() if ".dist-info/" not in name
    ]
    # ruff.toml is for who works on the plugins
    wanted = [name for name in tracked if not name.endswith("/ruff.toml")]
    assert sorted(packed) == sorted(name for name in wanted if (ROOT / name).exists())
    assert len(packed) > 250


def test_what_it_says_of_itself_fits_a_public_index(wheel: Path) -> None:
    archive = zipfile.ZipFile(wheel)
    (folder,) = {name.split("/")[0] for name in archive.namelist() if ".dist-info/" in name}
    found = email.message_from_bytes(archive.read(f"{folder}/METADATA"))
    assert (found["Name"], found.get_all("License-File")) == ("hpml-plugins", ["LICENSE"])
    assert found["License-Expression"] == "MIT"
    # pictures have licences of their own: the data set `photographs` is no part of it
    assert not [
        name for name in archive.namelist() if name.endswith((".png", ".jpg", ".gif"))
    ]
    assert archive.read(f"{folder}/licenses/LICENSE").startswith(b"MIT License")
    assert len(found["Summary"]) < 200 and "\n" not in found["Summary"]
    assert set(found.get_all("Provides-Extra")) == {
        "benchmarks",
        "cluster",
        "docs",
        "export",
        "mcp",
        "mpi",
        "pandas",
        "polars",
        "publish",
        "test",
    }
    assert "Framework :: Pytest" in found.get_all("Classifier")
    assert found["Description-Content-Type"] == "text/markdown"
    text = found.get_payload()
    assert "hpml init" in text and not re.search(r"\]\((?!https?://)", text), (
        "a link that an index does not have"
    )
    for address in found.get_all("Project-URL"):
        is_made_up = "example.org" in address
        assert not is_made_up or address.endswith("/REPOSITORY_ADDRESS"), address
    points = archive.read(f"{folder}/entry_points.txt").decode()
    assert (
        "hpml = hpml_plugins.cli:main" in points
        and "hpml_plugins.testing = hpml_plugins.testing" in points
    )
    assert (ROOT / "CHANGELOG.md").read_text().count(f"## {found['Version']}") == 1


def test_installed_outside_a_checkout_it_lists_and_measures_and_imports_lightly(
    wheel: Path, tmp_path: Path
) -> None:
    python = install_wheel(wheel, tmp_path / "env")
    mine = OwnRepository.make(tmp_path, python)
    told = mine.run(python, "-c", LIGHT).stdout.splitlines()
    assert told[0].startswith(str(tmp_path / "env")) and told[1] == "[]"
    mine.write(
        "registry.yaml",
        "version: 1\nplugins:\n  - {name: vecadd, module: hpml_plugins.plugins.vecadd}\n",
    )
    assert (Path(python).parent / "hpml").exists()
    listed = mine.run("hpml", "list").stdout
    assert "vecadd_cpu" in listed
    done = mine.run(
        "hpml",
        "run",
        "vecadd_cpu",
        "-p",
        "millions=1",
        "-p",
        "implementation=numpy",
        "--rounds",
        "1",
        "--json",
    )
    assert json.loads(done.stdout)["status"] == "ok"
