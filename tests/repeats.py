"""How often equal code is called different: over all pairs of Records in results/ of one point and one plugin code.

python tests/repeats.py [RESULTS]
"""

from __future__ import annotations

import itertools
import sys
from collections import Counter, defaultdict
from pathlib import Path

from hpml_plugins.model.record import Record
from hpml_plugins.model.variability import Variability, kind_of
from hpml_plugins.store import read_records

Pair = tuple[Record, Record, str]


def pairs_of_equal_code(records: list[Record]) -> list[Pair]:
    """(A, B, metric) of each two Records of one machine, point and plugin code; not of what is counted."""
    groups = defaultdict(list)
    for record in records:
        if record.status == "ok":
            groups[record.machine, record.point, record.source.get("sha256") or record.commit].append(record)
    return [
        (a, b, name)
        for group in groups.values()
        for a, b in itertools.combinations(group, 2)
        for name, metric in a.metrics.items()
        if name in b.metrics and kind_of(a, metric) != "counted"
    ]


def not_covered(known: Variability, pair: Pair) -> bool:
    """Whether one's 95 % interval does not hold the other's median."""
    a, b, name = pair
    one, other = (known.reading(each, name).estimate for each in (a, b))
    if one.low is None or one.high is None or other.low is None or other.high is None:
        return False
    return not (one.low <= other.value <= one.high and other.low <= one.value <= other.high)


def main(results: Path) -> None:
    """Print the shares, of all pairs and by how they were measured."""
    records = list(read_records(results))
    known = Variability(records)
    pairs = pairs_of_equal_code(records)
    runs: dict[tuple[str, ...], list[Pair]] = defaultdict(list)
    for a, b, name in pairs:
        runs[a.machine, a.run, a.commit, b.run, b.commit].append((a, b, name))
    verdicts = Counter(found.verdict for asked in runs.values() for found in known.compare(asked))
    kinds: dict[str, list[bool]] = defaultdict(list)
    for pair in pairs:
        kinds[kind_of(pair[0], pair[0].metrics[pair[2]])].append(not_covered(known, pair))
    for kind, missed in sorted(kinds.items()):
        print(f"{kind:40} {len(missed):6} pairs, {sum(missed) / len(missed):6.2%} not covered")
    missed = [each for of_kind in kinds.values() for each in of_kind]
    called = verdicts["BETTER"] + verdicts["WORSE"]
    print(f"{'all':40} {len(missed):6} pairs, {sum(missed) / len(missed):6.2%} not covered")
    print(f"verdicts: {dict(verdicts)}; BETTER or WORSE {called / len(pairs):.2%}")


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else "results"))
