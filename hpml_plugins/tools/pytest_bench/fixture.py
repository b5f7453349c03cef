"""The fixture and its lines in pytest's summary. Every `pytest` imports this where hpml-plugins is installed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from hpml_plugins.tools.pytest_bench.session import BenchSession, TestBench

_SESSION = "_hpml_session"


@pytest.fixture
def bench(request: Any) -> TestBench:
    """Measures a step of the test and compares it with what is stored:

    def test_sort(bench):
        numbers = list(range(10_000, 0, -1))
        bench.time(lambda: sorted(numbers))

    `bench.time` and `bench.measure` return the Record. --hpml-save stores it; --hpml-fail fails a test that is worse.
    """
    from hpml_plugins.tools.pytest_bench.session import BenchSession, TestBench

    config = request.config
    if not hasattr(config, _SESSION):
        setattr(config, _SESSION, BenchSession.of(config))
    session: BenchSession = getattr(config, _SESSION)
    callspec = getattr(request.node, "callspec", None)
    return TestBench(session, request.node.nodeid, dict(callspec.params) if callspec else {})


def pytest_terminal_summary(terminalreporter: Any, config: Any) -> None:
    """Called by pytest: a line for each metric that was measured."""
    session: BenchSession | None = getattr(config, _SESSION, None)
    if session and session.lines:
        terminalreporter.section("hpml benchmarks")
        for line in session.lines:
            terminalreporter.write_line(line)
