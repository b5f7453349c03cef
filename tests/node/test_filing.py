"""Under which name results of this machine are filed."""

from __future__ import annotations

import json
from pathlib import Path

import msgspec
import pytest

from hpml_plugins.model import Gpu, Node
from hpml_plugins.node import earlier_names, filed_under, machine_name

CPU = Node("Linux", "x86_64", "AMD EPYC 7763", 2, 2**34, "3.11")
OWN = machine_name(CPU)


@pytest.fixture
def results(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Those of asv's user, whose machine has the name `mine`."""
    monkeypatch.setenv("HOME", str(tmp_path))
    known = {"version": 1, "mine": {"machine": "mine"}, "elsewhere": {}, OWN: {}}
    (tmp_path / ".asv-machine.json").write_text(json.dumps(known))
    found = tmp_path / "results"
    (found / "mine").mkdir(parents=True)
    (found / "a-colleagues").mkdir()
    return found


def test_the_name_of_asv_machine_is_taken_over(results: Path) -> None:
    assert earlier_names(results) == ["mine"]
    assert filed_under(CPU, results) == "mine"


def test_our_own_name_stays_where_it_has_results(results: Path) -> None:
    (results / OWN).mkdir()
    assert filed_under(CPU, results) == OWN


def test_of_two_older_names_none_is_guessed(results: Path) -> None:
    (results / "elsewhere").mkdir()
    assert earlier_names(results) == ["elsewhere", "mine"]
    assert filed_under(CPU, results) == OWN


def test_names_of_our_making_are_other_hardware(results: Path) -> None:
    (results / "mine").rmdir()
    (results / "cpu-amd-epyc-7763-x64").mkdir()
    assert filed_under(CPU, results) == OWN


def test_a_node_with_gpus_has_its_own_name(results: Path) -> None:
    node = msgspec.structs.replace(CPU, gpus=(Gpu("H100"),))
    assert filed_under(node, results) == machine_name(node) != "mine"
