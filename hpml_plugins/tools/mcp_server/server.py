"""A Model Context Protocol server with four tools that read results. Each returns the output of a
command.

Source: the SDK `mcp`, https://github.com/modelcontextprotocol/python-sdk.
"""

from __future__ import annotations

import csv
import functools
import json
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from hpml_plugins.cli import PATH, Settings, choose_results
from hpml_plugins.errors import needs_extra
from hpml_plugins.store import find_results
from hpml_plugins.terminal import one_line
from hpml_plugins.version import __version__

if TYPE_CHECKING:
    from mcp.server import MCPServer

    from hpml_plugins.model import Record
    from hpml_plugins.tools.frame import Frame

#: Time limit of a command, s.
LIMIT = 300
#: Row limit of an answer, because a model reads all of it.
MOST_ROWS = 200
_INSTRUCTIONS = (
    "Results of GPU and CPU benchmarks. Values are in SI base units; low and high are a 95 %"
    " interval for the next run on another card of the type. A verdict is BETTER, WORSE, SAME,"
    " BOUND (only bounds are known) or AMBIGUOUS (nothing can be said). Do not report a difference"
    " whose verdict is BOUND or AMBIGUOUS as one."
)
_HISTORY = (
    "commit",
    "started",
    "machine",
    "point",
    "metric",
    "unit",
    "regime",
    "value",
    "low",
    "high",
    "class",
    "cards",
    "warnings",
)
_VERDICTS = {
    "BETTER": "significantly better, corrected for the number of comparisons",
    "WORSE": "significantly worse, corrected for the number of comparisons",
    "SAME": "the 95 % interval of the ratio lies within 2 % of 1",
    "BOUND": "undecided: the interval of the ratio is all that is known",
    "AMBIGUOUS": "the variation of the value is unknown; see reason",
}


@click.command("mcp")
@click.option(
    "--results",
    type=PATH,
    callback=choose_results,
    help="Results to serve.  [default: results_dir of asv.conf.json]",
)
@click.pass_obj
def command(settings: Settings, results: Path) -> int:
    """Serve the results to a language model, over the Model Context Protocol.

    Speaks on standard input and output, as a client starts it. Four tools read results: list
    benchmarks, compare, history, explain a verdict. None writes or measures anything.
    """
    make_server(Results(settings.registry, results)).run()
    return 0


@dataclass(frozen=True)
class Results:
    """The served results, and the registry that names their plugins.

    A public method is a tool of the server: the model reads its docstring.
    """

    registry: Path
    folder: Path

    def list_benchmarks(self) -> dict[str, Any]:
        """List the benchmarks that have results, with their machines, metrics and description."""
        listed = {each.get("benchmark"): each for each in self._listed()}
        rows: dict[str, Any] = {}
        for each in self._frame().records:
            entry = rows.setdefault(each.benchmark, _entry(each, listed))
            if each.machine not in entry["machines"]:
                entry["machines"].append(each.machine)
            for name, metric in each.metrics.items():
                entry["metrics"].setdefault(name, metric.unit)
        return {"benchmarks": rows, "not measured yet": sorted({*listed} - {*rows, None})}

    def compare(self, a: str, b: str, benchmark: str = "") -> dict[str, Any]:
        """Compare the results of B with those of A, significant differences first.

        a, b: two machines, two commits or two environments. benchmark: only this one. `ratio` above
        1 means that B is better.
        """
        rows = self._compared(a, b, benchmark)
        changed = [row for row in rows if row["verdict"] in ("BETTER", "WORSE")]
        others = [row for row in rows if row not in changed]
        return _limited([*changed, *others])

    def history(
        self, benchmark: str, machine: str = "*", metric: str = ""
    ) -> dict[str, Any]:
        """List the measured values of a benchmark, newest first, with intervals and commits."""
        frame = self._frame()
        rows = []
        for row in frame.select(benchmark, machine).rows():
            if metric in ("", row.get("metric")) and row["status"] == "ok":
                rows.append({name: row.get(name) for name in _HISTORY})
        if not rows:
            raise ValueError(f"no measured value of {benchmark!r} on {machine!r} here")
        for row in rows:
            row["started"] = row["started"].isoformat() if row["started"] else None
        return _limited(sorted(rows, key=lambda row: row["started"] or "", reverse=True))

    def explain_verdict(
        self, a: str, b: str, benchmark: str, point: str, metric: str
    ) -> dict[str, Any]:
        """Explain why B against A is BETTER, WORSE, SAME, BOUND or AMBIGUOUS at one point.

        point, metric: as in the output of `compare`. Returns the values, the meaning of the
        verdict, and a report with what else differs between the sides.
        """
        rows = self._compared(a, b, benchmark)
        found = [row for row in rows if (row["point"], row["metric"]) == (point, metric)]
        if not found:
            known = sorted({f"{row['point']}: {row['metric']}" for row in rows})
            raise ValueError(f"no such point and metric; known: {'; '.join(known[:30])}")
        return {
            "values": found,
            "meaning": {row["verdict"]: _VERDICTS.get(row["verdict"], "") for row in found},
            "report": self._hpml("compare", _options(benchmark, "text", "--all"), a, b),
        }

    def _frame(self) -> Frame:
        """All Records: cached until a file of the results changes, because reading takes
        seconds."""
        place = self.folder if self.folder.is_file() else find_results(self.folder)
        return _load(place, _state_of(place))

    def _compared(self, a: str, b: str, benchmark: str) -> list[dict[str, str]]:
        text = self._hpml("compare", _options(benchmark, "csv"), a, b)
        return [*csv.DictReader(text.splitlines())]

    def _listed(self) -> list[dict[str, Any]]:
        if not self.registry.is_file():
            return []
        found: list[dict[str, Any]] = json.loads(
            self._hpml("list", ["--json"], results=False)
        )
        return found

    def _hpml(
        self, name: str, options: Sequence[str], *words: str, results: bool = True
    ) -> str:
        """The output of a command. Raises ValueError with its error. words: never parsed as
        options."""
        folder = [f"--results={self.folder}"] if results else []
        head = [sys.executable, "-m", "hpml_plugins", f"--registry={self.registry}"]
        arguments = [*head, name, *options, *folder, "--", *words]
        done = subprocess.run(
            arguments, capture_output=True, text=True, timeout=LIMIT, check=False
        )
        if done.returncode:
            raise ValueError(one_line(done.stderr.strip()) or f"status {done.returncode}")
        return done.stdout


