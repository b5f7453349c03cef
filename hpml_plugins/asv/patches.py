"""Every attribute of asv that is replaced, each with the reason, because asv has no extension point
there.

asv is limited to the tested versions (pyproject.toml); with another version in which an attribute
is missing or has other parameters, commands end with a message that names it.
"""

from __future__ import annotations

import atexit
import functools
import importlib.util
import inspect
import logging
import os
import shutil
import sys
from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import asv
from asv import benchmarks, runner, util
from asv.commands import Command
from asv.commands.show import Show
from asv.console import log
from asv.repo import NoSuchNameError
from asv.util import ProcessError

from hpml_plugins.asv.arguments import (
    end_at_metrics,
    refuse_unchosen,
    refuse_unknown,
    refuse_unmatched,
    refuse_unshown,
    select_each,
)
from hpml_plugins.asv.configuration import NO_REPOSITORY, find_history
from hpml_plugins.asv.driver import Driver
from hpml_plugins.asv.environment import STACK_VARIABLE, stack_matrix
from hpml_plugins.asv.publisher import name_problems
from hpml_plugins.asv.run import (
    Prepared,
    add_reference,
    keep_shard,
    narrow,
    newest_commits,
    plan,
    prepare,
    save_machines,
    tasks_of,
)
from hpml_plugins.asv.staging import staged_site
from hpml_plugins.asv.stored_history import show_missing_commits
from hpml_plugins.errors import HpmlError, UsageError, describe, nearest, unwritable
from hpml_plugins.git import NOT_INSTALLED, GitRefused, why_git_refuses
from hpml_plugins.model.formatting import counted
from hpml_plugins.store import (
    Locked,
    atomic_write,
    commit_order,
    lock_machine,
    machine_folders,
    open_result,
    project,
    read_records,
)
from hpml_plugins.store.asv_results import bounded_rows, is_result_file, rows_without
from hpml_plugins.store.declarations import DECLARATIONS, VERSION_KEY, valid_declarations
from hpml_plugins.store.files import format_json, refuse_lone_surrogates
from hpml_plugins.store.projection import MACHINE, add_entries, measured_here
from hpml_plugins.suite import (
    ASV_ENVIRONMENTS_VARIABLE,
    ASV_RESULTS_VARIABLE,
    REFUSAL_VARIABLE,
)
from hpml_plugins.terminal import escape_unencodable, one_line, printable, say, warn

#: Exit status of a run whose machine is locked (EX_TEMPFAIL of sysexits.h: try again later).
LOCKED = 75
#: Exit status after Ctrl-C, as shells have it.
INTERRUPTED = 130
#: asv's commands that measure.
_MEASURING = ("Run", "Continuous", "Find", "Profile")
#: The measuring commands that store results.
_WRITING = ("Run", "Continuous", "Find")

#: The state of the current measuring command.
_prepared: list[Prepared] = []


@dataclass(frozen=True)
class _Replaced:
    """An attribute of asv. parameters: their names in the tested versions.  why: one line.
    upstream: the related issue of asv."""

    owner: Any
    name: str
    parameters: str
    replacement: Callable[..., Any]
    why: str
    upstream: str


def run_command(original: Any, cls: Any, conf: Any, args: Any, **options: Any) -> Any:
    """Runs around each command. An error ends it with one line and exit status 2; asv's `--verbose`
    shows the traceback."""
    escape_unencodable()
    try:
        refuse_unknown(cls.__name__, conf, args)
        if patterns := getattr(args, "bench", None):
            args.bench = end_at_metrics(patterns)
        if cls is Show:
            refuse_unshown(conf, args)
        return _run_command(original, cls, conf, args, options)
    except KeyboardInterrupt:
        log.flush()
        warn("interrupted")
        sys.exit(INTERRUPTED)
    except Exception as error:
        log.flush()
        refused = _one_line_of(error, Path(conf.repo))
        if refused is None and log.is_debug_enabled():
            raise
        text = str(refused or f"{describe(error)}; asv --verbose shows the traceback")
        warn(text)
        if file := os.environ.get(REFUSAL_VARIABLE):
            atomic_write(Path(file), text.encode())
        sys.exit(LOCKED if isinstance(error, Locked) else 2)


