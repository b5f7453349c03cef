"""What a power cut leaves of the record store: a file that ends, or turns to zeros, at any byte."""

from __future__ import annotations

from pathlib import Path

import pytest
from records import a_record
from support import ROOT

from hpml_plugins.store import append_record, read_file

pytestmark = pytest.mark.usefixtures("no_wait_for_the_disk")

KILOBYTE = 1024


def test_every_whole_record_is_read_wherever_the_last_kilobyte_ends(tmp_path: Path) -> None:
    """Real Records in front, of 1 to 40 kB; then short ones, so that many line breaks lie in the
    last kilobyte."""
    source = next(iter(sorted((ROOT / "results").glob("cpu-*/records/*.jsonl"))))
    path = tmp_path / "records.jsonl"
    path.write_bytes(b"".join(source.read_bytes().splitlines(keepends=True)[:5]))
    new = a_record(params={"size": 1}, started=1.0)
    for number in range(12):
        append_record(
            path,
            a_record(params={"size": number}),
        )
    whole = path.read_bytes()
    ends = [place + 1 for place, byte in enumerate(whole) if byte == 10]
    cuts = zeroed = 0
    for cut in range(len(whole) - KILOBYTE, len(whole) + 1):
        kept = sum(end <= cut for end in ends)
        # a file system may have written the length and not the blocks
        for rest in (b"", bytes(len(whole) - cut)):
            path.write_bytes(whole[:cut] + rest)
            damage: list[str] = []
            assert len(list(read_file(path, damage.append))) == kept
            append_record(path, new)
            found = list(read_file(path))
            # a line cut exactly before its line break is closed by the next append, and is whole
            assert found[-1] == new and len(found) in (
                (kept + 1,) if rest else (kept + 1, kept + 2)
            )
            cuts, zeroed = cuts + (not rest), zeroed + bool(rest)
    assert cuts >= KILOBYTE
    print(
        f"record store: {cuts} cuts and {zeroed} ends of zeros over the last kilobyte of"
        f" {len(ends)} Records; every whole one was read, and the next one was appended"
    )
