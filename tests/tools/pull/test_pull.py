"""`hpml pull`: from a folder, a git repository and a published site; hostile sources."""

from __future__ import annotations

import gzip
import http.server
import json
import subprocess
import threading
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from records import a_record
from repositories import make_repository

from hpml_plugins.cli import group
from hpml_plugins.model import Record
from hpml_plugins.model.serialization import encode
from hpml_plugins.store import MAX_FILE, append_record, read_records, record_file

COMMIT = "c" * 40
DECLARED = {
    "name": "step.track_time",
    "benchmark": "step",
    "metric": "time",
    "plugin": "theirs",
    "version": "1",
    "unit": "seconds",
    "si_unit": "s",
    "direction": "lower",
    "param_names": ["size"],
    "params": [["1", "2"]],
    "code": "",
    "type": "track",
    "timeout": 60.0,
}


def record(size: int = 1, machine: str = "h200-x1", **more: object) -> Record:
    gpus = [{"name": "NVIDIA H200", "uuid": "u", "memory": 141e9}]
    facts = {
        "os": "Linux 6",
        "arch": "x86_64",
        "cpu": "C",
        "num_cpu": 2,
        "ram": 1e9,
        "python": "3",
        "gpus": gpus,
    }
    found = {
        "params": {"size": size},
        "started": 5.0 + size,
        "machine": machine,
        "commit": COMMIT,
        "run": "r",
        "environment": "node",
        "node": facts,
    }
    return a_record("step", {"time": [1.0, 1.1]}, **{**found, **more})


@pytest.fixture
def theirs(tmp_path: Path) -> Path:
    """Somebody's checkout with results."""
    results = tmp_path / "theirs" / "results"
    for size in (1, 2):
        append_record(record_file(results, "h200-x1", COMMIT), record(size))
    facts = {"machine": "h200-x1", "gpu": "NVIDIA H200", "num_gpu": "1", "version": 1}
    (results / "h200-x1" / "machine.json").write_text(json.dumps(facts))
    (results / "benchmarks.json").write_text(
        json.dumps({DECLARED["name"]: DECLARED, "version": 2})
    )
    return tmp_path / "theirs"


@pytest.fixture
def pull(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Result]:
    """The command, in a folder with results of its own or none."""
    mine = tmp_path / "mine"
    mine.mkdir()
    monkeypatch.chdir(mine)

    def run(address: Path | str, *words: str, status: int = 0) -> Result:
        done = CliRunner().invoke(
            group, ["pull", str(address), "--as", "lab", *words], standalone_mode=False
        )
        assert (done.exception, done.return_value) == (None, status), done.output
        return done

    return run


def pulled() -> list[tuple[str, object]]:
    return [(each.machine, each.params["size"]) for each in read_records(Path("results"))]


BOTH = [("lab.h200-x1", 1), ("lab.h200-x1", 2)]


def test_a_folder_becomes_a_named_source_and_pulling_again_changes_nothing(
    pull: Callable[..., Result], theirs: Path
) -> None:
    assert "would be written" in pull(theirs, "--dry-run").output
    assert not Path("results").exists()
    assert "lab.h200-x1  2 new records" in pull(theirs).output
    assert pulled() == BOTH
    assert (
        json.loads(Path("results/lab.h200-x1/machine.json").read_text())["machine"]
        == "lab.h200-x1"
    )
    assert "step.track_time" in json.loads(Path("results/benchmarks.json").read_text())
    assert "0 files written" in pull(theirs).output
    append_record(record_file(theirs / "results", "h200-x1", COMMIT), record(3))
    assert "1 new record\n" in pull(theirs).output


