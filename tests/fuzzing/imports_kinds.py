"""Result files of other tools, which `hpml import` reads."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from pathlib import Path

from fuzzing.engine import Kind
from fuzzing.mutating import mutate_json, mutate_table
from support import ROOT

FILES = ROOT / "tests/tools/importing/files"
#: Bytes of the largest seed: a case is to take milliseconds.
SMALL = 20_000


@functools.cache
def _files(pattern: str) -> Sequence[bytes]:
    found = sorted(FILES.glob(pattern))
    return [path.read_bytes() for path in found if path.stat().st_size < SMALL]


def _json_files() -> Sequence[bytes]:
    return _files("*.json")


def _tables() -> Sequence[bytes]:
    return [*_files("*.csv"), *_files("*.txt")]


def _asv_files() -> Sequence[bytes]:
    return _files("asv/vm/0*.json")


def _read(data: bytes, folder: Path) -> str:
    return _import(folder / "results.json", data)


def _read_asv(data: bytes, folder: Path) -> str:
    import shutil

    shutil.copytree(FILES / "asv", folder / "asv", dirs_exist_ok=True)
    return _import(folder / "asv/vm/0b4486c1-existing-python.json", data)


def _import(path: Path, data: bytes) -> str:
    from dataclasses import replace

    from hpml_plugins.tools.importing.formats import read_source
    from hpml_plugins.tools.importing.records import to_records

    path.write_bytes(data)
    source = replace(read_source(path), machine="m")
    found = to_records(source, data)
    assert all(record.metrics or record.reason for record in found), (
        "a point without a word"
    )
    return f"read as {source.tool}"


KINDS = (
    Kind("imported JSON", _json_files, mutate_json, _read),
    Kind("imported table", _tables, mutate_table, _read),
    Kind("imported asv", _asv_files, mutate_json, _read_asv),
)
