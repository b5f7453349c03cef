"""`hpml gate BASE`: is the checkout slower than BASE, beyond a budget?"""

from __future__ import annotations

import itertools
import os
import shlex
from argparse import Namespace
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from urllib.parse import urlsplit

import click

from hpml_plugins.asv import end_at_metrics, prepare, read_configuration
from hpml_plugins.cli import FILE, RECORD, Settings
from hpml_plugins.errors import UsageError, regular_expression
from hpml_plugins.model import counted, name_point
from hpml_plugins.node import describe_load
from hpml_plugins.registry import EVERYTHING
from hpml_plugins.run import OutOfTime, TimeLimit, parse_limit
from hpml_plugins.store import Lock, append_record, foreign_declarations
from hpml_plugins.suite import PROFILE_VARIABLE
from hpml_plugins.terminal import say, warn
from hpml_plugins.tools.gate.budgets import Budgets
from hpml_plugins.tools.gate.loosened import find_loosened, registry_of_base
from hpml_plugins.tools.gate.picture import as_svg
from hpml_plugins.tools.gate.pull_request import GateResult, as_comment, as_lines
from hpml_plugins.tools.gate.sides import (
    BASE,
    HEAD,
    Commits,
    PairLoop,
    Pairs,
    Sides,
    build_sides,
    compared,
    find_commits,
)
from hpml_plugins.tools.gate.verdicts import (
    LEAST,
    common_metrics,
    judge,
    looks,
    needed_pairs,
)

#: Default limit of the rounds of each side.
MOST = 32
#: Default time limit of all rounds.
LIMIT = "5min"
#: Exit statuses.
REFUSED = 1
NOT_JUDGED = 3


@click.command("gate")
@click.argument("base", metavar="BASE")
@click.option(
    "--bench",
    multiple=True,
    metavar="REGEX",
    help="Only benchmarks with this in their name.",
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
    type=click.IntRange(LEAST, 1000),
    default=MOST,
    show_default=True,
    help="Measure at most this many pairs of rounds.",
)
@click.option(
    "--limit",
    "limit_text",
    metavar="TIME",
    default=LIMIT,
    show_default=True,
    help="End after this time, building included; 9min, 540s, 1h.",
)
@click.option(
    "--markdown",
    type=FILE,
    help="Write a report for a pull request.",
)
@click.option(
    "--svg",
    type=FILE,
    help="Draw the report.",
)
@click.option(
    "--page", default="", help="The address of the published site, for the report."
)
@RECORD
@click.pass_obj
def command(
    settings: Settings,
    base: str,
    bench: tuple[str, ...],
    profile: str | None,
    budgets: tuple[str, ...],
    most: int,
    limit_text: str,
    markdown: Path | None,
    svg: Path | None,
    page: str,
    record: Path | None,
) -> int:
    """Fail if the current checkout is slower than BASE.

    BASE is a branch or commit; its newest commit that is also in the history of HEAD is built and
    measured alternately with the checkout, including uncommitted changes. Each metric that is
    significantly worse, by more than its budget, is a reason to refuse. Exit status: 0 passed, 1
    refused, 2 error, 3 something could not be judged or the change itself loosens a rule, and
    nothing was refused.
    """
    limit = TimeLimit(parse_limit(limit_text, "--limit"))
    Budgets(budgets)  # refuses an invalid one before anything is built
    if page and urlsplit(page).scheme not in ("http", "https"):
        raise UsageError(f"--page {page!r} is not a web address")
    for pattern in bench:
        regular_expression(pattern, "--bench")
    markdown, svg, record = _prepare_files(markdown, svg, record)
    os.chdir(settings.registry.resolve().parent)
    if profile:
        os.environ[PROFILE_VARIABLE] = profile
    conf = read_configuration(Path("asv.conf.json"))
    commits = find_commits(Path(), base, conf.results_dir)
    prepared = prepare(conf, Namespace(machine=None), writes=False)
    for plugin in prepared.host.broken:  # otherwise its benchmarks would pass unmeasured
        raise plugin.error or AssertionError
    registry = prepared.host.registry
    of_base = registry_of_base(registry, commits.top, commits.base)
    chosen = os.environ.get(PROFILE_VARIABLE) or EVERYTHING
    loosened = find_loosened(of_base, registry, chosen) if of_base else []
    allowed = Budgets(budgets, registry.enabled)
    asvs = foreign_declarations(Path(conf.results_dir))
    allowed.refuse_unknown(prepared.host.benchmarks(), asvs)
    try:
        with (
            Lock(Path(conf.env_dir, "gate.lock")),
            build_sides(
                conf, prepared, commits, end_at_metrics(list(bench)), limit
            ) as sides,
        ):
            loop, result = _measure(sides, commits, allowed, most, limit)
    except OutOfTime as error:
        warn(f"not judged: {error}")
        return NOT_JUDGED
    result.again = _repeat_command(base, bench, profile, budgets, most, limit_text)
    result.page = page
    result.loosened = loosened
    if record:
        for pair in itertools.chain(*loop.pairs):
            for each in pair:
                append_record(record, each)
    say(*as_lines(result))
    if markdown:
        markdown.write_text(as_comment(result), encoding="utf-8")
    if svg:
        svg.write_text(as_svg(result), encoding="utf-8")
    if result.refused:
        return REFUSED
    return NOT_JUDGED if result.not_judged else 0


