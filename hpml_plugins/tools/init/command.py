"""`hpml init`: writes the missing files for measuring a git repository. Nothing is overwritten."""

from __future__ import annotations

import importlib.metadata
import json
import math
import os
import re
import shlex
import tomllib
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import click
import yaml
from packaging.requirements import InvalidRequirement, Requirement

from hpml_plugins.asv import PLUGIN, plugins_folder, read_configuration
from hpml_plugins.errors import HpmlError, UsageError
from hpml_plugins.git import ask_git
from hpml_plugins.model import counted
from hpml_plugins.node import detect_node, earlier_names, filed_under
from hpml_plugins.store import (
    atomic_write,
    results_folder,
)
from hpml_plugins.terminal import printable, say, warn
from hpml_plugins.tools.templates import fill_template
from hpml_plugins.version import __version__

#: Files that show that pip can build a package here.
BUILDS = ("pyproject.toml", "setup.py", "setup.cfg")
#: Folders with an `__init__.py` that users do not import.
NOT_PACKAGES = ("tests", "test", "docs", "benchmarks", "examples", "scripts")
CONFIGURATION = "asv.conf.json"
#: Names of packages that compute on GPUs.
_GPU_PACKAGES = re.compile(
    r"\b(torch|jax|tensorflow|cupy|triton|pycuda|numba-cuda|cuda|nvidia|onnxruntime-gpu)\b"
)
#: Where the gate runs: service → its text for a node with GPUs, and without.
RUNNERS = {
    "github": ("[self-hosted, gpu]", "ubuntu-latest"),
    "gitlab": ("tags: [gpu]", "image: python:3.12"),
}
#: The service → its file, and one to include if that exists.
CI = {
    "github": (".github/workflows/hpml.yml", ".github/workflows/hpml-gate.yml"),
    "gitlab": (".gitlab-ci.yml", ".gitlab/hpml.yml"),
}


def find_package(folder: Path) -> tuple[str, str] | None:
    """The package that pip builds from this folder: its name, and where its source is ("", "src");
    None without one.

    Among several, the one named like the project is chosen, else the first by name.
    """
    if not any((folder / name).is_file() for name in BUILDS):
        return None
    project = read_pyproject(folder)
    poetry = _table(_table(project, "tool"), "poetry")
    named = _table(project, "project").get("name") or poetry.get("name") or folder.name
    wanted = re.sub(r"[-_.]+", "_", str(named)).lower()
    found = []
    for source in ("", "src", "python"):
        packages = [
            path.parent.name for path in sorted((folder / source).glob("*/__init__.py"))
        ]
        modules = [
            path.stem
            for path in sorted((folder / source).glob("*.py"))
            if path.stem.lower() == wanted
        ]
        names = [
            name
            for name in packages + modules
            if name.isidentifier() and name not in NOT_PACKAGES
        ]
        found += [(name.lower() != wanted, name, source) for name in names]
    return (min(found)[1], min(found)[2]) if found else None


def read_pyproject(folder: Path) -> dict[str, Any]:
    """pyproject.toml; empty if there is none. Raises UsageError for one that is not valid."""
    path = folder / "pyproject.toml"
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except (FileNotFoundError, NotADirectoryError):
        return {}
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise UsageError(f"not valid TOML: {error}; correct it", str(path)) from None


def needed_packages(folder: Path) -> list[Requirement]:
    """The build requirements of the package in a folder, and its requirements on this platform."""
    project = read_pyproject(folder)
    stated = _table(project, "build-system").get("requires", [])
    stated = [*stated, *_table(project, "project").get("dependencies", [])]
    found = []
    for text in stated:
        with suppress(InvalidRequirement, TypeError):
            found.append(Requirement(text))
    return [
        each for each in found if each.marker is None or each.marker.evaluate({"extra": ""})
    ]


def missing_packages(folder: Path) -> list[str]:
    """The requirements that this Python lacks, in pip's syntax."""
    found = []
    for each in needed_packages(folder):
        try:
            importlib.metadata.version(each.name)
        except importlib.metadata.PackageNotFoundError:
            found.append(f"{each.name}{each.specifier}")
    return found


