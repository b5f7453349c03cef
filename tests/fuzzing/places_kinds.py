"""What lies in folders: links, FIFOs, sockets and devices among results and jobs; archives of data
sets."""

from __future__ import annotations

import bz2
import functools
import gzip
import io
import json
import lzma
import os
import shutil
import socket
import tarfile
from collections.abc import Sequence
from pathlib import Path
from random import Random
from typing import Any

from fuzzing.engine import Kind
from fuzzing.grammars import json_of, text
from fuzzing.mutating import mutate_bytes, mutate_json
from fuzzing.shown_kinds import COMMIT, a_record, be_alone, hold_printable

from hpml_plugins.errors import HpmlError

NAMES = (
    "records",
    "machine.json",
    "benchmarks.json",
    f"{COMMIT[:8]}.jsonl",
    f"{COMMIT[:8]}-env.json",
    "m",
    "n",
    "x.partial",
    ".lock",
    "order.json",
)
PLACES = (
    "results/m/records/cccccccc.jsonl",
    "results/m/records/dddddddd.jsonl",
    "results/m/records",
    "results/m",
    "results/n",
    "results/m/machine.json",
    "results/m/cccccccc-env.json",
    "results/m/dddddddd-env.json",
    "results/benchmarks.json",
    "results/m/.lock",
    "into/m/records/cccccccc.jsonl",
    "into/m/records",
    "into/m/cccccccc-env.json",
    "into/m/machine.json",
    "into/benchmarks.json",
    "into/m",
    "into/n",
    "jobs/1",
    "jobs/1/order.json",
    "jobs/1/state.json",
    "jobs/1/7_0_log.out",
    "results/n/machine.json",
    "results/n/records/cccccccc.jsonl",
    "into/n/machine.json",
    "results/m/results.json",
)
TARGETS = (
    "/dev/zero",
    "/dev/null",
    "/dev/full",
    "/proc/self/mem",
    "/etc/passwd",
    "../secret/kept.json",
    "../../secret/kept.json",
    "../../../secret",
    ".",
    "..",
    "loop",
    "nothing",
    "/",
    "m",
    "../into",
    "../../results",
    "records",
    "../m",
)
#: link, FIFO, socket, folder, sparse file, file, nothing readable, a link's ring.
WAYS = (
    "link",
    "link",
    "link",
    "fifo",
    "socket",
    "folder",
    "sparse",
    "file",
    "file",
    "unreadable",
    "hard",
)


@functools.cache
def _contents() -> list[str]:
    from hpml_plugins.model.serialization import encode

    record = encode(a_record("x")).decode()
    result = {
        "commit_hash": COMMIT,
        "env_name": "env",
        "params": {"machine": "m"},
        "result_columns": ["result", "params"],
        "results": {"x.track_time": [[1.0], []], "foreign": [[2.0], []]},
        "version": 2,
    }
    order = {"target": "t", "machine": "m", "executor": "local", "host": "h", "id": "7"}
    return [
        f"{record}\n",
        f"{record}\n{record}\n",
        f"{record}\n{{",
        '{"machine": "m", "version": 1}',
        '{"machine": "n", "version": 1}',
        "",
        json.dumps(result),
        json.dumps(order),
        json.dumps({**order, "id": "-1", "target": "\x1b[2J"}),
        "{}",
        "[" * 5000,
        "\0",
        "\udcff",
        json.dumps({"phase": "running", "host": "h", "attempts": 1}),
        "[ 50.00%] \x1b[2J\n",
        '{"foreign": {"type": "time", "params": []}, "version": 2}',
    ]


def _tree(random: Random) -> bytes:
    made: list[list[str]] = []
    for _ in range(random.randint(1, 6)):
        place = random.choice(PLACES)
        if not random.randrange(4):
            name = text(random, 2).replace("/", "").replace("\0", "")[:80] or "x"
            name = random.choice(
                (name, f"{name}.jsonl", f"{name}.json", random.choice(NAMES))
            )
            place = f"{place.rpartition('/')[0]}/{name}"
        way = random.choice(WAYS)
        made.append(
            [
                place,
                way,
                random.choice(TARGETS)
                if way in ("link", "hard")
                else random.choice(_contents()),
            ]
        )
    return json.dumps(made).encode()


