"""Check arguments of asv's commands that asv does not check, where it would end in a traceback or
show nothing; and patterns, in which `$` also matches the end of the name of a benchmark."""

from __future__ import annotations

import pkgutil
import shlex
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, NoReturn

import msgspec
from asv.benchmarks import Benchmarks
from asv.commands.show import Show
from asv.environment import get_environments

from hpml_plugins.errors import UsageError, nearest, regular_expression
from hpml_plugins.git import find_commit, run_git, why_failed
from hpml_plugins.host import Host
from hpml_plugins.registry.reader import EVERYTHING
from hpml_plugins.store import machine_folders, read_object_or_empty
from hpml_plugins.store.declarations import DECLARATIONS, valid_declarations
from hpml_plugins.store.history import result_files

#: Replaces a closing `$` of a pattern.
_END = r"(?:$|[.(])"
#: Ranges that are keywords of asv rather than of git.
_WORDS = ("EXISTING", "NEW", "ALL", "TAGS", "HEAD")


#: Commands that show stored results, of environments of any node.
_READING = ("Show", "Compare")


def refuse_unknown(command: str, conf: Any, args: Any) -> None:
    """Raise UsageError for an invalid pattern, for an environment that cannot be created here (or
    has no results, for commands that show them), and for commits that the repository lacks, if
    there is one.

    command: the name of asv's class.
    """
    for pattern in getattr(args, "bench", None) or ():
        regular_expression(pattern, "--bench")
    if benchmark := getattr(args, "benchmark", None):  # of `asv profile`
        regular_expression(benchmark, "benchmark")
    for environment in getattr(args, "env_spec", None) or ():
        stored = _stored_environments(conf) if command in _READING else set()
        if environment not in stored:
            _refuse_environment(conf, environment, stored)
    repository = Path(conf.repo)
    if not (repository / ".git").exists():
        return
    asked = getattr(args, "range", None)
    if isinstance(asked, str) and asked not in _WORDS and not asked.startswith("HASHFILE:"):
        _refuse_range(repository, asked)
    if commit := getattr(args, "commit", None):  # of `asv show`
        _refuse_commit(repository, commit, Path(conf.results_dir))


def end_at_metrics(patterns: list[str]) -> list[str]:
    """The patterns of --bench, in which a closing `$` also matches the end of the name of a
    benchmark or metric: asv's names continue with the metric and the parameters,
    `tta.track_time('fast')`, and `^tta$` would select nothing."""
    return [
        pattern[:-1] + _END
        if pattern.endswith("$") and not pattern.endswith(r"\$")
        else pattern
        for pattern in patterns
    ]


def select_each(patterns: Sequence[str], found: Benchmarks) -> dict[str, Benchmarks]:
    """What each pattern of --bench selects alone. Raises UsageError for those that select nothing.

    found: has all benchmarks, selected or not.
    """
    every = found._all_benchmarks
    alone = {each: Benchmarks(found._conf, every.values(), each) for each in patterns}
    refuse_unmatched([each for each in patterns if not alone[each]], every)
    return alone


def refuse_unmatched(patterns: Sequence[str], names: Iterable[str]) -> None:
    """Raise UsageError for patterns of --bench that no benchmark matches, if there are any.

    names: asv's, of all benchmarks.
    """
    if not patterns:
        return
    known = dict.fromkeys(name.partition(".")[0] for name in names)
    plain = patterns[0].removeprefix("^").removesuffix(_END)
    raise UsageError(
        f"--bench: no benchmark matches {_as_given(patterns)}; {nearest(plain, known)}"
    )


