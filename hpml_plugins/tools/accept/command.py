"""`hpml accept`: is this node as good as its kind?"""

from __future__ import annotations

import datetime
import importlib.util
import itertools
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import get_args

import click
import msgspec

from hpml_plugins.cli import (
    FILE,
    PATH,
    RECORD,
    Settings,
    json_option,
    print_json,
    refuse_beside,
)
from hpml_plugins.errors import Failure, UsageError
from hpml_plugins.model import Record, Table, counted, format_point, quantity
from hpml_plugins.report import as_text
from hpml_plugins.store import append_record, read_records
from hpml_plugins.terminal import say, warn
from hpml_plugins.tools.accept.bands import (
    SHIPPED,
    Bands,
    Component,
    Words,
    as_file,
    read_bands,
)
from hpml_plugins.tools.accept.judging import (
    Acceptance,
    CardVerdict,
    ComponentVerdict,
    FailedAtFirst,
    Verdict,
    describe,
    judge_bits,
    judge_card,
    judge_component,
    judge_node,
    judge_values,
    population_of,
    stack_of,
)
from hpml_plugins.tools.accept.measuring import (
    Measured,
    chosen_keys,
    hardware_of_cards,
    measure_again,
    measure_node,
)
from hpml_plugins.tools.accept.points import BITS, accept_points, digests_of
from hpml_plugins.tools.templates import fill_template
from hpml_plugins.version import __version__

#: Exit statuses.
STATUS: Mapping[Verdict, int] = {"pass": 0, "fail": 1, "cannot say": 3}
#: Failures that a sound card never has: a wrong result, or a lost card.
WRONG = (Failure.CHECK, Failure.GPU)


@click.command("accept")
@click.option("--bands", "file", type=FILE, default=SHIPPED, help="Bands of your own site.")
@json_option()
@click.option("--html", type=FILE, help="Write one page, for a vendor.")
@click.option(
    "--only",
    type=click.Choice([*get_args(Component), BITS]),
    help="Measure only this component; no card passes then.",
)
@RECORD
@click.option(
    "--list", "only_list", is_flag=True, help="Show the points, and measure nothing."
)
@click.option(
    "--export-bands",
    type=FILE,
    help="Write the bands of this project's results to this file.",
)
@click.option(
    "--back-test",
    is_flag=True,
    help="Judge each card of the results against the others, also with injected faults.",
)
@click.option(
    "--results",
    type=PATH,
    help="Results for --export-bands and --back-test.",
)
@click.pass_obj
def command(
    settings: Settings,
    file: Path,
    as_json: bool,
    html: Path | None,
    only: str | None,
    record: Path | None,
    only_list: bool,
    export_bands: Path | None,
    back_test: bool,
    results: Path | None,
) -> int:
    """Judge each card of this node against its type: pass, fail or cannot say.

    Takes about 60 s per GPU. Exit status: 0 passed, 1 failed, 2 error, 3 cannot say. It changes no
    setting of the node.
    """
    if export_bands:
        refuse_beside("--export-bands", "results")
        return _export(results or settings.results, export_bands)
    if back_test:
        refuse_beside("--back-test", "results")
        return _back_test(results or settings.results)
    if results:
        raise UsageError("--results is for --export-bands and --back-test; leave it out")
    bands = read_bands(file)
    if only_list:
        refuse_beside("--list", "file")
        return _list(bands)
    for path in filter(None, (html, record)):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.open("ab").close()  # a file that cannot be written ends the command here
    started = time.time()
    warn("measuring the cards of this node, about a minute each; nothing is changed")
    measured = measure_node(bands, only or "")
    _keep(measured, record)
    found = judge(measured, bands, started)
    if at_first := failures_of(found):
        warn(f"{counted(len(at_first), 'value')} failed; measured once more")
        again = measure_again(
            measured, keys_of(found), between=any(each.card == "" for each in at_first)
        )
        _keep(again, record)
        found = judge(measured.with_again(again), bands, started, at_first)
    if as_json:
        print_json(found)
    else:
        say(*as_lines(found))
    if html:
        html.write_text(as_page(found), encoding="utf-8")
    return STATUS[found.verdict]


