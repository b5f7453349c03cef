"""Commands of the core and of the tools: listed without importing them, and a folder of tools is
all that there is of one."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import click
import pytest
from support import ROOT

from hpml_plugins.cli import LazyCommand, group

TOOLS = ROOT / "hpml_plugins" / "tools"
#: What importing a command's module brings, and listing the commands must not.
HEAVY = ("asv", "scipy", "numpy", "jinja2", "submitit", "msgspec", "hpml_plugins.host")
LISTING = f"""
import sys
from hpml_plugins.cli import group
try:
    group.main(["--help"], prog_name="hpml")
finally:
    print([name for name in {HEAVY} if name in sys.modules])
"""


def names() -> list[str]:
    return group.list_commands(click.Context(group))


@pytest.mark.parametrize("name", names())
def test_the_list_of_commands_says_what_the_help_of_each_begins_with(name: str) -> None:
    lazy = group.get_command(click.Context(group), name)
    assert isinstance(lazy, LazyCommand)
    command = lazy.load()
    assert command.name == name
    assert lazy.get_short_help_str(500) == command.get_short_help_str(500)


def test_the_list_of_commands_imports_none_of_them() -> None:
    done = subprocess.run(
        [sys.executable, "-c", LISTING],
        capture_output=True,
        text=True,
        check=True,
        cwd=ROOT,
    )
    assert done.stdout.splitlines()[-1] == "[]"
    assert "  gate " in done.stdout


@pytest.mark.parametrize("name", ["gate", "cluster", "doctor"])
def test_a_deleted_folder_of_tools_takes_its_commands_and_no_others(
    name: str, tmp_path: Path
) -> None:
    """The others still import: no tool stands on one of these."""
    package = tmp_path / "hpml_plugins"
    shutil.copytree(
        ROOT / "hpml_plugins", package, ignore=shutil.ignore_patterns("__pycache__")
    )
    shutil.rmtree(package / "tools" / name)
    code = (
        "import click; from hpml_plugins.cli import group; context = click.Context(group);"
        " print([n for n in group.list_commands(context) if group.get_command(context, n).load()])"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        check=False,
        cwd=tmp_path,
    )
    several = {"cluster": {"submit", "jobs"}, "gate": {"gate", "comment"}}
    gone = several.get(name, {name})
    assert done.stderr == ""
    assert done.stdout.strip() == str([each for each in names() if each not in gone])


def hpml(folder: Path, *args: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "hpml_plugins", *args],
        capture_output=True,
        text=True,
        check=False,
        cwd=folder,
        timeout=120,
    )


def test_a_command_that_is_not_there_is_named_with_the_nearest(tmp_path: Path) -> None:
    for wrong, right in (("gaet", "gate"), ("rnu", "run")):
        done = hpml(tmp_path, wrong)
        assert done.returncode == 2
        assert done.stderr == f"hpml: no command {wrong!r}; did you mean {right!r}?\n"
    assert hpml(tmp_path, "--gaet").stderr.endswith("; see hpml --help\n")


def test_without_a_command_the_help_is_printed_and_nothing_was_done(tmp_path: Path) -> None:
    asked = hpml(tmp_path, "--help")
    for options in ((), ("--debug",)):
        done = hpml(tmp_path, *options)
        assert (done.returncode, done.stdout, done.stderr) == (2, "", asked.stdout)
    assert "\n  list " in asked.stdout


@pytest.mark.parametrize("name", names())
def test_every_command_takes_debug_after_its_name(name: str) -> None:
    lazy = group.get_command(click.Context(group), name)
    assert isinstance(lazy, LazyCommand)
    commands = [lazy.load()]
    for command in commands:  # it grows
        commands += command.commands.values() if isinstance(command, click.Group) else []
        assert [param.opts for param in command.params].count(["--debug"]) == 1


def test_debug_shows_the_traceback_wherever_it_stands(tmp_path: Path) -> None:
    (tmp_path / "registry.yaml").write_text("version: 7\n")
    for words in (["--debug", "list"], ["list", "--debug"]):
        done = hpml(tmp_path, *words)
        assert done.returncode == 2 and "Traceback" in done.stderr
    assert "Traceback" not in hpml(tmp_path, "list").stderr


@pytest.mark.parametrize(("words", "status"), [("list", 0), ("list --profile nosuch", 2)])
def test_who_stops_reading_changes_no_exit_status(
    words: str, status: int, tmp_path: Path
) -> None:
    (tmp_path / "registry.yaml").write_text("version: 1\nplugins: []\n")
    shell = f"({sys.executable} -m hpml_plugins {words} 2>&1; echo $? >status) | true"
    subprocess.run(["sh", "-c", shell], cwd=tmp_path, check=True)
    assert (tmp_path / "status").read_text() == f"{status}\n"


def test_a_thread_that_never_ends_does_not_keep_the_command(tmp_path: Path) -> None:
    (tmp_path / "registry.yaml").write_text(
        "version: 1\nplugins:\n  - {name: waiting, path: waiting.py}\n"
    )
    (tmp_path / "waiting.py").write_text(
        "import threading\n"
        "from hpml_plugins import Benchmark, Metric, hookimpl\n"
        "threading.Thread(target=threading.Event().wait).start()\n"
        "@hookimpl\n"
        "def hpml_benchmarks():\n"
        "    measure = lambda bench: {'time': 1.0}\n"
        "    return [Benchmark('waits', measure, [Metric('time', 's', 'lower')])]\n"
    )
    done = hpml(tmp_path, "run", "waiting")
    assert done.returncode == 0 and "waits" in done.stdout


def test_a_closed_output_is_no_fault(tmp_path: Path) -> None:
    for words, status in (("list", 0), ("nosuch", 2)):
        (tmp_path / "registry.yaml").write_text("version: 1\nplugins: []\n")
        shell = f"{sys.executable} -m hpml_plugins {words} >&-"
        done = subprocess.run(
            ["sh", "-c", shell], cwd=tmp_path, capture_output=True, text=True, check=False
        )
        assert done.returncode == status, done.stderr
        assert "Traceback" not in done.stderr
