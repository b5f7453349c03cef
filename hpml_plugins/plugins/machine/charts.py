"""The figures: the node, copies between host and GPU, pairs of GPUs, the staircase, collectives,
the host."""

from __future__ import annotations

import itertools
import math
import statistics
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from hpml_plugins import Axis, Figure, Record, Table, line_chart
from hpml_plugins.plugins.machine import diagram
from hpml_plugins.plugins.machine.units import size_in_bytes

DIRECTIONS = ("to_device", "to_host", "both")
#: Candidate predictors of a host-bound step: benchmark, metric, and whether higher is faster.
PREDICTORS = (
    ("machine_core", "python", True),
    ("machine_core", "multiply_add", True),
    ("machine_core", "page_fault", False),
    ("machine_triad", "one_thread", True),
    ("machine_triad", "bandwidth", True),
)
#: Host-bound times.
HOST_BOUND = (
    ("machine_launch", "eager"),
    ("machine_launch", "numba"),
    ("machine_launch", "streams"),
    ("machine_launch", "round_trip"),
    ("machine_calls", "event_record"),
    ("machine_calls", "synchronize"),
    ("machine_compile", "warm"),
)
#: A correlation over fewer values is meaningless.
FEWEST_VALUES = 3


def host_copies(records: Sequence[Record]) -> Table:
    """Bytes copied over time, in GPU 0's and the others' rows; both: in both directions together. A
    copy of 4 KiB shows its latency. Pageable memory is staged by the driver.
    """
    rows = [
        {
            "machine": record.machine,
            "gpu": record.params["gpu"],
            "memory": record.params["memory"],
            "size": float(size_in_bytes(str(record.params["size"]))),
            "direction": direction.replace("_", " "),
            "bandwidth": record.value(direction),
            "time": record.value(f"{direction}_time"),
        }
        for record in records
        for direction in DIRECTIONS
        if direction in record.metrics
    ]
    return Table.of(rows, {"size": "B", "bandwidth": "B/s", "time": "s"}).sorted(
        "machine", "memory", "direction", "gpu", "size"
    )


def spread_over_gpus(records: Sequence[Record]) -> Table:
    """The same pinned copy on each GPU of a node. spread: (highest − lowest) / median over its
    GPUs."""
    table = host_copies(records).filtered(lambda row: row["memory"] == "pinned")
    rows: list[dict[str, Any]] = []
    for (machine, size, direction), group in table.groups("machine", "size", "direction").items():
        rates: list[Any] = [row["bandwidth"] for row in group]
        middle = statistics.median(rates)
        rows.append(
            {
                "machine": machine,
                "direction": direction,
                "size": size,
                "gpus": len(rates),
                "lowest": min(rates),
                "median": middle,
                "highest": max(rates),
                "spread": (max(rates) - min(rates)) / middle,
            }
        )
    units = {"size": "B", "lowest": "B/s", "median": "B/s", "highest": "B/s", "spread": "1"}
    return Table.of(rows, units).filtered(lambda row: row["gpus"] > 1)


def pairs(records: Sequence[Record]) -> Table:
    """Bandwidth of a copy of 1 GiB from one GPU (row) to another (column); both ways: the bytes of
    both directions."""
    ways = {"one": "one way", "both": "both ways at once"}
    return Table.of_series(
        records, "pairs", more=lambda record: {"way": ways[str(record.params["way"])]}
    )


def staircase(records: Sequence[Record]) -> Table:
    """Read bandwidth by working set, all multiprocessors together: small sets stay in the L1
    caches, larger ones in the L2, the largest in memory.
    """
    return Table.of_series(records, "staircase")


def collectives(records: Sequence[Record]) -> Table:
    """Time of a collective by the bytes that each rank sends. Short messages show the latency."""

    def point(record: Record) -> dict[str, Any]:
        return {
            "over": record.params.get("over", "gloo"),
            "collective": str(record.params["collective"]).replace("_", "-"),
            "ranks": record.params["ranks"],
        }

    return Table.of_series(records, "sizes", more=point).sorted(
        "over", "machine", "ranks", "collective", "size"
    )


