"""The list of the files that a site must have, and the check that it has them."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import msgspec

from hpml_plugins.errors import HpmlError
from hpml_plugins.terminal import unturned

#: In the published folder.
NAME = "manifest.json"
#: What asv writes last.
_ASVS = ("index.json", "info.json")
#: Files of data, whoever wrote them.
_DATA = (".json", ".xml", ".svg", ".csv")
#: Missing files that an error names.
_MOST_NAMED = 5


class Manifest(msgspec.Struct, frozen=True):
    """expected: files that the site cannot do without.  benchmarks: asv's names, which its index
    has to list.  problems: what went wrong, which is said again while nothing changes.  folders:
    those of `Site.make_folder` → a digest of what each was made of.  lasts: whether the same would
    be made of the same; a plugin that failed is asked again.

    Filled in when the site is whole: made_of, a digest of all that it was made of; files, every
    file → its size, B."""

    expected: list[str]
    benchmarks: list[str]
    problems: list[str] = []
    folders: dict[str, str] = {}
    lasts: bool = False
    made_of: str = ""
    files: dict[str, int] = {}


def write_manifest(
    html_dir: Path, expected: Iterable[str], benchmarks: Iterable[str], **more: Any
) -> None:
    """Write what has to be there when the site is whole.  expected: addresses of pages and their
    data.  more: see Manifest."""
    manifest = Manifest(sorted({*expected, *_ASVS}), sorted(benchmarks), **more)
    (html_dir / NAME).write_bytes(msgspec.json.encode(manifest))


def spell_turned_text(html_dir: Path) -> None:
    """Spell out what turns the direction of text in all data of a site: asv's index and graphs, the
    feed, pictures and tables; and in the names of asv's graphs, which its page finds by what the
    index says. Pages and our own data were written so."""
    for path in sorted(
        html_dir.rglob("*"), reverse=True
    ):  # what is in a folder before the folder
        if path.suffix in _DATA and path.is_file():
            text = path.read_text(encoding="utf-8", errors="surrogateescape")
            if (spelled := unturned(text)) != text:
                path.write_text(spelled, encoding="utf-8", errors="surrogateescape")
        if (name := unturned(path.name)) != path.name:
            path.rename(path.with_name(name))


def complete_manifest(html_dir: Path, made_of: str = "") -> None:
    """Hold a site against its manifest, and add to that all of its files, and what they were made
    of.

    Raises HpmlError, with the first files that are missing, empty or unreadable, where the site is
    not whole.
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
    """The benchmarks that asv's index lacks; the index itself where it cannot be read."""
    try:
        listed = json.loads((html_dir / "index.json").read_bytes())["benchmarks"]
        return [name for name in benchmarks if name not in listed]
    except (ValueError, KeyError, TypeError):
        return ["index.json"]


def _incomplete(missing: list[str]) -> HpmlError:
    named = ", ".join(missing[:_MOST_NAMED])
    more = f" and {len(missing) - _MOST_NAMED} more" if len(missing) > _MOST_NAMED else ""
    return HpmlError(
        f"the site is not whole and was not published; the one before it stays: {named}{more}"
        " missing"
    )