def _one_line_of(error: Exception, repository: Path) -> HpmlError | None:
    """The message of a command instead of a traceback; None for unknown errors."""
    if isinstance(error, HpmlError):
        return error
    if isinstance(error, util.UserError):
        return UsageError(str(error))
    if isinstance(error, NoSuchNameError):
        return UsageError(f"'{error}' is not a branch, tag or commit of the repository")
    if not isinstance(error, OSError | ProcessError):
        return None
    refused = unwritable(error) if isinstance(error, OSError) else None
    here = repository if repository.is_dir() else Path()
    why = why_git_refuses(here) if shutil.which("git") else NOT_INSTALLED
    return refused or (GitRefused(why, str(here.resolve())) if why else None)


def _run_command(
    original: Any, cls: Any, conf: Any, args: Any, options: dict[str, Any]
) -> Any:
    command = cls.__name__
    conf.results_dir = os.environ.get(ASV_RESULTS_VARIABLE) or conf.results_dir
    if name := os.environ.get(ASV_ENVIRONMENTS_VARIABLE):
        conf.env_dir = str(Path(conf.env_dir, name))
    if words := os.environ.get(STACK_VARIABLE):
        conf.matrix = stack_matrix(words)
    if command not in _MEASURING:
        _project_if_possible(Path(conf.results_dir))
        if command == "Publish":
            return _publish(original, cls, conf, args, options)
        return original(cls, conf, args, **options)
    if command == "Run" and args.range is None:
        args.range = newest_commits(Path(conf.repo), conf.branches)
    results = Path(conf.results_dir)
    before = {folder.name for folder in machine_folders(results)}
    atexit.register(_remove_unused, results, args, before)  # after the lock is released
    named = getattr(args, "machine", None)
    prepared = prepare(
        conf, args, writes=command in _WRITING and not getattr(args, "dry_run", False)
    )
    if named and before and named not in before:
        say(f"--machine {named}: a new machine; {nearest(named, sorted(before))}")
    for problem in [
        *(plugin.error for plugin in prepared.host.broken),
        *prepared.host.offers.problems,
    ]:
        log.warning(one_line(str(problem)))
    # a profile is of one process, which asv starts
    _prepared[:] = [prepared] if command in _WRITING else []
    try:
        status = original(cls, conf, args, **options)
    finally:
        log.flush()
        _summarise(prepared, conf)
    # Not of a run that an error ended, which measured points that the report does not know, nor of
    # `asv find`, which measures only some of its commits.
    if command != "Find" or prepared.report.measured_nothing:
        say(*prepared.report.outcome)
    if broken := [plugin.entry.name for plugin in prepared.host.broken]:
        left_out = f"{counted(len(broken), 'plugin')} that cannot be loaded"
        say(f"Left out {left_out}: {', '.join(broken)}; see the first lines")
        status = status or 2
    return status or prepared.report.status


def _publish(original: Any, cls: Any, conf: Any, args: Any, options: dict[str, Any]) -> Any:
    """Publish, unless nothing has changed since the site was published."""
    from hpml_plugins.report.site.previous import replacing
    from hpml_plugins.report.site.unchanged import digest_inputs, unchanged_problems

    # asv's own search for regressions considers a rising throughput a regression, and has its own
    # page
    conf.regressions_first_commits = {".*": None}
    order = show_missing_commits(conf)
    status = None
    site = Path(args.html_dir or conf.html_dir).absolute()
    digest = digest_inputs(conf, order, args.range, site, Path(conf.results_dir))
    with replacing(site.resolve()):
        problems = unchanged_problems(digest)
    if problems is None:
        log.flush()
        say(f"Publishing into {site}")
        level = logging.DEBUG if log.is_debug_enabled() else logging.WARNING
        with staged_site(args, site, digest), log.set_level(level):
            status = original(cls, conf, args, **options)
    else:
        name_problems(problems)
    log.flush()
    if problems is not None:
        say(f"Nothing has changed since {site} was published")
    page = (site / "index.html").as_uri()
    served = (
        "" if conf.repo == NO_REPOSITORY else "    (also served: asv preview --browser)"
    )
    say(f"Page: {page}{served}")
    return status


