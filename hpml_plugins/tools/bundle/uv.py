"""uv: which versions a node needs, and their files for the node's Python and platform, whatever runs here."""

from __future__ import annotations

import importlib
import os
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

from packaging.requirements import Requirement

from hpml_plugins.errors import HpmlError
from hpml_plugins.tools.bundle.facts import NodeFacts
from hpml_plugins.tools.bundle.needs import Question

#: The glibc 2.x that uv knows by name (`uv pip compile --help`, --python-platform).
_GLIBC_MINORS = (17, 28, *range(31, 41))


class ResolveError(HpmlError):
    """No set of packages fits, one cannot be had for the node, or the index does not answer."""


def resolve(question: Question, node: NodeFacts, scratch: Path) -> dict[str, str]:
    """The versions that the node needs, name → version. scratch: an empty folder."""
    wanted, answer, given = scratch / "wanted.in", scratch / "answer.txt", scratch / "given.txt"
    wanted.write_text("\n".join(question.requirements))
    given.write_text("\n".join(question.given))
    # uv keeps the versions of an output file that is already there, wherever the requirements allow it
    answer.write_text("\n".join(f"{name}=={version}" for name, version in question.preferred.items()))
    options = ["--no-header", "--no-annotate", "--excludes", str(given), "--output-file", str(answer)]
    _uv("compile", *options, str(wanted), node=node)
    found = [Requirement(line) for line in answer.read_text().splitlines() if line]
    return {each.name: next(iter(each.specifier)).version for each in found}


def unpack(packages: Mapping[str, str], node: NodeFacts, site: Path) -> None:
    """Put these packages for the node's Python into the folder `site`; pure Python sources are built here."""
    wanted = site.with_name("carried.txt")
    wanted.write_text("\n".join(f"{name}=={version}" for name, version in packages.items()))
    site.mkdir()
    options = ["--no-deps", "--link-mode", "copy", "--target", str(site), "--requirements", str(wanted)]
    _uv("install", "--python", sys.executable, *options, node=node)
    for wheel in site.glob("*.dist-info/WHEEL"):
        tags = [line.partition(":")[2].strip() for line in wheel.read_text().splitlines() if line.startswith("Tag:")]
        # uv refuses what does not fit the node, but takes a compiled wheel of this machine for any of the same Python
        if tags and all(tag.rpartition("-")[2].startswith("linux_") for tag in tags):
            raise ResolveError(f"{_no_wheel(wheel.parent.name.removesuffix('.dist-info'), node)}: {SOURCES}")
    shutil.rmtree(site / "bin", ignore_errors=True)  # its scripts name this machine's Python
    (site / ".lock").unlink(missing_ok=True)


SOURCES = "it has only sources that must be compiled there; install it on the node, or leave out what needs it"


def find_uv() -> str:
    """The program uv: of this environment, or from the PATH."""
    try:
        return str(importlib.import_module("uv").find_uv_bin())
    except (ImportError, FileNotFoundError):
        found = shutil.which("uv")
    if not found:
        raise ResolveError("uv is not installed, and finds what the node needs: python3 -m pip install uv")
    return found


def _uv(action: str, *args: str, node: NodeFacts) -> None:
    minor = max(known for known in _GLIBC_MINORS if (2, known) <= node.glibc)
    target = ["--python-version", node.minor, "--python-platform", f"{node.machine}-manylinux_2_{minor}"]
    done = subprocess.run(
        [find_uv(), "pip", action, "--quiet", *target, *args],
        env={**os.environ, "UV_PYTHON_DOWNLOADS": "never", "NO_COLOR": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise ResolveError(explain(done.stderr, node))


def explain(stderr: str, node: NodeFacts) -> str:
    """What uv said when it failed, in one line."""
    lines = [line.strip() for line in stderr.splitlines()]
    causes = [line.removeprefix("cause:").strip() for line in lines if line.startswith("cause:")]
    errors = [line.removeprefix("error:").strip() for line in lines if line.startswith("error:")]
    if fetched := next((line for line in [*errors, *causes] if line.startswith("Failed to fetch")), None):
        return f"no package index answers ({fetched}); hpml bundle needs a network or a warm cache, the node does not"
    if errors and "uild" in errors[0] and "`" in errors[0]:
        return f"{_no_wheel(errors[0].split('`')[1], node)}: {SOURCES}"
    return f"no packages fit the node: {' '.join([*errors[:1], *causes[-1:]]) or stderr}"


def _no_wheel(package: str, node: NodeFacts) -> str:
    return f"{package} has no wheel for Python {node.minor} on {node.machine} with {node.libc}"
