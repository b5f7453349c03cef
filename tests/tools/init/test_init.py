"""The files that `hpml init` writes, and those that it leaves unchanged."""

from __future__ import annotations

import json
import subprocess
import textwrap
from collections.abc import Callable
from pathlib import Path

import pytest
from repositories import commit_all, make_repository
from support import ROOT

from hpml_plugins.asv import read_configuration
from hpml_plugins.errors import UsageError
from hpml_plugins.registry import read_registry
from hpml_plugins.tools.init.command import extend_configuration, find_package, write_all

Hpml = Callable[..., subprocess.CompletedProcess[str]]
Write = Callable[[str, str], Path]

#: As `asv quickstart` leaves it, shortened: comments, and one that looks like a key.
QUICKSTART = """
    {
        // The version of the config file format.  Do not change, unless
        "version": 1,
        "project": "theirs",  /* { "plugins": [ */
        "repo": ".",
        "branches": ["main"],
        // "plugins": [".not_this"],
        "environment_type": "virtualenv",
        "benchmark_dir": "benchmarks",
        "env_dir": ".asv/env",
        "results_dir": ".asv/results",
        "html_dir": ".asv/html",
    }
"""


def repository(folder: Path) -> Path:
    folder.mkdir(exist_ok=True)
    make_repository(folder)
    return folder


def files(folder: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file() and ".git" not in path.relative_to(folder).parts
    }


def test_a_second_init_writes_nothing_and_names_what_is_there(
    hpml: Hpml, tmp_path: Path, write: Write
) -> None:
    repository(tmp_path)
    write("pyproject.toml", '[project]\nname = "My-Lib"\n')
    write("src/my_lib/__init__.py", "")
    done = hpml("init", "--ci", "github")
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[0].startswith("wrote ")
    assert (
        "next, once there is a commit:" in done.stdout
        and "hpml run import_time" in done.stdout
    )
    written = files(tmp_path)
    assert '"package": ["my_lib"]' in written["benchmarks/hpml/import_time.py"].decode()
    assert '.parent.parent / "src")' in written["benchmarks/hpml/import_time.py"].decode()
    assert (
        written["benchmarks/__init__.py"]
        == (ROOT / "benchmarks" / "__init__.py").read_bytes()
    )
    assert [
        plugin.path for plugin in read_registry(tmp_path / "registry.yaml").plugins
    ] == ["benchmarks/hpml/import_time.py"]
    again = hpml("init", "--ci", "github")
    assert again.returncode == 0 and "wrote" not in again.stdout
    assert again.stderr.count("is there already; left as it is") == 5
    assert files(tmp_path) == written


def test_texts_of_another_encoding_are_kept_or_named(hpml: Hpml, tmp_path: Path) -> None:
    repository(tmp_path)
    (tmp_path / ".gitignore").write_bytes("Größe".encode("latin-1"))
    assert hpml("init").returncode == 0
    assert (
        (tmp_path / ".gitignore")
        .read_bytes()
        .startswith("Größe\n/.asv/env/\n".encode("latin-1"))
    )
    (tmp_path / "asv.conf.json").write_bytes('{"project": "Größe"}'.encode("latin-1"))
    done = hpml("init")
    assert (done.returncode, len(done.stderr.splitlines())) == (2, 1)
    assert "asv.conf.json: is not UTF-8" in done.stderr


def test_outside_a_git_repository_it_says_what_to_do(hpml: Hpml, tmp_path: Path) -> None:
    done = hpml("init")
    assert (done.returncode, len(done.stderr.splitlines())) == (2, 1)
    assert "git init" in done.stderr and files(tmp_path) == {}


def test_a_repository_without_a_package_measures_its_export_and_builds_nothing(
    hpml: Hpml, tmp_path: Path, write: Write
) -> None:
    repository(tmp_path)
    write("Makefile", "all:\n")
    write("html/mine.html", "")  # asv publish would delete it
    writer, plugin = write_all(tmp_path, tmp_path, None)
    conf = read_configuration(tmp_path / "asv.conf.json")
    assert (plugin, writer.left) == ("export_time", [])
    assert conf.build_command == conf.install_command == conf.uninstall_command == []
    assert conf.html_dir == ".asv/html"
    commit_all(tmp_path, "first")
    done = hpml("run", "export_time", "--rounds", "1", "--json")
    size = json.loads(done.stdout)["metrics"]["size"]["samples"][0]
    assert size == sum(
        len(content) for content in files(tmp_path).values() if content is not None
    )


