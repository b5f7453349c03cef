"""Tests of plugins measure points by hand: the built-in data sets are in force, as under a registry
that names them."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from hpml_plugins.model.data_source import use_sources
from hpml_plugins.workloads.datasets.builtin import SOURCES


@pytest.fixture(scope="module", autouse=True)
def built_in_data_sets() -> Iterator[None]:
    with use_sources(SOURCES):
        yield


@pytest.fixture(scope="session", autouse=True)
def one_thread_of_torch() -> None:
    """Points are forks of this process; a fork lacks the threads that OpenMP has started, and waits
    for them."""
    import torch

    torch.set_num_threads(1)