def is_for_gpus(folder: Path) -> bool:
    """Whether the repository's code needs a GPU: judged by its requirements and by CUDA sources."""
    project = read_pyproject(folder)
    optional = _table(_table(project, "project"), "optional-dependencies").values()
    poetry = _table(_table(_table(project, "tool"), "poetry"), "dependencies")
    stated = [*map(str, needed_packages(folder)), *map(str, optional), *poetry]
    has_kernels = bool(ask_git(folder, "ls-files", "*.cu", "*.cuh"))
    return has_kernels or any(map(_GPU_PACKAGES.search, stated))


def _table(parent: dict[str, Any], name: str) -> dict[str, Any]:
    found = parent.get(name)
    return found if isinstance(found, dict) else {}


@dataclass
class _Writer:
    """Writes files of a repository. wrote, left: the written and the existing files, a line
    each."""

    folder: Path
    wrote: list[str] = field(default_factory=list)
    left: list[str] = field(default_factory=list)

    def write(self, place: str, text: str) -> bool:
        """Write a file unless it exists. Returns whether it was written."""
        file = self.folder / place
        if file.exists() or file.is_symlink():
            self.left.append(f"{place} is there already")
            return False
        atomic_write(file, text.encode())
        self.wrote.append(place)
        return True

    def fill(self, place: str, template: str, **values: str) -> bool:
        """The same with a template of this package."""
        return self.write(place, fill_template("init", template, **values))

    def append_lines(self, place: str, lines: list[str]) -> None:
        """Add the lines that a text file lacks."""
        file = self.folder / place
        text = os.fsdecode(file.read_bytes()) if file.exists() else ""  # in any encoding
        missing = [line for line in lines if line not in text.splitlines()]
        if missing:
            before = text if not text or text.endswith("\n") else f"{text}\n"
            atomic_write(
                file, os.fsencode(before + "".join(f"{line}\n" for line in missing))
            )
            self.wrote.append(f"{place}: {counted(len(missing), 'line')}")


def _make_configuration(folder: Path, top: Path, *, package: bool) -> dict[str, object]:
    """A new asv.conf.json. top: the repository's folder.  package: whether commits have a package
    that pip builds.

    Of the folders that it names, only `benchmarks` is beside the package: setuptools takes any
    other folder for a second package and refuses to build.
    """
    branch = ask_git(folder, "symbolic-ref", "--short", "--quiet", "HEAD")
    below = folder.relative_to(top).as_posix()
    no_package: dict[str, object] = {
        "build_command": [],
        "install_command": [],
        "uninstall_command": [],
    }
    return {
        "version": 1,
        "project": top.name,
        "repo": "/".join([".."] * len(Path(below).parts)) or ".",
        **({"repo_subdir": below} if below != "." else {}),
        "branches": [branch or "HEAD"],
        "environment_type": "node",
        **({} if package else no_package),
        "plugins": [PLUGIN],
        "launch_method": "forkserver",
        "benchmark_dir": "benchmarks",
        "env_dir": ".asv/env",
        "results_dir": "benchmarks/results",
        "html_dir": ".asv/html",
        "build_cache_size": 8,
    }


def extend_configuration(file: Path) -> str:
    """The text of an asv.conf.json with our plugin added and comments kept; unchanged if it has the
    plugin.

    Raises UsageError with the line to add if the file cannot be extended, or could not be read
    afterwards.
    """
    by_hand = UsageError(
        f'cannot be extended; add to it: "plugins": ["{PLUGIN}"]', str(file)
    )
    try:
        text = file.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise UsageError(f"is not UTF-8: {error}", str(file)) from None
    blanked = re.sub(
        r'"(?:\\.|[^"\\])*"|//[^\n]*|/\*.*?\*/', _blank_comment, text, flags=re.DOTALL
    )
    if re.search(rf'"{re.escape(PLUGIN)}"', blanked):
        return text
    if found := re.search(r'"plugins"\s*:\s*\[', blanked):
        empty = blanked[found.end() :].lstrip().startswith("]")
        at = found.end()
        added = f'"{PLUGIN}"' + ("" if empty else ", ")
    elif found := re.search(r"\{", blanked):
        at = found.end()
        added = f'\n    "plugins": ["{PLUGIN}"],'
    else:
        raise by_hand
    extended = text[:at] + added + text[at:]
    tried = file.with_name(f".{file.name}.tried")
    try:
        tried.write_text(extended, encoding="utf-8")
        read_configuration(tried)
    except HpmlError:
        raise by_hand from None
    finally:
        tried.unlink(missing_ok=True)
    return extended


