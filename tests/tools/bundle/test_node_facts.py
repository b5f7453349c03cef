"""The facts that a node reports, and those that are refused."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from hpml_plugins.errors import UsageError
from hpml_plugins.tools.bundle.packages import (
    NodeFacts,
    assume_node,
    read_node,
    request_packages,
)

Hpml = Callable[..., subprocess.CompletedProcess[str]]
TOLD = NodeFacts(1, "3.12.3", "cp312", "x86_64", "glibc 2.39", {"torch": "2.11.0"})


def test_the_script_that_is_printed_tells_a_bare_python_what_it_is(
    hpml: Hpml, tmp_path: Path
) -> None:
    script = hpml("bundle", "--ask").stdout
    # -I -S: no packages, no folder of this project
    done = subprocess.run(
        [sys.executable, "-I", "-S", "-"],
        input=script,
        capture_output=True,
        text=True,
        check=True,
    )
    (tmp_path / "node.json").write_text(done.stdout)
    node = read_node(tmp_path / "node.json")
    assert node.minor == f"{sys.version_info[0]}.{sys.version_info[1]}"
    assert node.packages == {}


def test_packages_of_an_earlier_bundle_are_not_the_nodes_own(tmp_path: Path) -> None:
    (tmp_path / "Odd_Name-1.5.dist-info").mkdir()
    (tmp_path / "Odd_Name-1.5.dist-info" / "METADATA").write_text(
        "Metadata-Version: 2.1\nName: Odd_Name\nVersion: 1.5\n"
    )
    command = [sys.executable, "-m", "hpml_plugins.tools.bundle.ask_node"]
    for env, version in (({}, "1.5"), ({"HPML_BUNDLE_SITE": str(tmp_path)}, None)):
        done = subprocess.run(
            command,
            env={"PYTHONPATH": str(tmp_path), **env},
            capture_output=True,
            check=True,
        )
        assert json.loads(done.stdout)["packages"].get("odd-name") == version


def test_facts_from_the_command_line() -> None:
    node = assume_node("3.12", "manylinux_2_28_x86_64", ["torch", "Odd_Name==1.5"])
    assert node == NodeFacts(
        1, "3.12", "cp312", "x86_64", "glibc 2.28", {"torch": "", "odd-name": "1.5"}
    )
    assert (node.minor, node.glibc) == ("3.12", (2, 28))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "{}",
            (
                "node.json: not the facts of a node (Object missing required field `hpml_node`);"
                " ask it:"
            ),
        ),
        (
            "[]",
            (
                "node.json: not the facts of a node (Expected `object`, got `array`); ask it: hpml"
                " bundle"
            ),
        ),
        (json.dumps({"findings": []}), "not the facts of a node"),
    ],
)
def test_a_file_without_a_nodes_facts_is_named(
    tmp_path: Path, text: str, message: str
) -> None:
    (tmp_path / "node.json").write_text(text)
    with pytest.raises(UsageError, match=re.escape(message)):
        read_node(tmp_path / "node.json")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            {"abi": "pypy310"},
            "the node's Python is pypy310; packages are built for standard CPython",
        ),
        ({"abi": "cp313t"}, "the node's Python is cp313t"),
        ({"libc": ""}, "the node is x86_64 with a C library that is not glibc"),
        ({"libc": "glibc 2.12"}, "the node is x86_64 with glibc 2.12"),
        (
            {"packages": {"torch\n--index-url http://evil.example": "1"}},
            r"torch\n--index-url http://evil.example' is no name",
        ),
        (
            {"packages": {"x @ file:///etc/passwd": ""}},
            "'x @ file:///etc/passwd' is no name of a package; remove it",
        ),
        ({"packages": {"-r/etc/passwd": "1.0"}}, "'-r/etc/passwd' is no name of a package"),
        ({"packages": {"--no-index": ""}}, "'--no-index' is no name of a package"),
        ({"packages": {"torch\n": "2.11"}}, "is no name of a package"),
        ({"packages": {"": "1"}}, "'' is no name of a package"),
        ({"packages": {"x" * 9999: "1"}}, "is no name of a package"),
        ({"machine": "ppc64le"}, "the node is ppc64le with glibc 2.39"),
    ],
)
def test_a_node_that_no_package_is_built_for_is_refused(
    tmp_path: Path, change: dict[str, object], message: str
) -> None:
    import msgspec

    (tmp_path / "node.json").write_bytes(
        msgspec.json.encode(msgspec.structs.replace(TOLD, **change))
    )
    with pytest.raises(UsageError, match=re.escape(message)):
        read_node(tmp_path / "node.json")


def test_a_version_cannot_become_a_line_of_its_own(tmp_path: Path) -> None:
    (tmp_path / "pyproject.toml").write_text("[project]\ndependencies = []\n")
    facts = NodeFacts(
        1,
        "3.12.3",
        "cp312",
        "x86_64",
        "glibc 2.39",
        {"torch": "2.11\n", "numpy": " 2.1 \n\n"},
    )
    assert request_packages(tmp_path, facts).preferred == {"numpy": "2.1"}


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (
            [],
            "hpml: either --node, or --python with --platform and --has; ask it: hpml bundle --ask",
        ),
        (["--node", "n.json", "--has", "torch"], "either --node, or --python"),
        (
            ["--node", "n.json"],
            "hpml: n.json: No such file or directory; ask it: hpml bundle --ask",
        ),
        (
            ["--python", "3.x"],
            (
                "'3.x' on 'manylinux_2_28_x86_64' is not the Python and platform of a node; for"
                " example --python 3.12"
            ),
        ),
        (
            ["--python", "3.12", "--platform", "win_amd64"],
            "'3.12' on 'win_amd64' is not the Python and platform of a node",
        ),
        (
            ["--python", "3.12"],
            "pyproject.toml: No such file or directory; run hpml bundle in the project's folder",
        ),
    ],
)
def test_wrong_words_end_in_one_line(hpml: Hpml, args: list[str], message: str) -> None:
    done = hpml("bundle", *args)
    assert (done.returncode, done.stdout) == (2, "")
    assert message in done.stderr
    assert done.stderr.count("\n") == 1
