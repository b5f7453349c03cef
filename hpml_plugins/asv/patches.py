"""Every attribute of asv that is replaced, each with the reason, because asv has no extension point
there.

asv is bounded to the versions that were tried (pyproject.toml); another one that lacks an
attribute, or gives it other parameters, ends with a line that names it.
"""

from __future__ import annotations

import functools
import inspect
import itertools
import json
import math
import os
import shutil
import statistics
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import asv
from asv import benchmarks, results, runner, step_detect, util
from asv.commands import Command, compare, run
from asv.console import log

from hpml_plugins.asv.environment import STACK_VARIABLE, stack_matrix
from hpml_plugins.asv.run import (
    Prepared,
    add_reference,
    keep_shard,
    measure_commit,
    narrow,
    plan,
    prepare,
    save_machines,
    tasks_of,
)
from hpml_plugins.asv.staging import staged_site
from hpml_plugins.asv.stored_history import show_missing_commits
from hpml_plugins.errors import HpmlError, UsageError, describe, unwritable
from hpml_plugins.model import formatting
from hpml_plugins.model.record import Estimate
from hpml_plugins.store import (
    Locked,
    atomic_write,
    lock_declarations,
    open_result,
    project,
    read_object_or_empty,
)
from hpml_plugins.store.asv_results import is_result_file, symbol_of
from hpml_plugins.store.declarations import DECLARATIONS, FORMAT, keep_declared, valid_declarations
from hpml_plugins.store.files import refuse_lone_surrogates
from hpml_plugins.store.projection import MACHINE, measured_here
from hpml_plugins.suite import ASV_ENVIRONMENTS_VARIABLE, ASV_RESULTS_VARIABLE, REFUSAL_VARIABLE
from hpml_plugins.terminal import escape_unencodable, one_line, printable, say, warn

#: Exit status of a run that found its machine locked (EX_TEMPFAIL of sysexits.h: try again later).
LOCKED = 75
#: Exit status of a run that measured what fitted into its limit, and left points out.
NOT_WHOLE = 3
#: asv's commands that measure, and those of them that store results.
_MEASURING, _WRITING = ("Run", "Continuous", "Find", "Profile"), ("Run", "Continuous", "Find")

#: What the measuring command under way works with.
_prepared: list[Prepared] = []


@dataclass(frozen=True)
class Replaced:
    """An attribute of asv. parameters: their names in the versions that were tried.  why: one
    line."""

    owner: Any
    name: str
    parameters: str
    replacement: Callable[..., Any]
    why: str


def run_command(original: Any, cls: Any, conf: Any, args: Any, **options: Any) -> Any:
    """What happens around each command."""
    escape_unencodable()
    try:
        return _run_command(original, cls, conf, args, options)
    except (HpmlError, OSError) as error:
        refused = unwritable(error) if isinstance(error, OSError) else error
        if refused is None and shutil.which("git") is None:
            refused = UsageError("git is not installed; asv checks commits out with it")
        if refused is None:
            raise
        log.flush()
        warn(refused)
        if file := os.environ.get(REFUSAL_VARIABLE):
            atomic_write(Path(file), str(refused).encode())
        sys.exit(LOCKED if isinstance(error, Locked) else 2)


def _run_command(original: Any, cls: Any, conf: Any, args: Any, options: dict[str, Any]) -> Any:
    command = cls.__name__
    conf.results_dir = os.environ.get(ASV_RESULTS_VARIABLE) or conf.results_dir
    if name := os.environ.get(ASV_ENVIRONMENTS_VARIABLE):
        conf.env_dir = str(Path(conf.env_dir, name))
    if words := os.environ.get(STACK_VARIABLE):
        conf.matrix = stack_matrix(words)
    if command not in _MEASURING:
        _project_if_possible(Path(conf.results_dir))
        if command == "Publish":
            # asv's own search for regressions takes a rising throughput for one, and its page is
            # ours
            conf.regressions_first_commits = {".*": None}
            show_missing_commits(conf)
            with staged_site(conf, args):
                return original(cls, conf, args, **options)
        return original(cls, conf, args, **options)
    prepared = prepare(
        conf, args, writes=command in _WRITING and not getattr(args, "dry_run", False)
    )
    for problem in [
        *(plugin.error for plugin in prepared.host.broken),
        *prepared.host.offers.problems,
    ]:
        log.warning(one_line(str(problem)))
    _prepared[:] = [prepared]
    try:
        status = original(cls, conf, args, **options)
    finally:
        log.flush()
        for line in prepared.report.summary(Path(conf.results_dir)):
            say(line)
    return status or (NOT_WHOLE if prepared.report.left_out else status)


