"""asv.conf.json, read by asv."""

from __future__ import annotations

from pathlib import Path

import msgspec
from asv.config import Config
from asv.util import UserError, git_default_branch

from hpml_plugins.errors import UsageError, why_unreadable

NAME = "asv.conf.json"
#: The name required in `plugins`: asv imports only names with a leading dot, and silently
#: ignores others.
PLUGIN = ".hpml_plugins.asv"
#: The repository setting for results that belong to no repository.
NO_REPOSITORY = "none"
#: The folder of plugins below that of asv's benchmarks.
PLUGINS = "hpml"


class _Used(msgspec.Struct):
    """The settings that we use, whose types asv does not check."""

    repo: str
    branches: list[str | None]  # null: the current branch
    results_dir: str
    html_dir: str
    plugins: list[str]


def read_configuration(path: Path) -> Config:
    """Read the file as asv does. Raises UsageError with the file's name if it is missing or
    invalid."""
    if not path.is_file():
        what = "no such file; run this in the project's folder, or make one: hpml init"
        raise UsageError(what, str(path))
    conf = _load(path)
    if PLUGIN not in conf.plugins:
        raise UsageError(
            f'"plugins" does not name "{PLUGIN}" (with its dot): without it asv does not load'
            " hpml-plugins",
            str(path),
        )
    return conf


def _load(path: Path) -> Config:
    """Read a file as asv does. Raises UsageError with its name if it is invalid."""
    try:
        conf = Config.load(str(path))
        # refuse lone surrogates, which cannot be written
        msgspec.json.encode(msgspec.convert(vars(conf), _Used))
    except UserError as error:
        raise UsageError(
            str(error).removeprefix(str(path.resolve())).strip(" :"), str(path)
        ) from None
    except msgspec.ValidationError as error:
        raise UsageError(str(error), str(path)) from None
    # errors that asv does not catch
    except (TypeError, AttributeError):
        raise UsageError("it is not a JSON object with asv's settings", str(path)) from None
    except (ValueError, RecursionError, OSError) as error:
        raise UsageError(f"cannot be read: {why_unreadable(error)}", str(path)) from None
    return conf


def plugins_folder(project: Path) -> Path:
    """The folder for a project's own plugins: beside its asv benchmarks, in a folder that neither
    asv nor a build tool considers a package. Without asv.conf.json: the project's folder."""
    file = project / NAME
    if file.is_file():
        return Path(project, read_configuration(file).benchmark_dir, PLUGINS)
    return project


def find_history(folder: Path) -> tuple[Path, list[str]]:
    """The repository of the project in a folder, and the branches whose histories are shown, the
    main one first.

    Without asv.conf.json: the folder itself, and no branch. Raises UsageError for a file that asv
    cannot read.
    """
    if not (folder / NAME).exists():
        return folder, []
    conf = _load(folder / NAME)
    branches = [str(branch or git_default_branch()) for branch in conf.branches]
    repository = folder / str(conf.repo)
    mirror = folder / str(conf.project)
    # asv keeps a mirror of a remote repository
    for path in (
        repository,
        mirror,
    ):
        if path.is_dir():
            return path, branches
    return folder, branches


def write_configuration(folder: Path, html: Path) -> Path:
    """Write a configuration for `asv publish` of results that belong to no project here. html: the
    folder for the site."""
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
