"""What is remembered on disk counts whole or not at all."""

from __future__ import annotations

from pathlib import Path

import pytest

from hpml_plugins.records.packs import SIZE, Packs, digest, digest_of_sources, name_of, spelled

MADE_BY = digest(b"this code")


@pytest.fixture
def packs(tmp_path: Path) -> Packs:
    return Packs(tmp_path / "kept", MADE_BY)


def test_what_was_saved_is_loaded_by_the_same_code_alone(packs: Packs) -> None:
    packs.save("one", {b"key": [1.5, None]})
    assert packs.load("one", dict[bytes, list[float | None]]) == {b"key": [1.5, None]}
    assert Packs(packs.folder, digest(b"other code")).load("one", dict[bytes, list[float | None]]) is None
    assert packs.load("two", dict[bytes, int]) is None
    assert packs.load("one", dict[bytes, int]) is None


@pytest.mark.parametrize("place", [0, SIZE, 2 * SIZE, -1])
def test_a_changed_bit_anywhere_is_seen(packs: Packs, place: int) -> None:
    packs.save("one", ["text"])
    whole = bytearray((packs.folder / "one").read_bytes())
    whole[place] ^= 1
    (packs.folder / "one").write_bytes(whole)
    assert packs.load("one", list[str]) is None


def test_what_was_not_used_is_removed(packs: Packs) -> None:
    packs.save("old", 1)
    packs.save("read", 2)
    later = Packs(packs.folder, MADE_BY)
    (packs.folder / ".read.host-1.partial").write_bytes(b"killed")
    assert later.load("read", int) == 2
    later.save("new", 3)
    later.forget_others()
    assert sorted(path.name for path in packs.folder.iterdir()) == ["new", "read"]


def test_a_name_is_a_file_name_whatever_it_stands_for() -> None:
    names = [name_of("kind", *parts) for parts in (("a/../b",), ("a", "b"), ("ab",), ("\ud800",), ("é" * 500,))]
    assert len(set(names)) == 5
    assert all(name.startswith("kind-") and len(name) == 5 + 2 * SIZE for name in names)


def test_numbers_of_any_size_are_spelled_and_told_apart() -> None:
    assert len({spelled([each]) for each in (5, 5.0, 2**70, float(2**70), True)}) == 5


def test_a_digest_of_sources_is_of_their_content_and_of_what_is_said(tmp_path: Path) -> None:
    file = tmp_path / "code.py"
    file.write_text("1")
    first = digest_of_sources([file], "3.11")
    assert first == digest_of_sources([file], "3.11")
    assert first != digest_of_sources([file], "3.12")
    file.write_text("2")
    assert first != digest_of_sources([file], "3.11")
