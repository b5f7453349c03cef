"""`data/v1/`: what programs read of a site, as docs/data-files.md says."""

from __future__ import annotations

import functools
import gzip
import hashlib
import http.server
import json
import re
import shutil
import statistics
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import msgspec
import pytest
from records import a_record
from site_history import read
from support import ROOT, unavailable

from hpml_plugins.model.record import MetricSamples
from hpml_plugins.model.serialization import decode, encode
from hpml_plugins.registry import json_schema
from hpml_plugins.report.site import data_files
from hpml_plugins.report.site.manifest import complete_manifest, write_manifest
from hpml_plugins.report.site.page import SiteFolder
from hpml_plugins.report.site.previous import replacing

DOCS = (ROOT / "docs" / "data-files.md").read_text(encoding="utf-8")
#: What the examples ask for → what the small history has.
TOY = {"roof_copy": "toy", "mebibytes": "size", "bandwidth": "time"}


def example(heading: str) -> str:
    """The code below a heading, asking for the toy."""
    text = DOCS.partition(f"## {heading}\n")[2].partition("\n## ")[0]
    code = "\n".join(re.findall(r"(?m)^    (.*)$", text))
    return functools.reduce(lambda code, each: code.replace(*each), TOY.items(), code)


@pytest.fixture(scope="module")
def index(published: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((published / data_files.INDEX).read_bytes())
    return found


@pytest.fixture(scope="module")
def medians(published: Path, index: dict[str, Any]) -> list[tuple[str, int, float]]:
    """Machine, size and median time of each measured line of the toy."""
    found = []
    for file in index["files"]:
        if file["benchmark"] == "toy":
            packed = (published / "data" / "v1" / file["path"]).read_bytes()
            records = map(decode, gzip.decompress(packed).splitlines())
            found += [
                (
                    each.machine,
                    each.params["size"],
                    statistics.median(each.metrics["time"].samples),
                )
                for each in records
                if each.status == "ok"
            ]
    assert found
    return sorted(found)


def test_the_index_says_what_there_is(published: Path, index: dict[str, Any]) -> None:
    folder = published / "data" / "v1"
    msgspec.convert(index, data_files.DataIndex)  # which checks what the schema says
    schema = json.loads((folder / "index.schema.json").read_bytes())
    assert schema == json_schema(data_files.DataIndex)
    schema = json.loads((folder / "record.schema.json").read_bytes())
    assert schema == json.loads((ROOT / "docs" / "record.schema.json").read_bytes())
    listed = {each["path"] for each in index["files"]}
    assert listed == {
        each.relative_to(folder).as_posix() for each in folder.glob("*/*.jsonl.gz")
    }
    for file in index["files"]:
        packed = (folder / file["path"]).read_bytes()
        text = gzip.decompress(packed)
        told = (file["size"], file["lines"], file["sha256"])
        assert told == (len(packed), text.count(b"\n"), hashlib.sha256(text).hexdigest())
        for line in text.splitlines():
            record = decode(line)
            assert (record.machine, record.benchmark) == (
                file["machine"],
                file["benchmark"],
            )
    assert {each["machine"] for each in index["files"]} <= {
        each["machine"] for each in index["machines"]
    }


def test_the_example_of_curl_and_jq(
    published: Path, medians: list[tuple[str, int, float]]
) -> None:
    if not shutil.which("jq") or not shutil.which("curl"):
        unavailable("no jq or no curl: apt-get install jq curl")
    handler = functools.partial(
        http.server.SimpleHTTPRequestHandler, directory=str(published)
    )
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        code = f"SITE=http://127.0.0.1:{server.server_port}\n{example('curl and jq')}"
        told = subprocess.run(
            ["sh", "-c", code], capture_output=True, text=True, check=True
        ).stdout
    finally:
        server.shutdown()
        server.server_close()
    rows = [line.split("\t") for line in told.splitlines()]
    assert sorted((row[0], int(row[1])) for row in rows) == [each[:2] for each in medians]


def test_the_example_of_duckdb(
    published: Path, medians: list[tuple[str, int, float]], monkeypatch: pytest.MonkeyPatch
) -> None:
    duckdb = pytest.importorskip("duckdb")
    monkeypatch.chdir(published)
    rows = sorted(duckdb.sql(example("DuckDB")).fetchall())
    assert [row[:2] for row in rows] == [each[:2] for each in medians]
    assert [row[2] for row in rows] == pytest.approx([each[2] for each in medians])


def test_the_example_of_pandas(
    published: Path, medians: list[tuple[str, int, float]]
) -> None:
    pytest.importorskip("pandas")
    code = [sys.executable, "-c", example("pandas")]
    done = subprocess.run(code, cwd=published, capture_output=True, text=True, check=True)
    rows = [line.split() for line in done.stdout.splitlines()]
    assert rows[0] == ["machine", "size", "time"]
    assert len(rows) == 1 + len(medians)


def test_a_file_whose_records_stand_in_the_replaced_site_is_taken_over(
    published: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    history = read(published.parent / "results")
    old, new = tmp_path / "old", tmp_path / "new"
    data_files.write_data_files(history, of_old := SiteFolder(old, "p"))
    for name in ("index.json", "info.json"):
        (old / name).write_text('{"benchmarks": {}}')
    write_manifest(old, [], [], made=of_old.made)
    complete_manifest(old)
    packed = sorted(old.glob("data/v1/*/*.gz"))
    packed[0].write_bytes(b"damaged")
    made: list[bytes] = []
    pack = data_files.pack

    def counted(text: bytes) -> bytes:
        made.append(text)
        return pack(text)

    monkeypatch.setattr(data_files, "pack", counted)
    with replacing(old):
        data_files.write_data_files(history, of_new := SiteFolder(new, "p"))
    assert of_new.made == of_old.made and len(made) == 1 < len(packed)
    for each in packed[1:]:
        assert (new / each.relative_to(old)).samefile(each)
    assert (new / data_files.INDEX).read_bytes() == (old / data_files.INDEX).read_bytes()
    monkeypatch.setattr(data_files, "MOST_RECORDS", 1)
    data_files.write_data_files(history, SiteFolder(tmp_path / "few", "p"))
    few = json.loads((tmp_path / "few" / data_files.INDEX).read_bytes())
    assert sum(each["left_out"] for each in few["files"]) > 0


def test_samples_have_the_digits_of_stored_ones() -> None:
    def line(value: float, flops: float = 17371234567.0) -> bytes:
        metrics = {
            "time": MetricSamples("s", "lower", [0.25, value], boost=[value]),
            "flops": MetricSamples(unit="FLOP", direction=None, samples=[flops]),
        }
        return encode(a_record(metrics=metrics))

    published = data_files.published_line(line(0.0004368379999988292))
    assert published == line(0.000436838)
    assert data_files.published_line(published) is published
    short = line(0.000123456789, flops=7.0)
    assert data_files.published_line(short) is short