def _keep(measured: Measured, file: Path | None) -> None:
    if file:
        for done in [*itertools.chain(*measured.cards.values()), *measured.between]:
            append_record(file, done)


def failures_of(found: Acceptance) -> tuple[FailedAtFirst, ...]:
    """The values that fail; one for everything between cards."""
    of_cards = [
        FailedAtFirst(card=card.card, why=describe(value))
        for card in found.cards
        for value in card.values
        if value.verdict == "fail"
    ]
    between = [
        FailedAtFirst(card="", why=part.why)
        for part in found.node
        if part.component == "link" and part.verdict == "fail"
    ]
    return (*of_cards, *between)


def keys_of(found: Acceptance) -> dict[str, list[str]]:
    """The points of the values that fail, by card."""
    declared = {each.benchmark: each for each, _ in accept_points().values()}
    keys: dict[str, dict[str, None]] = {}
    for card in found.cards:
        for value in card.values:
            if value.verdict == "fail":
                key = declared[value.benchmark].key(value.params)
                keys.setdefault(card.card, {})[key] = None
    return {card: list(own) for card, own in keys.items()}


def _export(results: Path, path: Path) -> int:
    _need_scipy()
    from hpml_plugins.tools.accept.export import make_bands

    bands = make_bands(_read(results))
    if not bands.populations:
        warn(
            f"{results}: of no type of hardware enough cards were measured; nothing is written"
        )
        return STATUS["cannot say"]
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(as_file(bands))
    for each in bands.populations:
        cards = counted(each.cards, "card")
        say(f"{each.hardware}: {counted(len(each.bands), 'band')} of {cards}")
    return 0


def _back_test(results: Path) -> int:
    _need_scipy()
    from hpml_plugins.tools.accept.backtest import back_test

    rows = list(back_test(_read(results)))
    if not rows:
        warn(f"{results}: of no type of hardware enough cards were measured")
        return STATUS["cannot say"]
    say(*as_text(Table.of(rows)).splitlines())
    return 0


def _read(results: Path) -> Iterator[Record]:
    if not results.is_dir():
        raise UsageError(f"{results}: no folder of results")
    return read_records(results, warn)


def _need_scipy() -> None:
    """Raise UsageError if SciPy is missing; a node that only measures does not need it."""
    if not importlib.util.find_spec("scipy"):
        raise UsageError(
            "making bands needs SciPy, which is not installed: pip install scipy"
        )


def _list(bands: Bands) -> int:
    seconds: dict[str, dict[str, float]] = {}
    for each in bands.populations:
        known = seconds.setdefault(each.hardware, {})
        known |= {band.point: band.seconds for band in each.bands}
    for name, known in seconds.items():
        keys = chosen_keys(bands, name)
        for key in keys:
            declared, params = accept_points()[key]
            point = " ".join(f"{each}={value}" for each, value in params.items())
            took = f"{known[key]:.1f} s" if known.get(key) else "not known"
            say(f"  {declared.benchmark} {point}: {took}")
        total = sum(known.get(key, 0.0) for key in keys)
        points = counted(len(keys), "point")
        say(f"{name}: {points}, {total:.0f} s for those with a known time")
    return 0


def judge(
    measured: Measured,
    bands: Bands,
    started: float,
    at_first: tuple[FailedAtFirst, ...] = (),
) -> Acceptance:
    """The verdict on a node's measurements.  at_first: failures before measuring again."""
    node = measured.node
    names = hardware_of_cards(node)
    hardware = {card: names.get(card, node.cpu) for card in measured.cards}
    every = list(itertools.chain(*measured.cards.values()))
    stack = stack_of(every)
    bits = _judge_bits(measured, bands, hardware, stack)
    cards = [
        judge_card(card, hardware[card], records, bands, bits[card])
        for card, records in measured.cards.items()
    ]
    cards = [_with_problem(each, measured.problems.get(each.card)) for each in cards]
    unmeasured = _unmeasured_between(measured)
    parts = _judge_node_parts(measured, bands, hardware, unmeasured)
    verdict, why = judge_node(cards, parts, unmeasured)
    return Acceptance(
        version=__version__,
        started=started,
        seconds=time.time() - started,
        host=node.host,
        cpu=node.cpu,
        driver=node.driver,
        stack=stack,
        bands=f"{bands.version}, of {bands.made_from.newest}, {bands.sha256[:12]}",
        verdict=verdict,
        why=why,
        cards=tuple(cards),
        node=tuple(parts),
        failed_at_first=at_first,
    )


