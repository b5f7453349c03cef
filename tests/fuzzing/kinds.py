"""The kinds of files that come from outside, and what reads each. Seeds are made of the project's own files."""

from __future__ import annotations

import csv
import functools
import io
import itertools
import json
import math
import shutil
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import msgspec
import yaml
from data_files import write_idx_files
from fuzzing.engine import Kind
from fuzzing.mutating import mutate_bytes, mutate_header, mutate_json, mutate_table, mutate_yaml
from support import ROOT

RESULTS = ROOT / "results"
#: Of the files in results/, those of this size: a case is to take milliseconds.
SMALL = 6000


def _yaml(tree: Any) -> bytes:
    return yaml.safe_dump(tree, sort_keys=False).encode()


@functools.cache
def _registry() -> list[Any]:
    return list(yaml.safe_load((ROOT / "registry.yaml").read_text())["plugins"])


@functools.cache
def _registries() -> Sequence[bytes]:
    """Each entry of registry.yaml alone, and one with every key that there is."""
    whole = {
        "name": "toy", "path": "toy.py", "sha256": "0" * 64, "enabled": True, "timeout": 120,
        "sampling": {"precision": 0.01, "budget": 5},
        "grid": {"toy": {"size": [1, 2]}}, "profiles": {"quick": {"toy": {"size": [1]}}},
    }  # fmt: skip
    pinned = {"name": "other", "entry_point": "other", "version": "1.0"}
    entries = [[entry] for entry in _registry()] + [[whole, pinned], [whole, _registry()[0]]]
    return [_yaml({"version": 1, "plugins": entry}) for entry in entries]


def _read_registry(data: bytes, folder: Path) -> str:
    from hpml_plugins.host.fitting import fit
    from hpml_plugins.host.loading import LoadedPlugin
    from hpml_plugins.registry import read_registry

    path = folder / "registry.yaml"
    path.write_bytes(data)
    registry = read_registry(path)
    msgspec.json.encode([registry.plugins, registry.profiles])
    limits = [each for entry in registry.plugins for each in (entry.timeout, entry.sampling.budget)]
    assert all(each is None or 0 < each < math.inf for each in limits), limits
    taken: dict[str, str] = {}
    for index, entry in registry.enabled:
        fitted = fit(LoadedPlugin(entry, registry.at("plugins", index), (_toy(),)), registry, index, taken)
        if fitted.error and "toy" in fitted.entry.grid:
            raise fitted.error
    return "read"


def _measure(bench: Any, size: int) -> dict[str, float]:
    raise NotImplementedError


def _toy() -> Any:
    from hpml_plugins import Benchmark, Metric

    return Benchmark("toy", _measure, [Metric("time", "s", "lower")], grid={"size": [1, 2, 3]})


def _clusters() -> Sequence[bytes]:
    """The example of the guide, whole and target by target."""
    page = (ROOT / "docs" / "cluster.md").read_text()
    lines = page[page.index("    version: 1") :].splitlines()
    end = next(number for number, line in enumerate(lines) if line and not line.startswith("    "))
    whole = yaml.safe_load("\n".join(line.removeprefix("    ") for line in lines[:end]))
    return [
        _yaml({**whole, "targets": targets}) for targets in (*([each] for each in whole["targets"]), whole["targets"])
    ]


def _read_cluster(data: bytes, folder: Path) -> str:
    from hpml_plugins.cluster.executors import script
    from hpml_plugins.cluster.plan import Order
    from hpml_plugins.cluster.reader import read_cluster

    path = folder / "cluster.yaml"
    path.write_bytes(data)
    cluster = read_cluster(path, folder)
    for target in cluster.choose(()):
        script(target, Order(folder, folder / "results"), folder / "job")
    return "read"


@functools.cache
def _records() -> Sequence[bytes]:
    """Lines of the store: of every benchmark and status one, the shortest."""
    found: dict[Any, bytes] = {}
    for path in sorted(RESULTS.glob("*/records/*.jsonl")):
        for line in path.read_bytes().splitlines():
            if len(line) < SMALL:
                about = json.loads(line)
                key = about["benchmark"], about["status"]
                found[key] = min(found.get(key, line), line, key=len)
    return list(found.values())


