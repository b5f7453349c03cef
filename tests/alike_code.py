"""Find the states of the built-in plugins that measure a benchmark alike; `make docs` writes them.

Of each digest that Records name, the plugin's files are read from the history of this repository.
Of the modules that a benchmark uses, what is left without comments, docstrings and layout is
compared.
"""

from __future__ import annotations

import ast
import functools
import hashlib
import json
import re
import subprocess
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from hpml_plugins.git import ask_git
from hpml_plugins.model.alike_code import SHORT
from hpml_plugins.model.record import Record

#: A module that only draws, and files that no benchmark reads.
DRAWS, UNREAD = "charts.py", (".md", ".toml")
#: A module of a plugin by its whole name, in an import or in a command: `plugins.kernels.gemm`.
_MODULE = re.compile(r"\bplugins\.(\w+)((?:\.\w+)*)")


def alike_code(repository: Path, records: Iterable[Record]) -> str:
    """The text of alike_code.json: by benchmark, groups of two digests or more, oldest first."""
    first_seen: dict[tuple[str, str, str], Record] = {}
    for record in sorted(records, key=lambda each: each.started):
        if record.commit and (digest := record.source.get("sha256")):
            first_seen.setdefault((record.plugin, digest, record.benchmark), record)
    states: dict[tuple[str, str], PluginState | None] = {}
    groups: dict[str, dict[str, list[str]]] = defaultdict(lambda: defaultdict(list))
    for (plugin, digest, benchmark), record in first_seen.items():
        if (plugin, digest) not in states:
            found = PluginState(plugin, _files(repository, plugin, record.commit))
            states[plugin, digest] = found if found.digest == digest else None
        if state := states[plugin, digest]:
            groups[benchmark][state.what_measures(benchmark)].append(digest[:SHORT])
    alike = {
        benchmark: [group for group in found.values() if len(group) > 1]
        for benchmark, found in sorted(groups.items())
    }
    told = {benchmark: found for benchmark, found in alike.items() if found}
    return json.dumps(told, indent=1) + "\n"


class PluginState:
    """The files of a plugin at one commit.  files: by their paths in its folder."""

    def __init__(self, plugin: str, files: Mapping[str, bytes]) -> None:
        self._plugin, self._files = plugin, files
        self._trees = {
            path: _parsed(content)
            for path, content in files.items()
            if path.endswith(".py") and path != DRAWS
        }

    @property
    def digest(self) -> str:
        """As `hpml_plugins.host.locating.hash_of` finds it."""
        found = hashlib.sha256()
        for path, content in sorted(self._files.items()):
            found.update(f"{hashlib.sha256(content).hexdigest()}  {path}\0".encode())
        return found.hexdigest()

    @classmethod
    def of_folder(cls, folder: Path) -> PluginState:
        """Of the files that stand there now."""
        files = {
            path.relative_to(folder).as_posix(): path.read_bytes()
            for path in folder.rglob("*")
            if path.is_file() and "__pycache__" not in path.parts
        }
        return cls(folder.name, files)

    def what_measures(self, benchmark: str) -> str:
        """The digest of the modules that a benchmark uses, without their layout, and of all files
        that are no modules."""
        found = hashlib.sha256()
        modules = self.used_by(benchmark)
        for path, content in sorted(self._files.items()):
            if path in modules:
                found.update(f"{path}\0{_without_layout(content)}\0".encode())
            elif not path.endswith((".py", *UNREAD)):
                found.update(f"{path}\0{hashlib.sha256(content).hexdigest()}\0".encode())
        return found.hexdigest()

    def used_by(self, benchmark: str) -> set[str]:
        """The modules that name the benchmark, and what they import of the plugin; all where none
        names it."""
        waiting = [path for path, tree in self._trees.items() if _names(tree, benchmark)]
        if not waiting:
            return set(self._trees)
        used: set[str] = set()
        while waiting:
            path = waiting.pop()
            if path not in used:
                used.add(path)
                waiting += self._imported_by(path)
        return used

    def _imported_by(self, path: str) -> Iterator[str]:
        for name in _module_names(self._trees[path]):
            if not (found := _MODULE.search(name)) or found[1] != self._plugin:
                continue
            inner = found[2].lstrip(".").split(".") if found[2] else []
            for depth in range(len(inner) + 1):
                place = "/".join(inner[:depth])
                yield from (
                    each
                    for each in (f"{place}.py", f"{place}/__init__.py".lstrip("/"))
                    if each in self._trees and self._is_used(each, name)
                )

    def _is_used(self, path: str, name: str) -> bool:
        """Of the package's own `__init__` only what it defines is used: importing a module of it
        runs it, but only registers."""
        return path != "__init__.py" or any(
            _defines(self._trees[path], each) for each in name.split(".")[-1:]
        )


def _names(tree: ast.Module, benchmark: str) -> bool:
    return benchmark in _texts(tree)


@functools.cache
def _texts(tree: ast.Module) -> frozenset[str]:
    texts = [node.value for node in ast.walk(tree) if isinstance(node, ast.Constant)]
    return frozenset(text for text in texts if isinstance(text, str))


@functools.cache
def _module_names(tree: ast.Module) -> frozenset[str]:
    """What may be a module's whole name: in imports, with each name that is taken from it, and in
    texts, for processes are started by it."""
    names: set[str] = set(_texts(tree))
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names.update(each.name for each in node.names)
        elif isinstance(node, ast.ImportFrom):
            # `from .` does not occur in the package.
            names.update(f"{node.module}.{each.name}" for each in node.names)
    return frozenset(names)


def _defines(tree: ast.Module, name: str) -> bool:
    for node in tree.body:
        if isinstance(node, ast.FunctionDef | ast.ClassDef) and node.name == name:
            return True
        targets = node.targets if isinstance(node, ast.Assign) else []
        if any(isinstance(each, ast.Name) and each.id == name for each in targets):
            return True
    return False


@functools.cache
def _parsed(content: bytes) -> ast.Module:
    return ast.parse(content)


@functools.cache
def _without_layout(content: bytes) -> str:
    """The digest of a module's syntax tree without docstrings."""
    tree = ast.parse(content)
    for node in ast.walk(tree):
        body = getattr(node, "body", None)
        if isinstance(body, list) and ast.get_docstring(ast.Module(body, []), clean=False):
            del body[0]
    return hashlib.sha256(ast.dump(tree).encode()).hexdigest()


def _files(repository: Path, plugin: str, commit: str) -> dict[str, bytes]:
    """The files of a plugin's folder at a commit, as git keeps them; none where there is none."""
    tree = ask_git(repository, "rev-parse", f"{commit}:hpml_plugins/plugins/{plugin}")
    if not tree:
        return {}
    listed = ask_git(repository, "ls-tree", "-r", "-z", tree)
    found = {}
    for entry in filter(None, listed.split("\0")):
        facts, _, path = entry.partition("\t")
        found[path] = _blob(repository, facts.split()[2])
    return found


@functools.cache
def _blob(repository: Path, name: str) -> bytes:
    command = ["git", "cat-file", "blob", name]
    return subprocess.run(command, cwd=repository, capture_output=True, check=True).stdout
