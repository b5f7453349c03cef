from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from unittest.mock import Mock

import pytest
import yaml
from support import ROOT

from hpml_plugins.errors import RegistryError
from hpml_plugins.registry import json_schema, name_of_file, read_registry, registry_of

#: what is wrong → (the text, the line it stands on, what the error must say)
BAD = {
    "a name with a line break": (
        'version: 1\nplugins:\n  - {name: "a\\n", module: b}\n',
        3,
        "matching regex",
    ),
    "a pin with a line break": (
        f'version: 1\nplugins:\n  - name: a\n    sha256: "{"0" * 64}\\n"\n',
        4,
        "matching regex",
    ),
    "not YAML": ("version: 1\nplugins: [\n", 3, "not valid YAML"),
    "a tab": ("version: 1\nplugins:\n\t- name: a\n", 3, "not valid YAML"),
    "no mapping": ("- a\n- b\n", 0, "must be a mapping"),
    "empty": ("", 0, "must be a mapping"),
    "a tag that builds objects": (
        "version: !!python/object/apply:os.getcwd []\n",
        1,
        "could not determine a constructor",
    ),
    "no version": ("plugins: []\n", 1, "key 'version' is missing"),
    "another version": ("version: 2\nplugins: []\n", 1, "version: 2 is not known; use 1"),
    "unknown key": (
        "version: 1\nplugin: []\nplugins: []\n",
        2,
        "unknown key 'plugin'; did you mean 'plugins'?",
    ),
    "unknown key of a plugin": (
        "version: 1\nplugins:\n  - name: a\n    modul: x\n",
        4,
        "unknown key 'modul'; did you mean 'module'?",
    ),
    "wrong type": (
        "version: 1\nplugins:\n  - name: a\n    module: 3\n",
        4,
        "expected text, got a whole number; put it in quotes",
    ),
    "wrong type of a grid": (
        "version: 1\nplugins:\n  - name: a\n    module: b\n    grid: {toy: {n: 3}}\n",
        5,
        "expected a list, got a whole number",
    ),
    "an empty grid": (
        "version: 1\nplugins:\n  - name: a\n    module: b\n    grid:\n      toy: {n: []}\n",
        5,
        "length >= 1",
    ),
    "a timeout of nothing": (
        "version: 1\nplugins:\n  - {name: a, module: b, timeout: 0}\n",
        3,
        "> 0",
    ),
    "a name with a hyphen": (
        "version: 1\nplugins:\n  - {name: a-b, module: b}\n",
        3,
        "matching regex",
    ),
    "a name twice": (
        "version: 1\nplugins:\n  - {name: a, module: b}\n  - {name: a, module: c}\n",
        4,
        "plugin name 'a' is already used by",
    ),
    "a key twice": (
        "version: 1\nplugins:\n  - name: a\n    module: b\n    module: c\n",
        5,
        "key 'module' is given twice",
    ),
    "no source": (
        "version: 1\nplugins:\n  - {name: a}\n",
        3,
        "exactly one of module, entry_point, path; none given",
    ),
    "two sources": (
        "version: 1\nplugins:\n  - {name: a, module: b, path: c.py}\n",
        3,
        "exactly one of module, entry_point, path; module and path given",
    ),
    "the full profile redefined": (
        "version: 1\nplugins:\n  - name: a\n    module: b\n    profiles: {full: {}}\n",
        5,
        "always means every point",
    ),
    "a budget of the gate that is nothing": (
        "version: 1\nplugins:\n  - name: a\n    module: b\n    gate: {toy: {time: 0}}\n",
        5,
        "plugins.0.gate: expected a number > 0.0",
    ),
    "a budget of the gate in words": (
        'version: 1\nplugins:\n  - name: a\n    module: b\n    gate: {toy: "5 %"}\n',
        5,
        "plugins.0.gate: expected a number or a mapping, got text",
    ),
    "a second document": (
        "version: 1\nplugins: []\n---\nversion: 1\n",
        3,
        "a second document; a file has one",
    ),
    "a key that is a list": ("? [a]\n: 1\n", 1, "a key must be text"),
    "a number of 5,000 digits": (
        f"version: 0x{'1' * 5000}\nplugins: []\n",
        1,
        "more than 64 bits",
    ),
    "an alias": (
        "version: 1\nplugins: &p []\nx: *p\n",
        3,
        "aliases (*name) are not allowed",
    ),
}


