"""End to end: a node without the project's packages reports its facts, installs a bundle and
measures without a network."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tarfile
from collections.abc import Callable
from pathlib import Path

import pytest
from asv_project import Project, no_network
from bare_node import make_bare_node
from support import ROOT

from hpml_plugins.model.serialization import decode

REGISTRY = """
version: 1
plugins:
  - name: vecadd
    module: hpml_plugins.plugins.vecadd
    profiles:
      smallest: {vecadd_cpu: {millions: [1]}}
"""


@pytest.mark.slow
def test_a_bare_node_without_network_measures_in_two_commands(
    tmp_path: Path, make_project: Callable[[str], Project]
) -> None:
    python = make_bare_node(tmp_path / "python")
    bare = [python, "-E"]  # PYTHONPATH may name tests/, in which a folder is named asv
    for name in ("asv", "msgspec", "fvcore", "pluggy", "click"):
        assert (
            subprocess.run(
                [*bare, "-c", f"import {name}"], capture_output=True, check=False
            ).returncode
            == 1
        )
    project = make_project(REGISTRY)
    shutil.copy(ROOT / "constraints.txt", project.path)
    commit = project.commit("pins")

    hpml = [sys.executable, "-m", "hpml_plugins", "bundle"]
    script = subprocess.run(
        [*hpml, "--ask"], cwd=project.path, capture_output=True, check=True
    ).stdout
    told = subprocess.run(
        [*bare, "-"], input=script, capture_output=True, check=True
    ).stdout
    (tmp_path / "node.json").write_bytes(told)
    made = subprocess.run(
        [*hpml, "--node", tmp_path / "node.json", "-o", tmp_path / "bundle.sh"],
        cwd=project.path,
        capture_output=True,
        text=True,
        check=False,
    )
    if "no package index answers" in made.stderr:
        pytest.skip(made.stderr)
    assert made.returncode == 0, made.stderr
    print(made.stdout)
    assert "numpy 2.4.6 in place of 2.0.2" in made.stdout
    assert (tmp_path / "bundle.sh").stat().st_size < 40e6

    node = tmp_path / "node"
    node.mkdir()
    shutil.copy(tmp_path / "bundle.sh", node)

    def there(*command: str) -> subprocess.CompletedProcess[str]:
        env = {"HOME": str(node), "PATH": os.defpath, "HPML_PROFILE": "smallest"}
        return subprocess.run(
            [*no_network(), *command],
            cwd=node,
            env=env,
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
        )

    installed = there("sh", "bundle.sh", "--python", str(python))
    assert installed.returncode == 0, installed.stderr
    assert {path.name for path in node.iterdir()} == {"bundle.sh", "hpml"}
    ran = there("hpml/asv", "run", "--bench", "vecadd_cpu", "--machine", "there")
    assert ran.returncode == 0, ran.stdout + ran.stderr

    results = node / "hpml/hpml-plugins/results/there"
    (stored,) = [
        json.loads(path.read_text()) for path in results.glob(f"{commit[:8]}-*.json")
    ]
    assert stored["commit_hash"] == commit
    records = [
        decode(line)
        for line in (results / f"records/{commit[:8]}.jsonl").read_bytes().splitlines()
    ]
    assert records
    assert {
        (record.status, record.params["millions"], record.packages["numpy"])
        for record in records
    } == {
        ("ok", 1, "2.4.6")  # and not the node's own, which pyproject.toml refuses
    }

    for words in (("--help",), ("a.tgz", "b")):
        refused = there("hpml/pack-results", *words)
        assert (refused.returncode, refused.stderr) == (2, "usage: pack-results [FILE]\n")
    packed = there("hpml/pack-results")
    assert packed.returncode == 0, packed.stderr
    with tarfile.open(node / "hpml-results.tar.gz") as archive:
        assert f"results/there/records/{commit[:8]}.jsonl" in archive.getnames()
    assert "is there already" in there("sh", "bundle.sh", "--python", str(python)).stderr