def triad(records: Sequence[Record]) -> Table:
    """STREAM's triad on the host by threads: 24 B for each element of float64."""
    return Table.of_series(records, "threads")


def log_correlation(xs: Sequence[float], ys: Sequence[float]) -> float | None:
    """Pearson's correlation of the logarithms; None for fewer than FEWEST_VALUES pairs, and if one
    is constant.

    Of y = x² it is 1, of y = 1 / x it is −1.
    """
    if len(xs) < FEWEST_VALUES:
        return None
    try:
        return statistics.correlation(
            *([math.log(value) for value in values] for values in (xs, ys))
        )
    except statistics.StatisticsError:
        return None  # one is constant


class Timed(NamedTuple):
    """One CPU time as sampled on one machine: in one round, or in all rounds of a Record. rate: of
    the core, 1/s."""

    machine: str
    rate: float
    time: float


def with_core_rate(records: Iterable[Record]) -> Iterator[tuple[Record, str, list[Timed]]]:
    """The CPU times with a rate of the core, of equal points, code and environment on equal CPUs.

    Each with its first Record and the metric's name. A Record of several rounds gives one value per
    round if its samples have `core_rates`, else one: the harness joins the rounds' `core_rate` to
    their median.
    """
    groups: dict[tuple[object, ...], tuple[Record, str, list[Timed]]] = {}
    for record in records:
        code = (
            record.source.get("sha256") or record.commit,
            record.source.get("package"),
            record.environment,
        )
        for name, metric in record.metrics.items():
            rate, rates = (
                metric.info.get("core_rate"),
                str(metric.info.get("core_rates", "")).split("; "),
            )
            if metric.unit != "s" or not isinstance(rate, int | float):
                continue
            pairs = [(float(rate), metric.value)]
            if len(rates) == len(metric.round_values) > 1:
                pairs = list(zip(map(float, rates), metric.round_values, strict=True))
            key = (
                str(record.node.get("cpu", "")),
                record.benchmark,
                name,
                str(record.params),
                code,
            )
            groups.setdefault(key, (record, name, []))[2].extend(
                Timed(record.machine, *pair) for pair in pairs
            )
    for _, group in sorted(groups.items(), key=lambda item: tuple(map(str, item[0]))):
        yield group


def predictors(records: Sequence[Record]) -> Table:
    """Predictors of host-bound times, for each time the best first. correlation: of the logarithms,
    +1 where a host that is k times better has a time that falls with k; of at least 3 values,
    empty: too few yet. The core's rate was sampled with the time, on equal CPUs: one value per
    round, where all rounds are known. Of the others there is one value per machine. largest /
    smallest: of these values.
    """
    values = {
        (record.benchmark, name, record.machine): metric.value
        for record in records
        for name, metric in record.metrics.items()
    }
    machines = sorted({record.machine for record in records})
    rows = [
        _over_rounds(*group)
        for group in with_core_rate(records)
        if (group[0].benchmark, group[1]) in HOST_BOUND
    ]
    for (of, time), (benchmark, number, faster) in itertools.product(HOST_BOUND, PREDICTORS):
        known = [
            each
            for each in machines
            if (of, time, each) in values and (benchmark, number, each) in values
        ]
        numbers = [values[benchmark, number, each] for each in known]
        better = numbers if faster else [1 / value for value in numbers]
        times = [values[of, time, each] for each in known]
        rows.append(
            _relation(f"{of}.{time}", f"{benchmark}.{number}", len(known), None, better, times)
        )
    order = [f"{of}.{time}" for of, time in HOST_BOUND]

    def place(row: Mapping[str, Any]) -> tuple[int, float]:
        known = row["correlation"] is not None
        return order.index(row["host-bound time"]), -row["correlation"] if known else 1.0

    return Table.of(sorted((row for row in rows if row), key=place))


def _over_rounds(record: Record, name: str, timed: list[Timed]) -> dict[str, Any] | None:
    machines = len({each.machine for each in timed})
    rates, times = [each.rate for each in timed], [each.time for each in timed]
    rounds = len(timed) if len(timed) > machines else None
    return _relation(
        f"{record.benchmark}.{name}", "core's rate meanwhile", machines, rounds, rates, times
    )


