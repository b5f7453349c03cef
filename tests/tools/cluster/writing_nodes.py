"""Processes that write into one results folder as nodes do, through asv's own classes, and report
what they finished."""

from __future__ import annotations

import multiprocessing
import os
import random
import signal
import time
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from asv import util
from asv.machine import Machine
from asv.results import Results
from support import PATIENCE

from hpml_plugins.asv.patches import apply
from hpml_plugins.model.record import Record
from hpml_plugins.store import Locked, append_record, lock_machine, record_file

COMMIT = "0123456789abcdef" * 2 + "01234567"


def facts(machine: str) -> dict[str, str]:
    return dict.fromkeys(("os", "arch", "cpu", "num_cpu", "ram"), "x") | {
        "machine": machine,
        "gpu": "none",
        "num_gpu": "0",
    }


def benchmark(name: str) -> str:
    return f"{name}.track_n"


def declaration(name: str) -> dict[str, object]:
    return {
        "name": benchmark(name),
        "version": "1",
        "param_names": [],
        "params": [],
        "type": "track",
        "unit": "unit",
    }


def results_of(machine: str) -> Results:
    return Results({**facts(machine), "python": "3"}, {}, COMMIT, 1, "3", "env", {})


def write_round(results: Path, machine: str, number: int) -> None:
    """What `asv run` writes for one measured point: machine, declarations, Record, results."""
    node = Machine()
    node.__dict__.update(facts(machine))
    node.save(str(results))
    name = f"{machine}_{number}"
    util.write_json(
        str(results / "benchmarks.json"), {benchmark(name): declaration(name)}, 2
    )
    done = Record(
        benchmark=name,
        plugin="p",
        version="1",
        params={},
        status="ok",
        machine=machine,
        commit=COMMIT,
        started=float(number),
    )
    append_record(record_file(results, machine, COMMIT), done)
    stored = results_of(machine)
    stored.load_data(str(results))
    stored._results[benchmark(name)] = [float(number)]
    stored._benchmark_params[benchmark(name)] = []
    stored._benchmark_version[benchmark(name)] = "1"
    stored._started_at[benchmark(name)] = number
    stored._stats[benchmark(name)] = None
    stored.save(str(results))


def live(results: Path, machine: str, told: Path, rounds: int) -> None:
    """Write until so many rounds are finished, over all lives of this machine."""
    apply()
    with lock_machine(results, machine, timeout=PATIENCE):
        for number in range(len(finished(told)), rounds):
            write_round(results, machine, number)
            with told.open("ab") as file:
                os.write(file.fileno(), b"x")


def finished(told: Path) -> range:
    return range(told.stat().st_size if told.exists() else 0)


@dataclass
class Outcome:
    """kills: how many.  lost: what was finished and is not there."""

    kills: int
    lost: list[str]


def run(folder: Path, *, machines: int, rounds: int, kills: int, seed: int) -> Outcome:
    """Let machines write at once, kill writers at random moments and start them again, then look
    for what is lost."""
    rng = random.Random(seed)
    results = folder / "results"
    names = [f"m{number}" for number in range(machines)]
    fork = multiprocessing.get_context("fork")
    processes = {}

    def start(name: str) -> None:
        processes[name] = fork.Process(
            target=live, args=(results, name, folder / f"{name}.told", rounds)
        )
        processes[name].start()

    for name in names:
        start(name)
    killed: Counter[str] = Counter()
    while any(process.is_alive() for process in processes.values()):
        time.sleep(rng.uniform(0, 0.03))
        alive = [name for name, process in processes.items() if process.is_alive()]
        if alive and killed.total() < kills:
            name = rng.choice(alive)
            with suppress(ProcessLookupError):
                os.kill(processes[name].pid or 0, signal.SIGKILL)
            processes[name].join()
            killed[name] += 1
            start(name)
    return Outcome(killed.total(), lost(folder, names, rounds))


def lost(folder: Path, names: list[str], rounds: int) -> list[str]:
    from hpml_plugins.store import read_file

    results = folder / "results"
    missing = []
    declared = util.load_json(str(results / "benchmarks.json"), 2)
    for name in names:
        told = finished(folder / f"{name}.told")
        if len(told) != rounds:
            missing.append(f"{name}: ended after {len(told)} of {rounds} rounds")
        damage: list[str] = []
        records = {
            record.benchmark
            for record in read_file(record_file(results, name, COMMIT), damage.append)
        }
        (path,) = results.glob(f"{name}/*-env.json")
        stored = Results.load(str(path), machine_name=name)
        for number in told:
            point = f"{name}_{number}"
            if point not in records:
                missing.append(f"record {point}")
            if benchmark(point) not in declared:
                missing.append(f"declaration {point}")
            if stored.get_result_value(benchmark(point), []) != [float(number)]:
                missing.append(f"result {point}")
        try:
            lock_machine(results, name, timeout=5).release()
        except Locked as error:
            missing.append(str(error))
    if left := list(results.rglob("*.partial")):
        missing.append(f"left over: {left}")
    return missing