def test_of_a_repository_the_newest_commit_counts_and_nothing_of_it_runs(
    pull: Callable[..., Result],
    theirs: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Neither a filter, nor a hook, nor a link; and no transport that runs a command."""
    marker = tmp_path / "ran"
    (theirs / ".gitattributes").write_text("* filter=evil\n")
    (theirs / "results" / "h200-x1" / "machine-2.json").symlink_to("/etc/hostname")
    (theirs / "run.py").write_text("raise SystemExit")
    config = tmp_path / "gitconfig"
    config.write_text(f'[filter "evil"]\n\tsmudge = touch {marker}\n')
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", str(config))
    make_repository(theirs, "results")
    hook = theirs / ".git" / "hooks" / "post-checkout"
    hook.write_text(f"#!/bin/sh\ntouch {marker}\n")
    hook.chmod(0o755)
    assert (
        "results/h200-x1/machine-2.json: not a file, or larger than 268 MB; ignored"
        in pull(f"file://{theirs}").stderr
    )
    assert pulled() == BOTH
    assert not marker.exists()
    assert (
        sorted(path.name for path in Path("results/lab.h200-x1").glob("*.json"))[-1]
        == "machine.json"
    )
    for address in (
        f"ext::touch {marker}",
        "--upload-pack=touch",
        str(tmp_path / "nowhere"),
    ):
        done = CliRunner().invoke(
            group, ["pull", "--as", "lab", "--", address], standalone_mode=False
        )
        assert "git clone" in str(done.exception) and not marker.exists()


def test_of_several_folders_of_results_the_topmost_counts_and_a_bare_repository_may_be_relative(
    pull: Callable[..., Result], theirs: Path
) -> None:
    for name in ("docs/example/results/h200-x1", "results/my-results"):
        (theirs / name / "records").mkdir(parents=True)
        (theirs / name / "records" / "cccccccc.jsonl").write_bytes(
            encode(record(9, Path(name).name)) + b"\n"
        )
    make_repository(theirs, "results")
    subprocess.run(["git", "clone", "-q", "--bare", str(theirs), "../bare"], check=True)
    pull("../bare")
    assert pulled() == [*BOTH, ("lab.my-results", 9)]


@pytest.mark.parametrize("facts", [{"gpus": 5}, {"os": ""}, {}, {"gpus": [3]}])
def test_facts_of_a_node_that_are_none_leave_the_machine_without(
    pull: Callable[..., Result], theirs: Path, facts: dict[str, object]
) -> None:
    (theirs / "results" / "h200-x1" / "machine.json").unlink()
    file = record_file(theirs / "results", "h200-x1", COMMIT)
    node = {**record().node, **facts} if facts else {}
    file.write_bytes(encode(record(1, node=node)) + b"\n")
    pull(theirs)
    assert json.loads(Path("results/lab.h200-x1/machine.json").read_text()) == {
        "machine": "lab.h200-x1",
        "version": 1,
    }


def test_an_address_that_is_none_ends_in_one_line(pull: Callable[..., Result]) -> None:
    for address, why in (
        ("https://a b/", "index.json: cannot be read"),
        ("http://127.0.0.1:1", "index.json: cannot be read: Connection refused"),
        ("http://[::1", "no address: Invalid IPv6 URL"),
    ):
        done = CliRunner().invoke(
            group, ["pull", address, "--as", "lab"], standalone_mode=False
        )
        assert type(done.exception).__name__ == "HpmlError" and why in str(done.exception)


@pytest.fixture
def serve(tmp_path: Path) -> Iterator[Callable[[dict[str, str | bytes]], str]]:
    """A site on loopback made of these files; returns its address."""
    servers = []

    class Quiet(http.server.SimpleHTTPRequestHandler):
        def log_message(self, format: str, *args: object) -> None:
            pass

    def start(files: dict[str, str | bytes]) -> str:
        folder = tmp_path / f"site-{len(servers)}"
        for name, text in files.items():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            content = text if isinstance(text, bytes) else text.encode()
            (folder / name).write_bytes(content)
        server = http.server.ThreadingHTTPServer(
            ("127.0.0.1", 0), partial(Quiet, directory=str(folder))
        )
        servers.append(server)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        return f"http://127.0.0.1:{server.server_port}/"

    yield start
    for server in servers:
        server.shutdown()
        server.server_close()


def site(*lines: str, path: str = "m/step.jsonl.gz") -> dict[str, str | bytes]:
    index = {"version": 1, "files": [{"path": path}]}
    return {
        "index.json": json.dumps(
            {"benchmarks": {DECLARED["name"]: {**DECLARED, "hpml_machines": ["h200-x1"]}}}
        ),
        "data/v1/index.json": json.dumps(index),
        "data/v1/m/step.jsonl.gz": gzip.compress(
            "".join(f"{each}\n" for each in lines).encode()
        ),
    }


def test_a_published_site_gives_its_records_and_declarations(
    pull: Callable[..., Result],
    serve: Callable[[dict[str, str | bytes]], str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    pull(serve(site(*(encode(record(size)).decode() for size in (1, 2)))))
    assert pulled() == BOTH
    declared = json.loads(Path("results/benchmarks.json").read_text())["step.track_time"]
    assert declared == DECLARED
    facts = json.loads(Path("results/lab.h200-x1/machine.json").read_text())
    assert (facts["gpu"], facts["num_gpu"], facts["os"]) == ("NVIDIA H200", "1", "Linux")


HOSTILE = [
    {},
    {**site(), "index.json": "[1]"},
    {**site(), "data/v1/index.json": '{"version": 2, "files": []}'},
    {**site(), "data/v1/index.json": '{"version": 1, "files": [3]}'},
    {**site(), "data/v1/m/step.jsonl.gz": "import os"},
    {**site(), "data/v1/m/step.jsonl.gz": gzip.compress(b"[]\n" * 9)[:-9]},
    {**site(), "data/v1/m/step.jsonl.gz": gzip.compress(bytes(MAX_FILE + 1))},
    site(path="../../index.json"),
    site(path="m/..%2fstep"),
    site(encode(record(machine="../../etc")).decode()),
    site(encode(record(machine=".git")).decode()),
    site(encode(record(commit="../../x")).decode()),
    site("[]"),
    site("[" * 100_000),
]


@pytest.mark.parametrize("files", HOSTILE, ids=range(len(HOSTILE)))
def test_a_hostile_site_ends_in_one_line_and_writes_nothing(
    tmp_path: Path,
    pull: Callable[..., Result],
    serve: Callable[[dict[str, str | bytes]], str],
    files: dict[str, str | bytes],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    before = sorted(tmp_path.rglob("*"))
    done = CliRunner().invoke(
        group, ["pull", serve(files), "--as", "lab"], standalone_mode=False
    )
    assert type(done.exception).__name__ == "HpmlError" and "\n" not in str(done.exception)
    after = {path for path in tmp_path.rglob("*") if "site-" not in str(path)}
    assert after == set(before)


def test_lines_that_are_no_records_and_records_of_another_machine_are_left_out_and_named(
    pull: Callable[..., Result], theirs: Path
) -> None:
    file = record_file(theirs / "results", "h200-x1", COMMIT)
    with file.open("a") as opened:
        opened.write(
            '{"machine": "h200-x1", "benchmark": 3}\nnot json\n'
            + encode(record(7, "h100-x1")).decode()
            + "\n"
        )
    (theirs / "results" / "h200-x1" / "evil.json").write_text('{"params": []}')
    done = pull(theirs, status=1)
    assert pulled() == BOTH
    assert done.stderr.count("not a complete Record") == 3
    assert "/hpml-pull-" not in done.stderr
    assert "not an asv result file" in done.stderr


def test_a_source_changes_no_declaration_of_ours(
    pull: Callable[..., Result], theirs: Path
) -> None:
    ours = {**DECLARED, "version": "1", "direction": "higher"}
    Path("results").mkdir()
    Path("results/benchmarks.json").write_text(
        json.dumps({DECLARED["name"]: ours, "version": 2})
    )
    stronger = {**DECLARED, "version": "99"}
    (theirs / "results" / "benchmarks.json").write_text(
        json.dumps({DECLARED["name"]: stronger, "version": 2})
    )
    pull(theirs)
    assert json.loads(Path("results/benchmarks.json").read_text())[DECLARED["name"]] == ours


def test_the_project_itself_is_no_source(
    pull: Callable[..., Result], theirs: Path, tmp_path: Path
) -> None:
    pull(theirs)
    before = sorted(Path("results").rglob("*"))
    done = CliRunner().invoke(group, ["pull", "results", "--as=x"], standalone_mode=False)
    assert "has the results to pull into" in str(done.exception)
    assert sorted(Path("results").rglob("*")) == before


def test_a_name_must_be_one(pull: Callable[..., Result], theirs: Path) -> None:
    for name in ("../x", "A", "a.b", "-a"):
        done = CliRunner().invoke(
            group, ["pull", str(theirs), f"--as={name}"], standalone_mode=False
        )
        assert "use lower-case letters" in str(done.exception)
