"""The share of a collective's size that crosses a link."""

from __future__ import annotations

from hpml_plugins.errors import HpmlError


def bus_factor(collective: str, ranks: int) -> float:
    """Bus bandwidth over algorithm bandwidth: the share of the size that crosses a link, for n
    ranks on equal links.

    The size is that of the larger buffer on one rank. Raises HpmlError for fewer than two ranks,
    because nothing crosses a link, and for another collective.  Source: NVIDIA, nccl-tests,
    doc/PERFORMANCE.md, "Bus bandwidth"; for a ring: Patarasuk & Yuan, Bandwidth optimal all-reduce
    algorithms for clusters of workstations, J. Parallel Distrib. Comput. 69 (2009), 117–124,
    section 4.
    """
    if ranks < 2:
        raise HpmlError(
            f"{ranks} rank has no bus bandwidth: nothing crosses a link; use two or more"
        )
    share = (ranks - 1) / ranks
    factors = {
        "all_reduce": 2 * share,
        "all_gather": share,
        "reduce_scatter": share,
        "broadcast": 1.0,
    }
    if collective not in factors:
        raise HpmlError(f"no collective {collective!r}; use one of {', '.join(factors)}")
    return factors[collective]
