"""Measuring for `hpml accept`: the cards of the node side by side, each in a process that sees only
this card; then points that would disturb other cards, one card after the other; then the links
between cards.

`python -m hpml_plugins.tools.accept.measuring FILE SECONDS KEY...` is such a process.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from hpml_plugins.measure import import_before_fork
from hpml_plugins.model import Node, Record, counted
from hpml_plugins.node import detect_node, machine_name, unmet
from hpml_plugins.run import Follower, Pass, TimeLimit, measure_rounds
from hpml_plugins.store import append_record, read_file
from hpml_plugins.suite import make_suite, record_of
from hpml_plugins.temporary import temporary_folder
from hpml_plugins.tools.accept.bands import Bands
from hpml_plugins.tools.accept.points import BITS, OF_NODE, accept_host, accept_points

#: Time limit of a card's points, s; points that do not fit are not measured. They take about 60 s;
#: on hosts that launch kernels 1.4 times slower one or two of 14 did not fit into 60 s.
LIMIT = 90.0
#: Time after the limit until its process is ended, s.
GRACE = 30.0
#: Benchmarks that busy other cards would disturb, because they use the host or its CPUs.
ALONE = ("machine_host_copy", "machine_launch", "vecadd_cpu")
#: The reference steps come with any population, and the bits with any card.
ALWAYS = ("reference", BITS)


@dataclass
class Measured:
    """The measurements of a node.  cards: UUID → Records; for a node without GPUs one card, named
    by the machine.  between: the Records of several GPUs.  problems: card → why not all of its
    points were measured; "" for those between cards."""

    node: Node
    cards: dict[str, list[Record]] = field(default_factory=dict)
    between: list[Record] = field(default_factory=list)
    problems: dict[str, str] = field(default_factory=dict)

    def with_again(self, again: Measured) -> Measured:
        """The measurements with those of `again` in place of the earlier ones."""
        cards = {
            card: _replaced(records, again.cards.get(card, ()))
            for card, records in self.cards.items()
        }
        between = _replaced(self.between, again.between)
        return Measured(self.node, cards, between, self.problems)


def _replaced(records: Sequence[Record], again: Sequence[Record]) -> list[Record]:
    """A point without a sound second Record keeps its first."""
    sound = [each for each in again if each.status == "ok"]
    points = {each.point for each in sound}
    return [*(each for each in records if each.point not in points), *sound]


def chosen_keys(bands: Bands, hardware: str, only: str = "") -> list[str]:
    """The points of one card: those in the type's population; all for an unknown type.

    only: the component, or "bits", of the points; of an unknown type those that show the component
    on any other.
    """
    own = list(bands.of_hardware(hardware))
    known = {
        band.point
        for population in (own if own or not only else bands.populations)
        for band in population.bands
        if only in ("", band.component)
    }
    always = (only,) if only else ALWAYS
    return [
        key
        for key, (declared, _) in accept_points().items()
        if declared.benchmark in always
        or key in known
        or (not known and not only and declared.benchmark not in OF_NODE)
    ]


def hardware_of_cards(node: Node) -> dict[str, str]:
    """Card → the name of its type; for a node without GPUs one card, named by the machine."""
    if not node.gpus:
        return {node.boot or node.host or "this machine": node.cpu}
    return {gpu.uuid or str(number): gpu.name for number, gpu in enumerate(node.gpus)}


def measure_node(bands: Bands, only: str = "") -> Measured:
    """Measure everything needed to judge this node's cards.  only: see `chosen_keys`."""
    node = detect_node()
    found = Measured(node)
    keys = {
        card: chosen_keys(bands, name, only)
        for card, name in hardware_of_cards(node).items()
    }
    _measure_cards(found, keys)
    if len(keys) > 1 and only in ("", "link"):
        _measure_between(found, list(keys))
    return found


def measure_again(
    before: Measured, keys: Mapping[str, Sequence[str]], *, between: bool
) -> Measured:
    """Measure these points of the cards once more, and what is `between` them.

    What other programs of the host did at the first time is over by now, or is a fault that lasts.
    """
    found = Measured(before.node)
    _measure_cards(found, keys)
    if between:
        _measure_between(found, list(before.cards))
    return found