def _project_if_possible(results: Path) -> None:
    """Bring asv's result files up to date. Results that may only be read are read as they are."""
    try:
        project(results)
    except OSError as error:
        refused = unwritable(error)
        if refused is None:
            raise
        log.warning(f"{refused}; asv's own pages and commands may lack the newest results")


def discover(
    original: Any, cls: Any, conf: Any, repo: Any, environments: Any, commits: Any, **options: Any
) -> Any:
    """asv's benchmarks, of ours one metric each and the points of the profile."""
    found = original(cls, conf, repo, environments, commits, **options)
    if _prepared:
        prepared = _prepared[0]
        narrow(found, prepared.suite.benchmarks)
        keep_shard(found)
        add_reference(found, prepared.suite.benchmarks, prepared.suite.node)
        prepared.tasks = tasks_of(found, prepared.suite.benchmarks)
        plan(prepared, len(commits) * len(environments))
    return found


def save_results(original: Any, self: Any, result_dir: str) -> None:
    """Store what asv has, then the projection of the machine's Records over it."""
    if _prepared:
        if lock := _prepared[0].lock:
            lock.check()
        for name in _prepared[0].wholly_left_out & set(self.get_all_result_keys()):
            self.remove_result(name)  # --skip-existing would take it for measured
    original(self, result_dir)
    project(Path(result_dir), machine=str(self.params.get("machine")), force=True)


def results_without_records(original: Any, results_dir: str, machine: str, commit: str) -> Any:
    """What `--skip-existing` looks at: a benchmark of ours is skipped point by point, by its
    Records."""
    for result in original(results_dir, machine, commit):
        ours = measured_here(Path(results_dir, machine), result.commit_hash[:8])
        for name in [
            name for name in result.get_all_result_keys() if name.partition(".track_")[0] in ours
        ]:
            result.remove_result(name)
        yield result


def run_point(original: Any, benchmark: Any, spawner: Any, param_idx: int, **options: Any) -> Any:
    """What a point gave. At the first one of a commit, all rounds of all its points are measured,
    in random order."""
    if "benchmark" not in benchmark or not _prepared:
        return original(benchmark, spawner, param_idx, **options)
    prepared = _prepared[0]
    if prepared.spawner is not spawner:
        prepared.spawner = spawner
        log.flush()
        extra = options["extra_params"] if isinstance(options["extra_params"], dict) else {}
        measure_commit(
            prepared,
            lambda of, index: original(of, spawner, index, **options),
            extra.get("rounds"),
            spawner.env.installed_commit_hash or "",
            spawner.env.name,
        )
    place = (benchmark["name"], param_idx)
    result, record = prepared.outcomes[place]
    if place not in prepared.left_out:
        prepared.report.add(record)
    return result


def log_result(original: Any, found: Any, benchmark: Any, show_stderr: bool = False) -> None:
    """A compact table of all metrics of a benchmark of ours; asv's own output for others."""
    if "benchmark" not in benchmark or not _prepared:
        original(found, benchmark, show_stderr=show_stderr)
        return
    errors = found.stderr.get(benchmark["name"])
    log.add_padded("ok" if not found.errcode.get(benchmark["name"]) else "failed")
    width = max(80, shutil.get_terminal_size((120, 24)).columns - 12)  # asv indents what it prints
    if text := _prepared[0].report.finish_benchmark(width):
        log.info(text, color="default")
    if errors and show_stderr:
        log.error("\n".join(map(printable, errors.splitlines())))