#: Path, size in B and time of writing in ns of each file.
_State = frozenset[tuple[Path, int, int]]


def _state_of(place: Path) -> _State:
    """The state of a file, or of all files below a folder."""
    found = []
    for path in (place, *place.rglob("*")):
        with suppress(OSError):  # removed since the listing
            status = path.stat()
            found.append((path, status.st_size, status.st_mtime_ns))
    return frozenset(found)


@functools.lru_cache(maxsize=1)
def _load(place: Path, state: _State) -> Frame:
    """The Records.  state: of the files, by which the cache checks whether the Records are still
    current."""
    from hpml_plugins.tools.frame import load

    return load(place)


def _entry(record: Record, listed: Mapping[Any, Mapping[str, Any]]) -> dict[str, Any]:
    """The description of a benchmark; without its plugin, only the part in the Records."""
    known = listed.get(record.benchmark, {})
    return {
        "plugin": record.plugin,
        "machines": [],
        "description": known.get("description", ""),
        "metrics": dict(known.get("metrics", {})),
    }


def _options(benchmark: str, form: str, *more: str) -> list[str]:
    chosen = [f"--benchmark={benchmark}"] if benchmark else []
    return [*chosen, f"--format={form}", *more]


def _limited(rows: list[Any]) -> dict[str, Any]:
    """The first rows, and the number of all rows."""
    return {"rows": rows[:MOST_ROWS], "left out": max(0, len(rows) - MOST_ROWS)}


def make_server(results: Results) -> MCPServer:
    """The server with its four tools. Raises UsageError without the SDK."""
    with needs_extra("mcp"):
        from mcp.server import MCPServer
        from mcp.server.mcpserver.exceptions import ToolError
        from mcp.types import ToolAnnotations
    server = MCPServer("hpml-plugins", instructions=_INSTRUCTIONS, version=__version__)
    reads = ToolAnnotations(read_only_hint=True, open_world_hint=False)

    def answering(ask: Callable[..., dict[str, Any]]) -> Callable[..., dict[str, Any]]:
        @functools.wraps(ask)
        def answer(*words: str, **named: str) -> dict[str, Any]:
            try:
                return ask(*words, **named)
            except Exception as error:
                raise ToolError(str(error)) from error

        return answer

    asks = (
        results.list_benchmarks,
        results.compare,
        results.history,
        results.explain_verdict,
    )
    for ask in asks:
        server.tool(annotations=reads)(answering(ask))
    return server
