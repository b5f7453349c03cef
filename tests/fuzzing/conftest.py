"""The counts of all fuzzing, at the end of the run."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from fuzzing.engine import Counts

_COUNTS = pytest.StashKey[list[str]]()


@pytest.fixture
def say_counts(request: pytest.FixtureRequest) -> Iterator[Callable[[Counts], None]]:
    """Have these counts printed at the end."""
    yield lambda counts: request.config.stash.setdefault(_COUNTS, []).append(str(counts))


def pytest_terminal_summary(terminalreporter: Any, config: pytest.Config) -> None:
    """Print them."""
    if lines := config.stash.get(_COUNTS, []):
        terminalreporter.section("damaged files")
        for line in lines:
            terminalreporter.line(line)