def _read_record(data: bytes, folder: Path) -> str:
    from hpml_plugins.display import point
    from hpml_plugins.model.figure import Table
    from hpml_plugins.model.record import encode
    from hpml_plugins.records import read
    from hpml_plugins.records.comparing import Side, compare
    from hpml_plugins.records.exporting import write_parquet
    from hpml_plugins.records.newest import newest
    from hpml_plugins.site.history import History
    from hpml_plugins.site.nodes import machines
    from hpml_plugins.site.page import fill
    from hpml_plugins.site.record_files import RecordFiles
    from hpml_plugins.suite.functions import to_asv

    good = _records()[0] + b"\n"
    path = folder / "results" / "node1" / "records" / "12345678.jsonl"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(good + data + b"\n" + good)
    damage: list[Any] = []
    found = list(read(path, damage.append))
    assert len(found) >= 2 and encode(found[0]) == encode(found[-1]), "a damaged line cost a whole one"
    for problem in damage:
        str(problem).encode()
    inner = found[1:-1]
    for record in inner:
        msgspec.json.decode(encode(record))
        point(list(record.params), [repr(value) for value in record.params.values()])
        for name in record.metrics:
            record.median(name)
            if record.status != "failed":  # which ends the process, as asv wants it
                to_asv(record, name)
    Table.of_records(inner, *(name for record in inner for name in record.metrics))
    list(newest(inner, {record.benchmark: record.version for record in inner}, {}))
    for record in inner:
        compare(Side("machine", record.machine), Side("commit", record.commit), inner, {})
    write_parquet(found, folder / "out.parquet")
    html = folder / "html"
    html.mkdir(exist_ok=True)
    files = RecordFiles({})
    files.take(found)
    files.write(html)
    page = fill("nodes.html", machines=machines(folder / "results", History(), _declared(), found, {}), project="p")
    (html / "nodes.html").write_text(page, encoding="utf-8")
    return "read" if inner else "stepped over"


@functools.cache
def _result_file() -> tuple[str, dict[str, Any]]:
    """The smallest real result file: its machine, name and content, and what it measured cut to three benchmarks."""
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
        (folder / side / "benchmarks.json").write_text(json.dumps({**_declared(), "version": 2}))


def _merge(folder: Path) -> None:
    from hpml_plugins.merging import merge_folders

    report = merge_folders([folder / "source"], folder / "into")
    for line in (*report.conflicts, *report.skipped):
        line.encode()  # it is printed


def _as_asv(folder: Path) -> None:
    """What our plugin mends in `asv`, for this process."""
    from hpml_plugins.asv.files import name_json_errors
    from hpml_plugins.asv.publishing import improve_publish

    name_json_errors()
    improve_publish()


def _read_results(data: bytes, folder: Path) -> str:
    from hpml_plugins.asv.known_files import Files
    from hpml_plugins.records.packs import Packs
    from hpml_plugins.site.history import read_history
    from hpml_plugins.site.result_files import Layout, measured

    _project(folder)
    path = folder / "source" / _result_file()[0]
    path.write_bytes(data)
    layout = Layout(_declared())
    found = list(measured(folder / "source", layout))
    read_history(folder / "source", _declared(), {each.commit: number for number, each in enumerate(found)})
    files = Files(Packs(folder / "packs", b"0" * 16))
    for file in files.all(str(folder / "source")):
        file.whole()
    with suppress(OverflowError, ValueError, TypeError):  # as `remember` does: the next publish takes as long
        files.save()
    shutil.rmtree(folder / "packs", ignore_errors=True)
    _merge(folder)
    return "read" if found else "stepped over"


def _declarations() -> Sequence[bytes]:
    return [json.dumps({**_declared(), "version": 2}).encode()]


