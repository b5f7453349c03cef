"""asv.conf.json, read by asv."""

from __future__ import annotations

from pathlib import Path

import msgspec
from asv.config import Config
from asv.util import UserError, git_default_branch

from hpml_plugins.errors import UsageError, describe

NAME = "asv.conf.json"
#: As `plugins` has to name us: asv imports only names with a dot in front, and ignores others
#: without a word.
PLUGIN = ".hpml_plugins.asv"
#: The repository of results that belong to none.
NO_REPOSITORY = "none"
#: The folder of plugins below that of asv's benchmarks.
PLUGINS = "hpml"


class _Used(msgspec.Struct):
    """What we use of it, whose types asv does not look at."""

    repo: str
    branches: list[str | None]  # null: the branch that is checked out
    results_dir: str
    html_dir: str
    plugins: list[str]


def read_configuration(path: Path) -> Config:
    """asv's own reading of the file. Raises UsageError with the file's name when it is missing or
    does not hold."""
    if not path.is_file():
        what = "no such file; run this in the project's folder, or make one: hpml init"
        raise UsageError(what, str(path))
    try:
        conf = Config.load(str(path))
        # halves of characters cannot be written
        msgspec.json.encode(msgspec.convert(vars(conf), _Used))
    except UserError as error:
        raise UsageError(
            str(error).removeprefix(str(path.resolve())).strip(" :"), str(path)
        ) from None
    except msgspec.ValidationError as error:
        raise UsageError(str(error), str(path)) from None
    # what asv lets through
    except (ValueError, TypeError, AttributeError, RecursionError, OSError) as error:
        raise UsageError(f"cannot be read: {describe(error)}", str(path)) from None
    if PLUGIN not in conf.plugins:
        raise UsageError(
            f'"plugins" does not name "{PLUGIN}" (with its dot): without it asv does not load'
            " hpml-plugins",
            str(path),
        )
    return conf


def plugins_folder(project: Path) -> Path:
    """Where a project's own plugins go: beside its asv benchmarks, in a folder that neither asv nor
    a build tool takes for a package. Without asv.conf.json: the project's folder."""
    file = project / NAME
    if file.is_file():
        return Path(project, read_configuration(file).benchmark_dir, PLUGINS)
    return project


def find_history(folder: Path) -> tuple[Path, list[str]]:
    """The repository of the project in a folder, and the branches whose histories are shown, the
    main one first.

    Without asv.conf.json, or with one that asv cannot read: the folder itself, and no branch.
    """
    try:
        conf = Config.load(str(folder / NAME))
        branches = [str(branch or git_default_branch()) for branch in conf.branches]
        repository = folder / str(conf.repo)
        mirror = folder / str(conf.project)
    except (UserError, ValueError, TypeError, AttributeError, RecursionError, OSError):
        return folder, []
    for path in (
        repository,
        mirror,
    ):  # asv keeps a mirror of a repository that is elsewhere
        if path.is_dir():
            return path, branches
    return folder, branches


def write_configuration(folder: Path, html: Path) -> Path:
    """A configuration for `asv publish` of results that belong to no project here. html: where the
    site goes."""
    path = folder / NAME
    facts = {
        "version": 1,
        "project": "benchmarks",
        "repo": NO_REPOSITORY,
        "plugins": [PLUGIN],
        "html_dir": str(html),
    }
    path.write_bytes(msgspec.json.encode(facts))
    return path
