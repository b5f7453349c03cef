"""The union of two of asv's result files, of one machine, commit and environment."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from asv import util
from asv.results import Results

from hpml_plugins.errors import HpmlError
from hpml_plugins.store.json_objects import refuse_half_characters
from hpml_plugins.store.result_checks import UNREADABLE, check_results

#: What `Results` keeps for each benchmark; the names are those that its own `load_data` copies.
_OF_A_BENCHMARK = (
    "_results",
    "_samples",
    "_stats",
    "_benchmark_params",
    "_profiles",
    "_started_at",
    "_duration",
    "_benchmark_version",
)
_OF_THE_FILE = ("_params", "_requirements", "_date", "_python", "_env_vars")


class NotResults(HpmlError):
    """A file that asv could not read either."""


def load(path: Path) -> Results:
    """asv's results in that file. Raises NotResults with what is wrong."""
    try:
        found = Results.load(str(path), machine_name=path.parent.name)
        check_results(found)
        refuse_half_characters(path.read_bytes(), vars(found))
    except util.UserError as error:
        raise NotResults(f"not asv's results: {error}", str(path)) from None
    except UNREADABLE as error:
        raise NotResults(f"not asv's results: {type(error).__name__}: {error}", str(path)) from None
    if not isinstance(found.commit_hash, str) or not path.name.startswith(f"{found.commit_hash[:8]}-"):
        raise NotResults(f"its name is not that of commit {found.commit_hash}", str(path))
    return found


def join(ours: Results, theirs: Results) -> list[str]:
    """Put into `ours` what is newer in `theirs`: of each benchmark the one started last, whole.

    Returns what was decided between, in words: where both were measured and differ. Facts of the machine and the date
    are those of the file whose newest benchmark is newer.
    """
    if _age_of_file(theirs) > _age_of_file(ours):
        for name in _OF_THE_FILE:
            setattr(ours, name, getattr(theirs, name))
    said = []
    for benchmark in sorted(theirs.get_all_result_keys()):
        mine, other = _age(ours, benchmark), _age(theirs, benchmark)
        if mine and mine != other:
            newer, older = (theirs, ours) if other > mine else (ours, theirs)
            said += _decided(benchmark, newer, older)
        if other > mine:
            for name in _OF_A_BENCHMARK:
                values, found = getattr(ours, name), getattr(theirs, name)
                if benchmark in found:
                    values[benchmark] = found[benchmark]
                else:
                    values.pop(benchmark, None)
    for what, seconds in theirs.duration.items():  # "<build>" and the like
        if what.startswith("<"):
            ours.duration[what] = max(seconds, ours.duration.get(what, seconds))
    return said


def spelled(results: Results) -> str:
    """The content in one canonical spelling, to see whether two are the same."""
    names = sorted(results.get_all_result_keys())
    rest = {name: value for name, value in results.duration.items() if name.startswith("<")}
    return json.dumps([results.commit_hash, _head(results), rest, {name: _row(results, name) for name in names}])


def _decided(benchmark: str, newer: Results, older: Results) -> list[str]:
    """What is worth saying of a choice: nothing, where a newer run measured again all that the older had."""
    if newer.benchmark_version.get(benchmark) != older.benchmark_version.get(benchmark):
        versions = f"{newer.benchmark_version.get(benchmark)}, not {older.benchmark_version.get(benchmark)}"
        return [f"{benchmark}: version {versions}, which was measured earlier"]
    lost = _numbers(older, benchmark) - _numbers(newer, benchmark)
    if lost:
        points = f"{len(lost)} point{'s' * (len(lost) > 1)}"
        return [f"{benchmark}: the newer run has no number for {points} that an older has; the Records keep them"]
    if newer.started_at.get(benchmark) == older.started_at.get(benchmark):
        return [f"{benchmark}: two results started at the same moment; the one that sorts last is kept"]
    return []


def _numbers(results: Results, benchmark: str) -> set[str]:
    """The points that have a number, as asv spells them."""
    from itertools import product

    params = results.get_result_params(benchmark) or []
    values = results.get_result_value(benchmark, params)
    points = map(repr, product(*params))
    return {point for point, value in zip(points, values or [], strict=False) if value is not None and value == value}


def _age(results: Results, benchmark: str) -> tuple[float, str] | tuple[()]:
    """When it was started, ms; the content breaks a tie, so that both orders of merging agree. Empty: not there."""
    if benchmark not in results.get_all_result_keys():
        return ()
    return float(results.started_at.get(benchmark) or 0), json.dumps(_row(results, benchmark), sort_keys=True)


def _age_of_file(results: Results) -> tuple[float, str]:
    newest = max((float(value or 0) for value in results.started_at.values()), default=0.0)
    return newest, json.dumps(_head(results), sort_keys=True)


def _head(results: Results) -> list[Any]:
    return [getattr(results, name) for name in _OF_THE_FILE]


def _row(results: Results, benchmark: str) -> list[Any]:
    return [getattr(results, name).get(benchmark) for name in _OF_A_BENCHMARK]