def _read_declarations(data: bytes, folder: Path) -> str:
    from asv import util
    from asv.util import UserError

    from hpml_plugins.asv.files import _write_declarations
    from hpml_plugins.host.loading import LoadedPlugin
    from hpml_plugins.merging.declared import keep_known
    from hpml_plugins.records.objects import object_or_nothing
    from hpml_plugins.registry.schema import PluginEntry
    from hpml_plugins.site.history import History
    from hpml_plugins.site.nodes import machines
    from hpml_plugins.site.result_files import Layout, measured
    from hpml_plugins.suite.declaration import _remembered

    _project(folder)
    path = folder / "source" / "benchmarks.json"
    path.write_bytes(data)
    previous = object_or_nothing(path)
    for plugin in sorted({str(each["plugin"]) for each in _declared().values()}):
        entry = PluginEntry(plugin, module="m")
        msgspec.json.encode(_remembered(LoadedPlugin(entry, ""), previous))
    keep_known(_declared(), previous)
    with suppress(UserError):
        told = util.load_json(str(path), api_version=2)  # as asv's Benchmarks.load
        for entry in told.values():
            list(itertools.product(*entry["params"]))
        layout = Layout(told)
        list(measured(folder / "source", layout))
        machines(folder / "source", History(), told, [_a_record()], {})
    _merge(folder)
    path.write_bytes(data)
    _write_declarations(path, {**_declared(), "version": 2})
    kept = json.loads(path.read_bytes())
    assert kept.keys() >= _declared().keys(), "what this node declares is gone"
    return "read" if previous else "stepped over"


def _machines() -> Sequence[bytes]:
    return [path.read_bytes() for path in sorted(RESULTS.glob("*/machine.json"))]


def _read_machine(data: bytes, folder: Path) -> str:
    from hpml_plugins.asv.known_files import Files
    from hpml_plugins.asv.machine import facets
    from hpml_plugins.model import Node
    from hpml_plugins.records.objects import object_or_nothing
    from hpml_plugins.records.packs import Packs
    from hpml_plugins.site.history import History
    from hpml_plugins.site.nodes import machines
    from hpml_plugins.site.page import fill

    _project(folder)
    machine = folder / "source" / Path(_result_file()[0]).parent
    (machine / "machine.json").write_bytes(data)
    known = object_or_nothing(machine / "machine.json")
    facets(Node("Linux", "x86_64", "C", 2, 1.0, "3"), machine.name, known)
    list(Files(Packs(folder / "packs", b"0" * 16)).all(str(folder / "source")))
    _merge(folder)
    (machine / "machine.json").write_bytes(data)
    record = msgspec.structs.replace(_a_record(), machine=machine.name)
    page = fill("nodes.html", machines=machines(folder / "source", History(), _declared(), [record], {}), project="p")
    page.encode()
    return "read" if known else "stepped over"


@functools.cache
def _a_record() -> Any:
    from hpml_plugins.model.record import decode

    return decode(_records()[0])


def _tables() -> Sequence[bytes]:
    """A table as `ncu --csv` writes it, between its other words."""
    text = io.StringIO()
    text.write("==PROF== Connected to process 1234 (/usr/bin/python3)\n")
    writer = csv.writer(text, quoting=csv.QUOTE_ALL, lineterminator="\n")
    writer.writerow(["ID", "Process ID", "Kernel Name", "Metric Name", "Metric Unit", "Metric Value"])
    for number in range(3):
        writer.writerow([number, 1234, 'add(float, "x")', "gpu__time_duration.sum", "nsecond", "1,035,200"])
        writer.writerow([number, 1234, 'add(float, "x")', "dram__bytes.sum", "byte", "n/a"])
    return [text.getvalue().encode()]


def _read_table(data: bytes, folder: Path) -> str:
    from hpml_plugins.measuring.ncu import parse

    kernels = parse(data.decode("utf-8", "replace").splitlines())  # as subprocess gives it
    assert all(math.isfinite(value) for kernel in kernels for value in kernel.counters.values()), (
        "a count is not a number"
    )
    return "read" if kernels else "no kernels"


@functools.cache
def _idx() -> dict[str, bytes]:
    import tempfile

    with tempfile.TemporaryDirectory() as folder:
        for packed in (False, True):
            write_idx_files(Path(folder), packed=packed)
        return {path.name: path.read_bytes() for path in sorted(Path(folder).iterdir())}


@functools.cache
def _idx_files() -> Sequence[bytes]:
    """Each begins with the number of the file that it is of: one of four plain, one of four packed."""
    return [bytes([number]) + content for number, content in enumerate(_idx().values())]


