"""Bus bandwidth of collectives over NCCL and gloo, by nccl-tests' definitions."""

from __future__ import annotations

from hpml_plugins import Benchmark, hookimpl
from hpml_plugins.plugins.allreduce.benchmarks import ALLREDUCE_GLOO, ALLREDUCE_NCCL, COLLECTIVES_GLOO, COLLECTIVES_NCCL


@hookimpl
def hpml_benchmarks() -> list[Benchmark]:
    """`allreduce_nccl`, `allreduce_gloo`, `collectives_nccl` and `collectives_gloo`."""
    return [ALLREDUCE_NCCL, ALLREDUCE_GLOO, COLLECTIVES_NCCL, COLLECTIVES_GLOO]