def _prepare_files(*paths: Path | None) -> list[Path | None]:
    """Absolute paths, in existing folders. Raises UsageError for one that is given twice."""
    given = [path.absolute() for path in paths if path]
    if len(given) > len(set(given)):
        raise UsageError("--markdown, --svg and --record need files of their own")
    for path in given:
        path.parent.mkdir(parents=True, exist_ok=True)
    return [path and path.absolute() for path in paths]


def _repeat_command(
    base: str,
    bench: Iterable[str],
    profile: str | None,
    budgets: Iterable[str],
    most: int,
    limit: str,
) -> str:
    """The command that measures the same again."""
    options = [("--bench", regex) for regex in bench]
    if profile:
        options.append(("--profile", profile))
    options += [("--budget", budget) for budget in budgets]
    if most != MOST:
        options.append(("--rounds", str(most)))
    if limit != LIMIT:
        options.append(("--limit", limit))
    return shlex.join(["hpml", "gate", base, *itertools.chain(*options)])


def _measure(
    sides: Sides, commits: Commits, allowed: Budgets, most: int, limit: TimeLimit
) -> tuple[PairLoop, GateResult]:
    suite = sides.prepared.suite
    points = counted(len(sides.prepared.tasks), "point")
    say(f"{commits.name(HEAD)} against {commits.name(BASE)}: {points}")
    if load := describe_load():
        warn(f"{load}; more rounds are measured, and intervals are wider")
    loop = PairLoop(sides, most, limit, lambda pairs: undecided(pairs, allowed, most))
    loop.run()
    return loop, _judge(loop, allowed, GateResult(commits, suite.node, suite.machine))


def undecided(pairs: Sequence[Pairs], allowed: Budgets, most: int) -> set[int]:
    """The numbers of the points with an undecided value."""
    numbers = [number for number, found in enumerate(pairs) if _has_verdict(found, most)]
    points = [pairs[number] for number in numbers]
    values = judge(points, allowed.of, len(looks(most)))
    return {
        number
        for number, of_point in zip(numbers, values, strict=True)
        if any(each.outcome == "undecided" for each in of_point)
    }


def _has_verdict(pairs: Pairs, most: int) -> bool:
    return len(pairs) >= needed_pairs(most) and compared(pairs)


def _judge(loop: PairLoop, allowed: Budgets, result: GateResult) -> GateResult:
    """Verdicts on the points measured on both sides, and why the rest was not compared or not
    judged."""
    judged: list[Pairs] = []
    left_out = Counter[str]()
    not_judged = Counter[str](loop.sides.removed)
    for task, pairs in zip(loop.sides.prepared.tasks, loop.pairs, strict=True):
        base, head = pairs[-1] if pairs else (None, None)
        if _has_verdict(pairs, loop.most):
            judged.append(pairs)
            missing = allowed.of(pairs[0][BASE]).keys() - common_metrics(pairs)
            not_judged.update(
                f"head does not give the metric {name}" for name in sorted(missing)
            )
        elif base is None or head is None or compared(pairs):
            needed = counted(needed_pairs(loop.most), "pair")
            not_judged[
                f"the limit of {loop.limit} left no time for {needed} of rounds"
            ] += 1
        elif base.status == "skipped":
            left_out[base.reason] += 1
        elif base.status != "ok":
            not_judged[f"base {base.status}: {base.reason}"] += 1
        elif head.status == "failed":
            point = name_point(task.declared.benchmark, task.params)
            result.broken.append(f"{point}: {head.reason}")
        else:
            not_judged[f"head {head.status}: {head.reason}"] += 1
    values = judge(judged, allowed.of, len(looks(loop.most)))
    result.values = list(itertools.chain(*values))
    counts = [len(pairs) for pairs in judged] or [0]
    result.rounds = (min(counts), max(counts))
    result.left_out = dict(left_out.most_common())
    result.not_judged_points = dict(not_judged.most_common())
    return result
