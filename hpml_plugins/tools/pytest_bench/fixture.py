"""The fixture and its lines in pytest's summary. Every `pytest` imports this where hpml-plugins is
installed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from hpml_plugins.tools.pytest_bench.session import BenchSession, TestBench

_SESSION = "_hpml_session"
#: Property of a test: a line of the summary. A process of pytest-xdist sends it with the test's
#: report.
_LINE = "hpml"


@pytest.fixture
def bench(request: Any) -> TestBench:
    """Measures a step of the test and compares it with what is stored:

    def test_sort(bench):
        numbers = list(range(10_000, 0, -1))
        bench.time(lambda: sorted(numbers))

    `bench.time` and `bench.measure` return the Record. --hpml-save stores it; --hpml-fail fails a
    test that is worse.
    """
    from hpml_plugins.tools.pytest_bench.naming import TestName
    from hpml_plugins.tools.pytest_bench.session import BenchSession, TestBench

    config, node = request.config, request.node
    if not hasattr(config, _SESSION):
        setattr(config, _SESSION, BenchSession.of(config))
    session: BenchSession = getattr(config, _SESSION)
    return TestBench(
        session,
        TestName.of(node),
        lambda line: node.user_properties.append((_LINE, line)),
    )


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """Called by pytest: a line for each metric that was measured."""
    reports = [each for found in terminalreporter.stats.values() for each in found]
    called = [each for each in reports if getattr(each, "when", "") == "call"]
    if lines := [text for each in called for name, text in each.user_properties if name == _LINE]:
        terminalreporter.section("hpml benchmarks")
        for line in lines:
            terminalreporter.write_line(line)
