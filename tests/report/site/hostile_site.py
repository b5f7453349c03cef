"""A published site in which every text that a plugin, a machine or a commit can set is a hostile
one."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from hostile_texts import REFERENCES, TEXTS
from records import a_record
from repositories import git
from site_history import H200, Project, benchmark

from hpml_plugins.model.record import Record
from hpml_plugins.store import append_record, record_file

PLUGIN = """
import html
from hpml_plugins import Benchmark, Figure, Metric, Table, hookimpl

TEXTS = {texts!r}

def measure(bench, *, size):
    return {{"time": 1.0}}

def rows(records):
    columns = {{f"{{text}} {{i}}": [text] * len(TEXTS) for i, text in enumerate(TEXTS[:3])}}
    return Table({{**columns, "text": list(TEXTS), "number": list(range(len(TEXTS)))}})

def draw(sheet, table):
    axes = sheet.subplots()
    plain = [text.replace("$", chr(92) + "$") for text in TEXTS]
    for number, text in enumerate(plain):
        axes.plot([0, 1], [number, number], label="." + text)
        axes.text(0, number, text)
    axes.legend()
    axes.set(title=plain[0], xlabel=plain[3], ylabel=plain[5])

@hookimpl
def hpml_benchmarks():
    metrics = [Metric("time", "s", "lower", TEXTS[3])]
    return [
        Benchmark(f"toy{{i}}", measure, metrics=metrics, grid={{"size": list(TEXTS)}}, description=text)
        for i, text in enumerate(TEXTS)
    ]

@hookimpl
def hpml_figures():
    yield Figure("drawn", TEXTS[0], ("toy0",), rows, caption=TEXTS[3], draw=draw)
    for i, text in enumerate(TEXTS):
        yield Figure(f"table{{i}}", text, ("toy0",), rows if i < 3 else fails(text), None, TEXTS[i - 1])

def fails(text):
    def table(records):
        raise ValueError(text)
    return table
"""  # noqa: E501


@dataclass(frozen=True)
class Hostile:
    """The site, and what `asv publish` said. benchmarks: asv's names."""

    html: Path
    said: str
    benchmarks: tuple[str, ...]


@pytest.fixture(scope="session")
def hostile(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Hostile]:
    """The site as `asv publish` writes it; tests read it and change nothing."""
    made = Project(tmp_path_factory.mktemp("hostile"), 3)
    _references(made.folder)
    conf = json.loads((made.folder / "asv.conf.json").read_text())
    conf |= {
        "project": TEXTS[0] + TEXTS[3],
        "project_url": "javascript:alert(70)",
        "show_commit_url": "javascript:alert(71)//",
        "branches": ["main", REFERENCES[0]],
    }
    (made.folder / "asv.conf.json").write_text(json.dumps(conf))
    (made.folder / "registry.yaml").write_text(
        "version: 1\nplugins:\n  - {name: toy, path: toy.py}\n"
    )
    (made.folder / "toy.py").write_text(PLUGIN.format(texts=TEXTS))
    benchmarks = _benchmarks(made.results)
    for number in range(len(TEXTS)):
        _machine(made, number, benchmarks)
        append_record(
            record_file(made.results, f"m{number}", made.commits[-1][0]),
            _record(number, made.commits[-1][0]),
        )
    said = made.publish()
    yield Hostile(made.html, said, tuple(benchmarks))


def text(number: int) -> str:
    return TEXTS[number % len(TEXTS)]


def _references(folder: Path) -> None:
    # The last commit's subject and tags; branches at the same commit.
    message = "\n".join(TEXTS)
    git(folder, "commit", "-q", "--amend", "--allow-empty", "-m", message, name=TEXTS[3])
    for name in REFERENCES:
        git(folder, "tag", name)
        git(folder, "branch", name)


def _benchmarks(results: Path) -> dict[str, Any]:
    """Each text in each role, and some as asv's own name of a benchmark."""
    from asv.benchmarks import Benchmarks
    from asv.util import write_json

    made = {}
    for number, each in enumerate(TEXTS):
        named = number % 4 == 0 and len(each) < 60 and not set("/.(\x1b") & set(each)
        name = (
            f"group {each}.track_{each}"
            if named
            else f"group{number % 7}.b{number}.track_y"
        )
        ours = (
            {}
            if number % 3
            else {
                "benchmark": text(number + 6),
                "metric": text(number + 7),
                "direction": "lower",
            }
        )
        made[name] = benchmark(
            name,
            {text(number + 1): [text(number + 2), text(number + 3)]},
            pretty_name=each,
            unit=text(number + 4),
            code=text(number + 5),
            plugin=text(number + 8),
            si_unit=text(number + 9),
            **ours,
        )
    write_json(str(results / "benchmarks.json"), made, Benchmarks.api_version)
    return made


def _machine(made: Project, number: int, benchmarks: dict[str, Any]) -> None:
    facts = {
        **H200,
        "machine": f"m{number}",
        "gpu": text(number),
        "cpu": text(number + 1),
        "os": text(number + 2),
        "arch": text(number + 3),
        "ram": text(number + 4),
        text(number + 5): text(number + 6),
    }
    wanted = list(benchmarks)[number : number + 2]
    for day in range(3):
        values = {
            name: [[1.0 + day + i / 100 for i in range(20)], 2.0 + day] for name in wanted
        }
        made.add(facts, day, values, benchmarks=benchmarks)


def _record(number: int, commit: str) -> Record:
    node = {
        "os": text(number),
        "driver": text(number + 1),
        "gpu_problem": text(number + 2),
        "cuda": text(number + 3),
        "gpus": [{"name": text(number + 4), "links": text(number + 5)}],
        "facts": {text(number + 6): text(number)},
    }
    skipped: dict[str, Any] = {"status": "skipped", "reason": text(number)}
    measured: dict[str, Any] = {"metrics": {"time": 1.0}, "warnings": [text(number + 1)]}
    return a_record(
        f"toy{number % 2}",
        params={"size": text(number)},
        **(skipped if number % 2 else measured),
        machine=f"m{number}",
        commit=commit,
        node=node,
        packages={text(number + 3): text(number + 4)},
        source={
            "path": text(number),
            "distribution": text(number + 1),
            "version": text(number + 2),
        },
    )