def _trees() -> Sequence[bytes]:
    return [
        json.dumps([[place, "file", content]]).encode()
        for place, content in zip(PLACES, _contents(), strict=False)
    ]


def _build(case: Path, made: list[Any]) -> None:
    """The folders of a case: whole results of two machines and a job, then what the case puts in
    their places."""
    record, machine = _contents()[0], _contents()[3]
    for folder in ("results", "into"):
        (case / folder / "m" / "records").mkdir(parents=True)
        (case / folder / "m" / "records" / f"{COMMIT[:8]}.jsonl").write_text(record)
        (case / folder / "m" / "machine.json").write_text(machine)
    (case / "jobs" / "1").mkdir(parents=True)
    (case / "jobs" / "1" / "order.json").write_text(_contents()[7])
    for place, way, content in made:
        path = case / place
        if "\0" in place or case not in Path(os.path.normpath(path)).parents:
            continue
        try:
            if any(each.is_symlink() for each in path.parents):
                continue
            if path.is_dir() and not path.is_symlink() and way != "folder":
                shutil.rmtree(path)
            if not (way == "folder" and path.is_dir()):
                path.unlink(missing_ok=True)
            path.parent.mkdir(parents=True, exist_ok=True)
            _make(path, way, content)
        except (OSError, UnicodeError):
            continue  # a name that is too long, a parent that is a file


def _make(path: Path, way: str, content: str) -> None:
    if way == "link":
        path.symlink_to(content)
    elif way == "hard":
        os.link(
            next(each for each in path.parents if each.name == "case").parent
            / "secret"
            / "kept.json",
            path,
        )
    elif way == "fifo":
        os.mkfifo(path)
    elif way == "socket":
        os.chdir(path.parent)  # a socket's path is at most 108 bytes long
        with socket.socket(socket.AF_UNIX) as server:
            server.bind(path.name)
    elif way == "folder":
        path.mkdir(exist_ok=True)
    elif way == "sparse":
        with path.open("wb") as file:
            file.truncate(2**22)
    else:
        path.write_bytes(content.encode("utf-8", "surrogateescape"))
        if way == "unreadable":
            path.chmod(0)


def _read_tree(data: bytes, folder: Path) -> str:
    from hpml_plugins.report.reading import read_history
    from hpml_plugins.store import (
        merge_results,
        project,
        read_object_or_empty,
        read_records,
    )
    from hpml_plugins.terminal import printable
    from hpml_plugins.tools.cluster.jobs import find_jobs, tail

    try:
        made = [
            [str(place), str(way), str(content)] for place, way, content in json.loads(data)
        ]
    except (ValueError, TypeError, RecursionError):
        return "no case"
    secret, case = folder / "secret", folder / "case"
    shutil.rmtree(secret, ignore_errors=True)
    secret.mkdir()
    (secret / "kept.json").write_text('{"machine": "m", "version": 1}')
    before = (secret / "kept.json").stat()
    shutil.rmtree(case, ignore_errors=True)
    _build(case, made)
    os.chdir(folder)
    said: list[str] = []
    refused: HpmlError | None = None
    list(read_records(case / "results", said.append))
    declared = read_object_or_empty(case / "results" / "benchmarks.json")
    read_history(
        case / "results",
        None,
        declared if all(isinstance(each, dict) for each in declared.values()) else {},
        {},
        {},
        said.append,
    )
    for job in find_jobs(case / "jobs", said.append):
        tail(job.log, 5)
    try:
        report = merge_results([case / "results"], case / "into")
        said += report.conflicts + report.skipped
        project(case / "results", force=True)
    except HpmlError as error:
        refused = error
    except OSError as error:
        from hpml_plugins.cli import _explain

        assert "bug in hpml-plugins" not in _explain(error), repr(error)
        refused = HpmlError(_explain(error))
    hold_printable(*map(printable, said))
    assert (secret / "kept.json").stat().st_mtime_ns == before.st_mtime_ns, (
        "a file outside was written"
    )
    assert [path.name for path in secret.iterdir()] == ["kept.json"], (
        "a file outside was made"
    )
    if refused:
        raise refused
    return "left out" if said else "read"


