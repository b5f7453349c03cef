"""Which packages a node needs, and their files: the node's facts, the project's requirements,
resolved by uv."""

from __future__ import annotations

import importlib
import importlib.metadata
import os
import re
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec
from packaging.requirements import InvalidRequirement, Requirement
from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name
from packaging.version import Version

from hpml_plugins.asv import own_requirements
from hpml_plugins.errors import UsageError

ASK = "ask it: hpml bundle --ask | ssh NODE python3 - > node.json"
EXAMPLE = "manylinux_2_28_x86_64"
#: Large packages left to the node, with their dependencies, unless they are requested.
NODES_OWN = ("torch", "torchvision", "triton")
#: The extra of hpml-plugins needed by jobs on a node; pages are published elsewhere.
ON_NODES = "cluster"
#: The versions of glibc 2.x that uv knows by name (`uv pip compile --help`, --python-platform).
_GLIBC_MINORS = (17, 28, *range(31, 41))
#: The Pythons that hpml-plugins supports (pyproject.toml).
LEAST_PYTHON = SpecifierSet(">=3.11")
SOURCES = (
    "it has only sources that must be compiled there; install it on the node, or leave out what"
    " needs it"
)


class NodeFacts(msgspec.Struct, frozen=True):
    """What `ask_node` and `hpml doctor --json` print about a node's Python.

    abi: cp312.  libc: "glibc 2.39", "" for another library.  packages: name → version, "" if only
    the name is known.
    """

    hpml_node: int
    python: str
    abi: str
    machine: str
    libc: str
    packages: dict[str, str]

    @property
    def minor(self) -> str:
        """3.12 of 3.12.3."""
        return ".".join(self.python.split(".")[:2])

    @property
    def glibc(self) -> tuple[int, int]:
        """(2, 39); (0, 0) for another C library."""
        found = re.fullmatch(r"glibc (\d+)\.(\d+).*", self.libc)
        return (int(found[1]), int(found[2])) if found else (0, 0)


def read_node(path: Path) -> NodeFacts:
    """Read a node's facts. Raises UsageError for any other file, and for a node that no bundle can
    be made for."""
    try:
        node = msgspec.json.decode(path.read_bytes(), type=NodeFacts)
    except OSError as error:
        raise UsageError(f"{error.strerror}; {ASK}", str(path)) from None
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise UsageError(f"not the facts of a node ({error}); {ASK}", str(path)) from None
    return _usable(node, str(path))


def assume_node(python: str, platform: str, has: Iterable[str]) -> NodeFacts:
    """The facts from a command line: `3.12`, `manylinux_2_28_x86_64`, names with or without
    `==VERSION`."""
    found = re.fullmatch(r"manylinux_(\d+)_(\d+)_(\w+)", platform)
    if not re.fullmatch(r"3\.\d+", python) or not found:
        raise UsageError(
            f"{python!r} on {platform!r} is not the Python and platform of a node; "
            f"for example --python 3.12 --platform {EXAMPLE}"
        )
    packages = {
        str(canonicalize_name(name)): version
        for name, _, version in (one.partition("==") for one in has)
    }
    abi = f"cp{python.replace('.', '')}"
    return _usable(
        NodeFacts(1, python, abi, found[3], f"glibc {found[1]}.{found[2]}", packages), ""
    )


def _usable(node: NodeFacts, where: str) -> NodeFacts:
    if not re.fullmatch(r"3\.\d{1,3}(\.\d+)?\S{0,20}", node.python):
        raise UsageError(
            f"the node's Python is {node.python!r}; the project runs with Python 3", where
        )
    for name in node.packages:
        if not re.fullmatch(r"[A-Za-z0-9]([A-Za-z0-9._-]{0,200}[A-Za-z0-9])?", name):
            raise UsageError(f"{name[:100]!r} is no name of a package; remove it", where)
    if not re.fullmatch(r"cp\d+", node.abi):
        raise UsageError(
            f"the node's Python is {node.abi}; packages are built for standard CPython",
            where,
        )
    if node.glibc < (2, 17) or node.machine not in ("x86_64", "aarch64"):
        platform = f"{node.machine} with {node.libc or 'a C library that is not glibc'}"
        raise UsageError(
            f"the node is {platform}; packages are built for x86_64 and aarch64 with glibc 2.17 or"
            " newer",
            where,
        )
    return node


@dataclass(frozen=True)
class PackageRequest:
    """The requirements for uv. preferred: name → version, used if allowed.  given: left to the
    node.

    hashes: name==version → `--hash=…` of its files, from constraints.txt.
    """

    requirements: tuple[str, ...]
    preferred: Mapping[str, str]
    given: tuple[str, ...]
    warnings: tuple[str, ...] = ()
    hashes: Mapping[str, str] = field(default_factory=dict)


