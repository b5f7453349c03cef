"""Ranks on two nodes of a real Slurm, over gloo."""

from __future__ import annotations

import pytest
from cluster_site import Site
from test_on_slurm import logs, submit, wait_for_state

from hpml_plugins import Bench, Node
from hpml_plugins.errors import UsageError

# Each round starts torch four times: with a load of 13 on two cores, 18 to 58 s.
REGISTRY = """
version: 1
plugins:
  - name: across
    module: hpml_plugins.plugins.across
    timeout: 900
  - name: allreduce
    module: hpml_plugins.plugins.allreduce
    timeout: 900
    sampling: {budget: 0.2}
    grid: {allreduce_nodes_gloo: {size: [1KiB], nodes: [2, 4]}}
  - name: scaling
    module: hpml_plugins.plugins.scaling
    timeout: 900
    sampling: {budget: 0.2}
    grid: {scaling_ddp_nodes_gloo: {batch: [32], nodes: [2], scaling: [weak]}}
"""
ACROSS = """
    import os
    from hpml_plugins import Benchmark, Metric, hookimpl

    def on_rank(rank, fails):
        import torch
        import torch.distributed as dist
        told = torch.tensor([float(rank.index + 10)])
        dist.all_reduce(told)
        rank.bench.check(told.item() == 21, "the sum over two ranks is not 10 + 11")
        if fails and rank.index == 1:
            raise ValueError("on the second node")
        return os.environ["SLURMD_NODENAME"]

    def measure(bench, *, fails):
        found = bench.ranks(on_rank, 2, fails, nodes=2)
        bench.check(sorted(found) == ["n1", "n2"], f"ran on {found}")
        return {"nodes": len(set(found))}

    @hookimpl
    def hpml_benchmarks():
        metrics = [Metric("nodes", "1", "higher")]
        return [Benchmark("across", measure, metrics, grid={"fails": [False, True]})]
"""


@pytest.mark.slow
def test_two_nodes_reduce_together_and_who_fails_is_named(slurm_site: Site) -> None:
    slurm_site.project.write("hpml_plugins/plugins/across.py", ACROSS)
    slurm_site.project.write("registry.yaml", REGISTRY)
    slurm_site.project.commit("across")
    slurm_site.cluster(
        "version: 1\ntargets:\n  - {name: pair, partition: all, nodes: 2, hours: 1}\n"
    )
    submit(slurm_site, "--bench", "across", "--bench", "nodes_gloo")
    found = wait_for_state(slurm_site, "pair", "done", "failed", "lost")
    assert found["reason"] == "some points failed; their Records say why", logs(slurm_site)
    records = {
        (record.benchmark, *record.params.values()): record
        for record in slurm_site.records("pair")
    }
    across, wrong = records["across", False], records["across", True]
    assert (across.status, across.metrics["nodes"].round_values) == ("ok", [2.0] * 3), (
        across.reason + across.output
    )
    line = 'across.py:11: raise ValueError("on the second node")'
    assert (wrong.status, wrong.reason) == (
        "failed",
        f"rank 1: ValueError: on the second node ({line})",
    )
    reduced = records["allreduce_nodes_gloo", "1KiB", 2]
    assert reduced.status == "ok", reduced.reason + reduced.output
    time, bus = (reduced.metrics[name].samples[0] for name in ("time", "bus_bandwidth"))
    assert bus == pytest.approx(
        1024 / time * 2 * (2 - 1) / 2
    )  # nccl-tests: S/t · 2 (n − 1)/n
    trained = records["scaling_ddp_nodes_gloo", 2, 32, "weak"]
    assert trained.status == "ok", trained.reason + trained.output
    assert any(
        check.startswith("DDP's gradient is the mean of the ranks' own")
        for check in trained.checks
    )
    speedup, efficiency = (
        trained.metrics[name].samples[0] for name in ("speedup", "efficiency")
    )
    assert speedup == pytest.approx(2 * efficiency)  # over two ranks
    lacking = records["allreduce_nodes_gloo", "1KiB", 4]
    assert (lacking.status, lacking.reason) == (
        "skipped",
        "needs 4 nodes of a Slurm job, this run has 2 (cluster.yaml: nodes: 4)",
    )


def test_without_slurm_there_is_one_node_and_more_are_refused(
    node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("SLURM_JOB_NUM_NODES", raising=False)
    bench = Bench(node, {})
    assert bench.nodes == 1
    with pytest.raises(UsageError, match="2 nodes are needed, this run has 1; cluster"):
        bench.ranks(print, 2, nodes=2)
    with pytest.raises(UsageError, match="3 ranks cannot be divided evenly among 2 nodes"):
        bench.ranks(print, 3, nodes=2)
