"""For the tests of plugins: a point measured by hand, and all that `hpml check` looks at.

Also a pytest plugin: with `pytest_plugins = ["hpml_plugins.testing"]` in conftest.py and `hpml_plugin = NAME` in the
ini file (or `--hpml-plugin NAME`), a test that asks for `hpml_finding` runs once for each finding of the check:

    def test_hpml_check(hpml_finding):
        assert hpml_finding.state != "broken", f"{hpml_finding.what}; mend: {hpml_finding.mend}"
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from hpml_plugins.measure import Context, import_before_fork, measure_point
from hpml_plugins.tools.doctor.finding import Finding

__all__ = ["Context", "Finding", "check_plugin", "import_before_fork", "measure_point"]


def check_plugin(plugin: str, *, limit: float = 60.0, registry: Path | str = "registry.yaml") -> list[Finding]:
    """All findings of `hpml check PLUGIN`. Raises AssertionError, with what to mend, where something is broken.

    plugin: a name in the registry, a file, an entry point or a module.  limit: s for measuring points.
    """
    from hpml_plugins.tools.check.check import check
    from hpml_plugins.tools.check.target import find_target

    findings = list(check(find_target(plugin, Path(registry)), limit=limit))
    broken = [f"{each.subject}: {each.what}; mend: {each.mend}" for each in findings if each.state == "broken"]
    assert not broken, "\n".join(broken)
    return findings


def pytest_addoption(parser: Any) -> None:
    """Called by pytest: the option and the ini key that name the plugin."""
    parser.addini("hpml_plugin", "The plugin that hpml_finding checks: a name, a file, an entry point or a module.")
    parser.addoption("--hpml-plugin", help="The plugin that hpml_finding checks.")


def pytest_generate_tests(metafunc: Any) -> None:
    """Called by pytest for each test: one that asks for `hpml_finding` runs for each finding."""
    if "hpml_finding" not in metafunc.fixturenames:
        return
    from hpml_plugins.tools.check.check import check
    from hpml_plugins.tools.check.target import find_target

    name = metafunc.config.getoption("--hpml-plugin") or metafunc.config.getini("hpml_plugin")
    findings = list(check(find_target(name), limit=60.0))
    metafunc.parametrize("hpml_finding", findings, ids=[f"{each.subject}-{each.state}" for each in findings])