def _remove_unused(results: Path, args: Any, before: Collection[str]) -> None:
    """Remove the folder of a machine that this command created without storing anything in it, for
    example for a mistyped `--machine`. before: the existing names."""
    folder = results / str(args.machine)
    if folder.name in before or folder not in machine_folders(results):
        return
    # a process waiting for the lock notices that the file is gone, and creates the folder again
    with suppress(HpmlError), lock_machine(results, folder.name) as lock:
        if {each.name for each in folder.iterdir()} <= {MACHINE, lock.path.name}:
            shutil.rmtree(folder)


def _summarise(prepared: Prepared, conf: Any) -> None:
    """Print the summary of a run: numbers, what was left out, what changed, where the page is."""
    report = prepared.report
    results = Path(conf.results_dir)
    stored = results if prepared.suite.keep else None
    say(*report.summary(prepared.host.registry.tasks, stored))
    if not stored or not report.records or report.measured_nothing:
        return
    machine = report.records[-1].machine
    commit = report.records[-1].commit
    # a node that measures from a bundle has none
    if importlib.util.find_spec("scipy"):
        from hpml_plugins.report.last_commit import changes

        repository, branches = find_history(Path())
        order = commit_order(repository, results, branches)
        say(*changes(list(read_records(results, warn)), machine, commit, order))
    else:
        say(
            "Not compared with earlier commits: this needs SciPy, which is not installed here"
        )
    page = Path(conf.html_dir, "index.html").absolute()
    say(f"Page: asv publish writes {page.as_uri()}")


def _project_if_possible(results: Path) -> None:
    """Update asv's result files. Read-only results are used as they are."""
    try:
        project(results)
    except OSError as error:
        refused = unwritable(error)
        if refused is None:
            raise
        log.warning(f"{refused}; asv's own pages and commands may lack the newest results")


def discover(
    original: Any,
    cls: Any,
    conf: Any,
    repo: Any,
    environments: Any,
    commits: Any,
    **options: Any,
) -> Any:
    """asv's benchmarks; for those of plugins one metric each and the points of the profile."""
    found = original(cls, conf, repo, environments, commits, **options)
    given = options.get("regex") or ()
    asked = [given] if isinstance(given, str) else list(given)
    # asv's keyword for no benchmark
    patterns = [each for each in asked if each != "just-discover"]
    if not found:
        refuse_unmatched(patterns, found._all_benchmarks)
    if _prepared:
        prepared = _prepared[0]
        refuse_unmeasured(patterns, found, prepared)
        matched = len(found)
        narrow(found, prepared.suite.benchmarks)
        if matched and not found:
            refuse_unchosen(patterns, prepared.profile)
        keep_shard(found)
        add_reference(found, prepared.suite.benchmarks, prepared.suite.node)
        prepared.tasks = tasks_of(found, prepared.suite.benchmarks)
        whole = all("benchmark" in entry for entry in found.values())
        plan(prepared, len(commits) * len(environments), whole=whole)
    return found


def refuse_unmeasured(
    patterns: Sequence[str], found: benchmarks.Benchmarks, prepared: Prepared
) -> None:
    """Raise UsageError if one of several patterns of --bench selects no point, although the others
    select some."""
    if len(patterns) < 2:
        return
    alone = select_each(patterns, found)
    for selected in alone.values():
        narrow(selected, prepared.suite.benchmarks)
    if unchosen := [each for each in patterns if not alone[each]]:
        refuse_unchosen(unchosen, prepared.profile)


