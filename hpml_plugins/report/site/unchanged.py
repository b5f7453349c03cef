"""Whether anything that our pages are made of has changed since the site that is replaced was
published; where nothing has, its pages are taken over.

Writing the pages of this repository's results takes 13 s of one CPU, taking them over 1 s.
"""

from __future__ import annotations

import gzip
import hashlib
import itertools
import os
import shutil
import sys
import zlib
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

import msgspec

from hpml_plugins.git import ask_git
from hpml_plugins.report.kept import package_digest
from hpml_plugins.report.site.asv_page import GRAPHS, remove_empty_folders
from hpml_plugins.report.site.manifest import NAME as MANIFEST
from hpml_plugins.report.site.manifest import Manifest, write_manifest
from hpml_plugins.report.site.previous import previous_file, replaced_site, take_over
from hpml_plugins.store import CommitOrder

#: In the published folder. Compressed: only publishing reads it.
NAME: Final = "unchanged.json.gz"
#: Settings of asv that say where things are, not what is in them.
_PLACES: Final = ("html_dir",)
#: Folders of sys.path that change when a package is installed.
_PACKAGES: Final = ("site-packages", "dist-packages")

#: asv's name of a benchmark → what its entry in asv's index has.
Declarations = Mapping[str, dict[str, Any]]
#: Address → size, B, and when it was written, ns.
Written = Mapping[str, tuple[int, int]]


class Published(msgspec.Struct, frozen=True):
    """What our pages were made of, as a digest, and what was written.

    files: address → size, B.  removed: addresses that asv had written.  entries: what the entries
    of asv's index got.  problems: what went wrong, which is said again.  folders: those that are
    kept for themselves → what they were made of, as a digest.
    """

    digest: str
    files: dict[str, int]
    removed: list[str]
    entries: dict[str, dict[str, Any]]
    problems: list[str]
    folders: dict[str, str] = {}


def digest_inputs(conf: Any, order: CommitOrder, dates: Mapping[str, float]) -> str:
    """A digest of all that pages are made of; empty where git does not tell what has changed.

    These are the results, the project's files but those that git ignores, this package, what is
    installed beside it, asv's settings, the commits and the variables that begin with HPML_.
    """
    project = Path.cwd()
    head = ask_git(project, "rev-parse", "HEAD")
    if not head:
        return ""
    top = Path(ask_git(project, "rev-parse", "--show-toplevel"))
    edited = ask_git(project, "diff", "--name-only", "-z", "HEAD")
    untracked = ask_git(
        project, "ls-files", "-z", "--others", "--exclude-standard", "--full-name"
    )
    staged = Path(conf.html_dir).resolve().parent  # of the site that is being made
    apart = (staged, replaced_site() or staged, Path(conf.results_dir).resolve())
    changed = [
        name
        for name in f"{edited}\0{untracked}".split("\0")
        if name and not any((top / name).is_relative_to(each) for each in apart)
    ]
    settings = {
        name: str(value) for name, value in vars(conf).items() if name not in _PLACES
    }
    lines = [(line.branch, sorted(line.own)) for line in order.lines]
    told = (head, changed, settings, lines, sorted(order.by_date))
    places = (list(order.items()), sorted(dates.items()))
    files = (*_files(Path(conf.results_dir)), *(top / name for name in changed))
    return _digest((told, places), files)


def digest_folders(folders: Iterable[Path]) -> str:
    """A digest of the files below these folders, this package, what is installed beside it and the
    variables that begin with HPML_."""
    return _digest((), itertools.chain.from_iterable(map(_files, folders)))


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
        with suppress(OSError):  # a deleted one
            found.update(hashlib.sha256(file.read_bytes()).digest())
    return found.hexdigest()


def _changed_at(folder: Path) -> int:
    try:
        return folder.stat().st_mtime_ns
    except OSError:
        return 0


def _files(folder: Path) -> Iterator[Path]:
    for path in sorted(folder.rglob("*")):
        if path.is_file() and path.suffix != ".pyc":
            yield path


def written(html_dir: Path) -> Written:
    """What there is now."""
    found = {}
    for path in html_dir.rglob("*"):
        if path.is_file():
            told = path.stat()
            found[path.relative_to(html_dir).as_posix()] = (told.st_size, told.st_mtime_ns)
    return found


def remember(
    digest: str,
    before: Written,
    old: Declarations,
    html_dir: Path,
    declarations: Declarations,
    problems: list[str],
    folders: dict[str, str],
) -> None:
    """Write what the next publish needs to know.

    before: what there was before our pages.  old, declarations: asv's entries before and now.
    folders: see Published.
    """
    after = written(html_dir)
    files = {
        address: told[0] for address, told in after.items() if before.get(address) != told
    }
    files.pop(MANIFEST, None)  # which is completed later
    entries = {
        name: {key: value for key, value in entry.items() if key not in old.get(name, {})}
        for name, entry in declarations.items()
    }
    removed = sorted(before.keys() - after.keys())
    published = Published(digest, files, removed, entries, problems, folders)
    (html_dir / NAME).write_bytes(gzip.compress(msgspec.json.encode(published), mtime=0))


def take_over_pages(
    digest: str, html_dir: Path, declarations: Declarations
) -> list[str] | None:
    """Take our pages over from the site that is replaced, where they were made of the same and are
    all there; returns what went wrong then. None where they have to be written."""
    state = previous_file(NAME)
    listed = previous_file(MANIFEST)
    if not digest or state is None or listed is None:
        return None
    published = _published()
    try:
        manifest = msgspec.json.decode(listed.read_bytes(), type=Manifest)
    except (OSError, msgspec.MsgspecError):
        return None
    if published is None or published.digest != digest or not _are_there(published.files):
        return None
    for address in (*published.files, *published.removed):
        (html_dir / address).unlink(missing_ok=True)
    remove_empty_folders(html_dir / GRAPHS)
    for address in published.files:
        take_over(address, html_dir)
    for name, entry in published.entries.items():
        declarations.get(name, {}).update(entry)
    write_manifest(html_dir, manifest.expected, manifest.benchmarks)
    shutil.copyfile(state, html_dir / NAME)
    return published.problems


def take_over_folder(address: str, digest: str, html_dir: Path) -> bool:
    """Take a folder over from the site that is replaced, where it was made of the same and is all
    there; returns whether it was."""
    published = _published()
    if published is None or published.folders.get(address) != digest:
        return False
    sizes = published.files.items()
    files = {name: size for name, size in sizes if name.startswith(f"{address}/")}
    if not _are_there(files):
        return False
    for name in files:
        take_over(name, html_dir)
    return True


def _published() -> Published | None:
    """What the site that is replaced says of itself."""
    state = previous_file(NAME)
    if state is None:
        return None
    try:
        return msgspec.json.decode(gzip.decompress(state.read_bytes()), type=Published)
    except (OSError, EOFError, zlib.error, msgspec.MsgspecError):
        return None


def _are_there(files: Mapping[str, int]) -> bool:
    """Whether the site that is replaced has all of these.  files: address → size, B."""
    found = ((previous_file(address), size) for address, size in files.items())
    return all(file is not None and file.stat().st_size == size for file, size in found)
