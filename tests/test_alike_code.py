"""Which states of a plugin measure a benchmark alike, from made files and from the history."""

from __future__ import annotations

import functools
import importlib
import inspect
import json
import subprocess
from collections.abc import Mapping
from pathlib import Path

import pytest
from alike_code import PluginState, alike_code
from records import a_record
from support import ROOT

from hpml_plugins.host.locating import hash_of
from hpml_plugins.model.alike_code import measuring_code

PLUGINS = sorted(
    file.parent.name
    for file in (ROOT / "hpml_plugins" / "plugins").glob("*/__init__.py")
    if "def hpml_benchmarks" in file.read_text(encoding="utf-8")
)
FILES = {
    "__init__.py": "from hpml_plugins.plugins.p.copying import COPY\n",
    "copying.py": (
        "from hpml_plugins.plugins.p import shapes\n\n\n"
        "def copy(n):\n    '''Copies.'''\n    return shapes.double(n)\n\n\n"
        "COPY = Benchmark('p_copy', copy)\n"
    ),
    "shapes.py": "def double(n):\n    return 2 * n\n",
    "starting.py": "def start():\n    return 'hpml_plugins.plugins.p.started'\n\n\nX = 'p_start'\n",
    "started.py": "print(1)\n",
    "other.py": "X = 'p_other'\n",
    "charts.py": "TITLE = 'p_copy'\n",
    "models.yaml": "a: 1\n",
}


def measures(changed: Mapping[str, str], benchmark: str = "p_copy") -> str:
    files = {path: text.encode() for path, text in {**FILES, **changed}.items()}
    return PluginState("p", files).what_measures(benchmark)


@pytest.mark.parametrize(
    ("changed", "alike"),
    [
        ({"charts.py": "TITLE = 'a new title of p_copy'\n"}, True),
        ({"other.py": "X = 'p_other'\nY = 1\n"}, True),
        ({"new.py": "X = 'p_new'\n", "__init__.py": "import os\n"}, True),
        ({"shapes.py": "# twice\ndef double(n):\n    return (2 * n)\n"}, True),
        ({"copying.py": FILES["copying.py"].replace("Copies.", "Copies n.")}, True),
        ({"README.md": "text"}, True),
        ({"shapes.py": "def double(n):\n    return 3 * n\n"}, False),
        ({"copying.py": FILES["copying.py"].replace("double(n)", "double(n + 1)")}, False),
        ({"models.yaml": "a: 2\n"}, False),
    ],
)
def test_what_a_benchmark_does_not_use_does_not_part_its_states(
    changed: Mapping[str, str], alike: bool
) -> None:
    assert (measures(changed) == measures({})) == alike


def test_a_module_that_a_process_is_started_from_is_used() -> None:
    changed = {"started.py": "print(2)\n"}
    assert measures(changed, "p_start") != measures({}, "p_start")
    assert measures(changed) == measures({})


def test_where_no_module_names_a_benchmark_all_are_used() -> None:
    changed = {"other.py": "X = 3\n"}
    assert measures(changed, "p_unknown") != measures({}, "p_unknown")


@pytest.mark.parametrize("plugin", PLUGINS)
def test_what_measures_a_benchmark_is_among_the_modules_that_it_uses(plugin: str) -> None:
    folder = ROOT / "hpml_plugins" / "plugins" / plugin
    state = PluginState.of_folder(folder)
    module = importlib.import_module(f"hpml_plugins.plugins.{plugin}")
    for benchmark in module.hpml_benchmarks():
        measure = benchmark.measure
        while isinstance(measure, functools.partial):
            measure = measure.func
        file = Path(inspect.getsourcefile(measure) or "")
        assert file.relative_to(folder).as_posix() in state.used_by(benchmark.name)


def test_the_digest_is_that_of_records(tmp_path: Path) -> None:
    for path, text in FILES.items():
        (tmp_path / path).write_text(text)
    state = PluginState("p", {path: text.encode() for path, text in FILES.items()})
    assert state.digest == hash_of(tmp_path / "__init__.py")


def test_states_in_the_history_come_together_and_unknown_ones_stay_apart(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "hpml_plugins" / "plugins" / "p"
    folder.mkdir(parents=True)
    git = [
        "git",
        "-C",
        str(tmp_path),
        "-c",
        "user.name=n",
        "-c",
        "user.email=n@example.org",
    ]
    subprocess.run([*git, "init", "-q"], check=True)
    records = []
    for number, title in enumerate(("first", "second")):
        for path, text in FILES.items():
            (folder / path).write_text(text)
        (folder / "charts.py").write_text(f"TITLE = {title!r}\n")
        subprocess.run([*git, "add", "-A"], check=True)
        subprocess.run([*git, "commit", "-qm", title], check=True)
        commit = subprocess.run(
            [*git, "rev-parse", "HEAD"], check=True, capture_output=True, text=True
        ).stdout.strip()
        source = {"sha256": hash_of(folder / "__init__.py")}
        for told in (source, {"sha256": f"{number}" * 64}):  # that of no commit
            records.append(
                a_record(
                    "p_copy",
                    plugin="p",
                    commit=commit,
                    source=told,
                    started=float(number),
                )
            )
    text = alike_code(tmp_path, records)
    first, second = records[0].source["sha256"][:16], records[2].source["sha256"][:16]
    assert json.loads(text) == {"p_copy": [[first, second]]}
    (tmp_path / "alike.json").write_text(text)
    monkeypatch.setattr("hpml_plugins.model.alike_code.ALIKE", tmp_path / "alike.json")
    monkeypatch.setattr("hpml_plugins.model.alike_code._first_alike", _first_alike_anew())
    codes = [measuring_code(record) for record in records]
    assert codes[0] == codes[2] and len({*codes}) == 3


def _first_alike_anew() -> object:
    """Without what was read before."""
    from hpml_plugins.model.alike_code import _first_alike

    return _first_alike.__wrapped__
