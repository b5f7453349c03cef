"""Benchmarks that base has and head lacks. asv measures both commits with the files of head, so a
benchmark that a change removes is not measured."""

from __future__ import annotations

import copy
import os
from collections import Counter
from collections.abc import Container, Iterator, Sequence
from pathlib import Path
from typing import Any

import msgspec

from hpml_plugins.asv import Prepared, own_tasks
from hpml_plugins.errors import HpmlError, describe, raise_interrupt
from hpml_plugins.git import tell_git
from hpml_plugins.host import Host, make_host
from hpml_plugins.registry import EVERYTHING, read_registry
from hpml_plugins.suite import PROFILE_VARIABLE
from hpml_plugins.temporary import temporary_folder


def export(top: Path, commit: str, folder: Path, without: Path) -> None:
    """Write the files of a commit into a folder.

    top: of the checkout.  without: a folder in it to leave out.
    """
    index = {"GIT_INDEX_FILE": str(folder.with_name(f"{folder.name}.index"))}
    tell_git(top, "read-tree", commit, **index)
    if without.is_relative_to(top):
        literal = f":(literal){without.relative_to(top)}"
        # forced: otherwise git refuses because the files of HEAD and of the work tree differ
        words = "rm", "-r", "-f", "-q", "--cached", "--ignore-unmatch", "--", literal
        tell_git(top, *words, **index)
    tell_git(top, "checkout-index", "--all", f"--prefix={folder}/", **index)


def find_removed(
    conf: Any,
    repository: Any,
    environment: Any,
    base: tuple[Path, str],
    prepared: Prepared,
    bench: Sequence[str],
    of_head: Container[str],
) -> dict[str, int]:
    """Why points of base are not judged, and how many: those of removed benchmarks.

    environment: asv's, where base is installed.  base: the top of the checkout, and the commit.
    bench: as of `asv run --bench`.  of_head: asv's names of the benchmarks of head. `find_loosened`
    reports benchmarks that its registry no longer enables.
    """
    from asv.benchmarks import Benchmarks
    from asv.util import ProcessError, UserError

    top, commit = base
    found: Counter[str] = Counter()
    unknown: dict[str, int] = {}
    with temporary_folder("hpml-gate-") as scratch:
        folder = scratch / "base"
        export(top, commit, folder, Path(conf.results_dir).resolve())
        own = copy.copy(conf)
        own.branches = []
        own.benchmark_dir = str(
            folder / Path(conf.benchmark_dir).resolve().relative_to(top.resolve())
        )
        regex = list(bench) or None
        try:
            place = prepared.host.registry.path.resolve().relative_to(top.resolve())
            if (folder / place).is_file():
                entries = list(_entries(folder / place, prepared.host))
                ours = Benchmarks(own, entries, regex=regex)
                for name, entry in ours.items():
                    points = ours.benchmark_selection.get(name)
                    found[entry["benchmark"]] = 1 if points is None else len(points)
            if Path(own.benchmark_dir).is_dir():
                theirs = Benchmarks.discover(
                    own, repository, [environment], [commit], regex=regex
                )
                tasks = own_tasks(theirs, conf.default_benchmark_timeout)
                names = [task.declared.benchmark for task in tasks]
                found.update(name for name in names if name not in of_head)
        except (HpmlError, ProcessError, UserError) as error:
            raise_interrupt(error)
            reason = describe(error).splitlines()[0]
            unknown[f"the benchmarks of base are unknown: {reason}"] = 0
    removed = {
        f"head no longer has the benchmark {name}": count for name, count in found.items()
    }
    return removed | unknown


def _entries(file: Path, head: Host) -> Iterator[dict[str, Any]]:
    """asv's description of each benchmark that a plugin has at base and lacks at head.

    file: the registry of base. Raises the error of a plugin that does not load.
    """
    known = {each.benchmark for each in head.benchmarks()}
    kept = {entry.name for entry in head.registry.enabled}
    before = read_registry(file)
    chosen = os.environ.get(PROFILE_VARIABLE, EVERYTHING)
    host = make_host(before, profile=chosen if chosen in before.profiles else EVERYTHING)
    for plugin in host.plugins:
        if plugin.entry.name not in kept:
            continue
        if plugin.error:
            raise plugin.error
        for declared in plugin.declared:
            if declared.benchmark not in known and declared.chosen_points():
                yield msgspec.to_builtins(next(declared.entries()))
