"""`hpml gate BASE`: is what is checked out here slower than BASE, beyond a budget?"""

from __future__ import annotations

import itertools
import os
import re
import shlex
from argparse import Namespace
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from urllib.parse import urlsplit

import click

from hpml_plugins.asv import prepare, read_configuration
from hpml_plugins.cli import Settings
from hpml_plugins.errors import UsageError, nearest
from hpml_plugins.host import Declared
from hpml_plugins.model import Record, counted, format_point
from hpml_plugins.registry import EVERYTHING, PluginEntry
from hpml_plugins.store import Lock, append_record
from hpml_plugins.suite import PROFILE_VARIABLE
from hpml_plugins.terminal import say
from hpml_plugins.tools.gate.loosened import DEFAULT_BUDGET, find_loosened, registry_of_base
from hpml_plugins.tools.gate.pull_request import GateResult, as_comment, as_lines
from hpml_plugins.tools.gate.sides import (
    BASE,
    HEAD,
    Rounds,
    Sides,
    build_sides,
    find_commits,
    measure_sides,
)
from hpml_plugins.tools.gate.verdicts import Gate, judge

#: Rounds of each side from which the variance is estimated, and so the number of rounds.
PILOT = 3
#: Rounds of each side, at most, where no option says it.
MOST = 30
#: Exit statuses.
REFUSED, UNDECIDED = 1, 3


class Budgets:
    """The slow-down that each metric is allowed: `--budget 5 --budget attention=2 --budget
    attention.memory=1`.

    entries: of the registry, whose `gate` says the same. The most specific name counts; of one
    name, the option does.
    """

    def __init__(self, words: Sequence[str], entries: Sequence[PluginEntry] = ()) -> None:
        self._default, self._named, self._asked = (
            DEFAULT_BUDGET / 100,
            dict[str, float](),
            set[str](),
        )
        for benchmark, budgets in (item for entry in entries for item in entry.gate.items()):
            if isinstance(budgets, dict):
                self._named |= {
                    f"{benchmark}.{metric}": percent / 100 for metric, percent in budgets.items()
                }
            else:
                self._named[benchmark] = budgets / 100
        for word in words:
            name, _, text = word.rpartition("=")
            try:
                percent = float(text.removesuffix("%"))
            except ValueError:
                percent = -1.0
            if not 0 < percent < 1000:
                raise UsageError(
                    f"--budget {word!r} is not PERCENT or NAME=PERCENT, above 0; for example 5 or"
                    " attention=2"
                )
            if name:
                self._named[name] = percent / 100
                self._asked.add(name)
            else:
                self._default = percent / 100

    def of(self, record: Record) -> dict[str, float]:
        """Of the metrics of a Record of which one direction is better."""
        allowed = self._named.get(record.benchmark, self._default)
        return {
            name: self._named.get(f"{record.benchmark}.{name}", allowed)
            for name, metric in record.metrics.items()
            if metric.direction
        }

    def refuse_unknown(self, benchmarks: Iterable[Declared]) -> None:
        """Raise UsageError for an option whose name is neither one of these benchmarks nor a metric
        of one."""
        known = [
            name
            for each in benchmarks
            for name in (each.name, *(f"{each.name}.{m.name}" for m in each.metrics))
        ]
        if unknown := self._asked.difference(known):
            raise UsageError(
                f"--budget: no benchmark or metric {min(unknown)!r}; {nearest(min(unknown), known)}"
            )


