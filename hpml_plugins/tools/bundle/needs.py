"""From the project's requirements and a node's facts to the question that uv answers, and from its answer to a plan."""

from __future__ import annotations

import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

from hpml_plugins.errors import UsageError
from hpml_plugins.tools.bundle.facts import NodeFacts

#: Gigabytes that belong to the node, with all that they bring, unless they are asked for.
NODES_OWN = ("torch", "torchvision", "triton")


@dataclass(frozen=True)
class Project:
    """What the project asks of a Python. pins: versions that were tried together."""

    requirements: Mapping[str, Requirement]
    requires_python: Requirement
    pins: Mapping[str, str]


@dataclass(frozen=True)
class Question:
    """What uv is asked. preferred: name → version, taken where nothing is against it.  given: left to the node."""

    requirements: tuple[str, ...]
    preferred: Mapping[str, str]
    given: tuple[str, ...]
    warnings: tuple[str, ...] = field(default=())


@dataclass(frozen=True)
class Plan:
    """What the bundle carries and what it counts on. replaced: the node's versions of what is carried all the same."""

    carried: Mapping[str, str]
    kept: Mapping[str, str]
    replaced: Mapping[str, str]


def read_project(root: Path) -> Project:
    """Read pyproject.toml and constraints.txt. What [tool.hpml] says nodes do without is left out."""
    path = root / "pyproject.toml"
    try:
        table = tomllib.loads(path.read_text())
        project = table["project"]
    except OSError as error:
        raise UsageError(f"{error.strerror}; run hpml bundle in the project's folder", str(path)) from None
    except (tomllib.TOMLDecodeError, KeyError) as error:
        raise UsageError(f"not a project: {error}", str(path)) from None
    left_out = {canonicalize_name(name) for name in table.get("tool", {}).get("hpml", {}).get("not-on-nodes", ())}
    wanted = [_requirement(text, str(path)) for text in project.get("dependencies", ())]
    # the node environment builds each commit with pip, which a node's Python may lack
    wanted.append(Requirement("pip"))
    return Project(
        requirements={name: each for each in wanted if (name := canonicalize_name(each.name)) not in left_out},
        requires_python=_requirement(f"python{project.get('requires-python', '>=3.11')}", str(path)),
        pins=_pins(root / "constraints.txt"),
    )


def ask(project: Project, node: NodeFacts, extra: Iterable[str] = ()) -> Question:
    """What uv must be asked for this node. extra: more requirements, which may name torch itself.

    Raises UsageError when the node's Python or torch is not one that the project runs with.
    """
    if not project.requires_python.specifier.contains(node.python, prereleases=True):
        raise UsageError(f"the node has Python {node.python}; the project needs {project.requires_python.specifier}")
    asked = {str(canonicalize_name(each.name)): each for each in (_requirement(text, "--with") for text in extra)}
    own = [] if "torch" in asked else [name for name in NODES_OWN if name not in asked]
    if own:
        _check_torch(project, node)
    # a name whose version nobody told is taken as it is
    given = {*own, *(name for name, version in node.packages.items() if not version and name not in asked)}
    wanted = [*project.requirements.items(), *asked.items()]
    known = {name: version for name, version in node.packages.items() if _is_version(version)}
    preferred = {**project.pins, **known}
    warnings: tuple[str, ...] = ()
    if "torchvision" in own and "torchvision" not in node.packages:
        warnings = ("the node has no torchvision: benchmarks that need it are skipped there",)
    return Question(
        requirements=tuple(str(each) for name, each in wanted if name not in given),
        preferred={name: version for name, version in preferred.items() if name not in given},
        given=tuple(sorted(given)),
        warnings=warnings,
    )


def plan(answer: Mapping[str, str], node: NodeFacts) -> Plan:
    """Which of the resolved packages travel. answer: name → version."""
    kept = {name: version for name, version in answer.items() if _same(node.packages.get(name, ""), version)}
    carried = {name: version for name, version in answer.items() if name not in kept}
    return Plan(carried, kept, {name: node.packages[name] for name in carried if name in node.packages})


def _check_torch(project: Project, node: NodeFacts) -> None:
    if "torch" not in node.packages:
        raise UsageError(
            "the node has no torch, which a bundle does not carry: ask the Python that has it (load its module, name "
            "its path), or carry gigabytes with --with torch"
        )
    has, wanted = node.packages["torch"], project.requirements.get("torch")
    # a vendor's 2.11.0a0+nv counts as 2.11.0
    if wanted and _is_version(has) and not wanted.specifier.contains(Version(has).base_version):
        raise UsageError(f"the node has torch {has}; the project needs torch{wanted.specifier}")


def _pins(path: Path) -> dict[str, str]:
    lines = path.read_text().splitlines() if path.is_file() else []
    found = (_requirement(line, str(path)) for line in lines if line.strip() and not line.startswith("#"))
    return {
        canonicalize_name(each.name): spec.version for each in found for spec in each.specifier if spec.operator == "=="
    }


def _requirement(text: str, where: str) -> Requirement:
    try:
        return Requirement(text)
    except InvalidRequirement as error:
        raise UsageError(f"{text!r} is no requirement: {error}", where) from None


def _is_version(text: str) -> bool:
    try:
        Version(text)
    except ValueError:  # InvalidVersion is one, and so is what int() raises for thousands of digits
        return False  # Debian's 0.23ubuntu1, or not told
    return True


def _same(has: str, wanted: str) -> bool:
    return _is_version(has) and Version(has) == Version(wanted)
