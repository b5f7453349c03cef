"""What a command says when asv.conf.json is not there or does not hold."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

Hpml = Callable[..., subprocess.CompletedProcess[str]]
Write = Callable[[str, str], Path]


@pytest.mark.parametrize("command", ["publish", "submit"])
def test_without_a_configuration_the_project_is_asked_for(
    hpml: Hpml, write: Write, command: str
) -> None:
    write("registry.yaml", "version: 1\nplugins: []\n")
    done = hpml(command)
    assert done.returncode == 2
    (line,) = done.stderr.splitlines()
    assert line.endswith(
        "asv.conf.json: no such file; run this in the project's folder, or make one: hpml init"
    )


@pytest.mark.parametrize(
    ("text", "told"), [("{", "asv.conf.json"), ('{"version": 99}', "version")]
)
def test_a_configuration_that_does_not_hold_is_one_line(
    hpml: Hpml, write: Write, text: str, told: str
) -> None:
    write("registry.yaml", "version: 1\nplugins: []\n")
    written = write("asv.conf.json", text)
    done = hpml("publish")
    assert done.returncode == 2
    (line,) = done.stderr.splitlines()
    assert told in line
    assert not (written.parent / "html").exists()