@click.command("gate")
@click.argument("base", metavar="BASE")
@click.option(
    "--bench", multiple=True, metavar="REGEX", help="Only benchmarks with this in their name."
)
@click.option("--profile", help="Only the points of this profile.")
@click.option(
    "--budget",
    "budgets",
    multiple=True,
    metavar="[NAME=]PERCENT",
    help="Allowed slow-down; default: 5.",
)
@click.option(
    "--rounds",
    "most",
    type=click.IntRange(PILOT, 1000),
    default=MOST,
    show_default=True,
    help="At most.",
)
@click.option("--fail-ambiguous", is_flag=True, help="Exit status 3 where something is undecided.")
@click.option(
    "--markdown",
    type=click.Path(path_type=Path, dir_okay=False),
    help="Write a report for a pull request.",
)
@click.option("--page", default="", help="The address of the published site, for the report.")
@click.option(
    "--record",
    type=click.Path(path_type=Path, dir_okay=False),
    help="Append all Records to this file.",
)
@click.pass_obj
def command(
    settings: Settings,
    base: str,
    bench: tuple[str, ...],
    profile: str | None,
    budgets: tuple[str, ...],
    most: int,
    fail_ambiguous: bool,
    markdown: Path | None,
    page: str,
    record: Path | None,
) -> int:
    """Refuse what is checked out here if it is slower than BASE.

    BASE is a branch or commit; its newest commit that is also in the history of HEAD is built and
    measured in turns with what is checked out, uncommitted changes included. Each metric that is
    significantly worse, by more than its budget, is a reason to refuse. Exit status: 0 passed, 1
    refused, 2 error, 3 undecided with --fail-ambiguous, or rules that the change itself loosens.
    """
    Budgets(budgets)  # a wrong one is refused before anything is built
    if page and urlsplit(page).scheme not in ("http", "https"):
        raise UsageError(f"--page {page!r} is not a web address")
    for pattern in bench:
        try:
            re.compile(pattern)
        except re.error as error:
            raise UsageError(f"--bench {pattern!r} is not a regular expression: {error}") from None
    files = {
        name: path.absolute() for name, path in (("markdown", markdown), ("record", record)) if path
    }
    for path in files.values():
        path.parent.mkdir(parents=True, exist_ok=True)
    os.chdir(settings.registry.resolve().parent)
    if profile:
        os.environ[PROFILE_VARIABLE] = profile
    conf = read_configuration(Path("asv.conf.json"))
    commits = find_commits(Path(), base, conf.results_dir)
    prepared = prepare(conf, Namespace(machine=None), writes=False)
    for plugin in prepared.host.broken:  # its benchmarks would pass unseen
        raise plugin.error or AssertionError
    registry = prepared.host.registry
    of_base = registry_of_base(registry, commits.top, commits.base)
    chosen = os.environ.get(PROFILE_VARIABLE) or EVERYTHING
    loosened = find_loosened(of_base, registry, chosen) if of_base else []
    allowed = Budgets(budgets, registry.enabled)
    allowed.refuse_unknown(prepared.host.benchmarks())
    with (
        Lock(Path(conf.env_dir, "gate.lock")),
        build_sides(conf, prepared, commits, bench) as sides,
    ):
        say(
            f"{commits.name(HEAD)} against {commits.name(BASE)}:"
            f" {counted(len(sides.prepared.tasks), 'point')}"
        )
        rounds = _measure(sides, allowed, most)
        result = _judge(
            sides,
            rounds,
            allowed,
            GateResult(commits, sides.prepared.suite.node, sides.prepared.suite.machine),
        )
    words = ["hpml", "gate", base, *(word for name in bench for word in ("--bench", name))]
    words += [
        *(["--profile", profile] if profile else []),
        *(word for text in budgets for word in ("--budget", text)),
    ]
    words += ["--rounds", str(most)] if most != MOST else []
    result.again, result.page, result.most = shlex.join(words), page, most
    result.loosened = [*loosened, *result.loosened]
    for each in itertools.chain(*rounds.values()) if "record" in files else ():
        append_record(files["record"], each)
    say(*as_lines(result))
    if "markdown" in files:
        files["markdown"].write_text(as_comment(result), encoding="utf-8")
    if result.refused:
        return REFUSED
    if result.loosened:
        return UNDECIDED
    return UNDECIDED if fail_ambiguous and (result.undecided or not result.values) else 0


def _measure(sides: Sides, allowed: Budgets, most: int) -> Rounds:
    """A pilot of a few rounds, then as many as the power asks for."""
    rounds: Rounds = {}
    numbers = range(len(sides.prepared.tasks))
    measure_sides(sides, dict.fromkeys(numbers, PILOT), rounds)
    gate = Gate([each for found in rounds.values() for each in found if each.status == "ok"])
    pilots = {number: rounds[number, BASE][0] for number in numbers if _compared(rounds, number)}
    asked = {number: allowed.of(pilot) for number, pilot in pilots.items()}
    comparisons = sum(map(len, asked.values()))
    needed = {
        number: gate.rounds_needed(pilots[number], asked[number], comparisons) for number in pilots
    }
    measure_sides(
        sides, {number: min(max(count, PILOT), most) for number, count in needed.items()}, rounds
    )
    return rounds


def _compared(rounds: Rounds, number: int) -> bool:
    return all(each.status == "ok" for side in (BASE, HEAD) for each in rounds[number, side])


def _judge(sides: Sides, rounds: Rounds, allowed: Budgets, result: GateResult) -> GateResult:
    """Verdicts on what both sides measured, and why the rest was not compared."""
    points, budgets, reasons = [], list[Mapping[str, float]](), []
    skipped: list[str] = []
    for number, task in enumerate(sides.prepared.tasks):
        text, (base, head) = format_point(task.params), (rounds[number, BASE], rounds[number, HEAD])
        if _compared(rounds, number):
            points.append((text, (base, head)))
            budgets.append(allowed.of(base[0]))
            continue
        failed = next((each for each in head if each.status != "ok"), None)
        if failed and failed.status == "failed" and all(each.status == "ok" for each in base):
            result.broken.append(f"{task.declared.benchmark} {text}: {failed.reason}")
        else:
            if failed and failed.status == "skipped" and all(each.status == "ok" for each in base):
                name = f"{task.declared.benchmark} {text}".rstrip()
                skipped.append(f"{name} is skipped, which the base measures: {failed.reason}")
            reasons.append(next(each.reason for each in [*base, *head] if each.status != "ok"))
    result.loosened = skipped
    result.values = judge(points, budgets)
    counts = [len(side) for _, both in points for side in both]
    result.rounds = (min(counts, default=0), max(counts, default=0))
    result.left_out = dict(Counter(reasons).most_common())
    return result
