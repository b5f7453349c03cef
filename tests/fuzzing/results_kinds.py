"""Files of results/: lines of Records, and what asv writes."""

from __future__ import annotations

import functools
import itertools
import json
import shutil
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from random import Random
from typing import Any

import hostile
import msgspec
from fuzzing.engine import Kind
from fuzzing.grammars import json_of
from fuzzing.mutating import mutate_json
from support import ROOT

RESULTS = ROOT / "results"
#: Of the files in results/, those of this size: a case is to take milliseconds.
SMALL = 6000
MACHINE, COMMIT = "node1", "12345678" * 5


@functools.cache
def _records() -> Sequence[bytes]:
    """Lines of the store: of every benchmark and status one, the shortest, as if measured on
    MACHINE at COMMIT."""
    found: dict[Any, bytes] = {}
    for path in sorted(RESULTS.glob("*/records/*.jsonl")):
        for line in path.read_bytes().splitlines():
            if len(line) < SMALL:
                about = json.loads(line)
                key = about["benchmark"], about["status"]
                line = json.dumps({**about, "machine": MACHINE, "commit": COMMIT}).encode()
                found[key] = min(found.get(key, line), line, key=len)
    return list(found.values())


def _few_records() -> Sequence[bytes]:
    """Each is published before the first case, to import what that needs: a part of them will
    do."""
    return _records()[::10]


def _read_record(data: bytes, folder: Path) -> str:
    from hpml_plugins.model.figure import Table
    from hpml_plugins.model.formatting import format_point
    from hpml_plugins.model.serialization import encode
    from hpml_plugins.report.compare import Side, compare
    from hpml_plugins.report.known import KnownRecords
    from hpml_plugins.store import current_records, read_file
    from hpml_plugins.suite.functions import to_asv

    path, (good, other) = _beside_good_ones(data, folder)
    damage: list[Any] = []
    found = list(read_file(path, damage.append))
    assert [encode(found[place]) + b"\n" for place in (0, -1)] == [
        good,
        other,
    ], "a damaged line cost a whole one"
    for problem in damage:
        str(problem).encode()
    inner = found[1:-1]
    for record in inner:
        msgspec.json.decode(encode(record))
        format_point(record.params)
        for name in record.metrics:
            record.value(name)
            if record.status != "failed":  # which ends the process, as asv wants it
                to_asv(record, name)
    Table.of_records(inner, *(name for record in inner for name in record.metrics))
    list(current_records(inner, {}))
    for record in inner:
        compare(
            Side("machine", record.machine),
            Side("commit", record.commit),
            KnownRecords.of(inner),
            {},
        )
    return "read" if inner else "stepped over"


def _show_record(data: bytes, folder: Path) -> str:
    from hpml_plugins.report.export import write_parquet
    from hpml_plugins.store import read_file

    path = _beside_good_ones(data, folder)[0]
    found = list(read_file(path))
    write_parquet(found, folder / "out.parquet")
    write_pages(folder, folder / "results", _declared())
    return "read" if len(found) > 2 else "stepped over"


def _read_on_its_way(data: bytes, folder: Path) -> str:
    """A Record of somebody else: pulled, merged with ours, projected, published; then a retraction
    of it."""
    from click.testing import CliRunner

    from hpml_plugins.cli.results import retract
    from hpml_plugins.model.serialization import decode
    from hpml_plugins.store import merge_results, project, read_records
    from hpml_plugins.tools.pull.command import _Import

    good = _beside_good_ones(data, folder)[1]
    (folder / "results" / MACHINE / "machine.json").write_text(
        json.dumps({"machine": MACHINE, "version": 1})
    )
    for place in ("renamed", "into", "pulled"):
        shutil.rmtree(folder / place, ignore_errors=True)
    renamed = folder / "renamed"
    renamed.mkdir()
    found = _Import("lab", folder / "pulled", renamed)
    found.add(folder / "results")
    merge_results([renamed], folder / "pulled")
    # Again, beside a Record that is there: a merge that changes one says so, and the right ones
    # stay.
    _beside_good_ones(b"", folder / "into")
    report = merge_results([folder / "results"], folder / "into" / "results")
    list(report.describe())
    said = [*found.skipped, *report.skipped]
    for results, machine in (
        (folder / "pulled", f"lab.{MACHINE}"),
        (folder / "into" / "results", MACHINE),
    ):
        project(results, force=True, on_damage=said.append)
        runs = {record.run for record in read_records(results) if record.machine == machine}
        assert runs >= {decode(line).run for line in good}, (
            "a damaged line cost a whole one"
        )
        names = {
            part
            for file in results.rglob("*")
            for part in file.relative_to(results).parts[:1]
        }
        assert names <= {machine, "benchmarks.json", ".benchmarks.lock"}, names
    write_pages(folder, folder / "pulled", _declared())
    words = ["--all", "--reason", "bad", "--results", str(folder / "pulled")]
    name = decode(good[0]).benchmark
    done = CliRunner().invoke(retract, [name, *words], standalone_mode=False)
    if done.exception:
        raise done.exception
    for line in said:
        str(line).encode()
    return "left out" if said else "read"


