from __future__ import annotations

import os

import pytest


@pytest.fixture
def no_wait_for_the_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    """For tests that cut and damage files by hand: what these then hold does not depend on waiting
    until the disk has it, a thousand times in some. Commands in processes of their own do wait."""
    monkeypatch.setattr(os, "fsync", lambda descriptor: None)
