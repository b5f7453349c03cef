"""What the README tells a reader to type exists, and its plugin runs."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import textwrap
from collections.abc import Callable
from pathlib import Path

import pytest
from asv.commands import make_argparser
from click import Context
from click.testing import CliRunner
from support import ROOT

from hpml_plugins.cli import group
from hpml_plugins.model.serialization import decode

README = (ROOT / "README.md").read_text()
PAGES = README + (ROOT / "docs" / "commands.md").read_text()
BLOCKS = [
    textwrap.dedent(block)
    for block in re.findall(r"(?:^    .*\n|^\n(?=    ))+", PAGES, re.MULTILINE)
]
COMMANDS = [
    line.partition("#")[0].split()
    for block in BLOCKS
    for line in block.splitlines()
    if re.match(r"(HPML_\w+=\w+ )?(asv|hpml|make) ", line)
]


def test_the_plugin_of_the_readme_runs_as_it_stands(
    write: Callable[[str, str], Path], hpml: Callable[..., subprocess.CompletedProcess[str]]
) -> None:
    (code,) = [block for block in BLOCKS if "hpml_benchmarks" in block]
    (line,) = [block for block in BLOCKS if "path: softmax.py" in block]
    assert len([row for row in code.splitlines() if row.strip()]) <= 20
    write("softmax.py", code)
    write("registry.yaml", f"version: 1\nplugins:\n  {line.strip()}\n")
    done = hpml("run", "softmax", "-p", "cols=256", "--json")
    record = decode(done.stdout.encode())
    assert (record.status, set(record.metrics)) == ("ok", {"time", "bandwidth"})
    seconds, speed = (
        record.metrics["time"].samples[0],
        record.metrics["bandwidth"].samples[0],
    )
    assert speed == pytest.approx(2 * 1024 * 256 * 4 / seconds)


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_every_command_of_the_readme_is_one(command: list[str]) -> None:
    words = [word for word in command if "=" not in word or not word.startswith("HPML_")]
    if words[0] == "make":
        assert re.search(rf"^{words[1]}:", (ROOT / "Makefile").read_text(), re.MULTILINE)
    elif words[0] == "asv":
        make_argparser()[0].parse_args(words[1:])
    else:
        assert CliRunner().invoke(group, [*words[1:2], "--help"]).exit_code == 0


def test_the_readme_has_its_commands() -> None:
    assert {tuple(command) for command in COMMANDS} >= {
        ("make", "bench"),
        ("make", "test"),
        ("asv", "publish"),
    }
    assert {command[1] for command in COMMANDS if command[0] == "hpml"} == set(
        group.list_commands(Context(group))
    )


def test_the_machines_of_the_readme_are_compared_from_the_results_here() -> None:
    (command,) = {
        tuple(command) for command in COMMANDS if command[:2] == ["hpml", "compare"]
    }
    registry = [
        "--registry",
        str(ROOT / "registry.yaml"),
        "compare",
        "--results",
        str(ROOT / "results"),
    ]
    done = CliRunner().invoke(group, [*registry, *command[2:]], standalone_mode=False)
    assert done.exception is None and "roof_copy" in done.output


def test_the_readme_fits_two_screens_with_a_small_picture() -> None:
    assert len(README.splitlines()) <= 105
    (picture,) = re.findall(r"!\[.*\]\((.*)\)", README)
    assert (ROOT / picture).stat().st_size < 150_000


def test_the_results_of_the_readme_are_quoted_from_records() -> None:
    rows = re.findall(
        r"^\| .* \| <!--= value (\w+)\.\w+ machine=(\S+) .*<!--/-->.* \| `(\w+)`, (\S+) \|$",
        README,
        re.MULTILINE,
    )
    assert len(rows) == 3
    assert all(
        (benchmark, machine) == (named, on) for benchmark, machine, named, on in rows
    )


def test_every_file_that_the_docs_link_to_is_there() -> None:
    for page in [ROOT / "README.md", *(ROOT / "docs").glob("*.md")]:
        for target in re.findall(r"\]\(([^)#:]+)\)", page.read_text()):
            assert (page.parent / target).exists(), f"{page.name} links to {target}"


def test_the_two_commands_are_in_ci() -> None:
    assert "make test" in (ROOT / ".ci" / "run").read_text()
    assert json.loads((ROOT / "asv.conf.json").read_text())["environment_type"] == "node"
    assert sys.version_info >= (3, 11)
