"""The tables of benchmarks/pages/measuring.md, as Markdown, from the Records in results/.

    python tests/measurement_tables.py repeats     how often equal code is called different python
    tests/measurement_tables.py power       how often a known slow-down is found (harness_slowdown)
    python tests/measurement_tables.py fidelity    event timing against ncu and do_bench
    (harness_fidelity) python tests/measurement_tables.py spread      over ten runs on one card, and
    between cards (harness_spread) python tests/measurement_tables.py energy      on several cards;
    counted against integrated (harness_energy) python tests/measurement_tables.py overhead    of a
    point, of watching it, of the clocks (harness_*) python tests/measurement_tables.py hosts
    what predicts a time that the host bounds, over hosts (machine_*) python
    tests/measurement_tables.py core        how far the core's rate explains CPU times, over rounds

--commit PREFIX, once or more, takes only Records of these commits. The variances are estimated from
all Records.
"""

from __future__ import annotations

import argparse
import itertools
import math
import statistics
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
from msgspec.structs import replace
from scipy.stats import binomtest, chi2

from hpml_plugins.analysis.measured import card_of, code_of
from hpml_plugins.analysis.physics import Physics, compared_metrics, physics_of
from hpml_plugins.analysis.sides import boosted
from hpml_plugins.analysis.variability import Variability
from hpml_plugins.analysis.verdicts import Difference, ValuePair, compare_values
from hpml_plugins.model.figure import Table
from hpml_plugins.model.formatting import format_point, quantity
from hpml_plugins.model.record import Record
from hpml_plugins.model.rounds import group_rounds
from hpml_plugins.plugins.machine.charts import predictors, with_core_rate
from hpml_plugins.report.tables import as_markdown
from hpml_plugins.store import read_records, stored_rounds

Pair = tuple[Record, Record, str]
#: Comparisons that `hpml compare` is asked for at once, in the second column of `power`.
AT_ONCE = 40
#: s: below this an error of timing is told in µs, above it in %.
SHORT = 50e-6
#: The name that `power` gives to the samples of the regime `boost`.
BOOST = "boost"