def _beside_good_ones(data: bytes, folder: Path) -> tuple[Path, list[bytes]]:
    """A file of Records: the line between two good ones, which are returned too."""
    from hpml_plugins.model.serialization import decode, encode

    # Of runs of their own: a damaged copy of one must not pass for another round of it.
    good = [
        encode(msgspec.structs.replace(decode(_records()[0]), run=run)) + b"\n"
        for run in ("a", "b")
    ]
    path = folder / "results" / MACHINE / "records" / f"{COMMIT[:8]}.jsonl"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(good[0] + data + b"\n" + good[1])
    return path, good


@functools.cache
def _result_file() -> tuple[str, dict[str, Any]]:
    """The smallest real result file: its machine, name and content, and what it measured cut to
    three benchmarks."""
    paths = [path for path in RESULTS.glob("*/*.json") if path.name != "machine.json"]
    path = min(paths, key=lambda each: each.stat().st_size)
    content = json.loads(path.read_text())
    content["results"] = dict(list(content["results"].items())[:3])
    return f"{path.parent.name}/{path.name}", content


@functools.cache
def _declared() -> dict[str, Any]:
    """benchmarks.json, cut to what that file measured, with a benchmark that has a grid."""
    known = json.loads((RESULTS / "benchmarks.json").read_text())
    names = [*_result_file()[1]["results"], *list(known)[:2]]
    return {name: known[name] for name in names if isinstance(known.get(name), dict)}


@functools.cache
def _results() -> Sequence[bytes]:
    whole = _result_file()[1]
    ones = [{**whole, "results": dict([row])} for row in whole["results"].items()]
    return [json.dumps(each).encode() for each in (whole, *ones)]


def _project(folder: Path) -> None:
    name, content = _result_file()
    for side in ("source", "into"):
        machine = folder / side / Path(name).parent
        shutil.rmtree(folder / side, ignore_errors=True)
        machine.mkdir(parents=True)
        shutil.copy(RESULTS / Path(name).parent / "machine.json", machine)
        (folder / side / name).write_text(json.dumps(content))
        (folder / side / "benchmarks.json").write_text(
            json.dumps({**_declared(), "version": 2})
        )


def _merge(folder: Path) -> None:
    from hpml_plugins.store import merge_results

    report = merge_results([folder / "source"], folder / "into")
    for line in (*report.conflicts, *report.skipped):
        line.encode()  # it is printed


def write_pages(
    folder: Path,
    results: Path,
    declared: Any,
    *,
    project: str = "p",
    commits: dict[str, int] | None = None,
) -> None:
    """What pages read and write of a folder of results."""
    from workload_pages import write_points

    from hpml_plugins.report.reading import read_history
    from hpml_plugins.report.site.components import fold_warnings
    from hpml_plugins.report.site.evidence import fill_evidence, find_evidence
    from hpml_plugins.report.site.nodes import find_gaps, find_nodes
    from hpml_plugins.report.site.page import SiteFolder

    html = folder / "html"
    html.mkdir(exist_ok=True)
    commits = commits or {
        _result_file()[1]["commit_hash"]: 0,
        json.loads(_records()[0])["commit"]: 1,
    }
    history = read_history(results, None, declared, commits, {}, str)
    history.current()
    write_points(history, html)
    machines = find_nodes(history)
    parts = fill_evidence(
        machines,
        find_gaps(history, machines),
        find_evidence(history),
        warnings=fold_warnings(history),
    )
    SiteFolder(html, project).write_page("evidence.html", **parts)


def _as_asv(folder: Path) -> None:
    """What our plugin fixes in `asv`, for this process."""
    from hpml_plugins.asv.patches import apply

    apply()


