"""Whether any input of a site has changed since it was published; if not, the site is kept as it
is.

For this repository's results, publishing takes 24 s of one CPU, and finding that nothing has
changed 0.5 s.
"""

from __future__ import annotations

import functools
import hashlib
import itertools
import os
import sys
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

import msgspec

from hpml_plugins.errors import HpmlError
from hpml_plugins.git import ask_git
from hpml_plugins.host import locate
from hpml_plugins.registry import read_registry
from hpml_plugins.report.kept import package_digest
from hpml_plugins.report.site.manifest import NAME, Manifest
from hpml_plugins.report.site.previous import previous_file, take_over
from hpml_plugins.store import CommitOrder

#: Settings of asv that say where things are rather than what they contain.
_PLACES: Final = ("html_dir",)
#: Python recreates these.
_COMPILED: Final = "__pycache__"
#: Folders of sys.path that change when a package is installed.
_PACKAGES: Final = ("site-packages", "dist-packages")


def digest_inputs(
    conf: Any, order: CommitOrder, commits: str | None, site: Path, results: Path
) -> str:
    """A digest of all inputs of a site; empty if git cannot tell what has changed.

    These are the results, the project's files except those that git ignores, the plugins of its
    registry wherever their files are, this package, installed packages, asv's settings, the
    commits, the tags and the variables that begin with HPML_.  commits: the requested range.
    """
    project = Path.cwd()
    head = ask_git(project, "rev-parse", "HEAD")
    repository = Path(conf.repo)
    # a remote repository, fetched later
    elsewhere = ":" in conf.repo and not repository.is_dir()
    if not head or elsewhere:
        return ""
    top = Path(ask_git(project, "rev-parse", "--show-toplevel"))
    edited = ask_git(project, "diff", "--name-only", "-z", "HEAD")
    untracked = ask_git(
        project, "ls-files", "-z", "--others", "--exclude-standard", "--full-name"
    )
    apart = (site.resolve(), results.resolve())
    changed = [
        name
        for name in f"{edited}\0{untracked}".split("\0")
        if name
        and _COMPILED not in Path(name).parts
        and not any((top / name).is_relative_to(each) for each in apart)
    ]
    settings = {
        name: str(value) for name, value in vars(conf).items() if name not in _PLACES
    }
    tags = ask_git(repository, "show-ref", "--tags")
    lines = [(branch, sorted(line)) for branch, line in order.lines.items()]
    told = (head, changed, settings, commits, tags, _plugins())
    places = (list(order.items()), lines, sorted(order.by_date))
    files = (*_files(results), *(top / name for name in changed))
    return _digest((told, places), files)


def _plugins() -> list[tuple[str, str]]:
    """The plugins of the project's registry, with the digests of their files; empty without a
    readable registry."""
    try:
        registry = read_registry()
    except HpmlError:
        return []
    return [
        (entry.name, locate(entry, registry.folder).sha256) for entry in registry.enabled
    ]


def digest_part(told: object = (), folders: Iterable[Path] = ()) -> str:
    """A digest of the inputs of a part of a site: what is told, by its repr, the files below these
    folders, this package, installed packages and the variables that begin with HPML_."""
    return _digest(told, itertools.chain.from_iterable(map(_files, folders)))


def _digest(told: object, files: Iterable[Path]) -> str:
    variables = {
        name: value for name, value in os.environ.items() if name.startswith("HPML_")
    }
    packages = [path for path in sys.path if path.endswith(_PACKAGES)]
    installed = [(path, _changed_at(Path(path))) for path in packages]
    found = hashlib.sha256(repr((told, variables, installed)).encode(errors="replace"))
    found.update(package_digest())
    for file in files:
        found.update(os.fsencode(file))
        with suppress(OSError):  # a deleted file
            found.update(hashlib.sha256(file.read_bytes()).digest())
    return found.hexdigest()


def _changed_at(folder: Path) -> int:
    try:
        return folder.stat().st_mtime_ns
    except OSError:
        return 0


def _files(folder: Path) -> Iterator[Path]:
    for path in sorted(folder.rglob("*")):
        if path.is_file() and _COMPILED not in path.parts:
            yield path


def unchanged_problems(digest: str) -> list[str] | None:
    """The problems of the previous publish, if it had the same inputs and is complete. None if the
    site has to be published again."""
    manifest = _manifest()
    if manifest is None or not digest or manifest.made_of != digest:
        return None
    return list(manifest.problems) if _are_there(manifest.files) else None


def take_over_made(address: str, digest: str, html_dir: Path) -> bool:
    """Take over a file, or a folder, from the replaced site if it has the same inputs and is
    complete; returns whether it did.  digest: of its inputs; empty if they are not known."""
    manifest = _manifest()
    if manifest is None or not digest or manifest.made.get(address) != digest:
        return False
    sizes = manifest.files
    if address in sizes:
        files = {address: sizes[address]}
    else:
        inside = (name for name in sizes if name.startswith(f"{address}/"))
        files = {name: sizes[name] for name in inside}
    if not _are_there(files):
        return False
    for name in files:
        take_over(name, html_dir)
    return True


def _manifest() -> Manifest | None:
    """The manifest of the site that is replaced."""
    file = previous_file(NAME)
    return _read_manifest(file, file.stat().st_mtime_ns) if file else None


@functools.lru_cache(maxsize=1)
def _read_manifest(file: Path, changed: int) -> Manifest | None:
    """changed: when it was written, ns since 1970."""
    try:
        return msgspec.json.decode(file.read_bytes(), type=Manifest)
    except (OSError, msgspec.MsgspecError):
        return None


def _are_there(files: Mapping[str, int]) -> bool:
    """Whether the replaced site has all of these unchanged.  files: address → size, B."""
    manifest = previous_file(NAME)
    assert manifest is not None
    published = manifest.stat().st_mtime_ns
    for address, size in files.items():
        file = previous_file(address)
        told = file.stat() if file else None
        if told is None or told.st_size != size or told.st_mtime_ns > published:
            return False
    return True
