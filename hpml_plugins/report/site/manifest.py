"""The list of the files that a site must have, and the check that they exist."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import msgspec

from hpml_plugins.errors import HpmlError
from hpml_plugins.terminal import escape_direction

#: In the published folder.
NAME = "manifest.json"
#: The last files that asv writes.
_ASVS = ("index.json", "info.json")
#: Data files of any origin.
_DATA = (".json", ".xml", ".svg", ".csv")
#: The most missing files that an error lists.
_MOST_NAMED = 5


class Manifest(msgspec.Struct, frozen=True):
    """expected: files that the site requires.  benchmarks: asv's names, which its index must
    contain.  problems: messages that are repeated as long as nothing changes.  made: of
    `SiteFolder.made`.  lasts: whether publishing the same inputs again would give the same site; a
    failed plugin is tried again.

    Added when the site is complete: made_of, a digest of all its inputs; files, every file → its
    size, B.
    """

    expected: list[str]
    benchmarks: list[str]
    problems: list[str] = []
    made: dict[str, str] = {}
    lasts: bool = False
    made_of: str = ""
    files: dict[str, int] = {}


def write_manifest(
    html_dir: Path, expected: Iterable[str], benchmarks: Iterable[str], **more: Any
) -> None:
    """Write the list of what a complete site must have.  expected: addresses of pages and their
    data.  more: see Manifest."""
    manifest = Manifest(sorted({*expected, *_ASVS}), sorted(benchmarks), **more)
    (html_dir / NAME).write_bytes(msgspec.json.encode(manifest))


def escape_direction_in_files(html_dir: Path) -> None:
    """Escape characters that change the direction of text in all data of a site: asv's index and
    graphs, the feed, pictures and tables; and in the names of asv's graphs, which its page looks up
    in the index. Pages and our own data are already escaped."""
    for path in sorted(html_dir.rglob("*"), reverse=True):  # contents before their folder
        if path.suffix in _DATA and path.is_file():
            text = path.read_text(encoding="utf-8", errors="surrogateescape")
            if (escaped := escape_direction(text)) != text:
                path.write_text(escaped, encoding="utf-8", errors="surrogateescape")
        if (name := escape_direction(path.name)) != path.name:
            path.rename(path.with_name(name))


def complete_manifest(html_dir: Path, made_of: str = "") -> None:
    """Check a site against its manifest, and add all of its files and the digest of its inputs.

    Raises HpmlError, listing the first missing, empty or unreadable files, if the site is
    incomplete.
    """
    try:
        manifest = msgspec.json.decode((html_dir / NAME).read_bytes(), type=Manifest)
    except (OSError, msgspec.MsgspecError):
        raise _incomplete([NAME]) from None
    paths = sorted(path for path in html_dir.rglob("*") if path.is_file())
    files = {path.relative_to(html_dir).as_posix(): path.stat().st_size for path in paths}
    missing = [name for name in manifest.expected if not files.get(name)]
    if not missing:
        missing = _unlisted(html_dir, manifest.benchmarks)
    if missing:
        raise _incomplete(missing)
    del files[NAME]
    made_of = made_of if manifest.lasts else ""
    whole = msgspec.structs.replace(manifest, files=files, made_of=made_of)
    (html_dir / NAME).write_bytes(msgspec.json.encode(whole))


def _unlisted(html_dir: Path, benchmarks: Iterable[str]) -> list[str]:
    """The benchmarks that asv's index lacks; the index itself if it cannot be read."""
    try:
        listed = json.loads((html_dir / "index.json").read_bytes())["benchmarks"]
        return [name for name in benchmarks if name not in listed]
    except (ValueError, KeyError, TypeError):
        return ["index.json"]


def _incomplete(missing: list[str]) -> HpmlError:
    named = ", ".join(missing[:_MOST_NAMED])
    more = f" and {len(missing) - _MOST_NAMED} more" if len(missing) > _MOST_NAMED else ""
    return HpmlError(
        f"the site is incomplete and was not published; the previous one is kept: {named}{more}"
        " missing"
    )
