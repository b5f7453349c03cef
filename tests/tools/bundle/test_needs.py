"""What a bundle carries, judged from a project's requirements and a node's facts."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from support import ROOT

from hpml_plugins.errors import UsageError
from hpml_plugins.tools.bundle.packages import (
    NodeFacts,
    lacking,
    request_packages,
)

PROJECT = """
    [project]
    requires-python = ">=3.11"
    dependencies = ["asv>=0.6", "numpy>=2.1,<2.5", "Drawing.Only==1"]

    [project.optional-dependencies]
    benchmarks = ["torch>=2.11", "click>=8"]
    drawing = ["pictures>=1"]

    [tool.hpml]
    extras-on-nodes = ["benchmarks"]
    not-on-nodes = ["drawing-only"]
"""
SHA = "a" * 64
PINS = f"""# tried together
asv==0.6.6 \\
    --hash=sha256:{SHA} \\
    --hash=sha256:{SHA[::-1]}
numpy==2.4.6 ; python_full_version < '3.15' \\
    --hash=sha256:{SHA}
click==8.5.1
torch==2.15.0
"""


def node_with(python: str = "3.12.3", **packages: str) -> NodeFacts:
    return NodeFacts(1, python, "cp312", "x86_64", "glibc 2.39", packages)


@pytest.fixture
def project(write: Callable[[str, str], Path]) -> Path:
    """A small project with pins."""
    write("constraints.txt", PINS)
    # the repository of hpml-plugins, whose commits bring the package
    write("hpml_plugins/__init__.py", "")
    return write("pyproject.toml", PROJECT).parent


def test_the_nodes_versions_are_preferred_over_the_pins_and_torch_is_left_to_it(
    project: Path,
) -> None:
    asked = request_packages(
        project,
        node_with(
            torch="2.11.0+cu130", torchvision="0.26.0", click="8.2.0", odd="0.23ubuntu1"
        ),
    )
    assert sorted(asked.requirements) == ["asv>=0.6", "click>=8", "numpy<2.5,>=2.1"]
    assert asked.preferred == {"asv": "0.6.6", "numpy": "2.4.6", "click": "8.2.0"}
    assert asked.hashes["asv==0.6.6"].split() == [f"--hash=sha256:{SHA}"] * 2
    assert asked.hashes["numpy==2.4.6"] == f" --hash=sha256:{SHA}"
    assert asked.given == ("torch", "torchvision", "triton")
    assert asked.warnings == ()


def test_torch_travels_only_when_it_is_asked_for(project: Path) -> None:
    asked = request_packages(project, node_with(), ["torch==2.15.0"])
    assert {"torch>=2.11", "torch==2.15.0"} <= set(asked.requirements)
    assert asked.given == ()


def test_a_package_of_unknown_version_is_left_to_the_node(project: Path) -> None:
    asked = request_packages(project, node_with(torch="", numpy=""))
    assert "numpy" in asked.given
    assert not [text for text in asked.requirements if text.startswith(("numpy", "torch"))]
    assert asked.warnings == (
        "the node has no torchvision: benchmarks that need it are skipped there",
    )


def test_what_the_node_has_stays_and_what_differs_travels() -> None:
    node = node_with(numpy="2.5.0", click="8.2", torch="2.11.0")
    assert lacking({"numpy": "2.4.6", "click": "8.2.0", "asv": "0.6.6"}, node) == {
        "numpy": "2.4.6",
        "asv": "0.6.6",
    }


@pytest.mark.parametrize(
    ("node", "message"),
    [
        (
            node_with("3.9.1", torch="2.11.0"),
            "the node has Python 3.9.1; the project needs >=3.11",
        ),
        (
            node_with(),
            "the node has no torch, which a bundle does not carry: ask the Python that has it",
        ),
        (
            node_with(torch="2.9.1+cu128"),
            "the node has torch 2.9.1+cu128; the project needs torch>=2.11",
        ),
    ],
)
def test_a_node_that_the_project_does_not_run_on_is_refused(
    project: Path, node: NodeFacts, message: str
) -> None:
    with pytest.raises(UsageError, match=re.escape(message)):
        request_packages(project, node)


def test_a_vendors_build_of_a_release_counts_as_the_release(project: Path) -> None:
    assert "torch" in request_packages(project, node_with(torch="2.11.0a0+nv26.1")).given


def test_a_folder_without_a_project_and_a_wrong_requirement_are_named(
    project: Path, tmp_path: Path
) -> None:
    with pytest.raises(
        UsageError,
        match=r"nowhere/pyproject\.toml: No such file or directory; run hpml bundle in the",
    ):
        request_packages(tmp_path / "nowhere", node_with())
    with pytest.raises(UsageError, match="--with: 'a b c' is not a valid requirement"):
        request_packages(project, node_with(torch="2.11.0"), ["a b c"])


def test_this_project_leaves_out_what_only_publishing_needs_and_pins_what_numba_cuda_imports_with() -> (  # noqa: E501
    None
):
    request = request_packages(ROOT, node_with(torch="2.15.0"))
    needs = {
        requirement.name: requirement
        for requirement in map(Requirement, request.requirements)
    }
    assert {"asv", "fvcore", "jinja2", "pip"} <= set(needs)
    assert not {"matplotlib", "js-jquery", "js-jquery-flot", "js-bootstrap"} & set(needs)
    assert not needs["numpy"].specifier.contains("2.5.0")
    assert needs["numpy"].specifier.contains(request.preferred["numpy"])