def _measure_cards(found: Measured, keys: Mapping[str, Sequence[str]]) -> None:
    """Measure undisturbed points on all cards at once, the rest one card after the other."""
    points = accept_points()
    together: dict[str, list[str]] = {}
    alone: dict[str, list[str]] = {}
    for card, own in keys.items():
        for key in own:
            is_alone = len(keys) > 1 and points[key][0].benchmark in ALONE
            (alone if is_alone else together).setdefault(card, []).append(key)
    on_gpu = bool(found.node.gpus)
    _measure(found, {card: card if on_gpu else None for card in together}, together)
    for card, own in alone.items():
        _measure(found, {card: card}, {card: own})


def _measure_between(found: Measured, cards: Sequence[str]) -> None:
    """Measure the links between the cards, in a process that sees all of them."""
    points = accept_points()
    of_node = [
        key for key, (declared, _) in points.items() if declared.benchmark in OF_NODE
    ]
    links = Measured(found.node)
    _measure(links, {"": ",".join(cards)}, {"": of_node})
    found.between = links.cards[""]
    found.problems |= links.problems


def _measure(
    found: Measured, devices: Mapping[str, str | None], keys: Mapping[str, Sequence[str]]
) -> None:
    """Measure side by side.  devices: card → its CUDA_VISIBLE_DEVICES, None to leave it."""
    with temporary_folder("hpml-accept-") as folder:
        files = {card: folder / f"{number}.jsonl" for number, card in enumerate(devices)}
        running = {card: _start(files[card], devices[card], keys[card]) for card in devices}
        try:
            for card, process in running.items():
                found.problems |= _wait(card, process)
        finally:
            for process in running.values():
                process.kill()
                process.wait()
        for card, file in files.items():
            records = list(read_file(file))
            found.cards.setdefault(card, []).extend(records)
            if missing := set(keys[card]) - {each.point for each in records}:
                of_all = f"{len(missing)} of {counted(len(keys[card]), 'point')}"
                problem = f"{of_all} could not be measured within {LIMIT:.0f} s"
                found.problems.setdefault(card, problem)


def _start(file: Path, device: str | None, keys: Sequence[str]) -> subprocess.Popen[str]:
    path = os.pathsep.join(filter(None, sys.path))
    variables = {**os.environ, "PYTHONPATH": path}
    if device is not None:
        variables["CUDA_VISIBLE_DEVICES"] = device
    return subprocess.Popen(
        [sys.executable, "-m", __name__, str(file), str(LIMIT), *keys],
        env=variables,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        errors="replace",
    )


def _wait(card: str, process: subprocess.Popen[str]) -> dict[str, str]:
    """By card, why its process did not measure; empty if it did."""
    try:
        _, errors = process.communicate(timeout=LIMIT + GRACE)
    except subprocess.TimeoutExpired:
        return {card: f"measuring it did not end within {LIMIT + GRACE:.0f} s"}
    if process.returncode:
        last = errors.strip().splitlines()[-1:] or [""]
        return {card: f"measuring it ended with status {process.returncode}: {last[0]}"}
    return {}


def main(file: Path, seconds: float, keys: Sequence[str]) -> None:
    """Measure one round of each of these points on the GPUs that this process sees."""
    limit = TimeLimit(seconds)
    node = detect_node()
    host = accept_host(lambda benchmark, params: unmet(benchmark, params, node))
    tasks = [
        (declared, params)
        for declared in host.benchmarks()
        for params in declared.chosen_points().values()
        if declared.key(params) in keys
    ]
    import_before_fork(
        module
        for declared, params in tasks
        if not declared.why_unmet(params)
        for module in declared.modules
    )
    with temporary_folder("hpml-accept-run-") as scratch:
        suite = make_suite(host, node, machine_name(node), scratch, keep=False)

        def measure(number: int) -> Record:
            done = record_of(suite, *tasks[number])
            append_record(file, done)
            return done

        measure_rounds(tasks, suite.run, measure, Follower(), limit, Pass())


if __name__ == "__main__":
    main(Path(sys.argv[1]), float(sys.argv[2]), sys.argv[3:])
