"""For tests: of plugins, a point measured by hand and the findings of `hpml check`; of anything,
the fixture `bench`.

A pytest plugin that is active where hpml-plugins is installed, and imports nothing else until a
test asks for it. A test that asks for `bench` measures: see
`hpml_plugins.tools.pytest_bench.fixture.bench`. With `hpml_plugin = NAME` in the ini file (or
`--hpml-plugin NAME`), a test that asks for `hpml_finding` runs once for each finding of the check:

    def test_hpml_check(hpml_finding):
        if hpml_finding.state == "not judged":
            pytest.skip(hpml_finding.what)
        assert hpml_finding.state != "broken", f"{hpml_finding.what}; fix: {hpml_finding.fix}"
"""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hpml_plugins.lazy import import_lazily

if TYPE_CHECKING:
    from hpml_plugins.measure import Context as Context
    from hpml_plugins.measure import import_before_fork as import_before_fork
    from hpml_plugins.model import Finding as Finding
    from hpml_plugins.tools.pytest_bench.measuring import measure_point as measure_point

__all__ = ["Context", "Finding", "check_plugin", "import_before_fork", "measure_point"]

__getattr__ = import_lazily(
    "hpml_plugins",
    {
        ".measure": ("Context", "import_before_fork"),
        ".model": ("Finding",),
        ".tools.pytest_bench.measuring": ("measure_point",),
    },
)


def check_plugin(
    plugin: str, *, limit: float = 60.0, registry: Path | str = "registry.yaml"
) -> list[Finding]:
    """All findings of `hpml check PLUGIN`. Raises AssertionError, with how to fix it, if something
    is broken, and warns of what could not be judged.

    plugin: a name in the registry, a file, an entry point or a module.  limit: s for measuring
    points.
    """
    from hpml_plugins.tools.check.check import check, find_plugin

    findings = list(check(find_plugin(plugin, Path(registry)), limit=limit))
    broken = [
        f"{each.subject}: {each.what}; fix: {each.fix}"
        for each in findings
        if each.state == "broken"
    ]
    assert not broken, "\n".join(broken)
    for each in findings:
        if each.state == "not judged":
            warnings.warn(f"{each.subject}: not judged: {each.what}", stacklevel=2)
    return findings


def pytest_addoption(parser: Any) -> None:
    """Called by pytest: add the options, and the ini key that names the plugin."""
    parser.addini(
        "hpml_plugin",
        "The plugin that hpml_finding checks: a name, a file, an entry point or a module.",
    )
    group = parser.getgroup("hpml", "benchmarks of hpml-plugins (fixture bench)")
    group.addoption("--hpml-plugin", help="The plugin that hpml_finding checks.")
    group.addoption(
        "--hpml-save",
        action="store_true",
        help="Store what bench measures in the folder of results.",
    )
    group.addoption(
        "--hpml-fail",
        action="store_true",
        help="Fail a test that is significantly worse than the history; exit status 3 where none"
        " fails and values could not be judged.",
    )
    group.addoption(
        "--hpml-results",
        metavar="DIR",
        help="The folder of results; default: results_dir of asv.conf.json, else results.",
    )


def pytest_configure(config: Any) -> None:
    """Called by pytest: add the fixture `bench`."""
    from hpml_plugins.tools.pytest_bench import fixture

    config.pluginmanager.register(fixture, "hpml_plugins.tools.pytest_bench.fixture")
    config.pluginmanager.register(fixture.Summary(config.getoption("--hpml-fail")))


def pytest_generate_tests(metafunc: Any) -> None:
    """Called by pytest for each test: run one that uses `hpml_finding` once for each finding."""
    if "hpml_finding" not in metafunc.fixturenames:
        return
    from hpml_plugins.tools.check.check import check, find_plugin

    name = metafunc.config.getoption("--hpml-plugin") or metafunc.config.getini(
        "hpml_plugin"
    )
    findings = list(check(find_plugin(name), limit=60.0))
    metafunc.parametrize(
        "hpml_finding", findings, ids=[f"{each.subject}-{each.state}" for each in findings]
    )
