"""Whatever a plugin does, imported or measured, another plugin's points come out as they do without
it."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from asv_project import Project

from hpml_plugins.model.record import Record
from hpml_plugins.model.serialization import decode
from hpml_plugins.store import read_file

HERE = Path(__file__).parent
AT_IMPORT = sorted(path.stem for path in HERE.glob("at_import_*.py"))
#: what the plugin does when imported → what its error says
FATAL = {
    "at_import_exits": "the process that imported it ended with exit status 7",
    "at_import_crashes": "the process that imported it died of SIGSEGV (segmentation fault)",
    "at_import_hangs": (
        "was not done after 5 s (HPML_IMPORT_LIMIT gives it longer) in <module>"
        " (at_import_hangs.py:"
    ),
}
MEMORY = "MemoryError (measuring.py:N: bytearray(size))"
#: how a point misbehaves → how its Record says so, N for the line; the others are measured
FAULTS = {
    "crash": (
        "died of SIGSEGV (segmentation fault) in string_at (__init__.py:N) of crash"
        " (measuring.py:N)"
    ),
    "hang": "timed out after 5 s in hang (measuring.py:N)",
    "end": "ended with exit status 5 before it reported",
    "leave": "ended with exit status 6 before it reported",
    "raise_an_error": 'ValueError: on purpose (measuring.py:N: raise ValueError("on purpose"))',
    "abort": "died of SIGABRT (aborted) in abort (measuring.py:N)",
    "fork_without_end": "more than 30 processes at once (HPML_PROCESS_LIMIT sets another limit)",
    # or the kernel's end of it, where it promises more than it has
    "allocate_a_hundred_gigabytes": MEMORY,
    "return_nan": "metric 'zero' is not finite: nan (measuring.py:N)",
    "return_text": "metric 'zero' is a str, not Samples or a number (measuring.py:N)",
    "return_another_metric": (
        "measure returned speed, which is not a metric of 'misbehaves'; known: zero"
        " (measuring.py:N)"
    ),
    "find_a_wrong_result": "check failed: the sum differs",
}
PROMISED = "died of SIGKILL (killed, perhaps for want of memory)"

Hpml = Callable[..., subprocess.CompletedProcess[str]]


def set_up(folder: Path, names: list[str]) -> None:
    lines = ["version: 1", "plugins:"]
    for name in [*names, "victim"]:
        shutil.copy(HERE / f"{name}.py", folder)
        lines.append(f"  - {{name: {name}, path: {name}.py, sampling: {{budget: 0.05}}}}")
    (folder / "registry.yaml").write_text("\n".join(lines) + "\n")


def records(output: str) -> list[Record]:
    return [decode(line.encode()) for line in output.splitlines()]


def untouched(found: list[Record]) -> bool:
    assert [(record.status, record.reason) for record in found] == [("ok", "")] * 2
    # asv run measures points in random order
    assert {record.params["size"] for record in found} == {1000, 2000}
    return True


@pytest.fixture(scope="module")
def beside_all(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder whose registry has every plugin that misbehaves when imported, and the victim
    last."""
    folder = tmp_path_factory.mktemp("all")
    set_up(folder, [*AT_IMPORT, "measuring"])
    return folder


def run(folder: Path, *args: str) -> subprocess.CompletedProcess[str]:
    import sys

    env = {**os.environ, "HPML_IMPORT_LIMIT": "5", "HPML_PROCESS_LIMIT": "30"}
    command = [sys.executable, "-m", "hpml_plugins", *args]
    return subprocess.run(
        command,
        cwd=folder,
        env=env,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )


def test_all_at_once_are_listed_with_what_the_fatal_ones_did(beside_all: Path) -> None:
    done = run(beside_all, "list", "--json")
    # stdout is JSON: nobody's prints are in it
    rows = {row["plugin"]: row for row in json.loads(done.stdout)}
    assert set(rows) == {*AT_IMPORT, "measuring", "victim"}
    assert {name for name, row in rows.items() if "broken" in row} == set(FATAL)
    for name, said in FATAL.items():
        assert said in rows[name]["broken"]
        assert "registry.yaml:" in rows[name]["broken"]


def test_a_point_is_untouched_by_what_others_did_when_imported(beside_all: Path) -> None:
    done = run(beside_all, "run", "victim", "--json")
    assert done.returncode == 0, done.stderr
    assert untouched(records(done.stdout))


def test_points_that_misbehave_cost_themselves_and_nothing_outlives_them(
    beside_all: Path,
) -> None:
    found = {
        str(record.params["way"]): record
        for record in records(run(beside_all, "run", "misbehaves", "--json").stdout)
    }
    said = faults(list(found.values()))
    assert said == FAULTS
    # the harness has clocks of its own
    assert found["turn_the_clock_back"].status == "ok"
    print(
        f"{len(found)} ways to misbehave: {len(said)} ended in a failed record with their reason,"
        " the others unharmed"
    )
    for way in ("leave_processes", "leave_a_daemon"):
        assert found[way].warnings == [
            "the benchmark left processes behind; they were ended"
        ]
    assert not [line for line in commands() if "time.sleep(3600)" in line]


def faults(found: list[Record]) -> dict[str, str]:
    """How the points that failed say why."""
    said = {
        str(record.params["way"]): re.sub(r"\.py:\d+", ".py:N", record.reason)
        for record in found
        if record.status != "ok"
    }
    if said.get("allocate_a_hundred_gigabytes") == PROMISED:
        said["allocate_a_hundred_gigabytes"] = MEMORY
    return said


def commands() -> list[str]:
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            found.append(path.read_bytes().replace(b"\0", b" ").decode(errors="replace"))
        except OSError:
            continue
    return found


@pytest.mark.slow
def test_under_asv_run_the_victims_points_are_untouched_too(
    make_project: Callable[[str], Project],
) -> None:
    project = make_project("version: 1\nplugins: []\n")
    set_up(project.path, [*AT_IMPORT, "measuring"])
    project.commit("misbehaving")
    done = project.asv(
        "run",
        "--bench",
        "victim|misbehaves",
        HPML_IMPORT_LIMIT="5",
        HPML_PROCESS_LIMIT="30",
    )
    assert "SIGSEGV" in done.stdout + done.stderr
    (folder,) = [path.parent for path in project.path.glob("results/*/machine.json")]
    found = [
        record for path in folder.glob("records/*.jsonl") for record in read_file(path)
    ]
    assert untouched([record for record in found if record.benchmark == "victim"])
    assert (
        faults([record for record in found if record.benchmark == "misbehaves"]) == FAULTS
    )
    result = json.loads(next(iter(folder.glob("*-node-*.json"))).read_text())
    row = dict(
        zip(result["result_columns"], result["results"]["victim.track_time"], strict=False)
    )
    assert all(value > 0 for value in row["result"])
