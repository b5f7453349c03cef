from __future__ import annotations

import sys

from hpml_plugins.asv.environment import NodeEnvironment, search_path


def test_the_commits_package_comes_before_what_the_caller_had() -> None:
    env = {"ASV_PYTHONPATH": "/site", "PYTHONPATH": "/site:/more"}
    assert search_path("/own", env) == {
        "PYTHONPATH": "/own:/site:/site:/more",
        "ASV_PYTHONPATH": "/own:/site:/site:/more",
    }
    assert search_path("/own", {})["PYTHONPATH"] == "/own"


def test_it_gives_only_the_python_that_runs_asv() -> None:
    assert NodeEnvironment.matches(f"{sys.version_info[0]}.{sys.version_info[1]}")
    assert not NodeEnvironment.matches("3.7")
