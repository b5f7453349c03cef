"""The installer on nodes that are not the one the bundle was made for."""

from __future__ import annotations

import re
import subprocess
import tarfile
from importlib import resources
from pathlib import Path
from typing import Any

import pytest

from hpml_plugins.tools.bundle.install import _Refused, check

MANIFEST = {
    "abi": "cp312",
    "machine": "x86_64",
    "libc": "glibc 2.28",
    "counts_on": ["numba", "torch"],
}
NODE = {
    "python": "3.12.3",
    "abi": "cp312",
    "machine": "x86_64",
    "libc": "glibc 2.39",
    "packages": {"torch": "", "numba": ""},
}


def test_a_newer_c_library_is_fine() -> None:
    check(MANIFEST, NODE, "python3")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            {"abi": "cp311", "python": "3.11.7"},
            "made for cp312, and py is cp311 (Python 3.11.7); name another with",
        ),
        (
            {"machine": "aarch64"},
            "made for x86_64 with glibc 2.28, and this node is aarch64 with glibc 2.39; make one",
        ),
        ({"libc": "glibc 2.9"}, "this node is x86_64 with glibc 2.9"),
        ({"libc": ""}, "this node is x86_64 with another C library"),
        (
            {"packages": {"numba": ""}},
            "py has no torch; name the Python that has it with --python PATH, or make",
        ),
    ],
)
def test_another_node_is_refused_with_the_difference(
    change: dict[str, Any], message: str
) -> None:
    with pytest.raises(_Refused, match=re.escape(message)):
        check(MANIFEST, {**NODE, **change}, "py")


@pytest.fixture
def script(tmp_path: Path) -> Path:
    """The shell part with an archive of one empty folder behind it: all that comes before the
    Python part."""
    text = resources.files("hpml_plugins.tools.bundle").joinpath("install.sh").read_text()
    path = tmp_path / "bundle.sh"
    with path.open("wb") as file:
        file.write(text.replace("@PAYLOAD_LINE@", str(text.count("\n") + 1)).encode())
        with tarfile.open(fileobj=file, mode="w:gz") as archive:
            archive.addfile(tarfile.TarInfo("empty"))
    return path


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (
            ["--python", "no-such-python"],
            "hpml-bundle: no-such-python is missing; load its module or install it",
        ),
        (["--pyton", "x"], "hpml-bundle: no option --pyton; sh bundle.sh --help"),
        (
            ["--python", "false"],
            "hpml-bundle: false is too old; name another with --python PATH",
        ),
        (["here"], "hpml-bundle: here is there already; name another folder"),
    ],
)
def test_missing_parts_are_named_in_one_line_and_no_file_remains(
    script: Path, args: list[str], message: str
) -> None:
    (script.parent / "here").mkdir()
    done = subprocess.run(
        ["sh", script.name, *args],
        cwd=script.parent,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 2
    assert done.stderr.startswith(message)
    assert done.stderr.count("\n") == 1
    assert {path.name for path in script.parent.iterdir()} == {"bundle.sh", "here"}


def test_a_damaged_copy_is_named_and_nothing_is_left(script: Path) -> None:
    content = script.read_bytes()
    script.write_bytes(content[:-40])
    done = subprocess.run(
        ["sh", script.name], cwd=script.parent, capture_output=True, text=True, check=False
    )
    assert done.returncode == 2
    assert (
        "hpml-bundle: the archive does not unpack: a damaged copy, or a full disk"
        in done.stderr
    )
    assert not (script.parent / "hpml").exists()
