from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from hpml_plugins.model import use_sources
from hpml_plugins.workloads.datasets import SOURCES

# A process that used torch's threads cannot be forked into one that does (libgomp waits for threads
# that are not there), and tests that measure a point fork this one. `hpml` and asv fork from
# processes that compute nothing.
torch.set_num_threads(1)


@pytest.fixture(autouse=True)
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A root of data sets of the test's own, and a cache of its own."""
    monkeypatch.setenv("HPML_DATA", str(tmp_path / "data"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr("hpml_plugins.workloads.datasets.places.SYSTEM", ())
    with use_sources(
        SOURCES
    ):  # as for the points of a registry that names the built-in data sets
        yield tmp_path / "data"
