"""Files that others wrote: YAML that unfolds, builds objects or nests without end, and links in
results."""

from __future__ import annotations

import json
import resource
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from records import a_record
from support import ROOT

from hpml_plugins.errors import HpmlError
from hpml_plugins.plugins.tta import recipes
from hpml_plugins.registry import read_registry
from hpml_plugins.report.site.matrix import PRICES_FILE, read_costs
from hpml_plugins.store import (
    append_record,
    lock_machine,
    merge_results,
    read_file,
    read_records,
    record_file,
)
from hpml_plugins.tools.cluster.config import read_cluster

BOMB = "a0: &a0 [x,x,x,x,x,x,x,x,x,x]\n" + "".join(
    f"a{n}: &a{n} [{','.join([f'*a{n - 1}'] * 10)}]\n" for n in range(1, 12)
)
#: what is wrong → the text; each is harmless only to a reader that refuses it
HOSTILE = {
    "a bomb of aliases": BOMB,
    "an alias to itself": "version: 1\ntargets: &a [*a]\n",
    "merged keys": "version: 1\nplugins: &p {name: a}\ntargets:\n  - <<: *p\n",
    "a tag that runs code": "version: !!python/object/apply:os.system ['touch escaped']\n",
    "a tag that imports": "version: !!python/name:os.system\n",
    "an unknown tag": "version: !mine 1\n",
    "nested sequences": "version: " + "[" * 100_000 + "]" * 100_000,
    "nested mappings": "version: " + "{a: " * 50_000 + "1" + "}" * 50_000,
    "nested blocks": "".join(" " * n + "a:\n" for n in range(3000)),
}


def prices(path: Path) -> object:
    shutil.copy(path, path.with_name(PRICES_FILE))
    return read_costs(path.parent)


def tta(path: Path) -> object:
    with pytest.MonkeyPatch.context() as patched:
        patched.setenv(recipes.VARIABLE, str(path))
        return recipes.read_recipe("none of these", "digits")


READERS: dict[str, Callable[[Path], object]] = {
    "registry.yaml": read_registry,
    "cluster.yaml": lambda path: read_cluster(path, path.parent),
    "gpu-prices.yaml": prices,
    "recipes of tta": tta,
}


@pytest.mark.parametrize("reader", READERS)
def test_hostile_yaml_is_refused_in_one_line_with_bounded_memory(
    reader: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "given.yaml"
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    for what, text in HOSTILE.items():
        path.write_text(text)
        with pytest.raises(HpmlError) as caught:
            READERS[reader](path)
        assert "\n" not in str(caught.value), what
    assert not (tmp_path / "escaped").exists()
    grown = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024
    print(
        f"{reader}: {len(HOSTILE)} hostile files refused; the largest took {grown:.0f} MB"
    )
    assert grown < 500


def test_json_that_nests_without_end_is_named_and_left_out_of_a_merge(
    tmp_path: Path,
) -> None:
    source = tmp_path / "source"
    deep = "[" * 200_000 + "]" * 200_000
    (source / "m" / "records").mkdir(parents=True)
    (source / "m" / "machine.json").write_text(json.dumps({"machine": "m"}))
    (source / "m" / "01234567-env.json").write_text(deep)
    (source / "benchmarks.json").write_text(deep)
    path = source / "m" / "records" / "01234567.jsonl"
    append_record(
        path,
        a_record(),
    )
    whole = path.read_bytes()
    path.write_bytes(b'{"later":' + deep.encode() + b"," + whole[1:] + whole)
    damage: list[str] = []
    assert len(list(read_file(path, damage.append))) == 1 == len(damage)
    report = merge_results([source], tmp_path / "into")
    assert len(report.skipped) == 3, report.skipped
    assert report.records == {"m": 1}


@pytest.fixture
def outside(tmp_path: Path) -> Path:
    folder = tmp_path / "outside"
    shutil.copytree(ROOT / "results" / "h200-x2", folder)
    return folder


def contents(folder: Path) -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_nothing_is_written_through_a_link_in_results(
    tmp_path: Path, outside: Path
) -> None:
    before = contents(outside)
    record = a_record()
    results = tmp_path / "results"
    tried = 0
    for place in ("m", "m/records", "m/records/01234567.jsonl", "m/.lock"):
        shutil.rmtree(results, ignore_errors=True)
        link = results / place
        link.parent.mkdir(parents=True)
        link.symlink_to(
            next(outside.glob("records/*.jsonl")) if place.endswith(("l", "k")) else outside
        )
        with pytest.raises(HpmlError, match="symbolic link"), lock_machine(results, "m"):
            append_record(record_file(results, "m", "01234567"), record)
        tried += 1
        assert contents(outside) == before
    print(f"results: {tried} links, nothing was written through one")


def test_merging_names_links_reads_none_and_replaces_those_in_its_way(
    tmp_path: Path, outside: Path
) -> None:
    before = contents(outside)
    source, into = tmp_path / "source", tmp_path / "into"
    shutil.copytree(ROOT / "results" / "h200-x1", source / "h200-x1")
    (source / "h200-x2").symlink_to(outside)
    (source / "benchmarks.json").symlink_to(ROOT / "results" / "benchmarks.json")
    (source / "h200-x1" / "passwd.json").symlink_to("/etc/passwd")
    (source / "h200-x1" / "records" / "passwd.jsonl").symlink_to("/etc/passwd")
    (into / "h200-x1").mkdir(parents=True)
    result = next((source / "h200-x1").glob("*-node-*.json"))
    (into / "h200-x1" / result.name).symlink_to(next(outside.glob("*-node-*.json")))
    (into / "h200-x1" / "machine.json").symlink_to(outside / "machine.json")
    report = merge_results([source], into)
    assert sum("a symbolic link; ignored" in said for said in report.skipped) == 4, (
        report.skipped
    )
    assert contents(outside) == before
    assert not (into / "h200-x2").exists() and not list(into.rglob("passwd*"))
    assert sum("a symbolic link; renamed to" in said for said in report.skipped) == 2, (
        report.skipped
    )
    assert all(path.suffix == ".damaged" for path in into.rglob("*") if path.is_symlink())
    print(
        f"merge: {len(report.skipped)} named; 4 links left alone, 2 in the way not written through"
    )


def test_links_are_not_read_for_the_page(tmp_path: Path, outside: Path) -> None:
    (tmp_path / "results").mkdir()
    (tmp_path / "results" / "h200-x2").symlink_to(outside)
    assert list(read_records(tmp_path / "results")) == []
