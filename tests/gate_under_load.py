"""How often the gate's intervals contain the truth beside a load, with real processes: run by hand.

    python tests/gate_under_load.py [--changed 5] [--gates 10] [--rounds 8] [--load 0.5]

A repository of its own has a package whose steps take as long at head as at base, or `--changed`
per cent longer. Both are measured by the gate's own loop, while a process beside it uses `--load`
CPUs in bursts of random lengths. Prints how many intervals exclude the change, and what the
verdicts were. `--pairs FILE` stores the rounds.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import multiprocessing
import os
import random
import tempfile
import time
from argparse import Namespace
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from own_repository import OwnRepository

from hpml_plugins.asv import prepare, read_configuration
from hpml_plugins.run import TimeLimit
from hpml_plugins.tools.gate.budgets import Budgets
from hpml_plugins.tools.gate.command import undecided
from hpml_plugins.tools.gate.sides import PairLoop, build_sides, find_commits
from hpml_plugins.tools.gate.verdicts import GatedValue, judge, looks

PACKAGE = """
    PER_CENT = {per_cent}

    def steps(kind, size):
        if kind == "python":
            return sum(number * number for number in range(size))
        if kind == "sort":
            return sorted(range(size, 0, -1))
        import numpy
        return (numpy.arange(size, dtype=float) + 1.0).sum()
"""
PLUGIN = """
    from hpml_plugins import Benchmark, Metric, hookimpl

    SIZES = {"python": 30, "sort": 3000, "numpy": 30000}

    def measure(bench, *, kind, scale):
        from steps import PER_CENT, steps
        size = SIZES[kind] * scale
        bench.check(bool(steps(kind, size)), "no sum")

        def step():
            for _ in range(100 + PER_CENT):
                steps(kind, size)

        return {"time": bench.time(step, budget=0.3)}

    @hookimpl
    def hpml_benchmarks():
        grid = {"kind": ["python", "sort", "numpy"], "scale": [1, 4]}
        return [Benchmark("steps", measure, [Metric("time", "s", "lower")], grid=grid)]
"""


def make_repository(folder: Path, per_cent: int) -> OwnRepository:
    """A commit, and a work tree whose steps take so much longer."""
    mine = OwnRepository.make(folder)
    mine.write(
        "setup.py",
        "from setuptools import setup\nsetup(name='steps', packages=['steps'])\n",
    )
    mine.write("steps/__init__.py", PACKAGE.format(per_cent=0))
    mine.commit("first")
    mine.hpml("init")
    mine.write("benchmarks/hpml/steps_time.py", PLUGIN)
    mine.write(
        "registry.yaml",
        "version: 1\nplugins:\n  - {name: steps, path: benchmarks/hpml/steps_time.py}\n",
    )
    mine.commit("hpml")
    mine.write(
        "steps/__init__.py", PACKAGE.format(per_cent=per_cent) + "\n    # harmless\n"
    )
    return mine


def use_cpus(share: float) -> None:
    """Work and rest for random times."""
    while True:
        seconds = random.expovariate(2.0)
        end = time.monotonic() + seconds * share
        while time.monotonic() < end:
            sum(range(1000))
        time.sleep(seconds * (1 - share))


@contextlib.contextmanager
def load(cpus: float) -> Iterator[None]:
    """Other processes that use so many CPUs."""
    shares = [1.0] * int(cpus) + ([cpus % 1] if cpus % 1 else [])
    context = multiprocessing.get_context("spawn")
    processes = [
        context.Process(target=use_cpus, args=(share,), daemon=True) for share in shares
    ]
    for each in processes:
        each.start()
    try:
        yield
    finally:
        for each in processes:
            each.terminate()
            each.join()


def run_gates(options: argparse.Namespace) -> list[GatedValue]:
    """What the gate says each time."""
    allowed = Budgets([])
    conf = read_configuration(Path("asv.conf.json"))
    commits = find_commits(Path(), "main", conf.results_dir)
    prepared = prepare(conf, Namespace(machine=None), writes=False)
    values: list[GatedValue] = []
    stored = []
    with build_sides(conf, prepared, commits, [], TimeLimit(600)) as sides:
        for number in range(options.gates):
            loop = PairLoop(
                sides,
                options.rounds,
                TimeLimit(3600),
                lambda pairs: undecided(pairs, allowed, options.rounds),
            )
            loop.run()
            for found in judge(loop.pairs, allowed.of, len(looks(options.rounds))):
                values += found
            stored += [
                [[each.metrics["time"].value for each in pair] for pair in pairs]
                for pairs in loop.pairs
            ]
            print(number + 1, Counter(each.outcome for each in values), flush=True)
    if options.pairs:
        options.pairs.write_text(json.dumps(stored))
    return values


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--changed", type=int, default=0)
    parser.add_argument("--gates", type=int, default=12)
    parser.add_argument("--rounds", type=int, default=8)
    parser.add_argument("--load", type=float, default=0.5)
    parser.add_argument("--pairs", type=Path)
    options = parser.parse_args()
    options.pairs = options.pairs and options.pairs.absolute()
    with tempfile.TemporaryDirectory() as scratch:
        mine = make_repository(Path(scratch), options.changed)
        os.environ["HOME"] = str(mine.home)
        os.chdir(mine.path)
        with load(options.load):
            values = run_gates(options)
        os.chdir("/")
    true = 1 + options.changed / 100
    missed = [
        each
        for each in values
        if not (low_high := each.interval) or not low_high[0] <= true <= low_high[1]
    ]
    print(f"{len(missed)} of {len(values)} intervals exclude {true}")
    print(Counter(each.outcome for each in values))


if __name__ == "__main__":
    main()