def _archives() -> Sequence[bytes]:
    whole = _tar(
        [_member("train/cat/1.jpg", b"x" * 300), _member("test/cat/1.jpg", b"x" * 60)]
    )
    return [
        whole,
        gzip.compress(whole, 1),
        bz2.compress(whole, 1),
        lzma.compress(whole, preset=0),
    ]


def _member(
    name: str,
    content: bytes = b"",
    kind: bytes = tarfile.REGTYPE,
    link: str = "",
    **more: Any,
) -> tuple[tarfile.TarInfo, bytes]:
    member = tarfile.TarInfo(name)
    member.type, member.linkname, member.size = kind, link, len(content)
    for key, value in more.items():
        setattr(member, key, value)
    return member, content


def _tar(
    members: list[tuple[tarfile.TarInfo, bytes]], form: int = tarfile.PAX_FORMAT
) -> bytes:
    """An archive of members, whose sizes need not be those of their contents."""
    file = io.BytesIO()
    for member, content in members:
        file.write(member.tobuf(form, "utf-8", "surrogateescape"))
        file.write(content + bytes(-len(content) % tarfile.BLOCKSIZE))
    return file.getvalue() + bytes(2 * tarfile.BLOCKSIZE)


MEMBERS = (
    "train/cat/1.jpg",
    "test/cat/1.jpg",
    "../../escaped",
    "/escaped",
    "train/../../escaped",
    "train",
    "./train/x",
    "train//x",
    "train/\x1b[2J",
    "train/a\nhpml: forged",
    "train/\udcff",
    "train/" + "n" * 300,
    "d/" * 200 + "x",
    "",
    ".",
    "..",
    "train/cat",
    "C:\\x",
    "~/x",
    "train/é",
    "cifar10-jpeg/train/cat/1.jpg",
)
KINDS_OF_MEMBERS = (
    *(tarfile.REGTYPE,) * 6,
    tarfile.DIRTYPE,
    tarfile.SYMTYPE,
    tarfile.LNKTYPE,
    tarfile.CHRTYPE,
    tarfile.BLKTYPE,
    tarfile.FIFOTYPE,
    tarfile.GNUTYPE_SPARSE,
    tarfile.GNUTYPE_LONGNAME,
    tarfile.XHDTYPE,
    tarfile.XGLTYPE,
    tarfile.CONTTYPE,
    b"?",
    b"\0",
)