def request_packages(
    root: Path, node: NodeFacts, extra: Iterable[str] = ()
) -> PackageRequest:
    """The requirements of the project at `root` on this node, from pyproject.toml and
    constraints.txt.

    The extras that [tool.hpml] names for nodes are included; the packages that it excludes for
    nodes are left out. extra: more requirements, which may name torch itself. Raises UsageError if
    the project does not support the node's Python or torch.
    """
    where = str(root / "pyproject.toml")
    table = _read_project(Path(where))
    _check_python(table.get("project", {}), where, node)
    settings = table.get("tool", {}).get("hpml", {})
    required = [_named(text, where) for text in _required_texts(root, table)]
    asked = [_named(text, "--with") for text in extra]
    names_asked = {name for name, _ in asked}
    given: set[str] = set()
    if "torch" not in names_asked:
        given = set(NODES_OWN) - names_asked
    if given:
        _check_torch(dict(required).get(canonicalize_name("torch")), node)
    warnings: list[str] = []
    if "torchvision" in given and "torchvision" not in node.packages:
        warnings.append(
            "the node has no torchvision: benchmarks that need it are skipped there"
        )
    pins, hashes = _pins(root / "constraints.txt")
    preferred = dict(pins)
    for name, version in node.packages.items():
        if _is_version(version):
            preferred[name] = str(Version(version))
        elif not version and name not in names_asked:
            given.add(name)  # a package of unknown version is accepted as it is
    left_out = {canonicalize_name(name) for name in settings.get("not-on-nodes", ())}
    carried_by_none = given | (left_out - names_asked)
    return PackageRequest(
        requirements=tuple(
            str(each) for name, each in required + asked if name not in carried_by_none
        ),
        preferred={
            name: version for name, version in preferred.items() if name not in given
        },
        given=tuple(sorted(given)),
        warnings=tuple(warnings),
        hashes=hashes,
    )


def _check_python(project: Mapping[str, Any], where: str, node: NodeFacts) -> None:
    """Raise UsageError if the project does not support the node's Python."""
    asked = _requirement(f"python{project.get('requires-python', '>=3.11')}", where)
    needed = asked.specifier & LEAST_PYTHON
    if not needed.contains(node.python, prereleases=True):
        raise UsageError(f"the node has Python {node.python}; the project needs {needed}")


def _required_texts(root: Path, table: Mapping[str, Any]) -> list[str]:
    """The requirements of the project, of its extras for nodes, and of its build."""
    project = table.get("project", {})
    extras = project.get("optional-dependencies", {})
    found = [*project.get("dependencies", ())]
    for name in table.get("tool", {}).get("hpml", {}).get("extras-on-nodes", ()):
        found += extras.get(name, ())
    if not is_own(root):  # hpml-plugins is carried too
        found += table.get("build-system", {}).get("requires", ())
        found += [f"{each.name}{each.specifier}" for each in own_requirements(ON_NODES)]
    return found


def _named(text: str, where: str) -> tuple[str, Requirement]:
    made = _requirement(text, where)
    return canonicalize_name(made.name), made


def is_own(root: Path) -> bool:
    """Whether the repository is that of hpml-plugins, whose commits bring the package."""
    return (root / "hpml_plugins" / "__init__.py").is_file()


def _read_project(path: Path) -> dict[str, Any]:
    """pyproject.toml; empty if there is none, as in a repository of another language or with a
    setup.py."""
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        if (
            isinstance(error, FileNotFoundError)
            and (path.parent / "registry.yaml").is_file()
        ):
            return {}
        raise UsageError(
            f"{error.strerror}; run hpml bundle in the project's folder", str(path)
        ) from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise UsageError(f"not a project: {error}", str(path)) from None


def lacking(resolved: Mapping[str, str], node: NodeFacts) -> dict[str, str]:
    """The packages to carry, name → version: the resolved ones that the node lacks in this
    version."""
    has = {
        name: Version(version)
        for name, version in node.packages.items()
        if _is_version(version)
    }
    return {
        name: version
        for name, version in resolved.items()
        if has.get(name) != Version(version)
    }


def _check_torch(wanted: Requirement | None, node: NodeFacts) -> None:
    if "torch" not in node.packages:
        raise UsageError(
            "the node has no torch, which a bundle does not carry: ask the Python that has it (load"
            " its module, name its path), or carry gigabytes with --with torch"
        )
    has = node.packages["torch"]
    # a vendor's 2.11.0a0+nv counts as 2.11.0
    if (
        wanted
        and _is_version(has)
        and not wanted.specifier.contains(Version(has).base_version)
    ):
        raise UsageError(
            f"the node has torch {has}; the project needs torch{wanted.specifier}"
        )


def _pins(path: Path) -> tuple[dict[str, str], dict[str, str]]:
    """name → version, and name==version → its hashes."""
    lines = path.read_text().replace("\\\n", " ").splitlines() if path.is_file() else []
    pins: dict[str, str] = {}
    hashes: dict[str, str] = {}
    for text, _, digests in (
        line.partition("--hash=")
        for line in lines
        if line.strip() and not line.startswith("#")
    ):
        found = _requirement(text.strip(), str(path))
        for spec in found.specifier:
            if spec.operator == "==":
                name = canonicalize_name(found.name)
                pins[name] = spec.version
                hashes[f"{name}=={spec.version}"] = f" --hash={digests}" if digests else ""
    return pins, hashes


