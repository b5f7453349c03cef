"""What `asv publish` does otherwise with us: faster, past foreign files, and saying the same as our pages."""

from __future__ import annotations

import functools
import gc
import math
from collections.abc import Callable, Iterator, KeysView
from pathlib import Path
from typing import Any

from asv import graph, results, util
from asv.commands import publish
from asv.console import log
from asv.machine import Machine
from asv.plugins.regressions import Regressions
from asv.results import Results

from hpml_plugins.asv.files import write_site_file
from hpml_plugins.asv.steps import detect_steps_faster
from hpml_plugins.asv.summaries import make_summary_graph
from hpml_plugins.store.result_checks import check_results


def improve_publish() -> None:
    """Replace the parts of `asv publish` for which asv has no extension point.

    None of it changes what asv's pages show of sound results, but for two things: a summary graph averages the same
    points all along, and the list of regressions is ours, which knows directions (`site.regressions`).
    """
    detect_steps_faster()
    _remember_graph_data()
    graph.make_summary_graph = make_summary_graph
    Results.get_result_keys = _in_one_order(Results.get_result_keys)
    Regressions.publish = classmethod(_leave_to_us)
    Results.load = classmethod(_named_errors(Results.load.__func__))
    results._compatible_results = _compatible(results._compatible_results)
    publish.iter_machine_files = _sound_machine_files(publish.iter_machine_files)
    publish.Publish.run = classmethod(_unhindered(publish.Publish.run.__func__))


def _leave_to_us(cls: Any, conf: Any, repo: Any, benchmarks: Any, graphs: Any, revisions: Any) -> None:
    """asv's own asks git once for every regression, a third of the time, and takes a rising throughput for one."""


def _in_one_order(keys: Callable[..., set[str]]) -> Callable[..., KeysView[str]]:
    """asv goes through a set, in another order in each process: graphs, and the last digit of means, come out so."""

    @functools.wraps(keys)
    def ordered(self: Any, benchmarks: Any) -> KeysView[str]:
        return dict.fromkeys(sorted(keys(self, benchmarks))).keys()

    return ordered


def _remember_graph_data() -> None:
    """asv sorts and averages each graph three times, and spells its path for each number; neither changes."""
    original_add, original_graph = graph.Graph.add_data_point, graph.GraphSet.get_graph

    @functools.wraps(_original_get_data)
    def get_data(self: Any) -> Any:
        if "_hpml_data" not in vars(self):
            self._hpml_data = reduced(self)
        return self._hpml_data

    @functools.wraps(original_add)
    def add_data_point(self: Any, *arguments: Any, **named: Any) -> None:
        vars(self).pop("_hpml_data", None)
        original_add(self, *arguments, **named)

    @functools.wraps(original_graph)
    def get_graph(self: Any, benchmark_name: str, params: dict[str, Any]) -> Any:
        known = vars(self).setdefault("_hpml_graphs", {})
        key = benchmark_name, *params.items()
        if key not in known:
            known[key] = original_graph(self, benchmark_name, params)
        return known[key]

    graph.Graph.get_data, graph.Graph.add_data_point, graph.GraphSet.get_graph = get_data, add_data_point, get_graph


def reduced(of: Any) -> list[tuple[int, Any, Any]]:
    """asv's `Graph.get_data`: (revision, values, weights) in order, without the empty ends.

    Where each revision has one result, as is usual, there is nothing to average; asv averages each number by itself.
    """
    if of.n_series is None or any(len(found) > 1 for found in of.data_points.values()):
        return list(_original_get_data(of))
    nothing = [None] * of.n_series
    rows = []
    for revision in sorted(of.data_points):
        values, weights = of.data_points[revision], of.data_weights[revision]
        rows.append((revision, _known(values[0]) if values else nothing, _known(weights[0]) if weights else nothing))
    full = [place for place, (_, values, _) in enumerate(rows) if any(value is not None for value in values)]
    rows = rows[full[0] : full[-1] + 1] if full else []
    if of.scalar_series:
        return [(revision, values[0], weights[0]) for revision, values, weights in rows]
    return rows


def _known(values: list[Any]) -> list[Any]:
    return [None if value is None or value != value else value for value in values]


_original_get_data = graph.Graph.get_data


def _named_errors(load: Callable[..., Any]) -> Callable[..., Any]:
    """asv steps over a result file for which `load` raises UserError, and names it; any other error ends it."""

    @functools.wraps(load)
    def loading(cls: Any, path: str, machine_name: str | None = None) -> Any:
        try:
            result = load(cls, path, machine_name=machine_name)
            check_results(result)
        except util.UserError:
            raise
        except OSError as error:
            raise util.UserError(f"Error loading results file '{path}': {error.strerror}") from None
        except Exception as error:
            kind = type(error).__name__
            raise util.UserError(f"Error loading results file '{path}': not a result of asv's ({kind})") from None
        return result

    return loading


def _sound_machine_files(original: Callable[[str], Iterator[str]]) -> Callable[[str], Iterator[str]]:
    """Without the machine.json files that are half-written or not asv's, which else end `asv publish`."""

    @functools.wraps(original)
    def sound(results_dir: str) -> Iterator[str]:
        for path in original(results_dir):
            try:
                facts = util.load_json(path, Machine.api_version)
                if not isinstance(facts, dict) or facts.get("machine") != Path(path).parent.name:
                    raise ValueError
            except (util.UserError, ValueError, TypeError, OSError):
                log.warning(f"{path} is not a machine's facts; the machine is left out")
            else:
                yield path

    return sound


def _unhindered(run: Callable[..., Any]) -> Callable[..., Any]:
    """Without the garbage collector, which would look at millions of numbers, all alive, again and again; and without
    waiting for each file of the site to reach the disk.
    """

    @functools.wraps(run)
    def running(cls: Any, *arguments: Any, **named: Any) -> Any:
        was_on, write = gc.isenabled(), util.write_json
        gc.disable()
        util.write_json = write_site_file
        try:
            return run(cls, *arguments, **named)
        finally:
            util.write_json = write
            if was_on:
                gc.enable()

    return running


def _compatible(plain: Callable[..., list[Any]]) -> Callable[..., list[Any]]:
    """asv makes a dictionary of all points for each list of numbers; mostly the points are as they were."""

    @functools.wraps(plain)
    def compatible(result: Any, result_params: Any, params: Any) -> list[Any]:
        if result is not None and params == result_params:
            single = all(len(set(each)) == len(each) for each in params)
            if single and len(result) == math.prod(map(len, params)):
                return list(result)
        return plain(result, result_params, params)

    return compatible
