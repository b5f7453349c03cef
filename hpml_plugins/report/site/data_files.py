"""`data/v1/`: the Records of a site for programs, as compressed JSON lines: a file for each machine
and benchmark, and an index (docs/data-files.md)."""

from __future__ import annotations

import hashlib
import json
import re
import zlib
from collections.abc import Sequence
from operator import attrgetter
from typing import Annotated, Any, Final

import msgspec
from msgspec import Meta

from hpml_plugins.model.record import Record
from hpml_plugins.model.serialization import DIGITS, decode, encode, shorten
from hpml_plugins.model.validation import may_need_cleaning
from hpml_plugins.registry import json_schema
from hpml_plugins.report.reading import History, Outcome, stored_lines
from hpml_plugins.report.site.page import SiteFolder
from hpml_plugins.report.site.previous import previous_file
from hpml_plugins.report.site.unchanged import digest_part

FOLDER: Final = "data/v1"
INDEX: Final = f"{FOLDER}/index.json"
#: The number of newest Records of each point and machine that are published; `results/` has all.
MOST_RECORDS: Final = 50
#: Names that can be used in addresses unchanged.
_PLAIN: Final = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,120}")
_NOT_PLAIN: Final = re.compile(r"[^A-Za-z0-9_.-]")
#: zlib level: 6 takes a third longer for 2 % less.
_LEVEL: Final = 5
#: Times of which one is longer than any number of DIGITS digits, such as -0.000123456789: those of
#: the first Records, which were stored with all digits.
_LONG_TIMES: Final = re.compile(
    rb'"unit":"s","direction":[a-z"]+,"samples":\[(?:[^],]{1,%d},)*+[^],]{%d}'
    % (DIGITS + 6, DIGITS + 7)
)


class DataFile(msgspec.Struct, frozen=True):
    """The Records of a benchmark on a machine."""

    machine: Annotated[str, Meta(description="name of the machine")]
    benchmark: Annotated[str, Meta(description="name of the benchmark, without a metric")]
    plugin: Annotated[str, Meta(description="plugin that declares the benchmark")]
    path: Annotated[str, Meta(description="address below the folder of the index")]
    lines: Annotated[int, Meta(ge=1, description="lines, one for each round of a Record")]
    left_out: Annotated[
        int, Meta(ge=0, description=f"older Records: a point has its newest {MOST_RECORDS}")
    ]
    size: Annotated[int, Meta(ge=1, description="of the file, B")]
    sha256: Annotated[
        str, Meta(pattern="^[0-9a-f]{64}$", description="of the uncompressed lines")
    ]


class DataMachine(msgspec.Struct, frozen=True):
    """A machine and its hardware."""

    machine: Annotated[str, Meta(description="name of the machine")]
    hardware: Annotated[
        str, Meta(description="its GPU type, or its CPU where it has no GPU")
    ]
    gpus: Annotated[int, Meta(ge=0, description="number of its GPUs")]


class DataIndex(msgspec.Struct, frozen=True):
    """The files of data/v1: gzip, UTF-8, JSON lines. Each line is as record.schema.json says, in SI
    base units."""

    version: Annotated[int, Meta(ge=1, le=1, description="of this folder's layout")]
    project: Annotated[str, Meta(description="name of the project")]
    branch: Annotated[str, Meta(description="the branch that the site shows first")]
    machines: list[DataMachine]
    files: list[DataFile]


def write_data_files(history: History, site: SiteFolder) -> None:
    """Write the folder."""
    known = _previous()
    files = []
    for benchmark in history.benchmarks:
        for machine in history.machines:
            places = [(label, machine.name) for label in benchmark.points]
            found = [benchmark.index.stored(place) for place in places]
            stored = [[each for each in of_point if each.file] for of_point in found]
            newest: list[Outcome] = []
            for of_point in stored:
                newest += sorted(of_point, key=attrgetter("started"))[-MOST_RECORDS:]
            if not newest:
                continue
            newest.sort(key=attrgetter("file", "offsets"))
            path = data_path(machine.name, benchmark.name)
            written = _write_file(path, list(stored_lines(newest)), known.get(path), site)
            written.update(
                machine=machine.name,
                benchmark=benchmark.name,
                plugin=benchmark.plugin,
                left_out=sum(map(len, stored)) - len(newest),
            )
            files.append(DataFile(path=path, **written))
    folder = site.html_dir / FOLDER
    machines = [
        DataMachine(each.name, each.hardware.label, each.hardware.count)
        for each in history.machines
    ]
    index = DataIndex(1, site.project, history.branches[0], machines, files)
    folder.mkdir(parents=True, exist_ok=True)
    (site.html_dir / INDEX).write_bytes(msgspec.json.encode(index))
    for name, schema in (("index", DataIndex), ("record", Record)):
        encoded = json.dumps(json_schema(schema), ensure_ascii=False)
        (folder / f"{name}.schema.json").write_text(encoded, encoding="utf-8")


def _write_file(
    path: str, lines: Sequence[bytes], before: DataFile | None, site: SiteFolder
) -> dict[str, Any]:
    """Write a file, or take it over from the replaced site; returns its fields in the index.

    lines: as stored.  before: of the file in the replaced site.
    """
    address = f"{FOLDER}/{path}"
    stored = hashlib.sha256(b"\n".join(lines)).hexdigest()
    if site.takes_over(address, digest_part(stored)) and before:
        return {"lines": before.lines, "size": before.size, "sha256": before.sha256}
    text = b"".join(published_line(line) + b"\n" for line in lines)
    packed = pack(text)
    target = site.html_dir / address
    target.parent.mkdir(parents=True, exist_ok=True)
    target.unlink(missing_ok=True)  # it may belong to the replaced site, of a damaged index
    target.write_bytes(packed)
    digest = hashlib.sha256(text).hexdigest()
    return {"lines": len(lines), "size": len(packed), "sha256": digest}


def data_path(machine: str, benchmark: str) -> str:
    """The path of the file of a benchmark on a machine, relative to the folder."""
    return f"{_plain(machine)}/{_plain(benchmark)}.jsonl.gz"


def pack(text: bytes) -> bytes:
    """Compress with gzip. Repeats of fewer than six characters are ignored: in samples they are
    random, and coding them as literals takes 5 % less."""
    packer = zlib.compressobj(_LEVEL, wbits=zlib.MAX_WBITS | 16, strategy=zlib.Z_FILTERED)
    return packer.compress(text) + packer.flush()


def _plain(name: str) -> str:
    """A distinct form of a name that needs no quoting in an address."""
    if _PLAIN.fullmatch(name):
        return name
    digest = hashlib.sha256(name.encode()).hexdigest()
    return f"{_NOT_PLAIN.sub('_', name)[:60]}-{digest[:8]}"


def _previous() -> dict[str, DataFile]:
    """The files of the replaced site, by path."""
    file = previous_file(INDEX)
    try:
        files = msgspec.json.decode(file.read_bytes(), type=DataIndex).files if file else []
    except (OSError, msgspec.MsgspecError):
        return {}
    return {each.path: each for each in files}


def published_line(line: bytes) -> bytes:
    """A stored line, cleaned, and in the precision in which Records are stored today: the noise
    behind it was a fifth of all files."""
    if may_need_cleaning(line) or _LONG_TIMES.search(line):
        return encode(shorten(decode(line)))
    return line
