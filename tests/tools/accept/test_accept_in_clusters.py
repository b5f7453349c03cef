"""The health check of Slurm and the init container of Kubernetes: a failed node is drained, or its
pod blocked, only on request."""

from __future__ import annotations

import math
import os
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest
import yaml
from support import PATIENCE, ROOT, unavailable, wait_for

from hpml_plugins.model import Node
from hpml_plugins.node import detect_node
from hpml_plugins.tools.accept import measuring
from hpml_plugins.tools.accept.bands import (
    Band,
    Bands,
    Expected,
    Population,
    Provenance,
    as_file,
    stack_of_record,
)
from hpml_plugins.tools.accept.measuring import Measured
from hpml_plugins.tools.accept.points import accept_points

SLURM = ROOT / "containers" / "accept-slurm.sh"
#: Verdicts of hpml, and whether a node may be drained for them where that is told.
STATUSES = {0: False, 1: True, 2: False, 3: False}
TOLD = {"HPML_ACCEPT_DRAIN": "yes"}


@pytest.fixture
def stubs(tmp_path: Path) -> dict[str, str]:
    """Commands `hpml`, which ends with $STATUS, and `scontrol`, which logs its arguments."""
    folder = tmp_path / "bin"
    folder.mkdir()
    for name, text in {
        "hpml": 'echo "$@" >"$TRACE.hpml"; echo verdict; exit "$STATUS"',
        "scontrol": 'echo "$@" >"$TRACE.scontrol"',
    }.items():
        (folder / name).write_text(f"#!/bin/sh\n{text}\n")
        (folder / name).chmod(0o755)
    return {
        "PATH": f"{folder}:{os.environ['PATH']}",
        "TRACE": str(tmp_path / "trace"),
        "HPML_ACCEPT_REPORTS": str(tmp_path / "reports"),
        "HPML_ACCEPT_CONF": "/nowhere",
        "SLURMD_NODENAME": "n7",
    }


@pytest.mark.parametrize("told", [{}, {"HPML_ACCEPT_DRAIN": "no"}, TOLD])
@pytest.mark.parametrize("status", STATUSES)
def test_slurm_drains_only_a_failed_node_and_only_on_request(
    status: int, told: dict[str, str], stubs: dict[str, str], tmp_path: Path
) -> None:
    for context in ("", "prolog_slurmd"):
        env = {**stubs, **told, "STATUS": str(status), "SLURM_SCRIPT_CONTEXT": context}
        done = subprocess.run([SLURM], env=env, capture_output=True, text=True, check=False)
        drained = tmp_path / "trace.scontrol"
        drains = STATUSES[status] and told == TOLD
        assert drained.exists() == drains
        assert done.returncode == (1 if drains and context else 0)
        if drains:
            assert drained.read_text().startswith("update NodeName=n7 State=DRAIN Reason=")
            drained.unlink()
        assert "hpml accept: n7 " in done.stdout
    assert (tmp_path / "reports" / "n7.json").read_text() == "verdict\n"
    assert "--html" in (tmp_path / "trace.hpml").read_text()


@pytest.mark.parametrize("drain", ["no", "yes"])
@pytest.mark.parametrize("status", STATUSES)
def test_kubernetes_blocks_a_pod_after_a_failure_on_request(
    status: int, drain: str, stubs: dict[str, str], tmp_path: Path
) -> None:
    pod = yaml.safe_load((ROOT / "containers" / "accept-kubernetes.yaml").read_text())
    (init,) = pod["spec"]["initContainers"]
    names = {each["name"] for each in pod["spec"]["volumes"]}
    assert {each["name"] for each in init["volumeMounts"]} <= names
    env = {each["name"]: each["value"] for each in init["env"]}
    assert env["HPML_ACCEPT_DRAIN"] == "no"
    (tmp_path / "reports").mkdir()
    *shell, text = init["command"]
    message = tmp_path / "message"
    env |= {**stubs, "STATUS": str(status), "HPML_ACCEPT_DRAIN": drain}
    env["MESSAGE"] = str(message)
    script = text.replace("/reports", str(tmp_path / "reports"))
    done = subprocess.run([*shell, script], env=env, check=False)
    assert done.returncode == int(STATUSES[status] and drain == "yes")
    assert message.read_text() == "verdict\n"


def bands_of_this_cpu(node: Node) -> Bands:
    """As if many nodes like this one had measured `vecadd_cpu` as it does now."""
    key = next(
        key for key, (each, _) in accept_points().items() if each.benchmark == "vecadd_cpu"
    )
    measured = Measured(node)
    measuring._measure(measured, {"": None}, {"": [key]})
    (record,) = measured.cards[""]
    centre = math.log(record.metrics["time"].value)
    band = Band(
        benchmark="vecadd_cpu",
        version=record.version,
        params=record.params,
        metric="time",
        unit="s",
        direction="lower",
        component="host",
        physics="CPU",
        seconds=1.0,
        cards=8,
        every=Expected(centre, 0.1, math.log(2)),
    )
    population = Population(
        hardware=node.cpu, stack=stack_of_record(record), cards=8, bands=(band,)
    )
    made_from = Provenance(1, "2026-01-01", "0", 0.01)
    return Bands(version="test", made_from=made_from, populations=(population,))


@pytest.mark.slow
def test_on_slurm_the_slow_one_of_two_nodes_is_drained(tmp_path: Path) -> None:
    """The node n2 is made slow: numba does not compile there, which is
    more than other processes on the CPUs explain."""
    sys.path.insert(0, str(ROOT / "tests" / "tools" / "cluster"))
    import toy_slurm

    if lacking := toy_slurm.missing():
        unavailable(f"the check on a real Slurm did not run, for want of {lacking}")
    bands = tmp_path / "bands.json"
    bands.write_bytes(as_file(bands_of_this_cpu(detect_node())))
    slurm = toy_slurm.Slurm(tmp_path / "slurm")
    slurm.folder.mkdir()
    common = {
        **os.environ,
        **slurm.env,
        **TOLD,
        "HPML_ACCEPT_CONF": "/nowhere",
        "HPML_ACCEPT": f"{sys.executable} -m hpml_plugins",
        "HPML_ACCEPT_ARGUMENTS": f"--only host --bands {bands}",
        "HPML_ACCEPT_REPORTS": str(tmp_path),
    }

    slow = {"NUMBA_DISABLE_JIT": "1"}

    def verdict(node: str) -> str:
        env = {**common, **(slow if node == "n2" else {})}
        command = ["srun", f"--nodelist={node}", str(SLURM)]
        done = subprocess.run(
            command, env=env, capture_output=True, text=True, check=True, timeout=PATIENCE
        )
        assert f"hpml accept: {node}" in done.stdout
        found = msgspec.json.decode((tmp_path / f"{node}.json").read_bytes())
        return str(found["verdict"])

    try:
        slurm.start()
        assert verdict("n1") != "fail"
        assert slurm.states() == ["idle", "idle"]
        assert verdict("n2") == "fail"
        wait_for(
            lambda: slurm.states()[1].startswith("drain"), "n2 to be drained", slurm.log
        )
        assert slurm.states()[0] == "idle"
    finally:
        slurm.stop()