def format_value(original: Any, value: Any, unit: str, err: float | None = None) -> str:
    """Numbers as every command and page of ours writes them. err: half the interval's width."""
    if isinstance(value, int | float) and not isinstance(value, bool) and value == value:
        low, high = (value - err, value + err) if err is not None else (None, None)
        return formatting.estimate(Estimate(value, low, high, 0), symbol_of(unit))
    return str(original(value, unit, err=err))


def format_without_spaces(original: Any, value: Any, unit: str, err: float | None = None) -> str:
    """The same for `asv compare`, which splits its lines into columns at spaces."""
    return "".join(format_value(original, value, unit, err).split())


def format_measured(
    original: Any, result: Any, benchmark: Any, max_width: int | None = None
) -> list[str]:
    """A line for each measured point; asv prints a grid full of n/a."""
    if "benchmark" not in benchmark:
        return list(original(result, benchmark, max_width))
    lines = []
    for values, (value, error) in zip(itertools.product(*benchmark["params"]), result, strict=True):
        if value is None or value == value:
            point = formatting.format_point_texts(
                dict(zip(benchmark["param_names"], values, strict=False))
            )
            lines.append(
                f"{point}: {format_value(util.human_value, value, benchmark['unit'], error)}"
            )
    return lines or ["no point was measured"]


def write_json(
    original: Any, path: str, data: Any, api_version: int | None = None, compact: bool = False
) -> None:
    """Atomic, to the same bytes: asv writes in place, and a kill or a full disk would cost the old
    content.

    benchmarks.json, which the last run writes whole, keeps what other nodes and commits declared.
    Files of the site can be made again, and are not synced to the disk one by one.
    """
    # A link among results is replaced, not written through; only the user's own ~/.asv-machine.json
    # may be one.
    target = Path(path).absolute()
    if target.name.startswith("."):
        save_machines(target, data)
        return
    if api_version is not None:
        data = {**data, "version": api_version}
    if target.name == DECLARATIONS:
        with lock_declarations(target.parent):
            data = keep_declared(data, read_object_or_empty(target))
            atomic_write(target, json.dumps(data, indent=4, sort_keys=True).encode())
        return
    text = json.dumps(data) if compact else json.dumps(data, indent=4, sort_keys=True)
    lasting = target.name == MACHINE or (target.parent / MACHINE).exists()
    atomic_write(target, text.encode(), durable=lasting)


def load_json(
    original: Any, path: str, api_version: int | None = None, js_comments: bool = False
) -> Any:
    """Name any file that is not what asv takes it for: asv expects text that is no JSON, and
    nothing else."""
    file = Path(path)
    # asv.conf.json and ~/.asv-machine.json, which may be links
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
        if (file.parent / MACHINE).exists() and file.name != MACHINE and not is_result_file(found):
            raise ValueError("not an asv result file")
        return found
    except (
        ValueError,
        TypeError,
        AttributeError,
        RecursionError,
        util.UserError,
        HpmlError,
    ) as error:
        # `asv publish` would end at one machine's damaged file
        if file.name == MACHINE and api_version is None:
            log.warning(
                one_line(f"{path} is not a machine's facts; shown by the name of its folder")
            )
            return {"machine": file.parent.name}
        if isinstance(error, util.UserError):
            raise
        problem = error.what if isinstance(error, HpmlError) else describe(error)
        raise util.UserError(f"Error loading '{path}': {problem}") from None


def _valid_declarations(path: str, found: Any) -> Any:
    if not isinstance(found, dict):
        raise TypeError("not a JSON object")
    valid = valid_declarations(found)
    for name in found.keys() - valid.keys() - {FORMAT}:
        log.warning(one_line(f"{path}: {name[:100]!r} is no declaration of a benchmark; left out"))
    return {name: found[name] for name in valid}