def _with_problem(card: CardVerdict, problem: str | None) -> CardVerdict:
    if not problem or card.verdict == "fail":
        return card
    why = "; ".join(filter(None, [problem, card.why]))
    return msgspec.structs.replace(card, verdict="cannot say", why=why)


def _judge_bits(
    measured: Measured, bands: Bands, hardware: Mapping[str, str], stack: Words
) -> dict[str, tuple[Verdict, str]]:
    """The verdict on the bits of each card, among cards of its type."""
    found: dict[str, tuple[Verdict, str]] = {}
    digests: dict[str, dict[str, dict[str, str]]] = {}
    known = {}
    for card, records in measured.cards.items():
        if wrong := [each for each in records if each.failure in WRONG]:
            found[card] = "fail", f"{wrong[0].benchmark}: {wrong[0].reason}"
            continue
        of_bits = [each for each in records if each.benchmark == BITS]
        last = of_bits[-1] if of_bits else None
        if last is None or last.status != "ok":
            found[card] = "cannot say", last.reason if last else "not measured"
            continue
        digests.setdefault(hardware[card], {})[card] = digests_of(last)
        population, _ = population_of(bands, hardware[card], stack)
        known[card] = population.digests if population else {}
    for of_type in digests.values():
        found |= judge_bits(of_type, known)
    return found


def _judge_node_parts(
    measured: Measured, bands: Bands, hardware: Mapping[str, str], unmeasured: Sequence[str]
) -> list[ComponentVerdict]:
    """Judge the CPUs and the links between cards.  unmeasured: see `_unmeasured_between`."""
    parts = []
    if measured.node.gpus:
        values = []
        for card, records in measured.cards.items():
            values += judge_values(records, bands, card, hardware[card])[0]
        parts.append(judge_component("host", values))
    if measured.between or unmeasured:
        together = " + ".join(sorted(hardware.values()))
        card = ",".join(sorted(measured.cards))
        values, _ = judge_values(measured.between, bands, card, together)
        link = judge_component("link", values)
        if unmeasured and link.verdict != "fail":
            why = "; ".join(unmeasured)
            link = msgspec.structs.replace(link, verdict="cannot say", why=why)
        if wrong := [each for each in measured.between if each.failure in WRONG]:
            why = f"{wrong[0].benchmark}: {wrong[0].reason}"
            link = msgspec.structs.replace(link, verdict="fail", why=why)
        parts.append(link)
    return parts


def _unmeasured_between(measured: Measured) -> list[str]:
    """What was not measured between the cards, and why; a wrong result was measured."""
    reasons = [
        f"{each.benchmark} {each.status}: {each.reason}"
        for each in measured.between
        if each.status not in ("ok", "skipped") and each.failure not in WRONG
    ]
    if "" in measured.problems:
        reasons.append(measured.problems[""])
    return reasons


def as_lines(found: Acceptance) -> list[str]:
    """The verdict in words."""
    text = fill_template("accept", "lines.txt.jinja", found=found, counted=counted)
    return text.splitlines()


def as_page(found: Acceptance) -> str:
    """The page to send to a vendor: one HTML file that loads nothing."""
    day = datetime.datetime.fromtimestamp(found.started, datetime.UTC)
    return fill_template(
        "accept",
        "page.html.jinja",
        found=found,
        day=f"{day:%Y-%m-%d %H:%M} UTC",
        format_point=format_point,
        quantity=quantity,
    )
