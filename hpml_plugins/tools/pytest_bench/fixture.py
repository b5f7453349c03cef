"""The fixture and its lines in pytest's summary. Every `pytest` imports this if hpml-plugins is
installed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from hpml_plugins.tools.pytest_bench.session import BenchSession, TestBench

_SESSION = "_hpml_session"
#: Property of a test: a line of the summary, and whether it was judged. A worker of pytest-xdist
#: sends it with the test's report.
_LINE = "hpml"
#: pytest's exit status if values could not be judged and no test failed.
NOT_JUDGED = 3


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

    config = request.config
    node = request.node
    if not hasattr(config, _SESSION):
        setattr(config, _SESSION, BenchSession.of(config))
    session: BenchSession = getattr(config, _SESSION)

    def report(line: str, is_judged: bool = True) -> None:
        node.user_properties.append((_LINE, (line, is_judged)))

    return TestBench(session, TestName.of(node), report)


class Summary:
    """pytest's plugin that shows the lines of all tests, and sets the exit status for values that
    were not judged.

    fail: whether a test that is worse fails; then pytest ends with NOT_JUDGED if no test failed but
    values could not be judged.
    """

    def __init__(self, fail: bool) -> None:
        self._fail = fail
        self._lines: list[tuple[str, bool]] = []

    def pytest_runtest_logreport(self, report: Any) -> None:
        """Called by pytest for each phase of each test, also of other processes."""
        if report.when == "call":
            self._lines += [
                value for name, value in report.user_properties if name == _LINE
            ]

    def pytest_sessionfinish(self, session: Any) -> None:
        """Called by pytest when all tests have run."""
        if self._fail and session.exitstatus == 0 and self._not_judged:
            session.exitstatus = NOT_JUDGED

    def pytest_terminal_summary(self, terminalreporter: Any) -> None:
        """Called by pytest: print a line for each measured metric."""
        if not self._lines:
            return
        terminalreporter.section("hpml benchmarks")
        for line, _ in self._lines:
            terminalreporter.write_line(line)
        if self._not_judged:
            status = (
                f" (exit status {NOT_JUDGED} where nothing fails)" if self._fail else ""
            )
            terminalreporter.write_line(
                f"{self._not_judged} of {len(self._lines)} values not judged{status}"
            )

    @property
    def _not_judged(self) -> int:
        return sum(not is_judged for _, is_judged in self._lines)