def finite_levels(original: Any, y: list[float], *arguments: Any, **options: Any) -> Any:
    """asv's levels of a series; one level where a value, or their sum, is infinite: asv's search
    would not end."""
    if not math.isfinite(sum(map(abs, y))):
        return [len(y)], [statistics.median(y)], [0.0], None
    return original(y, *arguments, **options)


_VALUE = "value, unit, err"
REPLACED = (
    Replaced(
        benchmarks.Benchmarks,
        "discover",
        "conf, repo, environments, commit_hash, regex, check",
        discover,
        "asv selects points by --bench alone; starting a process for each metric of each point"
        " takes longest",
    ),
    Replaced(
        results.Results,
        "save",
        "self, result_dir",
        save_results,
        "the Records have every metric, asv only one",
    ),
    Replaced(
        results,
        "_format_benchmark_result",
        "result, benchmark, max_width",
        format_measured,
        "a grid of n/a",
    ),
    Replaced(
        run,
        "iter_results_for_machine_and_hash",
        "results, machine_name, commit",
        results_without_records,
        "--skip-existing takes a benchmark with one measured point for done",
    ),
    Replaced(
        runner,
        "_run_benchmark_single_param",
        "benchmark, spawner, param_idx, profile, extra_params, cwd",
        run_point,
        "asv is silent while the points of a benchmark are measured",
    ),
    Replaced(
        runner,
        "log_benchmark_result",
        "results, benchmark, show_stderr",
        log_result,
        "one table, all metrics",
    ),
    Replaced(util, "human_value", _VALUE, format_value, "asv scales seconds and bytes only"),
    Replaced(
        compare,
        "human_value",
        _VALUE,
        format_without_spaces,
        "`asv compare` has a name of its own for it",
    ),
    Replaced(
        util, "write_json", "path, data, api_version, compact", write_json, "asv writes in place"
    ),
    Replaced(
        util,
        "load_json",
        "path, api_version, js_comments",
        load_json,
        "a foreign file ends asv in a traceback",
    ),
    Replaced(
        step_detect,
        "solve_potts_autogamma",
        "y, w, beta, kw",
        finite_levels,
        "an infinity ends `asv publish`",
    ),
    # Of every command: facts of the node, stale projections, errors in one line
    Replaced(
        Command, "run_from_conf_args", "conf, args", run_command, "asv has no hook around a command"
    ),
)


def changed() -> list[str]:
    """What this asv does not have as it was in the versions that were tried, one line each."""
    return [
        f"asv {asv.__version__} changed {each.owner.__name__}.{each.name}"
        for each in REPLACED
        if _parameters(inspect.getattr_static(each.owner, each.name, None)) != each.parameters
    ]


def _parameters(attribute: Any) -> str | None:
    """The names of a function's or method's parameters; None for anything else."""
    function = getattr(attribute, "__func__", attribute)
    if not callable(function):
        return None
    return ", ".join(name for name in inspect.signature(function).parameters if name != "cls")


@functools.cache
def apply() -> None:
    """Replace all of them, once. Raises asv's UserError, naming what is different, for another
    asv."""
    if differences := changed():
        raise util.UserError(
            f"{differences[0]}; hpml-plugins works with asv 0.6.6: pip install 'asv==0.6.6'"
        )
    for each in REPLACED:
        for owner in util.iter_subclasses(Command) if each.owner is Command else [each.owner]:
            _replace(owner, each.name, each.replacement)


def _replace(owner: Any, name: str, replacement: Callable[..., Any]) -> None:
    """Put `replacement`, which takes the original as its first argument, in the place of an
    attribute."""
    attribute = inspect.getattr_static(owner, name)
    original = getattr(attribute, "__func__", attribute)

    @functools.wraps(original)
    def replaced(*arguments: Any, **options: Any) -> Any:
        return replacement(original, *arguments, **options)

    setattr(owner, name, classmethod(replaced) if isinstance(attribute, classmethod) else replaced)
