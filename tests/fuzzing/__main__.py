"""Fuzzing that lasts: python tests/fuzzing [--seconds S] [--cases N] [--seed N] [KIND …]; `make
fuzz SECONDS=600`.

All kinds in turn, each for its share of the time or until it has that many cases. Exit status 1
where a fault was found.
"""

from __future__ import annotations

import argparse
import math
import random
import sys
import tempfile
from pathlib import Path

if __name__ == "__main__":
    sys.path[:0] = [
        str(Path(__file__).resolve().parents[1]),
        str(Path(__file__).resolve().parents[2]),
    ]

from fuzzing.engine import Counts, fuzz, random_cases, show
from fuzzing.kinds import KINDS

#: s beside the share of a kind: to make its seeds and to reduce what it finds.
MORE_TIME = 300.0
LINE = "{:24} {:>9} {:>9} {:>9} {:>6} {:>10} {:>9}"


def main() -> int:
    """Run all kinds; returns the exit status."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument(
        "--cases", type=float, default=math.inf, help="of each kind, at most"
    )
    parser.add_argument("--seed", type=int, default=random.randrange(2**32))
    parser.add_argument("kinds", nargs="*", metavar="KIND", default=list(KINDS))
    asked = parser.parse_args()
    print(f"seed {asked.seed}, {asked.seconds:g} s, {len(asked.kinds)} kinds", flush=True)
    print(
        LINE.format("kind", "cases", "accepted", "refused", "faults", "slowest", "memory"),
        flush=True,
    )
    found = []
    for name in asked.kinds:
        with tempfile.TemporaryDirectory(
            prefix="hpml-fuzz-", ignore_cleanup_errors=True
        ) as folder:
            share = asked.seconds / len(asked.kinds)
            cases = random_cases(KINDS[name], asked.seed, asked.cases, share)
            try:
                found.append(fuzz(KINDS[name], cases, Path(folder), share + MORE_TIME))
            except AssertionError as error:  # the process that reads the cases died
                found.append(Counts(name, faults={"the process ended": (b"", str(error))}))
        _print_line(found[-1])
    faults = sum(len(counts.faults) for counts in found)
    print(
        f"{sum(counts.cases for counts in found):,} cases, {faults} faults, seed {asked.seed}"
    )
    for counts in found:
        if counts.faults:
            print(f"\n{counts.kind}\n{show(counts.faults)}")
    return 1 if faults else 0


def _print_line(counts: Counts) -> None:
    numbers = (
        f"{number:,}"
        for number in (counts.cases, counts.accepted, counts.refused, len(counts.faults))
    )
    print(
        LINE.format(
            counts.kind,
            *numbers,
            f"{1e3 * counts.slowest:,.0f} ms",
            f"{counts.memory / 2**20:+.0f} MiB",
        ),
        flush=True,
    )


if __name__ == "__main__":
    sys.exit(main())