def _mutate_idx(random: Any, data: bytes) -> bytes:
    name = list(_idx())[data[0] % 8]
    if not name.endswith(".gz"):
        return data[:1] + mutate_header(random, data[1:])
    import gzip

    try:  # what is packed is changed before it is packed as often as after
        plain = gzip.decompress(data[1:]) if random.randrange(2) else b""
    except (OSError, EOFError, ValueError):
        plain = b""
    changed = gzip.compress(mutate_header(random, plain), 1, mtime=0) if plain else mutate_bytes(random, data[1:])
    return data[:1] + changed


def _read_idx(data: bytes, folder: Path) -> str:
    from hpml_plugins.datasets.builtin import SOURCES
    from hpml_plugins.datasets.loading import describe_arrays, read
    from hpml_plugins.datasets.source import Found

    source = SOURCES["fashion-mnist"]
    place = folder / "fashion-mnist"
    place.mkdir(exist_ok=True)
    mutated = list(_idx())[data[0] % 8] if data else ""
    packed = mutated.endswith(".gz")
    for name, content in _idx().items():
        (place / name).unlink(missing_ok=True)
        if name.endswith(".gz") == packed:
            (place / name).write_bytes(data[1:] if name == mutated else content)
    found = source.find(folder)
    assert found
    describe_arrays(read(Found(source, found)))
    return "read"


def _nodes() -> Sequence[bytes]:
    """This machine, as `hpml bundle --ask` would tell of it, and an H200 node."""
    from hpml_plugins.bundle.ask_node import ask

    node = {
        "hpml_node": 1, "python": "3.12.3", "abi": "cp312", "machine": "x86_64", "libc": "glibc 2.39",
        "packages": {"torch": "2.11.0a0+nv", "torchvision": "0.26.0", "numpy": "2.4.6", "pyyaml": "",
                     "six": "1.16ubuntu1"},
    }  # fmt: skip
    here = ask()
    here["packages"] = dict(list(here["packages"].items())[:20]) | {"torch": "2.15.0"}  # type: ignore[attr-defined]
    return [json.dumps(each).encode() for each in (node, here)]


@functools.cache
def _own_project() -> Any:
    from hpml_plugins.bundle.needs import read_project

    return read_project(ROOT)


def _read_node(data: bytes, folder: Path) -> str:
    from hpml_plugins.bundle.facts import read_node
    from hpml_plugins.bundle.needs import ask, plan

    path = folder / "node.json"
    path.write_bytes(data)
    node = read_node(path)
    question = ask(_own_project(), node)
    plan({**question.preferred, "numpy": "2.4.6"}, node)
    return "read"


def _prices() -> Sequence[bytes]:
    return [_yaml({"prices": {"NVIDIA H200": 3.5, "NVIDIA A100-SXM4-80GB": 1}, "currency": "USD"})]


def _read_prices(data: bytes, folder: Path) -> str:
    from hpml_plugins.site.gpu_type import GpuType
    from hpml_plugins.site.prices import FILE, read_costs

    (folder / FILE).write_bytes(data)
    costs = read_costs(folder)
    for name in costs.prices:
        price = costs.price(GpuType(0, name, "8"))
        assert price is not None and math.isfinite(price) and price > 0, price
    costs.currency.encode()
    return "read"


KINDS = {
    kind.name: kind
    for kind in (
        Kind("registry", _registries, mutate_yaml, _read_registry),
        Kind("cluster file", _clusters, mutate_yaml, _read_cluster),
        Kind("record line", _records, mutate_json, _read_record),
        Kind("asv results", _results, mutate_json, _read_results, prepare=_as_asv),
        Kind("benchmarks.json", _declarations, mutate_json, _read_declarations, prepare=_as_asv),
        Kind("machine.json", _machines, mutate_json, _read_machine, prepare=_as_asv),
        Kind("ncu table", _tables, mutate_table, _read_table),
        Kind("idx files", _idx_files, _mutate_idx, _read_idx),
        Kind("node.json", _nodes, mutate_json, _read_node),
        Kind("prices", _prices, mutate_yaml, _read_prices),
    )
}