def _read_results(data: bytes, folder: Path) -> str:
    from hpml_plugins.store import read_object_or_empty
    from hpml_plugins.store.asv_results import is_result_file

    _project(folder)
    path = folder / "source" / _result_file()[0]
    path.write_bytes(data)
    # As those of a plain asv project, whose results are imported.
    foreign = {
        name: {key: value for key, value in entry.items() if key != "metric"}
        for name, entry in _declared().items()
    }
    write_pages(folder, folder / "source", foreign)
    read = is_result_file(read_object_or_empty(path))
    _merge(folder)
    return "read" if read else "stepped over"


def _declarations() -> Sequence[bytes]:
    return [json.dumps({**_declared(), "version": 2}).encode()]


def _read_declarations(data: bytes, folder: Path) -> str:
    from asv import util
    from asv.util import UserError

    from hpml_plugins.store import read_object_or_empty
    from hpml_plugins.store.declarations import keep_declared

    _project(folder)
    path = folder / "source" / "benchmarks.json"
    path.write_bytes(data)
    previous = read_object_or_empty(path)
    keep_declared(_declared(), previous)
    with suppress(UserError):
        told = util.load_json(str(path), api_version=2)  # as asv's Benchmarks.load
        for entry in told.values():
            list(itertools.product(*entry["params"]))
        write_pages(folder, folder / "source", told)
    _merge(folder)
    path.write_bytes(data)
    util.write_json(str(path), _declared(), 2)
    kept = json.loads(path.read_bytes())
    assert kept.keys() >= _declared().keys(), "what this node declares is gone"
    return "read" if previous else "stepped over"


def _machines() -> Sequence[bytes]:
    return [path.read_bytes() for path in sorted(RESULTS.glob("*/machine.json"))]


def _read_machine(data: bytes, folder: Path) -> str:
    from hpml_plugins.asv.run import facets
    from hpml_plugins.model import Node
    from hpml_plugins.store import append_record, read_object_or_empty, record_file

    _project(folder)
    machine = folder / "source" / Path(_result_file()[0]).parent
    (machine / "machine.json").write_bytes(data)
    known = read_object_or_empty(machine / "machine.json")
    facets(Node("Linux", "x86_64", "C", 2, 1.0, "3"), machine.name, known)
    _merge(folder)
    (machine / "machine.json").write_bytes(data)
    record = msgspec.structs.replace(_a_record(), machine=machine.name)
    append_record(record_file(folder / "source", machine.name, record.commit), record)
    write_pages(folder, folder / "source", _declared())
    return "read" if known else "stepped over"


@functools.cache
def _a_record() -> Any:
    from hpml_plugins.model.serialization import decode

    return decode(_records()[0])


#: A repository is asked for the date of a commit; no program can be found.
_PROGRAMS = ("subprocess.Popen",)


def _without_git(folder: Path) -> None:
    from fuzzing.shown_kinds import be_alone

    be_alone(folder)


@functools.cache
def _variants() -> Sequence[dict[str, Any]]:
    return [record for _, record in hostile.variants()]


def _hostile(random: Random) -> bytes:
    """A Record as a third party would forge one: one of the generator's, or two of them crossed."""
    one, other = random.choice(_variants()), random.choice(_variants())
    crossed = {
        name: (one if random.randrange(2) else other).get(name, value)
        for name, value in hostile.GOOD.items()
    }
    place = {"machine": MACHINE, "commit": COMMIT} if random.randrange(2) else {}
    return hostile.line_of({**(crossed if random.randrange(2) else one), **place}).rstrip(
        b"\n"
    )


KINDS = (
    Kind("record line", _records, mutate_json, _read_record, grammar=json_of(_records)),
    Kind(
        "pages of a record", _records, mutate_json, _show_record, grammar=json_of(_records)
    ),
    Kind(
        "record on its way",
        _few_records,
        mutate_json,
        _read_on_its_way,
        prepare=_without_git,
        may=_PROGRAMS,
        grammar=_hostile,
    ),
    Kind(
        "asv results",
        _results,
        mutate_json,
        _read_results,
        prepare=_as_asv,
        grammar=json_of(_results),
    ),
    Kind(
        "benchmarks.json",
        _declarations,
        mutate_json,
        _read_declarations,
        prepare=_as_asv,
        grammar=json_of(_declarations),
    ),
    Kind(
        "machine.json",
        _machines,
        mutate_json,
        _read_machine,
        prepare=_as_asv,
        grammar=json_of(_machines),
    ),
)