def _relation(
    time: str,
    predictor: str,
    machines: int,
    rounds: int | None,
    better: Sequence[float],
    times: Sequence[float],
) -> dict[str, Any] | None:
    """A row of `predictors`; None for a single value. better: the predictor, higher being
    faster."""
    if len(times) < 2:
        return None
    correlation = log_correlation(better, times)
    return {
        "host-bound time": time,
        "predictor": predictor,
        "machines": machines,
        "rounds": rounds,
        "correlation": None if correlation is None else -correlation,
        "times, largest / smallest": max(times) / min(times),
        "predictor, largest / smallest": max(better) / min(better),
    }


#: Vega-Lite's rectangles, with the numbers in them: none of the chart functions draws a matrix.
HEAT_MAP = {
    "usermeta": {"panel": ["machine", "way"], "across": 2, "needs": ["bandwidth"]},
    "transform": [
        {"calculate": "datum.machine + ', ' + datum.way", "as": "panel"},
        {"calculate": "format(datum.bandwidth / 1e9, '.0f')", "as": "GB/s"},
    ],
    "facet": {"field": "panel", "type": "nominal", "sort": None},
    "spec": {
        "encoding": {
            "x": {"field": "to", "type": "nominal", "title": "to GPU", "axis": {"labelAngle": 0}},
            "y": {"field": "from", "type": "nominal", "title": "from GPU"},
        },
        "layer": [
            {
                "mark": {"type": "rect", "tooltip": True},
                "encoding": {
                    "color": {
                        "field": "bandwidth",
                        "type": "quantitative",
                        "title": "bandwidth, B/s",
                        "legend": {"format": "~s"},
                        "scale": {"range": ["#eef4fb", "#6aa5dc"], "zero": True},
                    }
                },
            },
            {
                "mark": {"type": "text", "fontSize": 11},
                "encoding": {
                    "text": {"field": "GB/s", "type": "nominal"},
                    "color": {"value": "black"},
                },
            },
        ],
    },
}
SIZE = Axis("size", "size", "B", log=True, base=2)
COPY = Axis("bandwidth", "bytes copied, over time", "B/s", zero=True)
STAIRS = line_chart(
    Axis("working_set", "working set", "B", log=True, base=2),
    Axis("bandwidth", "read bandwidth", "B/s", log=True),
    "machine",
)
LATENCY = line_chart(
    SIZE,
    Axis("time", "time", "s", log=True),
    ("over", "collective"),
    dash=("machine", "{ranks} ranks"),
    panel="over",
    independent=("y",),
)
THREADS = line_chart(
    Axis("threads", "threads", log=True, base=2),
    Axis("bandwidth", "bandwidth", "B/s", zero=True),
    "machine",
)
HOST = ("machine_core", "machine_triad", "machine_launch", "machine_calls", "machine_compile")
FIGURES = (
    Figure(
        "node",
        "The parts of a node and the ways between them",
        tuple(dict.fromkeys(each.benchmark for each in diagram.QUANTITIES)),
        diagram.quantities,
        draw=diagram.draw,
    ),
    Figure(
        "host_copies",
        "Copies between host and GPU by size",
        ("machine_host_copy",),
        host_copies,
        line_chart(SIZE, COPY, "direction", dash=("memory", "GPU {gpu}"), panel="machine"),
    ),
    Figure(
        "gpu_spread",
        "Pinned copies: spread over the GPUs of a node",
        ("machine_host_copy",),
        spread_over_gpus,
    ),
    Figure("pairs", "Copies between GPUs", ("machine_peer_copy",), pairs, HEAT_MAP),
    Figure(
        "staircase",
        "Read bandwidth of one GPU by working set",
        ("machine_cache",),
        staircase,
        STAIRS,
    ),
    Figure(
        "collectives",
        "Small collectives",
        ("machine_collective", "machine_collective_gloo"),
        collectives,
        LATENCY,
    ),
    Figure(
        "triad", "Bandwidth of the host's memory by threads", ("machine_triad",), triad, THREADS
    ),
    Figure(
        "predictors",
        "What predicts a step that is bound by the host",
        HOST,
        predictors,
    ),
)
