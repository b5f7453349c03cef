"""Wrong arguments of asv's commands end in one line and exit status 2."""

from __future__ import annotations

import shutil
from argparse import Namespace
from pathlib import Path

import pytest
from asv.config import Config
from asv.console import log
from asv.repo import NoSuchNameError
from asv.util import ProcessError, UserError
from asv_project import Project
from repositories import make_repository

from hpml_plugins.asv.arguments import refuse_unknown
from hpml_plugins.asv.patches import run_command
from hpml_plugins.errors import UsageError


def configuration(folder: Path) -> Namespace:
    """What a command knows of a repository."""
    found = {"repo": str(folder), "results_dir": str(folder / "results"), "matrix": {}}
    return Namespace(**found, env_dir="env", dvcs=None)


@pytest.fixture
def conf(tmp_path: Path) -> Namespace:
    """One commit, and a result of a commit that the repository does not have."""
    stored = tmp_path / "results" / "m" / "abcd1234-node.json"
    stored.parent.mkdir(parents=True)
    (stored.parent / "machine.json").write_text("{}")
    stored.write_text("{}")
    make_repository(tmp_path, "first")
    return configuration(tmp_path)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (
            {"range": "nosuch"},
            "'nosuch' names no commits here: git rev-list: fatal: bad rev",
        ),
        ({"range": "main..nosuch"}, "'main..nosuch' names no commits here"),
        ({"range": "--no-such-option"}, "names no commits here"),
        ({"range": "'"}, "names no commits: No closing quotation"),
        ({"bench": ["fine", "("]}, r"--bench '\(' is not a regular expression: missing \)"),
        ({"bench": ["*"]}, "nothing to repeat"),
        ({"benchmark": "("}, r"benchmark '\(' is not a regular expression"),
        ({"commit": "nosuch"}, "'nosuch' is not a commit of the repository"),
    ],
)
def test_what_is_unknown_is_named(
    given: dict[str, object], said: str, conf: Namespace
) -> None:
    with pytest.raises(UsageError, match=said):
        refuse_unknown("Run", conf, Namespace(**given))


@pytest.mark.parametrize(
    "given",
    [
        {},
        {"range": None},
        {"range": ["a-hash-of-our-own"]},
        {"range": "EXISTING"},
        {"range": "HASHFILE:-"},
        {"range": "main^!"},
        {"range": "-n 1 main"},
        {"range": ""},
        {"bench": ["vecadd.*"], "commit": "main"},
        {"commit": "abcd12345678"},
        {"benchmark": "suite.time_sum"},
    ],
)
def test_what_asv_knows_is_left_to_it(given: dict[str, object], conf: Namespace) -> None:
    refuse_unknown("Run", conf, Namespace(**given))


def test_of_a_repository_elsewhere_asv_asks_itself(tmp_path: Path) -> None:
    refuse_unknown("Run", configuration(tmp_path), Namespace(range="nosuch"))


def test_results_of_another_nodes_environment_are_shown(of_eight: Project) -> None:
    stored = of_eight.path / "results" / "m" / "abcd1234-node-py3.4.json"
    stored.parent.mkdir(parents=True)
    stored.with_name("machine.json").write_text('{"machine": "m", "version": 1}')
    stored.write_text("{}")
    conf = Config.load(str(of_eight.path / "asv.conf.json"))
    conf.results_dir = str(of_eight.path / "results")
    refuse_unknown("Show", conf, Namespace(env_spec=["node-py3.4"]))
    with pytest.raises(
        UsageError, match=r"'node-py3\.4' is not an environment of this node; known: node"
    ):
        refuse_unknown("Run", conf, Namespace(env_spec=["node-py3.4"]))
    shutil.rmtree(stored.parent)


ERRORS = [
    (UserError("Unknown\ncommit x"), "hpml: Unknown commit x"),
    (NoSuchNameError("x"), "hpml: 'x' is not a branch, tag or commit of the repository"),
    (
        ProcessError(["git", "fetch"], 128, "", "no network"),
        "hpml: ProcessError: Command 'git fetch' returned non-zero exit status 128;"
        " asv --verbose shows the traceback",
    ),
    (
        FileExistsError(17, "File exists", "/dev/null"),
        "hpml: FileExistsError: [Errno 17] File exists: '/dev/null';"
        " asv --verbose shows the traceback",
    ),
    (EOFError("no answer"), "hpml: EOFError: no answer; asv --verbose shows the traceback"),
]


@pytest.mark.parametrize(
    ("error", "said"), ERRORS, ids=[type(e).__name__ for e, _ in ERRORS]
)
def test_any_error_of_a_command_is_one_line(
    error: Exception, said: str, conf: Namespace, capsys: pytest.CaptureFixture[str]
) -> None:
    def fails(*_: object, **__: object) -> None:
        raise error

    with pytest.raises(SystemExit) as ended:
        run_command(fails, type("Show", (), {}), conf, Namespace())
    assert ended.value.code == 2
    assert capsys.readouterr().err.splitlines() == [said]


def test_an_interrupted_command_says_so_in_one_line(
    conf: Namespace, capsys: pytest.CaptureFixture[str]
) -> None:
    def interrupted(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    with pytest.raises(SystemExit) as ended:
        run_command(interrupted, type("Show", (), {}), conf, Namespace())
    assert ended.value.code == 130
    assert capsys.readouterr().err.splitlines() == ["hpml: interrupted"]


def test_verbose_shows_the_traceback(
    conf: Namespace, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(*_: object, **__: object) -> None:
        raise EOFError

    monkeypatch.setattr(log, "is_debug_enabled", lambda: True)
    with pytest.raises(EOFError):
        run_command(fails, type("Show", (), {}), conf, Namespace())


@pytest.mark.parametrize(
    "words",
    [
        ("run", "nosuch"),
        ("run", "--bench", "("),
        ("publish", "nosuch"),
        ("show", "nosuch"),
        ("find", "nosuch", "slow"),
        ("continuous", "nosuch"),
        ("run", "-E", "nosuch"),
        ("run", "-E", "node", "-E", "nosuch"),
        ("setup", "-E", "nosuch"),
        ("check", "-E", "node:3.4"),
        ("show", "-E", "nosuch"),
    ],
)
def test_asv_itself_says_one_line(words: tuple[str, ...], of_eight: Project) -> None:
    done = of_eight.asv(*words)
    (line,) = done.stderr.splitlines()
    assert done.returncode == 2 and line.startswith("hpml: ")
    assert "Traceback" not in done.stdout and len(done.stdout.splitlines()) <= 2


def test_a_pattern_that_chooses_nothing_is_an_error_and_the_nearest_name_is_given(
    of_eight: Project,
) -> None:
    done = of_eight.asv("run", "--bench", "^tyo$", "--bench", "x")
    said = "hpml: --bench: no benchmark matches '^tyo$' or 'x'; did you mean 'toy'?\n"
    assert (done.returncode, done.stderr) == (2, said)


@pytest.fixture(scope="module")
def of_eight(make_project) -> Project:  # type: ignore[no-untyped-def]
    """A project without results."""
    project: Project = make_project("version: 1\nplugins:\n  - {name: toy, path: toy.py}\n")
    return project
