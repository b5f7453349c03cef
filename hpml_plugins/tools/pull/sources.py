"""Fetches results from an address: files of a git repository's newest commit, a folder, or a
published site.

No code from them is run: git checks nothing out, and a site's files are read as JSON. The usual
readers of results read their contents.
"""

from __future__ import annotations

import http.client
import json
import re
import urllib.request
import zlib
from pathlib import Path
from typing import Any
from urllib.parse import quote

from hpml_plugins.errors import HpmlError, describe, why_unreadable
from hpml_plugins.git import run_git, why_failed
from hpml_plugins.store import (
    DECLARATIONS,
    MAX_FILE,
    OnDamage,
    decode,
    find_results,
    path_in,
    record_file,
)
from hpml_plugins.terminal import one_line, warn

#: The files of a results folder that are read: declarations, facts and asv's results of machines,
#: Records.
PLACES = re.compile(
    rf"{re.escape(DECLARATIONS)}|[^/]+/[^/]+\.json|[^/]+/records/[^/]+\.jsonl"
)
#: Timeout of an answer, s.
TIMEOUT = 60.0
#: Limit of the files of a site.
MOST_FILES = 100_000
#: Size limit of a site, B.
MOST_BYTES = 1 << 30
#: Transports that git may use, and options that stop it from running code of the repository.
_SAFE = {
    "GIT_ALLOW_PROTOCOL": "file:git:http:https:ssh",
    "GIT_TERMINAL_PROMPT": "0",
    "GIT_LFS_SKIP_SMUDGE": "1",
}
_NO_HOOKS = ["-c", "core.hooksPath=/dev/null", "-c", "core.fsmonitor=false"]
#: The place at which a site lists its files of Records.
DATA_INDEX = "data/v1/index.json"
#: Keys that a published site adds to asv's declarations.
_OF_THE_SITE = ("hpml_machines", "hpml_selected")


def _is_site(address: str) -> bool:
    """Whether the address is a site's and not a git repository's."""
    return bool(re.match(r"https?://", address)) and not address.rstrip("/").endswith(
        ".git"
    )


def fetch_results(address: str, scratch: Path, on_damage: OnDamage) -> Path:
    """A folder with the results of the address. on_damage: called for everything left out. Raises
    HpmlError if there are no results."""
    if _is_site(address):
        return _read_site(address.rstrip("/"), scratch, on_damage)
    folder = Path(address)
    if folder.is_dir() and not (folder / "HEAD").is_file():  # a bare repository has one
        return find_results(folder)
    return _read_repository(
        str(folder.resolve()) if folder.exists() else address, scratch, on_damage
    )


def _read_repository(address: str, scratch: Path, on_damage: OnDamage) -> Path:
    """The files of `results` in the newest commit, written one by one: no checkout, so no filter
    and no hook runs."""
    clone = scratch / "clone"
    results = scratch / "cloned"
    _git(
        scratch,
        "clone",
        "--quiet",
        "--depth=1",
        "--no-checkout",
        "--no-tags",
        "--template=",
        "--",
        address,
        str(clone),
    )
    listed = _git(clone, "ls-tree", "-r", "-l", "-z", "HEAD").decode(errors="replace")
    lines = [line.partition("\t") for line in listed.split("\0") if line]
    records = re.compile(r"((?:.*/)?)results/[^/]+/records/[^/]+\.jsonl")
    matches = [records.fullmatch(path) for _, _, path in lines]
    top = min((match[1] for match in matches if match), key=len, default="")
    found = read = 0
    for entry, _, path in lines:
        mode, _, digest, size = entry.split()
        place = path.removeprefix(f"{top}results/")
        if place == path or not PLACES.fullmatch(place):
            continue
        is_file = mode.startswith("100")
        if not is_file or int(size) > MAX_FILE:  # because it is read into memory
            warn(
                f"{address}: {path}: not a file, or larger than {MAX_FILE / 1e6:,.0f} MB; ignored"
            )
            continue
        try:
            target = path_in(results, *place.split("/"))
        except HpmlError as error:
            on_damage(f"{address}: {error}; ignored")
            continue
        read += int(size)
        if read > MOST_BYTES:
            raise HpmlError(f"more than {MOST_BYTES / 1e9:g} GB of results", address)
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(_git(clone, "cat-file", "blob", digest))
        found += 1
    if not found:
        raise HpmlError("no results in its newest commit", address)
    return results