def _blank_comment(found: re.Match[str]) -> str:
    """Strings as they are, comments as blanks of the same length."""
    return found[0] if found[0].startswith('"') else re.sub(r"\S", " ", found[0])


def write_all(folder: Path, top: Path, ci: str | None) -> tuple[_Writer, str]:
    """Write every file. Returns what was written, and the name of the benchmark to start with."""
    writer = _Writer(folder)
    package = find_package(folder)
    _write_configuration(writer, top, package=package is not None)
    conf = read_configuration(folder / CONFIGURATION)
    plugin = "import_time" if package else "export_time"
    name, source = package or ("", "")
    path = (plugins_folder(folder) / f"{plugin}.py").relative_to(folder)
    values = {
        "package": name,
        "source": f' / "{source}"' if source else "",
        "up": ".parent" * len(path.parts),
    }
    writer.fill(path.as_posix(), f"{plugin}.py.jinja", **values)
    writer.fill("registry.yaml", "registry.yaml.jinja", plugin=plugin, path=path.as_posix())
    _write_suite(writer, Path(conf.benchmark_dir))
    ignored = [
        f"/{Path(part).as_posix()}/"
        for part in (conf.env_dir, conf.html_dir)
        if not Path(part).is_absolute()
    ]
    locks = [
        f"/{Path(conf.results_dir).as_posix()}/**/{name}"
        for name in ("*.lock", ".lock", ".*-owner", ".*.partial")
    ]
    writer.append_lines(".gitignore", [*ignored, *locks, "/cluster-jobs/", "__pycache__/"])
    if ci:
        _write_ci(writer, top, ci)
    return writer, plugin


def _write_configuration(writer: _Writer, top: Path, *, package: bool) -> None:
    """A new asv.conf.json, or our plugin in an existing one."""
    file = writer.folder / CONFIGURATION
    if not file.is_file():
        made = _make_configuration(writer.folder, top, package=package)
        writer.write(CONFIGURATION, json.dumps(made, indent=4, ensure_ascii=False) + "\n")
        return
    extended = extend_configuration(file)
    if extended == file.read_text(encoding="utf-8"):
        writer.left.append(f"{CONFIGURATION} is there already")
    else:
        atomic_write(file, extended.encode())
        writer.wrote.append(f"{CONFIGURATION}: the plugin {PLUGIN}; all else is as it was")


def _write_suite(writer: _Writer, benchmarks: Path) -> None:
    """The module in which asv finds our benchmarks: a separate one if an asv user already has a
    package of benchmarks."""
    places = [(benchmarks / name).as_posix() for name in ("__init__.py", "hpml_suite.py")]
    if place := _free(writer, places, "hpml_plugins.suite"):
        writer.fill(place, "suite.py.jinja", parents=".parent" * len(benchmarks.parts))


def _write_ci(writer: _Writer, top: Path, ci: str) -> None:
    """The file of a CI service, at the repository's top."""
    service = _Writer(top)
    if place := _free(service, list(CI[ci]), "hpml gate"):
        folder = _yaml_text(writer.folder.relative_to(top).as_posix())
        if ci == "github":  # which fills in expressions in every text
            folder = folder.replace("${{", "${{ '${{' }}")
        runner = RUNNERS[ci][not is_for_gpus(writer.folder)]
        requirement, found = own_requirement()
        values = {
            "folder": folder,
            "requirement": shlex.quote(requirement),
            "runner": runner,
        }
        service.fill(place, f"{ci}.yml.jinja", **values, installs=_installs(writer.folder))
        if runner == RUNNERS[ci][1]:
            service.wrote[-1] += " (on a runner without a GPU: nothing here needs one)"
        if not found:
            service.wrote[-1] += (
                f"; its runner installs {requirement} from a package index: if that has"
                " none, write the address of a wheel or git+https://… there"
            )
        if place == CI["gitlab"][1]:
            service.wrote[-1] += f"; add to {CI['gitlab'][0]}: include: {{local: {place}}}"
    writer.wrote += service.wrote
    writer.left += service.left


