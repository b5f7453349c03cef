"""What a history costs as it grows: `python tests/growth.py 10x5x40 40x5x40` (commits × machines ×
points).

Each size is made in a temporary folder of Records of this repository (the newest ones in three
rounds of points of h200-x1, so that their size is real), whose values are varied by 1 % and written
as new ones are. It is then projected and published, its first and last commit are compared, and it
is published again with one more run. "in git" is the sum of the files as zlib compresses each:
git's packs of results/ are of that size. CPU times are of the process and its children; memory is
the peak of `asv publish`.

With `--short` the Records are those of the benchmark `harness_publish`, one metric of seven samples
each in a single round, half a kB: a million are made in 10 s, and `400x8x320` needs 1 GB on the
disk (as of real size it would need 26 GB). The number of points is then a multiple of 8.

`python tests/growth.py --stored` prints what results/ would take if all its Records were written as
new ones are.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import random
import subprocess
import sys
import tempfile
import time
import zlib
from collections.abc import Sequence
from pathlib import Path

from msgspec.structs import replace
from support import ROOT

from hpml_plugins.measure.gpu_monitor import MOST_ROWS
from hpml_plugins.model.figure import Table
from hpml_plugins.model.record import Record, Series
from hpml_plugins.model.rounds import combine, group_rounds
from hpml_plugins.model.serialization import decode, encode, shorten
from hpml_plugins.plugins.harness import processes
from hpml_plugins.plugins.harness.publish import CARDS, configure, make_history
from hpml_plugins.report.tables import as_markdown
from hpml_plugins.store import (
    append_record,
    commit_order,
    current_records,
    decode_file,
    project,
    record_file,
    record_files,
)

MACHINE = "h200-x1"
#: The points of each benchmark of short Records.
SHORT_POINTS = 8
BYTES = (
    "stored",
    "in git",
    "memory",
    "compare, memory",
    "site",
    "largest file of a point",
    "all points",
    "index.html",
    "projection files",
    "asv's graphs",
    "newest Records",
)


def templates(count: int) -> list[list[Record]]:
    """The rounds of `count` points of MACHINE, of as many benchmarks as there are."""
    order = commit_order(ROOT, ROOT / "results", ["main"])
    rounds: dict[tuple[str, float], list[Record]] = {}
    for path in record_files(ROOT / "results"):
        if path.parent.parent.name == MACHINE:
            for group in group_rounds(decode_file(path, decode)):
                found = [record for _, record in group]
                rounds[found[0].point, found[0].started] = found
    whole = [combine(each) for each in rounds.values()]
    current = [each for each in current_records(whole, order) if each.measured_rounds >= 3]
    by_benchmark: dict[str, list[Record]] = {}
    for each in current:
        by_benchmark.setdefault(each.benchmark, []).append(each)
    ranked = sorted(
        (
            (place, name, each)
            for name, found in by_benchmark.items()
            for place, each in enumerate(found)
        ),
        key=lambda row: row[:2],
    )
    return [rounds[each.point, each.started] for _, _, each in ranked[:count]]


def make(folder: Path, commits: int, machines: int, points: int) -> None:
    """Write a repository and its results."""
    fast_commits(folder, commits)
    hashes = processes.run(["git", "rev-list", "--reverse", "main"], folder).output.split()
    chosen = templates(points)
    names = {each[0].benchmark for each in chosen}
    declared = json.loads((ROOT / "results" / "benchmarks.json").read_text())
    kept = {
        name: each
        for name, each in declared.items()
        if name == "version" or each.get("benchmark") in names
    }
    results = folder / "results"
    results.mkdir()
    (results / "benchmarks.json").write_text(json.dumps(kept))
    dice = random.Random(1)
    for number in range(machines):
        name, gpu, count = (
            f"node{number}",
            CARDS[number % len(CARDS)],
            1 + number // len(CARDS),
        )
        facts = {
            "machine": name,
            "gpu": gpu,
            "num_gpu": str(count),
            "os": "Linux",
            "arch": "x86_64",
            "version": 1,
        }
        (results / name / "records").mkdir(parents=True)
        (results / name / "machine.json").write_text(json.dumps(facts))
        for place, commit in enumerate(hashes):
            lines = []
            for rounds in chosen:
                level = math.exp(dice.gauss(0, 0.01))
                for turn, each in enumerate(rounds):
                    lines.append(
                        encode(_varied(each, name, commit, place, turn, level)) + b"\n"
                    )
            record_file(results, name, commit).write_bytes(b"".join(lines))


def _varied(
    record: Record, machine: str, commit: str, place: int, turn: int, level: float
) -> Record:
    started = processes.STARTED + place * processes.DAY + turn * 60 + record.started % 60
    metrics = {
        name: replace(
            metric,
            samples=_scaled(metric.samples, level),
            boost=_scaled(metric.boost, level),
        )
        for name, metric in record.metrics.items()
    }
    made = replace(
        record,
        machine=machine,
        commit=commit,
        run=f"run{place}",
        started=started,
        metrics=metrics,
    )
    return thinned(shorten(replace(made, environment="node")))


def _scaled(samples: Sequence[float], level: float) -> list[float]:
    return [each if float(each).is_integer() else each * level for each in samples]


def thinned(record: Record) -> Record:
    """With the GPUs' series at as many rows as are kept of new ones."""

    def halved(found: Series) -> Series:
        while len(next(iter(found.columns.values()))) >= MOST_ROWS:
            found = Series(
                {name: values[::2] for name, values in found.columns.items()}, found.units
            )
        return found

    series = {
        name: halved(each) if name.startswith("gpu") else each
        for name, each in record.series.items()
    }
    return replace(record, series=series)