def markdown(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table."""
    lines = [header, ["---"] * len(header), *rows]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in lines)


def share(hits: int, of: int) -> str:
    """A share with its 95 % interval. Source: Wilson, JASA 22 (1927)."""
    interval = binomtest(hits, of).proportion_ci(method="wilson")
    return f"{hits / of:.0%} ({interval.low:.0%} to {interval.high:.0%})"


# ---- repeats


def pairs_of_equal_code(records: Sequence[Record]) -> list[Pair]:
    """(A, B, metric) of each two Records of one machine, point and plugin code; not of what is
    counted."""
    groups = defaultdict(list)
    for record in records:
        if record.status == "ok":
            groups[record.machine, record.point, code_of(record)].append(record)
    return [
        (a, b, name)
        for group in groups.values()
        for a, b in itertools.combinations(group, 2)
        for name in compared_metrics(a)
        if name in b.metrics and physics_of(a, name) is not Physics.COUNTED
    ]


def compare(known: Variability, pairs: Sequence[Pair]) -> list[Difference]:
    """A verdict on each pair, all asked at once; of BOOST in that regime."""
    asked = []
    for a, b, name in pairs:
        sides = known.values(a), known.values(b)
        one, other = map(boosted, sides) if name == BOOST else sides
        asked.append(ValuePair(len(asked), one, other, name))
    return compare_values(asked)


def not_covered(known: Variability, pair: Pair) -> bool:
    """Whether one's 95 % interval does not hold the other's median."""
    a, b, name = pair
    one, other = (known.reading(each, name).estimate for each in (a, b))
    if one.low is None or one.high is None or other.low is None or other.high is None:
        return False
    return not (one.low <= other.value <= one.high and other.low <= one.value <= other.high)


def repeats(records: Sequence[Record], chosen: Sequence[Record]) -> str:
    """The shares, of all pairs and by how they were measured; a verdict is asked for all pairs of
    two runs at once."""
    known = Variability(records)
    pairs = pairs_of_equal_code(chosen)
    runs: dict[tuple[str, ...], list[Pair]] = defaultdict(list)
    kinds: dict[str, list[bool]] = defaultdict(list)
    for a, b, name in pairs:
        runs[a.machine, a.run, a.commit, b.run, b.commit].append((a, b, name))
        kinds[physics_of(a, name)].append(not_covered(known, (a, b, name)))
    verdicts = Counter(
        found.verdict for asked in runs.values() for found in compare(known, asked)
    )
    kinds["all"] = [each for of_kind in kinds.values() for each in of_kind]
    rows = [
        (kind, f"{len(missed):,}", f"{sum(missed) / len(missed):.2%}")
        for kind, missed in sorted(kinds.items())
    ]
    called = verdicts["BETTER"] + verdicts["WORSE"]
    counts = ", ".join(f"{verdict} {count:,}" for verdict, count in verdicts.most_common())
    return (
        f"{markdown(['kind', 'pairs', 'interval does not contain the other value'], rows)}\n\n"
        f"Verdicts: {counts}; BETTER or WORSE {called / max(1, len(pairs)):.2%}"
    )


# ---- power


class Group(NamedTuple):
    """What a row of the table is of: kernel, regime, slow-down in %, and whether both runs were on
    one card."""

    kernel: str
    regime: str
    slowdown: int
    same_card: bool


def with_boost(record: Record) -> Record:
    """The Record with its time a second time, under the name BOOST, where it has boost samples; see
    `compare`."""
    time = record.metrics.get("time")
    return (
        replace(record, metrics={**record.metrics, BOOST: time})
        if time and time.boost
        else record
    )


def _median(record: Record, name: str) -> float:
    metric = record.metrics[name]
    boost = metric.boost_median if name == BOOST else None
    return metric.value if boost is None else boost


def slowed_pairs(records: Iterable[Record]) -> Iterator[tuple[Group, Pair]]:
    """Each run without a slow-down (A) against each other run with one (B), of the same machine
    type and plugin code.

    B says of itself that it has none, as the next commit would. The slow-down 0 shows the false
    alarms.
    """
    groups: dict[tuple[str, ...], list[Record]] = defaultdict(list)
    for record in records:
        groups[record.machine, code_of(record), str(record.params["kernel"])].append(record)
    for (*_, kernel), group in groups.items():
        for a, b in itertools.permutations(group, 2):
            if a.params["slowdown"] != 0 or (a.run, a.commit) == (b.run, b.commit):
                continue
            for name in ("time", BOOST):
                if name in a.metrics and name in b.metrics:
                    regime = (
                        BOOST
                        if name == BOOST
                        else a.metrics[name].regime or "not throttled"
                    )
                    of = Group(
                        kernel, regime, int(b.params["slowdown"]), card_of(a) == card_of(b)
                    )
                    yield of, (a, replace(b, params={**b.params, "slowdown": 0}), name)


def beside_equal_pairs(pair: Pair, count: int) -> list[Pair]:
    """The pair, and others of which nothing differs, `count` in all: what the correction takes from
    one true change.

    The others differ by one part in 10⁹, for equal values are not counted as asked.
    """
    a, _, name = pair
    metric = a.metrics[name]
    samples, boost = (
        [value * (1 + 1e-9) for value in each] for each in (metric.samples, metric.boost)
    )
    same = replace(metric, samples=samples, boost=boost)
    equal = (a, replace(a, metrics={**a.metrics, name: same}), name)
    return [pair, *[equal] * (count - 1)]


def power(records: Sequence[Record], chosen: Sequence[Record]) -> str:
    """The share of pairs called WORSE, asked alone and among others, and BETTER.

    Variability learns from the same Records: the runs without slow-down give the variance between
    runs and cards, and those with one add to it as further points of the class. The pairs share
    runs, so they are not independent, and the true interval of a share is wider than the one shown.
    """
    known = Variability(map(with_boost, records))
    groups: dict[Group, list[Pair]] = defaultdict(list)
    slowed = [
        with_boost(each)
        for each in chosen
        if each.benchmark == "harness_slowdown" and each.status == "ok"
    ]
    for of, pair in slowed_pairs(slowed):
        groups[of].append(pair)
    rows = []
    for of, pairs in sorted(
        groups.items(), key=lambda item: (*item[0][:3], not item[0].same_card)
    ):
        alone = Counter(compare(known, [pair])[0].verdict for pair in pairs)
        among = Counter(
            compare(known, beside_equal_pairs(pair, AT_ONCE))[0].verdict for pair in pairs
        )
        ratio = statistics.median(
            _median(b, name) / _median(a, name) for a, b, name in pairs
        )
        rows.append(
            [
                of.kernel,
                of.regime,
                f"{of.slowdown} %",
                "same" if of.same_card else "other",
                f"{ratio - 1:+.2%}",
            ]
            + [
                share(found[verdict], len(pairs))
                for found, verdict in ((alone, "WORSE"), (among, "WORSE"))
            ]
            + [share(alone["BETTER"], len(pairs)), str(len(pairs))]
        )
    header = [
        "kernel",
        "regime",
        "slow-down",
        "card",
        "measured",
        "WORSE",
        f"WORSE, {AT_ONCE} asked",
        "BETTER",
        "pairs",
    ]
    return markdown(header, rows)


# ---- fidelity


def fidelity(_: Sequence[Record], chosen: Sequence[Record]) -> str:
    """The newest Record of each kernel and card. What was measured in two regimes has two rows."""
    newest: dict[tuple[str, str], Record] = {}
    for record in sorted(chosen, key=lambda record: record.started):
        if record.benchmark == "harness_fidelity" and record.status == "ok":
            newest[str(record.params["case"]), card_of(record)] = record
    cards = {
        card: f"{number + 1}"
        for number, card in enumerate(sorted({card for _, card in newest}))
    }
    rows = []
    for (case, card), record in newest.items():
        for regime in ("boost", "sustained") if record.metrics["hot"].boost else ("",):
            rows.append(
                [
                    f"{case}, {regime}" if regime else case,
                    cards[card],
                    *_against_peers(record, regime),
                ]
            )
    header = [
        "kernel",
        "card",
        "hot",
        "ncu",
        "error",
        "cold",
        "ncu, caches emptied",
        "error",
        "dirty",
        "do_bench",
        "",
    ]
    return f"µs\n\n{markdown(header, sorted(rows))}"


def _against_peers(record: Record, regime: str) -> Iterator[str]:
    for ours, theirs in (("hot", "ncu_hot"), ("cold", "ncu_cold"), ("dirty", "do_bench")):
        metric, peer = record.metrics[ours], record.metrics[theirs].value
        mine = metric.boost_median if regime == "boost" else metric.value
        if mine is None:  # this way of timing it did not throttle
            mine = metric.value
        off = (
            f"{(mine - peer) * 1e6:+.2f} µs" if peer < SHORT else f"{mine / peer - 1:+.2%}"
        )
        yield from (f"{mine * 1e6:.2f}", f"{peer * 1e6:.2f}", off)


# ---- spread


def spread(_: Sequence[Record], chosen: Sequence[Record]) -> str:
    """On one card: pooled over the Records of all cards. Between cards: of the cards' mean
    values."""
    cases: dict[str, list[Record]] = defaultdict(list)
    for record in chosen:
        if (
            record.benchmark == "harness_spread"
            and record.status == "ok"
            and "boost_variation" in record.metrics
        ):
            cases[str(record.params["case"])].append(record)
    rows = []
    for case, records in cases.items():
        throttled = any(record.value("time") != record.value("boost") for record in records)
        for name in ("time", "boost") if throttled else ("time",):
            regime = (
                {"time": "sustained", "boost": "boost"}[name]
                if throttled
                else "not throttled"
            )
            rows.append([case, regime, *_spread_of(records, name)])
    header = [
        "kernel",
        "regime",
        "µs",
        "CV on one card",
        "Records",
        "CV between cards",
        "cards",
    ]
    return markdown(header, sorted(rows))


def _spread_of(records: Sequence[Record], name: str) -> Iterator[str]:
    times = [record.metrics[name].value for record in records]
    lowest, highest = f"{min(times) * 1e6:.4g}", f"{max(times) * 1e6:.4g}"
    yield lowest if lowest == highest else f"{lowest} to {highest}"
    squares = [record.metrics[f"{name}_variation"].value ** 2 for record in records]
    runs = [
        len(record.series["runs"].columns[name]) if "runs" in record.series else 2
        for record in records
    ]
    yield deviation(math.sqrt(statistics.fmean(squares)), sum(runs) - len(runs))
    yield str(len(records))
    cards: dict[str, list[float]] = defaultdict(list)
    for record, time in zip(records, times, strict=True):
        cards[card_of(record)].append(math.log(time))
    levels = [statistics.fmean(values) for values in cards.values()]
    yield deviation(statistics.stdev(levels), len(levels) - 1) if len(levels) > 1 else ""
    yield str(len(cards))


def deviation(value: float, freedom: int) -> str:
    """A standard deviation with its 95 % interval, by the χ² distribution. freedom: degrees of
    freedom."""
    low, high = (value * math.sqrt(freedom / chi2.ppf(q, freedom)) for q in (0.975, 0.025))
    return f"{value:.2%} ({low:.2%} to {high:.2%})"


# ---- energy


def energy(records: Sequence[Record], chosen: Sequence[Record]) -> str:
    """The energy of each point on each card, with the interval; then how well the counter agrees
    with the power."""
    known = Variability(records)
    points: dict[str, dict[str, list[Record]]] = defaultdict(lambda: defaultdict(list))
    for record in sorted(chosen, key=lambda record: record.started):
        if record.status == "ok" and "energy" in record.metrics and record.node.get("gpus"):
            size = f" size={record.value('size'):.0f}" if "size" in record.metrics else ""
            points[f"`{record.benchmark}` {format_point(record.params)}{size}"][
                card_of(record)
            ].append(record)
    cards = {
        card: str(number + 1)
        for number, card in enumerate(
            sorted({card for of in points.values() for card in of})
        )
    }
    rows = []
    for point, of_cards in sorted(points.items()):
        pairs = [
            (a[-1], b[-1], "energy")
            for a, b in itertools.combinations(of_cards.values(), 2)
        ]
        covered = (
            f"{sum(not not_covered(known, pair) for pair in pairs)} of {len(pairs)}"
            if pairs
            else ""
        )
        for card, found in sorted(of_cards.items()):
            metric = found[-1].metrics["energy"]
            shown = known.reading(found[-1], "energy").estimate
            half = f" ± {shown.high / shown.value - 1:.1%}" if shown.high else ""
            power = " of ".join(
                f"{watts:.0f}"
                for name in ("idle_power", "power")
                if (watts := metric.info.get(name))
            )
            rows.append(
                [
                    point,
                    cards[card],
                    f"{quantity(metric.value, 'J')}{half}",
                    power,
                    covered,
                ]
            )
    header = [
        "point",
        "card",
        "energy",
        "idle power of power, W",
        "pairs of cards that agree",
    ]
    return f"{markdown(header, rows)}\n\n{_validation(chosen, cards)}"


def _validation(chosen: Sequence[Record], cards: dict[str, str]) -> str:
    newest = {
        (str(record.params["case"]), float(record.params["load"]), card_of(record)): record
        for record in sorted(chosen, key=lambda record: record.started)
        if record.benchmark == "harness_energy"
        and record.status == "ok"
        and record.version != "1"
    }
    rows = []
    for (case, load, card), record in sorted(newest.items()):
        counted, integrated = (
            record.metrics[name].value for name in ("counted", "integrated")
        )
        twice = (
            f"{record.metrics['doubling'].value:.4f}"
            if "doubling" in record.metrics
            else ""
        )
        error = f"{integrated / counted - 1:+.2%}"
        rows.append(
            [
                case,
                f"{load:g}",
                cards.get(card, ""),
                f"{counted:.1f}",
                f"{integrated:.1f}",
                error,
                twice,
            ]
        )
    header = [
        "kernel",
        "load",
        "card",
        "counted, W",
        "integrated, W",
        "difference",
        "energy of two calls / 2 of one",
    ]
    return markdown(header, rows)


# ---- overhead

OVERHEAD = (
    "asv",
    "point",
    "first_kernel",
    "watcher",
    "gpu_timer",
    "timer",
    "list",
    "startup",
    "plan",
)


def overhead(_: Sequence[Record], chosen: Sequence[Record]) -> str:
    """The newest Record of each benchmark that measures a cost, of each machine and point."""
    newest = {
        (record.machine, record.benchmark, format_point(record.params)): record
        for record in sorted(chosen, key=lambda record: record.started)
        if record.status == "ok"
        and record.benchmark in [f"harness_{name}" for name in OVERHEAD]
    }
    rows = [
        [
            machine,
            f"`{benchmark}` {point}".strip(),
            name,
            quantity(metric.value, metric.unit),
            record.commit[:8],
        ]
        for (machine, benchmark, point), record in sorted(newest.items())
        for name, metric in record.metrics.items()
    ]
    return markdown(["machine", "benchmark", "metric", "value", "commit"], rows)


# ---- hosts


def hosts(_: Sequence[Record], chosen: Sequence[Record]) -> str:
    """`machine.predictors` over the starts of hosts with a GPU in place of machines: of each the
    newest Records."""
    known = (
        record
        for record in sorted(chosen, key=lambda record: record.started)
        if record.status == "ok"
    )
    of_hosts = [
        replace(record, machine=str(record.node["boot"]))
        for record in known
        if record.plugin == "machine" and record.gpus and record.node.get("boot")
    ]
    columns = {
        name.replace("machines", "hosts"): cells
        for name, cells in predictors(of_hosts).columns.items()
    }
    return as_markdown(Table(columns))


# ---- core

#: Rounds of a point whose times and rates are told.
FEWEST_ROUNDS = 6


def core(_: Sequence[Record], rounds: Sequence[Record]) -> str:
    """Of each CPU time how it follows the rate of the core that was sampled with it, over the
    rounds of equal points on equal CPUs, whichever machines have them.

    slope: of the logarithms; −1: the time is inversely proportional to the rate.  spread: the 90th
    percentile over the 10th; `left`: of what the line through the logarithms does not explain.
    """
    known = [[each for _, each in group] for group in group_rounds(enumerate(rounds))]
    kept = itertools.chain(
        *(group for group in known if all(each.status != "retracted" for each in group))
    )
    rows = []
    for record, name, timed in with_core_rate(kept):
        rates, times = (
            [math.log(each.rate) for each in timed],
            [math.log(each.time) for each in timed],
        )
        if len(timed) < FEWEST_ROUNDS or 1 in (len(set(rates)), len(set(times))):
            continue
        slope, start = statistics.linear_regression(rates, times)
        left = [
            time - slope * rate - start for rate, time in zip(rates, times, strict=True)
        ]
        r = statistics.correlation(rates, times)
        spreads = [
            f"{math.exp(float(np.ptp(np.quantile(each, [0.1, 0.9])))):.2f}"
            for each in (rates, times, left)
        ]
        point = f"`{record.benchmark}.{name}` {format_point(record.params)}".strip()
        cpu = str(record.node.get("cpu", ""))
        rows.append([cpu, point, str(len(timed)), f"{r:+.2f}", f"{slope:+.2f}", *spreads])
    header = [
        "CPU",
        "time",
        "rounds",
        "correlation",
        "slope",
        "spread of the rate",
        "of the time",
        "left",
    ]
    return markdown(header, rows)


TABLES: dict[str, Callable[[Sequence[Record], Sequence[Record]], str]] = {
    table.__name__: table
    for table in (repeats, power, fidelity, spread, energy, overhead, hosts, core)
}


def main(arguments: Sequence[str] | None = None) -> None:
    """Print one table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("table", choices=TABLES)
    parser.add_argument("--results", type=Path, default=Path("results"))
    parser.add_argument("--commit", action="append", default=[], metavar="PREFIX")
    given = parser.parse_args(arguments)
    records = (
        stored_rounds(given.results)
        if given.table == "core"
        else list(read_records(given.results))
    )
    chosen = [
        each
        for each in records
        if not given.commit or each.commit.startswith(tuple(given.commit))
    ]
    print(TABLES[given.table](records, chosen))


if __name__ == "__main__":
    main()