def test_a_folder_below_the_top_is_built_from_there(tmp_path: Path, write: Write) -> None:
    repository(tmp_path)
    write("python/setup.py", "")
    write("python/mine/__init__.py", "")
    write("python/.gitlab-ci.yml", "")  # not where GitLab looks
    write_all(tmp_path / "python", tmp_path, "gitlab")
    conf = json.loads((tmp_path / "python" / "asv.conf.json").read_text())
    assert (conf["repo"], conf["repo_subdir"]) == ("..", "python")
    assert (
        'HPML_FOLDER: {value: "python", expand: false}'
        in (tmp_path / ".gitlab-ci.yml").read_text()
    )


def test_the_configuration_of_an_asv_user_keeps_its_comments_and_settings(
    tmp_path: Path, write: Write
) -> None:
    repository(tmp_path)
    file = write("asv.conf.json", QUICKSTART)
    before = vars(read_without_plugin(file))
    write("benchmarks/__init__.py", "")
    write("benchmarks/theirs.py", "def time_it():\n    pass\n")
    write("setup.py", "")
    write("theirs/__init__.py", "")
    writer, _ = write_all(tmp_path, tmp_path, None)
    text = file.read_text()
    assert (
        text.replace('\n    "plugins": [".hpml_plugins.asv"],', "", 1)
        == QUICKSTART_DEDENTED
    )
    assert vars(read_configuration(file)) == {**before, "plugins": [".hpml_plugins.asv"]}
    assert (tmp_path / "benchmarks/__init__.py").read_text() == ""
    assert "hpml_plugins.suite" in (tmp_path / "benchmarks/hpml_suite.py").read_text()
    assert "/.asv/results/**/*.lock" in (tmp_path / ".gitignore").read_text()
    assert (
        "asv.conf.json: the plugin .hpml_plugins.asv; all else is as it was" in writer.wrote
    )
    assert extend_configuration(file) == text


QUICKSTART_DEDENTED = textwrap.dedent(QUICKSTART).lstrip("\n")


def read_without_plugin(file: Path):  # type: ignore[no-untyped-def]
    from asv.config import Config

    return Config.load(str(file))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('{"version": 1, "repo": ".", "plugins": []}', [".hpml_plugins.asv"]),
        ('{"version": 1, "repo": ".", "plugins": [".a"]}', [".hpml_plugins.asv", ".a"]),
    ],
)
def test_a_list_of_plugins_gets_one_more(
    write: Write, text: str, expected: list[str]
) -> None:
    file = write("asv.conf.json", text)
    file.write_text(extend_configuration(file))
    assert read_configuration(file).plugins == expected


def test_a_configuration_that_cannot_be_extended_is_left_with_the_line_to_add(
    write: Write,
) -> None:
    for text in ("[]", '{"repo": ', "{'plugins': 3, "):
        file = write("asv.conf.json", text)
        with pytest.raises(
            UsageError, match=r'add to it: "plugins": \["\.hpml_plugins\.asv"\]'
        ):
            extend_configuration(file)
        assert [path.name for path in file.parent.iterdir()] == ["asv.conf.json"]


def test_the_package_is_the_one_that_is_named_like_the_project(
    tmp_path: Path, write: Write
) -> None:
    assert find_package(tmp_path) is None
    for name in ("aaa", "tests", "docs"):
        write(f"{name}/__init__.py", "")
    assert find_package(tmp_path) is None  # nothing builds it
    write("pyproject.toml", '[project]\nname = "Other.Name"\n')
    assert find_package(tmp_path) == ("aaa", "")
    write("src/other_name.py", "")
    assert find_package(tmp_path) == ("other_name", "src")
    write("pyproject.toml", "[[[")
    with pytest.raises(UsageError, match=r"pyproject\.toml: not valid TOML: "):
        find_package(tmp_path)


def test_a_gate_names_a_pyproject_that_asv_cannot_read(
    hpml: Hpml, tmp_path: Path, write: Write
) -> None:
    repository(tmp_path)
    write("pyproject.toml", '[project]\nname = "mine"\n')
    write("mine/__init__.py", "")
    assert hpml("init").returncode == 0
    commit_all(tmp_path, "first")
    write("pyproject.toml", "[[[")
    commit_all(tmp_path, "second")
    done = hpml("gate", "HEAD~1")
    assert (done.returncode, done.stdout.strip()) == (2, "")
    assert done.stderr.startswith("hpml: pyproject.toml: not valid TOML: ")
    assert len(done.stderr.splitlines()) == 1
