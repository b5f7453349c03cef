"""Pins hold before anything of a plugin is imported; where code came from is known without
importing it."""

from __future__ import annotations

import hashlib
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from support import TOY

from hpml_plugins.errors import RegistryError
from hpml_plugins.host import Host
from hpml_plugins.host.locating import hash_of, locate
from hpml_plugins.registry import PluginSource

HostOf = Callable[..., Host]
#: Leaves a trace when imported.
TRACED = "from pathlib import Path\nPath(__file__).with_name('imported').touch()\n" + TOY


def installed(folder: Path, version: str) -> None:
    """A distribution `packed-toy` as pip would leave it."""
    (folder / "packed").mkdir(parents=True)
    (folder / "packed" / "__init__.py").write_text(
        "raise SystemExit('the package was imported')"
    )
    (folder / "packed" / "toy.py").write_text(TRACED.replace('"toy"', '"packed"'))
    info = folder / "packed_toy-1.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(
        f"Metadata-Version: 2.1\nName: packed-toy\nVersion: {version}\n"
    )
    (info / "entry_points.txt").write_text("[hpml]\npacked = packed.toy\n")
    (info / "top_level.txt").write_text("packed\n")


def package(folder: Path, files: dict[str, bytes]) -> Path:
    """The `__init__.py`, empty, of a package in this folder with these files."""
    for name, content in {"__init__.py": b"", **files}.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    return folder / "__init__.py"


def test_a_files_hash_is_what_sha256sum_says_and_a_packages_is_over_all_its_files(
    tmp_path: Path,
) -> None:
    (tmp_path / "one.py").write_bytes(b"x = 1\n")
    assert hash_of(tmp_path / "one.py") == hashlib.sha256(b"x = 1\n").hexdigest()
    files = {
        "one.py": b"x = 1\n",
        "data/recipes.yaml": b"a: 1",
        "kernel.cpp": b"int main() {}",
        "empty.csv": b"",
    }
    first = package(tmp_path / "p", files)
    left_out = (".hidden", ".git/HEAD", "__pycache__/one.nbi", "old.pyc")
    package(tmp_path / "p", dict.fromkeys(left_out, b"no code"))
    in_order = {"__init__.py": b"", **{name: files[name] for name in sorted(files)}}
    listed = b"".join(
        f"{hashlib.sha256(text).hexdigest()}  {name}\0".encode()
        for name, text in in_order.items()
    )
    assert hash_of(first) == hashlib.sha256(listed).hexdigest()
    changed = {
        hash_of(package(tmp_path / "q", {**files, name: b"changed"})) for name in files
    }
    assert len({hash_of(first), *changed}) == len(files) + 1


def test_binary_content_cannot_pass_for_another_file(tmp_path: Path) -> None:
    joined = package(tmp_path / "joined", {"a.bin": b"x\0b.bin\0y"})
    apart = package(tmp_path / "apart", {"a.bin": b"x", "b.bin": b"y"})
    assert hash_of(joined) != hash_of(apart)


def test_links_are_read_where_they_lead_to_a_file_and_else_count_by_their_target(
    tmp_path: Path,
) -> None:
    (tmp_path / "data.csv").write_bytes(b"1,2")
    plain = hash_of(package(tmp_path / "plain", {"data.csv": b"1,2"}))
    linked = package(tmp_path / "linked", {})
    (tmp_path / "linked" / "data.csv").symlink_to(tmp_path / "data.csv")
    assert hash_of(linked) == plain
    (tmp_path / "linked" / "folder").symlink_to(tmp_path / "linked")  # it would never end
    with_folder = hash_of(linked)
    (tmp_path / "linked" / "dangling").symlink_to("nowhere")
    dangling = hash_of(linked)
    (tmp_path / "linked" / "dangling").unlink()
    (tmp_path / "linked" / "dangling").symlink_to("elsewhere")
    assert len({plain, with_folder, dangling, hash_of(linked)}) == 4


def test_a_pipe_is_not_waited_for_and_what_cannot_be_read_is_no_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = package(tmp_path / "p", {"data.bin": b"x"})
    readable = hash_of(first)
    os.mkfifo(tmp_path / "p" / "pipe")
    assert hash_of(first) == readable
    opened, listed = Path.open, os.scandir

    def refuse_listing(folder: Path) -> Any:
        if Path(folder).name == "closed":
            raise PermissionError(13, "Permission denied", str(folder))
        return listed(folder)

    def refuse(
        path: Path, *arguments: Any, **options: Any
    ) -> Any:  # root may read everything
        if path.name == "data.bin":
            raise PermissionError(13, "Permission denied", str(path))
        return opened(path, *arguments, **options)

    monkeypatch.setattr(Path, "open", refuse)
    unreadable = hash_of(first)
    (tmp_path / "p" / "closed").mkdir()
    monkeypatch.setattr(os, "scandir", refuse_listing)
    assert (
        len({readable, unreadable, hash_of(first), hash_of(package(tmp_path / "q", {}))})
        == 4
    )


def test_a_pinned_file_that_changed_is_not_imported_and_the_others_run(
    host_of: HostOf, tmp_path: Path
) -> None:
    good = hashlib.sha256(TOY.replace('"toy"', '"other"').lstrip("\n").encode()).hexdigest()
    host = host_of(
        f"""
        version: 1
        plugins:
          - {{name: toy, path: toy.py, sha256: "{"0" * 64}"}}
          - {{name: other, path: other.py, sha256: "{good}"}}
        """,
        toy=TRACED,
        other=TOY.replace('"toy"', '"other"'),
    )
    ((broken,), found) = host.broken, hash_of(tmp_path / "toy.py")
    assert f"pinned to sha256 {'0' * 64}, found {found}; not imported" in str(broken.error)
    assert "registry.yaml:3" in str(broken.error)
    assert not (tmp_path / "imported").exists()
    assert [benchmark.name for benchmark in host.benchmarks()] == ["other"]


@pytest.mark.parametrize(("pin", "fits"), [("1.2", True), ("1.2.0", True), ("1.3", False)])
def test_a_version_is_the_distributions_and_is_looked_at_without_importing(
    host_of: HostOf, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, pin: str, fits: bool
) -> None:
    installed(tmp_path / "site", "1.2")
    monkeypatch.syspath_prepend(str(tmp_path / "site"))
    origin = locate(PluginSource("p", entry_point="packed"), tmp_path)
    assert (origin.distribution, origin.version) == ("packed-toy", "1.2")
    assert locate(PluginSource("p", module="packed.toy"), tmp_path) == origin
    assert "packed" not in sys.modules
    host = host_of(
        f'version: 1\nplugins:\n  - {{name: p, entry_point: packed, version: "{pin}"}}\n'
    )
    said = str(
        host.broken[0].error
    )  # with a pin that fits, importing its package is what fails
    assert (
        "the package was imported"
        if fits
        else "pinned to version 1.3, found packed-toy 1.2"
    ) in said


def test_a_file_has_no_version_to_pin(host_of: HostOf) -> None:
    with pytest.raises(
        RegistryError,
        match=r"registry.yaml:3: .*a file has no version to pin; pin it by sha256",
    ):
        host_of(
            'version: 1\nplugins:\n  - {name: toy, path: toy.py, version: "1"}\n', toy=TOY
        )