def stored() -> list[dict[str, str | float]]:
    """What results/ takes as it is, with shorter samples, and with thinned series too, B."""
    ways = {
        "as stored": lambda record: record,
        "samples at nine digits": shorten,
        f"and series below {MOST_ROWS} rows": lambda record: thinned(shorten(record)),
    }
    rows = []
    for name, way in ways.items():
        texts = [
            b"".join(encode(way(record)) + b"\n" for _, record in decode_file(path, decode))
            for path in record_files(ROOT / "results")
        ]
        packed = sum(len(zlib.compress(text)) for text in texts)
        rows.append(
            {
                "Records": name,
                "stored": float(sum(map(len, texts))),
                "in git": float(packed),
            }
        )
    return rows


def fast_commits(folder: Path, count: int) -> None:
    """Commits a day apart, by one process."""
    processes.run(["git", "init", "-q", "-b", "main"], folder)
    made = "".join(
        "commit refs/heads/main\ncommitter made <made@example.invalid>"
        f" {processes.STARTED + place * processes.DAY} +0000\ndata 1\n.\n"
        for place in range(count)
    )
    subprocess.run(
        ["git", "fast-import", "--quiet"], cwd=folder, input=made, text=True, check=True
    )


def publish(folder: Path) -> dict[str, float]:
    """`asv publish`: CPU time, s, that of our pages, s, and peak memory, B."""
    text, used = run(folder, "asv", "publish", "-v")
    ours = float(text.rpartition(" s of one CPU")[0].rpartition("(")[2])
    return {"CPU": used["CPU"], "our pages' CPU": ours, "memory": used["memory"]}


def run(folder: Path, *command: str) -> tuple[str, dict[str, float]]:
    """What a command prints; its CPU time with that of its children, s, and peak memory, B."""
    env = {**os.environ, "HOME": str(folder), "XDG_CACHE_HOME": str(folder / ".cache")}
    with (folder / "said.txt").open("w+") as said:
        child = subprocess.Popen(
            [sys.executable, "-m", *command], cwd=folder, env=env, stdout=said, stderr=said
        )
        _, status, used = os.wait4(child.pid, 0)
        child.returncode = status
        said.seek(0)
        text = said.read()
    assert not status, text[-2000:]
    cpu = used.ru_utime + used.ru_stime
    return text, {"CPU": cpu, "memory": used.ru_maxrss * 1024.0}


def add_run(file: Path) -> None:
    """Append the Records of a file once more, as those of a later run."""
    for _, record in list(decode_file(file, decode)):
        append_record(
            file, replace(record, run="again", started=record.started + processes.DAY / 2)
        )


def size(folder: Path, pattern: str = "*") -> float:
    """B of all files."""
    return float(
        sum(each.stat().st_size for each in folder.rglob(pattern) if each.is_file())
    )


def grow(commits: int, machines: int, points: int, *, short: bool) -> dict[str, float]:
    """One size, in a temporary folder.  short: of short Records."""
    with tempfile.TemporaryDirectory(prefix="hpml-growth-") as name:
        folder = Path(name)
        if short:
            make_history(folder, commits, machines, points // SHORT_POINTS, SHORT_POINTS)
        else:
            make(folder, commits, machines, points)
        records = size(folder / "results", "*.jsonl")
        configure(folder)
        started = time.process_time()
        project(folder / "results")
        projected = time.process_time() - started
        found = publish(folder)
        html = folder / "html"
        largest = max(
            (each.stat().st_size for each in (html / "workload").glob("*/*.js")), default=0
        )
        site = size(html)
        ends = processes.run(["git", "rev-list", "main"], folder).output.split()
        _, compared = run(folder, "hpml_plugins", "compare", ends[-1], ends[0])
        newest = max((folder / "results" / "node0" / "records").glob("*.jsonl"))
        add_run(newest)
        again = publish(folder)
        packed = sum(
            len(zlib.compress(each.read_bytes()))
            for each in (folder / "results").rglob("*")
            if each.is_file()
        )
        return {
            "commits": commits,
            "machines": machines,
            "points": points,
            "Records": commits * machines * points,
            "stored": records,
            "projection files": size(folder / "results", "*.json"),
            "in git": float(packed),
            "projection": projected,
            **found,
            "compare, CPU": compared["CPU"],
            "compare, memory": compared["memory"],
            "CPU with one more run": again["CPU"],
            "our pages' CPU with one more run": again["our pages' CPU"],
            "site": site,
            "largest file of a point": float(largest),
            "all points": float((html / "compare" / "points.js").stat().st_size),
            "index.html": float((html / "index.html").stat().st_size),
            "asv's graphs": size(html / "graphs") if (html / "graphs").is_dir() else 0.0,
            "newest Records": size(html / "data") if (html / "data").is_dir() else 0.0,
        }


def main() -> None:
    """The command."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("sizes", nargs="*", help="COMMITSxMACHINESxPOINTS")
    parser.add_argument(
        "--short",
        action="store_true",
        help="short Records, of which a million fit on a disk",
    )
    parser.add_argument(
        "--stored", action="store_true", help="what the Records of this repository take"
    )
    chosen = parser.parse_args()
    units = dict.fromkeys(BYTES, "B") | dict.fromkeys(
        (
            "projection",
            "CPU",
            "our pages' CPU",
            "compare, CPU",
            "CPU with one more run",
            "our pages' CPU with one more run",
        ),
        "s",
    )
    rows = []
    for each in chosen.sizes:
        rows.append(grow(*map(int, each.split("x")), short=chosen.short))
        print(as_markdown(Table.of(rows[-1:], units)), flush=True)
    if chosen.stored:
        print(as_markdown(Table.of(stored(), {"stored": "B", "in git": "B"})))


if __name__ == "__main__":
    main()
