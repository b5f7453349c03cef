"""PALEO: the time of a model predicted from FLOP, bytes and a card's published peak, and compared
with this node's."""

from __future__ import annotations

from hpml_plugins import Benchmark, Figure, hookimpl
from hpml_plugins.plugins.paleo.communication import COMMUNICATION
from hpml_plugins.plugins.paleo.measure import MEASURE
from hpml_plugins.plugins.paleo.predict import PREDICT


@hookimpl
def hpml_benchmarks() -> list[Benchmark]:
    """`paleo_predict`, `paleo_measure` and `paleo_communication`."""
    return [PREDICT, MEASURE, COMMUNICATION]


@hookimpl
def hpml_figures() -> list[Figure]:
    """The charts `predicted`, `against` and `ppp`; the tables `sums` and `communication`."""
    from hpml_plugins.plugins.paleo.charts import FIGURES

    return FIGURES