def drive(original: Any, env: Any, benchmark_dir: str, launch_method: str | None) -> Any:
    """asv's spawner, replaced by one that measures all points of plugins as a batch."""
    spawner = original(env, benchmark_dir, launch_method)
    return Driver(_prepared[0], spawner) if _prepared and _prepared[0].tasks else spawner


def log_result(
    original: Any, found: Any, benchmark: Any, show_stderr: bool = False
) -> None:
    """For plugins' benchmarks, which the driver has described, print only their output if
    requested; for others, asv's own output."""
    if "benchmark" not in benchmark or not _prepared:
        original(found, benchmark, show_stderr=show_stderr)
        return
    errors = found.stderr.get(benchmark["name"])
    if errors and show_stderr:
        log.error("\n".join(map(printable, errors.splitlines())))


def write_json(
    original: Any,
    path: str,
    data: Any,
    api_version: int | None = None,
    compact: bool = False,
) -> None:
    """Write atomically, with the same bytes: asv writes in place, so that a kill or a full disk
    would lose the old content.

    benchmarks.json, which the last run rewrites, keeps what other nodes and commits declared. A
    result file is replaced by the projection of the machine's Records, which has every metric.
    Files of the site can be recreated and are not synced to disk one by one.
    """
    # A link among results is replaced, not written through; only the user's own
    # ~/.asv-machine.json may be one.
    target = Path(path).absolute()
    if target.name.startswith("."):
        save_machines(target, data)
        return
    if api_version is not None:
        data = {**data, "version": api_version}
    if target.name == DECLARATIONS:
        add_entries(target.parent, data)
        return
    of_results = _is_result(target)
    if of_results and _prepared:
        _prepared[0].check_lock()
        data = {**data, "results": rows_without(data["results"], _prepared[0].left_out)}
    lasting = of_results or target.name == MACHINE
    atomic_write(target, format_json(data, compact=compact), durable=lasting)
    if of_results:
        project(target.parent.parent, machine=target.parent.name, force=True)


def _is_result(path: Path) -> bool:
    """Whether asv considers the file one of its results."""
    return path.name != MACHINE and (path.parent / MACHINE).exists()


def load_json(
    original: Any, path: str, api_version: int | None = None, js_comments: bool = False
) -> Any:
    """Name any file that is not what asv expects: asv itself only handles invalid JSON."""
    file = Path(path)
    # asv.conf.json and ~/.asv-machine.json may be links
    own = js_comments or file.name.startswith(".")
    try:
        with file.open("rb") if own else open_result(file) as opened:
            text = opened.read()
        found = original(path, api_version, js_comments)
        refuse_lone_surrogates(text, found)
        if file.name == DECLARATIONS:
            return _valid_declarations(path, found)
        if file.name == MACHINE and (
            not isinstance(found, dict) or found.get("machine") != file.parent.name
        ):
            raise ValueError("not a machine's facts")
        return _results_for_asv(file, found) if _is_result(file) else found
    except (
        ValueError,
        TypeError,
        AttributeError,
        RecursionError,
        util.UserError,
        HpmlError,
    ) as error:
        # otherwise one machine's damaged file would abort `asv publish`
        if file.name == MACHINE and api_version is None:
            log.warning(
                one_line(
                    f"{path} is not a machine's facts; shown by the name of its folder"
                )
            )
            return {"machine": file.parent.name}
        if isinstance(error, util.UserError):
            raise
        problem = error.what if isinstance(error, HpmlError) else describe(error)
        raise util.UserError(f"Error loading '{path}': {problem}") from None


