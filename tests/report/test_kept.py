"""What publishing keeps in the user's cache, and what it removes from it."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from hpml_plugins.report.kept import (
    CHARTS,
    EVIDENCE,
    READINGS,
    keep,
    kept_file,
    read_kept,
    remove_unused,
)

DAY = 86_400
MIB = 1 << 20


@pytest.fixture(autouse=True)
def _cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))


def entry(name: str, kind: str, size: int, used: float) -> Path:
    """A cache entry of `size` B that was last used at this time, without a block on the disk."""
    file = kept_file(name, kind)
    keep(file, b"made")
    os.truncate(file, size)
    os.utime(file, (used, used))
    return file


def test_entries_that_this_publish_did_not_use_take_at_most_256_mib() -> None:
    now = time.time()
    newest = entry("newest", READINGS, 100 * MIB, now - 1 * DAY)
    older = entry("older", CHARTS, 156 * MIB, now - 2 * DAY)
    oldest = entry("oldest", EVIDENCE, 1, now - 3 * DAY)
    remove_unused(now)
    assert newest.exists()
    assert older.exists()
    assert not oldest.exists()


def test_what_this_publish_used_stays_however_large_it_is() -> None:
    now = time.time() - 60
    asked = entry("asked", READINGS, 300 * MIB, now - 3 * DAY)
    unused = entry("unused", READINGS, 200 * MIB, now - 2 * DAY)
    assert read_kept(asked)
    made = entry("made", READINGS, 300 * MIB, time.time())
    remove_unused(now)
    assert asked.exists()
    assert made.exists()
    assert unused.exists()


def test_an_entry_that_no_publish_used_for_90_days_is_removed() -> None:
    now = time.time()
    season = entry("season", CHARTS, 1, now - 91 * DAY)
    recent = entry("recent", CHARTS, 1, now - 89 * DAY)
    remove_unused(now)
    assert not season.exists()
    assert recent.exists()