def refuse_unknown_patterns(patterns: Sequence[str], conf: Any, host: Host) -> None:
    """Raise UsageError for a pattern of --bench that is invalid, or that matches no benchmark of
    the registry or of the stored results.

    Only a run knows all benchmarks if a plugin cannot be loaded, or if the project has benchmarks
    of asv's own that were never measured: then nothing is refused.
    """
    for pattern in patterns:
        regular_expression(pattern, "--bench")
    has_own = any(pkgutil.iter_modules([conf.benchmark_dir]))
    if not patterns or host.broken or has_own:
        return
    declared = {
        entry.name: msgspec.to_builtins(entry)
        for each in host.benchmarks()
        for entry in each.entries()
    }
    stored = read_object_or_empty(Path(conf.results_dir) / DECLARATIONS)
    known = valid_declarations(stored)
    declared = {
        name: msgspec.to_builtins(entry) for name, entry in known.items()
    } | declared
    select_each(end_at_metrics(list(patterns)), Benchmarks(conf, declared.values()))


def refuse_unshown(conf: Any, args: Any) -> None:
    """Raise UsageError for a pattern of `asv show --bench` that no benchmark matches, and if none
    of the benchmarks has a result where it is looked for.

    args.bench: with ends at metrics.
    """
    results = Path(conf.results_dir)
    machines = [folder.name for folder in machine_folders(results)]
    if args.machine:
        machines = [each for each in machines if each == args.machine]
    if not machines or not (results / DECLARATIONS).exists():
        return  # asv says so
    patterns = args.bench or []
    shown = Benchmarks.load(conf, regex=patterns)
    select_each(patterns, shown)
    asked_for = list(args.env_spec or ())
    made = get_environments(conf, asked_for, verbose=False) if asked_for else ()
    environments = [*asked_for, *(each.name for each in made)] or None
    for _, result in Show._iter_results(conf, machines, environments, args.commit):
        if result.get_result_keys(shown):
            return
    asked = {
        "of benchmarks that match": _as_given(patterns),
        "at commit": args.commit,
        "on": args.machine,
        "in environment": " or ".join(asked_for),
    }
    where = " ".join(f"{word} {value}" for word, value in asked.items() if value)
    raise UsageError(f"no results {where}; asv show lists the commits that have some")


def refuse_unchosen(patterns: Sequence[str], profile: str) -> NoReturn:
    """Raise UsageError because the profile chooses none of the points that match --bench."""
    asked = f" that matches --bench {_as_given(patterns)}" if patterns else ""
    raise UsageError(
        f"profile {profile!r} chooses no point{asked}; hpml list shows the points, and"
        f" HPML_PROFILE={EVERYTHING} has all"
    )


def _as_given(patterns: Sequence[str]) -> str:
    """The patterns of --bench as the user wrote them."""
    return " or ".join(repr(each.replace(_END, "$")) for each in patterns)


def _stored_environments(conf: Any) -> set[str]:
    """The environments in the names of asv's files, `<commit>-<environment>.json`."""
    return {path.stem.partition("-")[2] for path in result_files(Path(conf.results_dir))}


def _refuse_environment(conf: Any, asked: str, stored: set[str]) -> None:
    if any(get_environments(conf, [asked], verbose=False)):
        return
    made = {each.name for each in get_environments(conf, None, verbose=False)}
    known = sorted({conf.environment_type, *made} | stored)
    raise UsageError(
        f"--environment: {asked!r} is not an environment of this node; {nearest(asked, known)}"
    )


def _refuse_range(repository: Path, asked: str) -> None:
    try:
        words = shlex.split(asked)
    except ValueError as error:
        raise UsageError(f"{asked!r} names no commits: {error}") from None
    if not words:
        return
    done = run_git(repository, "rev-list", "--first-parent", "-n1", *words, "--")
    if done.returncode:
        raise UsageError(f"{asked!r} names no commits here: {why_failed(done)}")


def _refuse_commit(repository: Path, commit: str, results: Path) -> None:
    if find_commit(repository, commit):
        return
    if not any(path.name.startswith(commit[:8]) for path in result_files(results)):
        raise UsageError(
            f"{commit!r} is not a commit of the repository, and has no results"
        )
