from __future__ import annotations

import re
import sys
import tomllib
from pathlib import Path

import pytest
from asv.config import Config
from packaging.requirements import Requirement

from hpml_plugins.asv import environment
from hpml_plugins.asv.environment import (
    NodeEnvironment,
    _requirements,
    search_path,
    stack_matrix,
)
from hpml_plugins.errors import HpmlError, UsageError

ROOT = Path(__file__).parents[2]


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


def test_what_builds_and_installs_a_commit_comes_with_the_package() -> None:
    """An environment that uv made has neither pip nor setuptools."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    names = {Requirement(text).name for text in project["dependencies"]}
    commands = (environment._BUILD, environment._INSTALL)
    run = {name for text in commands for name in re.findall(r"python -m (\w+)", text)}
    assert run == {"pip"}
    assert {*run, "setuptools"} <= names


def test_a_software_stack_is_asvs_matrix() -> None:
    assert stack_matrix("torch==2.13.0, numba==0.66.0") == {
        "req": {"torch": ["2.13.0"], "numba": ["0.66.0"]}
    }
    for words, wrong in (
        ("torch", "'torch'"),
        ("torch==", "'torch'"),
        ("==2", "''"),
        ("torch==2.13.0,", "''"),
    ):
        with pytest.raises(
            UsageError, match=f"{wrong} has no version; write NAME==VERSION,NAME==VERSION"
        ):
            stack_matrix(words)


def test_a_pinned_package_may_be_older_than_what_hpml_plugins_requires() -> None:
    found = _requirements({"torch": "2.9.1", "torchvision": "0.24.1"})
    assert [each for each in found if each.startswith("torch")][:2] == [
        "torch==2.9.1",
        "torchvision==0.24.1",
    ]
    assert not any(each.startswith(("torch>", "torchvision>")) for each in found)
    assert any(each.startswith("numba>=") for each in found)


def test_a_stack_that_uv_cannot_install_ends_in_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    conf = Config()
    conf.env_dir, conf.benchmark_dir, conf.results_dir, conf.project = (
        str(tmp_path / name) for name in "ebrp"
    )
    made = NodeEnvironment(conf, sys.executable, {"no-such-package-of-ours": "1.0"}, {})
    assert made.name.startswith("stack-py")
    assert made.name.endswith("-no-such-package-of-ours1.0")
    monkeypatch.setenv("UV_OFFLINE", "1")
    with pytest.raises(HpmlError) as raised:
        made._setup()
    assert str(raised.value).startswith(f"{made.name} cannot be installed: ")
    assert "\n" not in str(raised.value)
    assert not made.check_presence()
    monkeypatch.setenv("PATH", "")
    monkeypatch.setattr(sys, "executable", str(tmp_path / "python"))
    with pytest.raises(
        HpmlError, match="needs uv, which is not installed: python -m pip install uv"
    ):
        made._setup()
