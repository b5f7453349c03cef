"""For the tests of plugins: a point measured by hand, and the findings of `hpml check`.

Also a pytest plugin: with `pytest_plugins = ["hpml_plugins.testing"]` in conftest.py and `hpml_plugin = NAME` in the
ini file (or `--hpml-plugin NAME`), a test that asks for `hpml_finding` runs once for each finding of the check:

    def test_hpml_check(hpml_finding):
        assert hpml_finding.state != "broken", f"{hpml_finding.what}; fix: {hpml_finding.fix}"
"""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Any

from hpml_plugins import measure
from hpml_plugins.measure import Context, import_before_fork
from hpml_plugins.model import Finding, Record, available_sources, use_sources

__all__ = ["Context", "Finding", "check_plugin", "import_before_fork", "measure_point"]


@functools.wraps(measure.measure_point)
def measure_point(*args: Any, **options: Any) -> Record:
    """Measure one point, as `hpml run` does. The built-in data sets are known: a test has no registry."""
    from hpml_plugins.workloads.datasets import SOURCES

    with use_sources({**SOURCES, **available_sources()}):
        return measure.measure_point(*args, **options)


def check_plugin(plugin: str, *, limit: float = 60.0, registry: Path | str = "registry.yaml") -> list[Finding]:
    """All findings of `hpml check PLUGIN`. Raises AssertionError, with how to fix it, where something is broken.

    plugin: a name in the registry, a file, an entry point or a module.  limit: s for measuring points.
    """
    from hpml_plugins.tools.check import check, find_plugin

    findings = list(check(find_plugin(plugin, Path(registry)), limit=limit))
    broken = [f"{each.subject}: {each.what}; fix: {each.fix}" for each in findings if each.state == "broken"]
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
    from hpml_plugins.tools.check import check, find_plugin

    name = metafunc.config.getoption("--hpml-plugin") or metafunc.config.getini("hpml_plugin")
    findings = list(check(find_plugin(name), limit=60.0))
    metafunc.parametrize("hpml_finding", findings, ids=[f"{each.subject}-{each.state}" for each in findings])