def _results_for_asv(file: Path, found: Any) -> Any:
    """A result file in the form that asv should see.

    `--skip-existing` considers a benchmark with one measured point complete, so plugins'
    benchmarks, which are skipped point by point, are hidden. Raises ValueError for other files.
    """
    if not is_result_file(found):
        raise ValueError("not an asv result file")
    rows = bounded_rows(found)
    if _prepared and _prepared[0].suite.reuse:
        rows = rows_without(rows, measured_here(file.parent, file.name))
    return {**found, "results": rows}


def _valid_declarations(path: str, found: Any) -> Any:
    if not isinstance(found, dict):
        raise TypeError("not a JSON object")
    valid = valid_declarations(found)
    for name in found.keys() - valid.keys() - {VERSION_KEY}:
        log.warning(
            one_line(
                f"{path}: {name[:100]!r} is not a declaration of a benchmark; left out"
            )
        )
    return {name: found[name] for name in valid}


_TRACKER = "https://github.com/airspeed-velocity/asv"
REPLACED = (
    # For every command: facts of the node, stale projections, errors in one line
    _Replaced(
        Command,
        "run_from_conf_args",
        "conf, args",
        run_command,
        "plugins cannot run code around a command: asv defines `run_hook` but no hook",
        f"{_TRACKER}/pull/60",
    ),
    _Replaced(
        benchmarks.Benchmarks,
        "discover",
        "conf, repo, environments, commit_hash, regex, check",
        discover,
        "a benchmark has one number: asv would start a process for each metric of each point",
        f"{_TRACKER}/issues/543",
    ),
    _Replaced(
        runner,
        "get_spawner",
        "env, benchmark_dir, launch_method",
        drive,
        "launch methods cannot be added: asv starts processes one by one, by two fixed methods",
        f"{_TRACKER}/issues/510",
    ),
    _Replaced(
        runner,
        "log_benchmark_result",
        "results, benchmark, show_stderr",
        log_result,
        "asv prints the whole grid of one metric, most of it n/a, without an option to disable it",
        f"{_TRACKER}/issues/848",
    ),
    _Replaced(
        util,
        "write_json",
        "path, data, api_version, compact",
        write_json,
        "asv writes in place, and benchmarks.json without what other nodes declared",
        f"{_TRACKER}/issues/1362",
    ),
    _Replaced(
        util,
        "load_json",
        "path, api_version, js_comments",
        load_json,
        "a JSON file with another structure or an infinity ends asv in a traceback",
        f"{_TRACKER}/pull/462",
    ),
)


def changed() -> list[str]:
    """What differs in this asv from the tested versions, one line each."""
    return [
        f"asv {asv.__version__} changed {each.owner.__name__}.{each.name}"
        for each in REPLACED
        if _parameters(inspect.getattr_static(each.owner, each.name, None))
        != each.parameters
    ]


def _parameters(attribute: Any) -> str | None:
    """The names of a function's or method's parameters; None for anything else."""
    function = getattr(attribute, "__func__", attribute)
    if not callable(function):
        return None
    return ", ".join(
        name for name in inspect.signature(function).parameters if name != "cls"
    )


@functools.cache
def apply() -> None:
    """Replace all of them, once. With an untested asv, raises asv's UserError naming the
    difference."""
    if differences := changed():
        raise util.UserError(
            f"{differences[0]}; hpml-plugins works with asv 0.6.6: pip install 'asv==0.6.6'"
        )
    for each in REPLACED:
        for owner in (
            util.iter_subclasses(Command) if each.owner is Command else [each.owner]
        ):
            _replace(owner, each.name, each.replacement)


def _replace(owner: Any, name: str, replacement: Callable[..., Any]) -> None:
    """Replace an attribute by `replacement`, which takes the original as its first argument."""
    attribute = inspect.getattr_static(owner, name)
    original = getattr(attribute, "__func__", attribute)

    @functools.wraps(original)
    def replaced(*arguments: Any, **options: Any) -> Any:
        return replacement(original, *arguments, **options)

    setattr(
        owner,
        name,
        classmethod(replaced) if isinstance(attribute, classmethod) else replaced,
    )