def _requirement(text: str, where: str) -> Requirement:
    try:
        return Requirement(text)
    except InvalidRequirement as error:
        raise UsageError(f"{text!r} is not a valid requirement: {error}", where) from None


def _is_version(text: str) -> bool:
    try:
        Version(text)
    except (
        ValueError
    ):  # InvalidVersion is one, and so is the error of int() for thousands of digits
        return False  # Debian's 0.23ubuntu1, or unknown
    return True


def resolve(request: PackageRequest, node: NodeFacts, scratch: Path) -> dict[str, str]:
    """The versions that the node needs, name → version. scratch: an empty folder; answer.txt in it
    has the hashes."""
    wanted = scratch / "wanted.in"
    answer = scratch / "answer.txt"
    given = scratch / "given.txt"
    wanted.write_text("\n".join(request.requirements))
    given.write_text("\n".join(request.given))
    # uv keeps the versions, and their hashes, of an existing output file if the requirements allow
    # it; hashes of other versions are the index's
    pins = (f"{name}=={version}" for name, version in request.preferred.items())
    answer.write_text("\n".join(pin + request.hashes.get(pin, "") for pin in pins))
    options = [
        "--generate-hashes",
        "--no-header",
        "--no-annotate",
        "--excludes",
        str(given),
    ]
    _uv("compile", *options, "--output-file", str(answer), str(wanted), node=node)
    return _pins(answer)[0]


def unpack(packages: Mapping[str, str], node: NodeFacts, site: Path) -> None:
    """Put these packages for the node's Python into the folder `site`; pure Python sources are
    built here.

    The file that `resolve` left beside it has the hashes, which every file must match.
    """
    wanted = site.with_name("carried.txt")
    answer = site.with_name("answer.txt")
    wanted.write_text("\n".join(f"{name}=={version}" for name, version in packages.items()))
    site.mkdir()
    options = [
        "--no-deps",
        "--link-mode",
        "copy",
        "--target",
        str(site),
        "--requirements",
        str(wanted),
    ]
    hashes = ["--require-hashes", "--constraints", str(answer)]
    _uv("install", "--python", sys.executable, *options, *hashes, node=node)
    for wheel in site.glob("*.dist-info/WHEEL"):
        tags = [
            line.partition(":")[2].strip()
            for line in wheel.read_text().splitlines()
            if line.startswith("Tag:")
        ]
        # uv refuses packages that do not fit the node, but accepts a compiled wheel of this machine
        # for any machine with the same Python
        if tags and all(tag.rpartition("-")[2].startswith("linux_") for tag in tags):
            raise UsageError(
                f"{_no_wheel(wheel.parent.name.removesuffix('.dist-info'), node)}: {SOURCES}"
            )
    shutil.rmtree(
        site / "bin", ignore_errors=True
    )  # its scripts name this machine's Python
    (site / ".lock").unlink(missing_ok=True)


def find_uv() -> str:
    """The program uv: of this environment, or from the PATH."""
    try:
        return str(importlib.import_module("uv").find_uv_bin())
    except (ImportError, FileNotFoundError):
        found = shutil.which("uv")
    if not found:
        raise UsageError(
            "uv is not installed; it resolves the node's packages: python3 -m pip install uv"
        )
    return found


def _uv(action: str, *args: str, node: NodeFacts) -> None:
    minor = max(known for known in _GLIBC_MINORS if (2, known) <= node.glibc)
    target = [
        "--python-version",
        node.minor,
        "--python-platform",
        f"{node.machine}-manylinux_2_{minor}",
    ]
    done = subprocess.run(
        [find_uv(), "pip", action, "--quiet", *target, *args],
        env={**os.environ, "UV_PYTHON_DOWNLOADS": "never", "NO_COLOR": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise UsageError(explain(done.stderr, node))


def explain(stderr: str, node: NodeFacts) -> str:
    """The error of uv, in one line."""
    lines = [line.strip() for line in stderr.splitlines()]
    causes = [
        line.removeprefix("cause:").strip() for line in lines if line.startswith("cause:")
    ]
    errors = [
        line.removeprefix("error:").strip() for line in lines if line.startswith("error:")
    ]
    if fetched := next(
        (line for line in [*errors, *causes] if line.startswith("Failed to fetch")), None
    ):
        return (
            f"no package index answers ({fetched}); hpml bundle needs a network or a warm cache,"
            " the node does not"
        )
    if wrong := next((line for line in causes if line.startswith("Hash mismatch")), None):
        return (
            f"{wrong}: the package index has another file than the one that was tried; make pins"
            " renews the hashes"
        )
    if errors and "uild" in errors[0] and "`" in errors[0]:
        return f"{_no_wheel(errors[0].split('`')[1], node)}: {SOURCES}"
    return f"no packages fit the node: {' '.join([*errors[:1], *causes[-1:]]) or stderr}"


def _no_wheel(package: str, node: NodeFacts) -> str:
    return (
        f"{package} has no wheel for Python {node.minor} on {node.machine} with {node.libc}"
    )