def _git(folder: Path, *words: str) -> bytes:
    done = run_git(folder, *_NO_HOOKS, *words, **_SAFE)
    if done.returncode:
        raise HpmlError(why_failed(done))
    return done.stdout


def _read_site(address: str, scratch: Path, on_damage: OnDamage) -> Path:
    """The newest Records of each point on a published site, and its declarations, as a folder of
    results."""
    results = scratch / "site"
    declarations, index = (_object(address, name) for name in ("index.json", DATA_INDEX))
    files = index.get("files")
    if index.get("version") != 1 or not isinstance(files, list) or len(files) > MOST_FILES:
        raise HpmlError("not a site that this hpml-plugins can read", address)
    lines: dict[Path, list[bytes]] = {}
    read = 0
    for file in files:
        name = _data_file(address, file)
        text = _unpacked(_get(address, name), f"{address}/{name}")
        read += len(text)
        if read > MOST_BYTES:
            raise HpmlError(
                f"more than {MOST_BYTES / 1e9:g} GB of Records; clone its repository instead",
                address,
            )
        for line in text.splitlines():
            try:
                record = decode(line)
                place = record_file(results, record.machine, record.commit)
            except (ValueError, HpmlError, RecursionError) as error:
                on_damage(f"{address}/{name}: not a Record ({describe(error)}); ignored")
            else:
                lines.setdefault(place, []).append(line)
    if not lines:
        raise HpmlError("no Records there", address)
    for path, found in lines.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"".join(line + b"\n" for line in found))
    benchmarks = declarations.get("benchmarks")
    declared: dict[str, Any] = {}
    for name, entry in benchmarks.items() if isinstance(benchmarks, dict) else ():
        if isinstance(entry, dict):
            kept = {key: entry[key] for key in entry if key not in _OF_THE_SITE}
            declared[name] = kept
    (results / DECLARATIONS).write_text(
        json.dumps({**declared, "version": 2}), encoding="utf-8"
    )
    return results


def _data_file(address: str, file: Any) -> str:
    """The place of a file of the index. Raises HpmlError for a place outside the index."""
    path = file.get("path") if isinstance(file, dict) else None
    if not isinstance(path, str):
        raise HpmlError("a file without a path", f"{address}/{DATA_INDEX}")
    below = path_in(Path(DATA_INDEX).parent, *path.split("/"))
    return quote(below.as_posix())


def _unpacked(packed: bytes, where: str) -> bytes:
    """The lines of a compressed file. Raises HpmlError if it is damaged, or larger than a file of
    results may be."""
    unpacking = zlib.decompressobj(zlib.MAX_WBITS | 16)  # gzip
    try:
        text = unpacking.decompress(packed, MAX_FILE + 1)
    except zlib.error as error:
        raise HpmlError(f"not a file of Records: {describe(error)}", where) from None
    if len(text) > MAX_FILE:
        raise HpmlError(f"larger than {MAX_FILE / 1e6:,.0f} MB", where)
    if not unpacking.eof:
        raise HpmlError("not a file of Records: it ends too early", where)
    return text


def _object(address: str, name: str) -> dict[str, Any]:
    try:
        found = json.loads(_get(address, name))
    except (ValueError, RecursionError) as error:
        raise HpmlError(
            f"cannot be read: {why_unreadable(error)}", f"{address}/{name}"
        ) from None
    if not isinstance(found, dict):
        raise HpmlError("not a JSON object", f"{address}/{name}")
    return found


def _get(address: str, name: str) -> bytes:
    """A file of a site. Raises HpmlError if it does not exist or is larger than a file of results
    may be."""
    try:
        with urllib.request.urlopen(f"{address}/{name}", timeout=TIMEOUT) as answer:
            found: bytes = answer.read(MAX_FILE + 1)
    except (OSError, http.client.HTTPException) as error:
        raise HpmlError(
            f"cannot be read: {why_unreadable(error)}", f"{address}/{name}"
        ) from None
    except ValueError as error:
        raise HpmlError(f"no address: {one_line(str(error))}", address) from None
    if len(found) > MAX_FILE:
        raise HpmlError(f"larger than {MAX_FILE / 1e6:,.0f} MB", f"{address}/{name}")
    return found