@pytest.mark.parametrize("what", BAD)
def test_a_bad_registry_is_refused_in_one_line_with_its_place(
    what: str, tmp_path: Path
) -> None:
    text, line, message = BAD[what]
    path = tmp_path / "registry.yaml"
    path.write_text(text)
    with pytest.raises(RegistryError) as caught:
        read_registry(path)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)
    assert str(caught.value).startswith(f"{path}:{line}: " if line else f"{path}: ")


def test_a_registry_that_is_not_there_says_where_it_was_looked_for(tmp_path: Path) -> None:
    with pytest.raises(RegistryError, match=r"registry.yaml: no such file"):
        read_registry(tmp_path / "registry.yaml")


def test_nesting_without_end_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "registry.yaml"
    path.write_text("[" * 100_000)
    with pytest.raises(RegistryError):
        read_registry(path)


def test_the_profiles_are_those_of_all_plugins_with_full_first(
    write: Callable[[str, str], Path],
) -> None:
    registry = read_registry(
        write(
            "registry.yaml",
            """
            version: 1
            plugins:
              - {name: a, module: x, profiles: {quick: {}}}
              - {name: b, module: y, profiles: {night: {}, quick: {}}}
            """,
        )
    )
    assert registry.profiles == ["full", "quick", "night"]


def test_a_version_without_quotes_is_told_to_have_them(tmp_path: Path) -> None:
    path = tmp_path / "registry.yaml"
    path.write_text("version: 1\nplugins:\n  - name: a\n    module: b\n    version: 1.2\n")
    with pytest.raises(
        RegistryError, match=r"registry.yaml:5: .*got a number; put it in quotes"
    ):
        read_registry(path)


def test_the_json_schema_in_docs_is_the_one_that_is_checked() -> None:
    assert json.loads((ROOT / "docs" / "registry.schema.json").read_text()) == json_schema()


def test_the_projects_own_registry_is_valid() -> None:
    assert {entry.name for entry in read_registry(ROOT / "registry.yaml").plugins} >= {
        "flops",
        "vecadd",
    }


def test_a_registry_is_parsed_once_and_its_document_is_built_from_the_events(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nodes between the events and the document, or a second pass for the lines, cost five times as
    much."""
    entry = (
        "  - name: plugin_{0}\n    module: package.plugin_{0}\n    grid:\n      bench: {{size: [1,"
        " 2, {0}3]}}\n"
    )
    path = tmp_path / "registry.yaml"
    path.write_text(
        "version: 1\nplugins:\n" + "".join(entry.format(number) for number in range(1_000))
    )
    parse = Mock(wraps=yaml.parse)
    monkeypatch.setattr(yaml, "parse", parse)
    for other in ("compose", "load", "safe_load"):
        monkeypatch.setattr(
            yaml, other, Mock(side_effect=AssertionError(f"yaml.{other} was called"))
        )
    registry = read_registry(path)
    assert parse.call_count == 1
    assert registry.at("plugin_999", "grid", "bench", "size") == f"{path}:{2 + 4 * 999 + 4}"


@pytest.mark.parametrize(
    ("file", "name"),
    [
        ("row_sum.py", "row_sum"),
        ("hpml_row_sum/__init__.py", "hpml_row_sum"),
        ("a/Soft-Max 2.py", "soft_max_2"),
    ],
)
def test_a_file_gives_its_plugin_a_name_and_a_package_gives_its_own(
    file: str, name: str
) -> None:
    (entry,) = registry_of(Path(file)).plugins
    assert entry.name == name_of_file(Path(file)) == name
