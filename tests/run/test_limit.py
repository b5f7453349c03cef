"""A limit in time is read as people write it, and what is no time is refused in one line."""

from __future__ import annotations

import pytest

from hpml_plugins.errors import UsageError
from hpml_plugins.run import LIMIT_VARIABLE, limit_of_environment, parse_limit


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("9min", 540.0), ("540s", 540.0), ("540", 540.0), ("1.5h", 5400.0), (" 30 s ", 30.0)],
)
def test_times_as_people_write_them(text: str, seconds: float) -> None:
    assert parse_limit(text, "--limit") == seconds


@pytest.mark.parametrize(
    "text", ["", "nine", "9m", "-3", "0", "1e999", "inf", "5 days", "9min9"]
)
def test_what_is_no_time_is_refused_with_the_forms_that_are(text: str) -> None:
    with pytest.raises(
        UsageError, match=r"^--limit is .* not a duration; write 9min, 540s"
    ):
        parse_limit(text, "--limit")


def test_the_environment_gives_asv_run_its_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(LIMIT_VARIABLE, raising=False)
    assert limit_of_environment() is None
    monkeypatch.setenv(LIMIT_VARIABLE, "2min")
    limit = limit_of_environment()
    assert limit is not None and str(limit) == "2 min" and 110 < limit.left <= 120
    monkeypatch.setenv(LIMIT_VARIABLE, "soon")
    with pytest.raises(UsageError, match="HPML_LIMIT is 'soon'"):
        limit_of_environment()
