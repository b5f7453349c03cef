"""The counts of all fuzzing, at the end of the run."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from fuzzing.engine import Counts

_COUNTS = "counts of fuzzing"


@pytest.fixture
def say_counts(request: pytest.FixtureRequest) -> Callable[[Counts], None]:
    """Have these counts printed at the end. They are in the test's report, which also a process of
    xdist sends."""
    return lambda counts: request.node.user_properties.append((_COUNTS, str(counts)))


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """Print them."""
    reports = [each for found in terminalreporter.stats.values() for each in found]
    called = [each for each in reports if getattr(each, "when", "") == "call"]
    if lines := [
        text for each in called for name, text in each.user_properties if name == _COUNTS
    ]:
        terminalreporter.section("damaged files")
        for line in lines:
            terminalreporter.line(line)