def _write_archive(random: Random) -> bytes:
    members = (
        []
        if random.randrange(3)
        else [_member("train/cat/1.jpg", b"x" * 300), _member("test/cat/1.jpg", b"x" * 60)]
    )
    for _ in range(random.randint(0, 4)):
        name = (
            random.choice(MEMBERS)
            if random.randrange(4)
            else text(random).replace("\0", "")[:300]
        )
        kind = random.choice(KINDS_OF_MEMBERS)
        link = (
            random.choice(
                ("/etc/passwd", "../../../escaped", "inside", "train/cat/1.jpg", ".", "")
            )
            if random.randrange(3)
            else text(random)[:90]
        )
        content = random.choice(
            (
                b"",
                b"evil",
                b"x" * 600,
                b"30 path=../../escaped\n",
                b"14 size=99999999999\n",
                b"22 GNU.sparse.major=1\n",
            )
        )
        member, content = _member(name, content, kind, link.replace("\0", ""))
        if not random.randrange(5):
            member.size = random.choice((0, 1, 10**6, 2**33 - 1, 2**40, 7))
        if not random.randrange(5):
            key = random.choice(
                (
                    "path",
                    "size",
                    "linkpath",
                    "uid",
                    "mtime",
                    "GNU.sparse.map",
                    "GNU.sparse.name",
                    "hdrcharset",
                )
            )
            member.pax_headers = {
                key: random.choice(
                    (
                        "-1",
                        "99999999999999999999",
                        "../../escaped",
                        "nan",
                        "0,1,2",
                        "x",
                        "BINARY",
                    )
                )
            }
        if not random.randrange(6):
            member.mode, member.uid, member.mtime = (
                random.choice((0, 0o7777, 0o000)),
                random.choice((0, 2**21 - 1)),
                random.choice((0, -1, 2**33, 1e18)),
            )
        members.append((member, content))
    try:
        whole = _tar(
            members,
            random.choice((tarfile.PAX_FORMAT, tarfile.GNU_FORMAT, tarfile.USTAR_FORMAT)),
        )
    except (ValueError, OverflowError):  # what the format cannot hold
        whole = _tar([_member("train/cat/1.jpg", b"x")])
    if not random.randrange(200):
        whole = whole[:-1024] + _tar([_member("train/bomb", bytes(2**21))])
    change = random.randrange(8)
    if change == 0:
        whole = whole[: random.randrange(len(whole))]
    elif change == 1:
        whole = whole[:-1024] + random.choice(
            (b"x" * 512, bytes(512), b"", b"x", bytes(10_000))
        )
    elif change == 2:
        at = random.randrange(min(len(whole), 512))
        whole = whole[:at] + bytes([random.randrange(256)]) + whole[at + 1 :]
    pack = random.randrange(8)
    packed = (
        whole
        if pack < 4
        else (
            gzip.compress(whole, 1)
            if pack < 6
            else bz2.compress(whole, 1)
            if pack == 6
            else lzma.compress(whole, preset=0)
        )
    )
    return packed if random.randrange(4) else mutate_bytes(random, packed)


def _read_archive(data: bytes, folder: Path) -> str:
    from hpml_plugins.workloads.datasets.command import unpack

    archive, root = folder / "cifar10-jpeg.tar", folder / "root" / "of" / "data"
    shutil.rmtree(folder / "root", ignore_errors=True)
    archive.write_bytes(data)
    try:
        unpack(archive, root)
    except BaseException:
        assert not root.exists() or list(root.iterdir()) == [], (
            "a refused archive left files"
        )
        raise
    finally:
        outside = [
            path
            for path in (folder / "root").rglob("*")
            if root not in path.parents and path not in (root, root.parent)
        ]
        assert not outside, f"files outside: {outside}"
    assert [path.name for path in root.iterdir()] == ["cifar10-jpeg"]
    assert not any(
        path.is_symlink() or not (path.is_dir() or path.is_file())
        for path in root.rglob("*")
    )
    return "unpacked"


def _orders() -> Sequence[bytes]:
    return [
        _contents()[7].encode(),
        json.dumps(
            {"phase": "running", "host": "h", "attempts": 1, "reason": "x"}
        ).encode(),
    ]


def _read_order(data: bytes, folder: Path) -> str:
    from hpml_plugins.terminal import printable
    from hpml_plugins.tools.cluster.jobs import find_jobs

    job = folder / "jobs" / "1"
    job.mkdir(parents=True, exist_ok=True)
    is_state = b"phase" in data
    (job / "state.json").write_bytes(data if is_state else _orders()[1])
    (job / "order.json").write_bytes(_orders()[0] if is_state else data)
    jobs = find_jobs(folder / "jobs")
    for each in jobs:
        hold_printable(
            printable(
                f"job {each.target} {each.state} {each.reason} {each.node} {each.machine}"
            )
        )
    return "read" if jobs else "stepped over"


KINDS = (
    Kind(
        "places of results",
        _trees,
        mutate_json,
        _read_tree,
        (HpmlError,),
        be_alone,
        _tree,
        ("subprocess.Popen",),
    ),
    Kind("archive of data", _archives, mutate_bytes, _read_archive, grammar=_write_archive),
    Kind(
        "job",
        _orders,
        mutate_json,
        _read_order,
        (HpmlError,),
        be_alone,
        json_of(_orders),
        ("subprocess.Popen",),
    ),
)