def own_requirement() -> tuple[str, bool]:
    """The requirement by which pip installs this hpml-plugins elsewhere, and whether it is the
    original one: the address and commit, or the address of a file, recorded by pip (PEP 610).

    For a local folder or file, and without such a record, it is the version.
    """
    with suppress(importlib.metadata.PackageNotFoundError, ValueError):
        own = importlib.metadata.distribution("hpml-plugins")
        origin = json.loads(own.read_text("direct_url.json") or "{}")
        address = str(origin.get("url", ""))
        if re.fullmatch(r"(https?|ssh)://[\w.@:/~+-]+", address):
            commit = origin.get("vcs_info", {}).get("commit_id")
            return (
                f"hpml-plugins @ git+{address}@{commit}"
                if commit
                else f"hpml-plugins @ {address}",
                True,
            )
    return f"hpml-plugins=={__version__}", False


def _installs(folder: Path) -> str:
    """pip's arguments that install the package's requirements, and those of its build; empty
    without a package."""
    if not find_package(folder):
        return ""
    builds = _table(read_pyproject(folder), "build-system").get("requires", [])
    return shlex.join([".", *(str(each) for each in builds if "${{" not in str(each))])


def _yaml_text(text: str) -> str:
    """Any text as a double-quoted YAML scalar, in one line of ASCII.

    Raises UsageError for one that is not UTF-8, such as the name of a folder.
    """
    try:
        text.encode()
    except UnicodeEncodeError:
        raise UsageError(f"{printable(text)}: its name is not UTF-8; rename it") from None
    return yaml.safe_dump(text, default_style='"', width=math.inf).rstrip("\n")


def _free(writer: _Writer, places: list[str], ours: str) -> str | None:
    """The first of these places without a file; None if one of them already has the text `ours`."""
    there = [place for place in places if (writer.folder / place).exists()]
    for place in there:
        if ours in (writer.folder / place).read_text(encoding="utf-8", errors="replace"):
            writer.left.append(f"{place} is there already")
            return None
    return next((place for place in places if place not in there), places[-1])


@click.command("init")
@click.option(
    "--ci",
    type=click.Choice(list(CI)),
    help="Also write a file that runs `hpml gate` on a runner of yours.",
)
def command(ci: str | None) -> int:
    """Prepare the git repository of this folder to measure its own commits.

    Writes registry.yaml, asv.conf.json, benchmarks/__init__.py, a first benchmark and lines of
    .gitignore. Existing files are named and left unchanged, but the asv.conf.json of an asv suite
    gets one more entry. Asks nothing.
    """
    folder = Path.cwd()
    top = ask_git(folder, "rev-parse", "--show-toplevel")
    if not top:
        raise UsageError(
            "not a git repository; results name commits: git init, then commit something",
            str(folder),
        )
    writer, plugin = write_all(folder, Path(top), ci)
    for line in writer.left:
        warn(f"{line}; left as it is")
    for line in writer.wrote:
        say(f"wrote {line}")
    if not ask_git(folder, "rev-parse", "--verify", "--quiet", "HEAD"):
        say("", "next, once there is a commit:")
    else:
        say("", "next:")
    if missing := missing_packages(folder):
        say(
            f"  pip install {shlex.join(missing)}  # the package is built with these, or needs them"
        )
    say(
        f"  hpml run {plugin:18}  # measures it now",
        f"  {'asv run':27}  # measures the newest commit; then asv publish",
    )
    results = results_folder(folder)
    taken = filed_under(detect_node(), results)
    for name in earlier_names(results):
        if name == taken:
            say(f"results are filed under {name!r}, as asv measured here before")
        else:
            say(
                f"  {f'asv run --machine {name}':27}  # instead: continues the history of {name},"
                f" which asv measured; without it results are of {taken}"
            )
    return 0
