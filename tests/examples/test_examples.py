"""The example packages, installed as a stranger would: available, checked, run by asv, on the
page."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from asv_project import Project
from support import ROOT, unavailable
from workload_pages import read_points

from hpml_plugins.store import read_file

EXAMPLES = ROOT / "examples"
NAMES = {
    "hpml-compression": "compression",
    "hpml-softmax": "softmax",
    "hpml-wrapped-cli": "openssl_speed",
}


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the packages installed."""
    if not shutil.which("openssl"):
        unavailable("openssl is not installed")
    site = tmp_path_factory.mktemp("site")
    for name in NAMES:
        copy = tmp_path_factory.mktemp(name)  # setuptools builds beside the sources
        shutil.copytree(EXAMPLES / name, copy, dirs_exist_ok=True)
        pip = [
            sys.executable,
            "-m",
            "pip",
            "install",
            "-q",
            "--no-deps",
            "--no-build-isolation",
            "--no-index",
        ]
        subprocess.run(
            [*pip, "--target", str(site), str(copy)], check=True, capture_output=True
        )
    return site


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_the_tests_of_an_example_pass_hpml_check_among_them(
    name: str, tmp_path: Path
) -> None:
    shutil.copytree(EXAMPLES / name, tmp_path, dirs_exist_ok=True)
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q"], cwd=tmp_path, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout


@pytest.mark.slow
def test_all_are_named_then_measured_by_asv_and_on_the_page(
    site: Path, make_project: Callable[[str], Project]
) -> None:
    project = make_project("version: 1\nplugins:\n  - {name: mine, entry_point: no_such}\n")
    path = {"PYTHONPATH": str(site)}
    said = project.run(sys.executable, "-m", "hpml_plugins", "list", **path).stderr
    assert f"(there: {', '.join(sorted(NAMES.values()))})" in said
    project.write(
        "registry.yaml",
        """
        version: 1
        plugins:
          - {name: softmax, entry_point: softmax, version: "1.0.0", sampling: {budget: 0.1}}
          - name: openssl_speed
            entry_point: openssl_speed
            grid: {openssl_speed: {algorithm: [sha256], size: [1024]}}
          - name: compression
            entry_point: compression
            grid: {compression: {codec: [zlib], kibibytes: [64]}}
        """,
    )
    project.commit("examples")
    ran = project.asv("run", **path)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    records = [
        record
        for file in project.path.glob("results/*/records/*.jsonl")
        for record in read_file(file)
    ]
    assert {record.benchmark for record in records if record.status == "ok"} == {
        "softmax",
        "openssl_speed",
        "compression",
    }
    for record in records:
        name = {own: name for name, own in NAMES.items()}[record.plugin]
        if record.status == "ok":
            assert (record.source["distribution"], record.source["version"]) == (
                name,
                "1.0.0",
            )
    published = project.asv("publish", **path)
    assert published.returncode == 0, published.stdout + published.stderr
    html = project.path / "html"
    assert "openssl_speed" in read_points(html)
    page = (html / "workload-softmax.html").read_text()
    assert "hpml-softmax 1.0.0" in page
    assert "Bandwidth by number of columns" in page
    page = (html / "workload-compression.html").read_text()
    assert "hpml-compression 1.0.0" in page and "Smaller or faster" in page


def test_available_plugins_are_named_with_the_lines_that_add_them(
    site: Path, tmp_path: Path
) -> None:
    """All three, without a registry and with one that has one of them."""
    env = {**os.environ, "PYTHONPATH": f"{site}:{ROOT}"}

    def listed(*words: str) -> str:
        command = [sys.executable, "-m", "hpml_plugins", "list", "--available", *words]
        done = subprocess.run(
            command, cwd=tmp_path, env=env, capture_output=True, text=True, check=True
        )
        return done.stdout

    found = {row["entry point"]: row for row in json.loads(listed("--json"))}
    assert {name: row["distribution"] for name, row in found.items()} == {
        own: name for name, own in NAMES.items()
    }
    assert {row["version"] for row in found.values()} == {"1.0.0"}
    (tmp_path / "registry.yaml").write_text(
        "version: 1\nplugins:\n  - {name: zip, entry_point: compression}\n"
    )
    lines = listed().splitlines()
    (compression,) = [line for line in lines if line.startswith("compression")]
    assert compression.split() == ["compression", "hpml-compression", "1.0.0", "zip"]
    added = [line for line in lines if line.startswith("  - ")]
    assert added == [
        "  - {name: openssl_speed, entry_point: openssl_speed}",
        "  - {name: softmax, entry_point: softmax}",
    ]


def test_an_installed_example_is_measured(site: Path, tmp_path: Path) -> None:
    (tmp_path / "registry.yaml").write_text(
        "version: 1\nplugins:\n  - {name: compression, entry_point: compression}\n"
    )
    env = {**os.environ, "PYTHONPATH": f"{site}:{ROOT}"}
    words = (
        "run",
        "compression",
        "-p",
        "codec=zlib",
        "-p",
        "kibibytes=64",
        "--rounds",
        "1",
    )
    done = subprocess.run(
        [sys.executable, "-m", "hpml_plugins", *words, "--json"],
        cwd=tmp_path,
        env=env,
        capture_output=True,
        text=True,
        check=True,
    )
    record = json.loads(done.stdout)
    assert record["status"] == "ok" and record["metrics"]["throughput"]["unit"] == "B/s"
    assert record["source"]["distribution"] == "hpml-compression"
