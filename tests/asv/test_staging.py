"""A site is published whole or not at all: the one before it stays, whatever ends `publish`."""

from __future__ import annotations

import json
import os
import re
import resource
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from repositories import git, make_repository
from support import DRAWN, PATIENCE, wait_for

from hpml_plugins import HpmlError
from hpml_plugins.asv.configuration import write_configuration
from hpml_plugins.report.site.manifest import NAME, complete_manifest, write_manifest
from hpml_plugins.store import atomic_write

RECORD = {
    "schema": 1,
    "benchmark": "toy",
    "plugin": "toy",
    "version": "1",
    "params": {"size": 10},
    "status": "ok",
    "metrics": {"time": {"unit": "s", "direction": "lower", "samples": [1.0, 1.1, 1.2]}},
    "started": 1.7e9,
    "machine": "m1",
    "commit": "a" * 40,
    "environment": "existing-py3.11",
    "run": "r" * 32,
}
DECLARATION = {
    "benchmark": "toy",
    "metric": "time",
    "name": "toy.track_time",
    "param_names": ["size"],
    "params": [["10", "1000"]],
    "plugin": "toy",
    "timeout": 60.0,
    "type": "track",
    "unit": "s",
    "version": "1",
}
#: Holds `publish` up while it draws, until the file is gone.
SLOW = """
import pathlib, time
while pathlib.Path("hold").exists():
    pathlib.Path("drawing").touch()
    time.sleep(0.05)
"""
HOLD = "def table(records):\n"


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A registry with one plugin, and one Record of it."""
    folder = tmp_path / "results" / "m1"
    (folder / "records").mkdir(parents=True)
    (folder / "machine.json").write_text('{"machine": "m1", "version": 1}')
    (folder / "records" / "aaaaaaaa.jsonl").write_text(json.dumps(RECORD) + "\n")
    declared = {"toy.track_time": DECLARATION, "version": 2}
    (tmp_path / "results" / "benchmarks.json").write_text(json.dumps(declared))
    write_configuration(tmp_path, Path("html"))
    held = DRAWN.replace(
        HOLD, HOLD + "".join(f"    {line}\n" for line in SLOW.splitlines()), 1
    )
    (tmp_path / "toy.py").write_text(held)
    (tmp_path / "registry.yaml").write_text(
        "version: 1\nplugins:\n  - {name: toy, path: toy.py}\n"
    )
    return tmp_path


def start(
    project: Path, prepare: Callable[[], None] | None = None
) -> subprocess.Popen[str]:
    """Begin to publish the site of a project."""
    return subprocess.Popen(
        [sys.executable, "-m", "hpml_plugins", "publish"],
        cwd=project,
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        preexec_fn=prepare,
    )


def publish(project: Path, prepare: Callable[[], None] | None = None) -> tuple[int, str]:
    """Publish the site of a project; the exit status and what was said."""
    command = start(project, prepare)
    said, _ = command.communicate(timeout=PATIENCE)
    return command.returncode, said


def contents(folder: Path) -> dict[str, bytes]:
    """Every file."""
    return {
        path.relative_to(folder).as_posix(): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file()
    }


def beside(project: Path) -> list[str]:
    """What publishing has left beside the site."""
    return [path.name for path in project.iterdir() if path.name.startswith(".")]


def test_a_site_has_a_manifest_of_all_its_files(project: Path) -> None:
    status, said = publish(project)
    assert status == 0, said
    found = contents(project / "html")
    manifest = json.loads(found.pop(NAME))
    assert manifest["files"] == {name: len(content) for name, content in found.items()}
    assert set(manifest["expected"]) <= found.keys()
    assert {"index.html", "asv.html", "index.json", "workload-toy.html"} <= set(
        manifest["expected"]
    )
    assert beside(project) == []


def test_a_relative_folder_is_one_of_where_the_command_was_called(
    project: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    here = tmp_path_factory.mktemp("elsewhere")
    words = ["publish", "--results", str(project / "results"), "-o", "site"]
    command = [sys.executable, "-m", "hpml_plugins", *words]
    done = subprocess.run(command, cwd=here, text=True, capture_output=True)
    assert done.returncode == 0, done.stderr
    assert (here / "site" / "index.html").exists()
    assert f"file://{here}/site/index.html" in done.stdout + done.stderr


#: What a plugin does when it is imported; each ends in a plugin that cannot be loaded.
BROKEN = (
    "raise RuntimeError('no such thing')",
    "import no_such_module",
    pytest.param("import os; os.closerange(3, 256)", marks=pytest.mark.slow),
    pytest.param(
        "import resource; resource.setrlimit(resource.RLIMIT_NOFILE, (12, 12))",
        marks=pytest.mark.slow,
    ),
)


@pytest.mark.parametrize("code", BROKEN)
def test_a_plugin_that_cannot_be_loaded_is_named_each_time(
    code: str, project: Path
) -> None:
    """The site lacks its figures."""
    (project / "bad.py").write_text(code)
    with (project / "registry.yaml").open("a") as registry:
        registry.write("  - {name: bad, path: bad.py}\n")
    make_repository(project)
    for _ in range(2):
        status, said = publish(project)
        assert status == 0, said
        assert said.count("plugin 'bad' cannot be loaded: ") == 1, said
    (project / "bad.py").unlink()
    (project / "bad.py").write_text(DRAWN.replace("toy", "good"))
    assert "plugin 'bad'" not in publish(project)[1]


def test_a_site_stays_as_it_is_until_something_changes(project: Path) -> None:
    make_repository(project)
    git(project, "add", ".")
    git(project, "commit", "-qm", "first")
    # a Record that cannot be read is named each time
    (project / "results" / "m1" / "records" / "bbbbbbbb.jsonl").write_text("{]\n")
    status, first = publish(project)
    assert status == 0 and "Publishing into" in first and "bbbbbbbb" in first, first
    site, before = project / "html", (project / "html").stat()
    status, second = publish(project)
    assert status == 0 and f"Nothing has changed since {site} was published" in second
    assert "bbbbbbbb" in second and second.splitlines()[-1] == first.splitlines()[-1]
    assert site.stat().st_ino == before.st_ino
    for address in ("badge.svg", "index.json"):
        (site / address).unlink()
        assert "Publishing into" in publish(project)[1]
        assert (site / address).exists()
    assert (
        "Publishing into" in publish(project, lambda: os.environ.update(HPML_DATA="/d"))[1]
    )


def test_a_publish_that_fails_leaves_the_site_before_it(project: Path) -> None:
    assert publish(project)[0] == 0
    before = contents(project / "html")
    limit = 100_000  # B: less than the script that draws charts has

    def limited() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)

    status, said = publish(project, limited)
    assert status == 2, said
    assert said.splitlines()[-1].startswith("hpml: ")
    assert contents(project / "html") == before
    assert beside(project) == []


def test_an_invalid_registry_ends_publish_and_leaves_the_site_before_it(
    project: Path,
) -> None:
    assert publish(project)[0] == 0
    before = contents(project / "html")
    registry = project / "registry.yaml"
    registry.write_text("version: 1\nplugin: []\n")
    status, said = publish(project)
    assert status == 2, said
    assert said.splitlines()[-1].startswith("hpml: registry.yaml:2: unknown key 'plugin'")
    assert contents(project / "html") == before
    registry.unlink()  # as for a suite of asv's own
    status, said = publish(project)
    assert status == 0 and "no pages of plugins: " in said, said


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP, signal.SIGKILL])
def test_a_publish_that_is_ended_leaves_the_site_before_it(
    number: signal.Signals, project: Path
) -> None:
    for name in ("index.html", "asv.js"):
        atomic_write(project / "html" / name, b"the site before")
    (project / "hold").touch()
    command = start(project, lambda: signal.signal(signal.SIGHUP, signal.SIG_DFL) and None)
    wait_for(
        lambda: (project / "drawing").exists() or command.poll() is not None, "a figure"
    )
    command.send_signal(number)
    assert command.wait(PATIENCE) not in (0, None)
    before = dict.fromkeys(("index.html", "asv.js"), b"the site before")
    assert contents(project / "html") == before
    if number != signal.SIGKILL:
        assert beside(project) == []
    (project / "hold").unlink()
    status, said = publish(project)
    assert status == 0, said
    assert "workload-toy.html" in contents(project / "html")
    assert beside(project) == []


#: Characters that turn the direction of text.
TURNING = "\u061c\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069"


def test_no_file_of_a_site_has_text_that_is_turned(project: Path) -> None:
    turned = "".join(f"a{each}b" for each in TURNING)
    machine = {"machine": "m1", "version": 1, "cpu": turned, "os": turned, "gpu": turned}
    (project / "results" / "m1" / "machine.json").write_text(json.dumps(machine))
    description = {"description": turned, "pretty_source": turned, "code": turned}
    declared = {"toy.track_time": {**DECLARATION, **description}, "version": 2}
    (project / "results" / "benchmarks.json").write_text(json.dumps(declared))
    record = {
        **RECORD,
        "warnings": [turned],
        "checks": [turned],
        "node": {"cpu": turned, "os": turned, "arch": turned, "host": turned},
        "packages": {turned: turned},
    }
    file = project / "results" / "m1" / "records" / "aaaaaaaa.jsonl"
    file.write_text(json.dumps(record) + "\n")
    text = (
        (project / "toy.py")
        .read_text()
        .replace('"size", log=True', f'"size {turned}", log=True', 1)
    )
    (project / "toy.py").write_text(text.replace("label=machine", f'label="{turned}"'))
    status, said = publish(project)
    assert status == 0, said
    assert not any(each in said for each in TURNING)
    seen = 0
    for name, content in contents(project / "html").items():
        if name.endswith((".json", ".html", ".xml", ".svg", ".csv", "points.js", "0.js")):
            shown = content.decode()
            escaped = re.search(r"\\u(061c|200[ef]|202[a-e]|206[6-9])", shown)
            assert not escaped, name
            assert not any(each in shown for each in TURNING), name
            seen += "[U+202E]" in shown
    assert seen >= 3


@pytest.mark.parametrize("home", ["/home/somebody", "/root", "/Users/some.body"])
def test_no_page_names_a_home_folder(home: str, project: Path) -> None:
    said = f"in {home}/code/toy.py: wrong; see https://example.org/home/other/page"
    record = {**RECORD, "status": "failed", "reason": said, "output": said, "metrics": {}}
    records = project / "results" / "m1" / "records"
    (records / "bbbbbbbb.jsonl").write_text(
        json.dumps({**record, "commit": "b" * 40}) + "\n"
    )
    text = (project / "toy.py").read_text()
    raising = (
        f"def table(records):\n    raise ValueError({said!r})\n\ndef unused(records):\n"
    )
    (project / "toy.py").write_text(text.replace("def table(records):\n", raising, 1))
    status, output = publish(project)
    assert status == 0, output
    found = contents(project / "html")
    named = [name for name, content in found.items() if f"{home}/".encode() in content]
    assert named == []
    page = found["workload-toy.html"].decode()
    assert "in ~/code/toy.py" in page
    assert "https://example.org/home/other/page" in page


def test_a_link_to_a_site_stays_one(project: Path) -> None:
    (project / "elsewhere").mkdir()
    (project / "html").symlink_to("elsewhere")
    assert publish(project)[0] == 0
    assert (project / "html").readlink() == Path("elsewhere")
    assert (project / "elsewhere" / "index.html").is_file()


@pytest.mark.parametrize(
    ("damage", "named"),
    [
        (lambda site: (site / "a.html").unlink(), "a.html"),
        (lambda site: (site / "a.html").write_text(""), "a.html"),
        (lambda site: (site / "index.json").write_text("{}"), "index.json"),
        (
            lambda site: (site / "index.json").write_text('{"benchmarks": {}}'),
            "toy.track_time",
        ),
        (lambda site: (site / "index.json").write_text('{"benchm'), "index.json"),
        (lambda site: (site / "info.json").unlink(), "info.json"),
        (lambda site: (site / NAME).unlink(), NAME),
        (lambda site: (site / NAME).write_text("[]"), NAME),
    ],
)
def test_a_site_that_is_not_whole_is_refused(
    damage: Callable[[Path], object], named: str, tmp_path: Path
) -> None:
    (tmp_path / "a.html").write_text("a")
    (tmp_path / "info.json").write_text("{}")
    (tmp_path / "index.json").write_text('{"benchmarks": {"toy.track_time": {}}}')
    write_manifest(tmp_path, ["a.html"], ["toy.track_time"])
    complete_manifest(tmp_path)
    damage(tmp_path)
    with pytest.raises(HpmlError, match=f"the site is incomplete.*: {named} missing"):
        complete_manifest(tmp_path)
