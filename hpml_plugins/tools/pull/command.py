"""`hpml pull ADDRESS --as NAME`: merge the results of another repository; their machines get the
name in front."""

from __future__ import annotations

import json
import re
import signal
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, NoReturn

import click
import msgspec

from hpml_plugins.asv import machine_file
from hpml_plugins.cli import DRY_RUN, INTO
from hpml_plugins.errors import HpmlError, UsageError
from hpml_plugins.model import Node
from hpml_plugins.run import parse_limit
from hpml_plugins.store import (
    DECLARATIONS,
    MAX_RECORDS,
    decode,
    decode_file,
    merge_results,
    misplaced,
    open_result,
    path_in,
    read_object,
    read_object_or_empty,
    stored_rounds,
    walk_results,
)
from hpml_plugins.temporary import temporary_folder
from hpml_plugins.terminal import say, warn
from hpml_plugins.tools.pull.sources import PLACES, fetch_results

MACHINE = "machine.json"
#: Default time limit of a source.
LIMIT = "10min"


class _Import:
    """The results of a source as they are merged: every machine is `NAME.machine`. skipped:
    omissions, a line each."""

    def __init__(self, name: str, into: Path, scratch: Path) -> None:
        self.skipped: list[str] = []
        self._name = name
        self._into = into
        self._scratch = scratch

    def add(self, source: Path) -> None:
        """Copy a results folder, with the machines renamed."""
        for place in walk_results(source, self.skipped.append):
            if not PLACES.fullmatch(place.as_posix()):
                continue
            path = source / place
            try:
                if place.suffix == ".jsonl":
                    self._records(path, place)
                elif place.name == DECLARATIONS:
                    self._declarations(read_object(path))
                else:
                    self._json(place, read_object(path))
            except HpmlError as error:
                self.skipped.append(str(error))
        for machine, node in {
            each.machine: each.node for each in stored_rounds(self._scratch)
        }.items():
            if not path_in(self._scratch, machine, MACHINE).exists():
                self._facts(machine, node)

    def _records(self, path: Path, place: Path) -> None:
        """The lines that are Records of this machine; other and invalid ones are reported with
        their place in the source."""
        open_result(path, MAX_RECORDS).close()
        renamed = self._renamed(place.parts[0])
        lines = []

        def rename(line: bytes) -> bytes:
            if fault := misplaced(path, decode(line)):
                raise ValueError(fault)
            found = msgspec.json.decode(line, type=dict[str, Any])
            changed = msgspec.json.encode({**found, "machine": renamed})
            decode(changed)
            return changed

        for _, line in decode_file(path, rename, self.skipped.append):
            lines.append(line)
        self._write(place, b"".join(line + b"\n" for line in lines))

    def _json(self, place: Path, found: Mapping[str, Any]) -> None:
        """A machine's facts, or asv's results from it."""
        renamed = self._renamed(place.parts[0])
        params = found.get("params")
        if isinstance(params, dict):
            found = {**found, "params": {**params, "machine": renamed}}
        if place.name == MACHINE:
            found = {**found, "machine": renamed}
        self._write(place, json.dumps(found).encode())

    def _declarations(self, found: Mapping[str, Any]) -> None:
        """The declarations of benchmarks that are not declared here: a source cannot change our
        definitions."""
        ours = read_object_or_empty(self._into / DECLARATIONS)
        new = {name: entry for name, entry in found.items() if name not in ours}
        self._write(Path(DECLARATIONS), json.dumps({**new, "version": 2}).encode())

    def _facts(self, machine: str, node: Mapping[str, Any]) -> None:
        """machine.json from the machine's newest Record, for a source without one."""
        found = json.dumps({"machine": machine, "version": 1}).encode()
        # of another version, or forged
        with suppress(msgspec.ValidationError, IndexError):
            found = machine_file(msgspec.convert(node, Node), machine)
        path_in(self._scratch, machine, MACHINE).write_bytes(found)

    def _renamed(self, machine: str) -> str:
        return f"{self._name}.{machine}"

    def _write(self, place: Path, data: bytes) -> None:
        machine, *rest = place.parts
        parts = [self._renamed(machine), *rest] if rest else [machine]
        target = path_in(self._scratch, *parts)
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(data)


class _Late(BaseException):
    """The time limit has passed. Not an Exception, so that no `except Exception` takes it for a
    fault of one file."""


@contextmanager
def _limited_time(seconds: float, address: str) -> Iterator[None]:
    """Abort after this time, however slowly an address answers. Raises HpmlError. Only for the main
    thread."""

    def end(*_: object) -> NoReturn:
        raise _Late

    before = signal.signal(signal.SIGALRM, end)
    try:
        signal.setitimer(signal.ITIMER_REAL, seconds)
        yield
    except _Late:
        raise HpmlError(
            f"not read within {seconds:g} s; nothing was merged; --limit allows more",
            address,
        ) from None
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


@click.command("pull")
@click.argument("address")
@click.option(
    "--as",
    "name",
    required=True,
    metavar="NAME",
    help="The name of the source on all pages.",
)
@INTO
@DRY_RUN
@click.option(
    "--limit",
    "limit_text",
    metavar="TIME",
    default=LIMIT,
    show_default=True,
    help="End after this time, nothing merged; 9min, 540s, 1h.",
)
def command(address: str, name: str, into: Path, dry_run: bool, limit_text: str) -> int:
    """Merge the results of another repository.

    ADDRESS is a git repository, whose newest commit has the results, a folder, or a site that
    hpml-plugins published (https://…), which offers the newest 50 Records of each point. Its
    machine h200-x1 is NAME.h200-x1 here. Pulling again adds new results. No code of the source is
    run or stored. Exit status 1 if something was left out.
    """
    if not re.fullmatch(r"[a-z0-9][a-z0-9-]{0,40}", name):
        raise UsageError(
            f"--as {name!r}: use lower-case letters, digits and -, such as 'other-lab'"
        )
    limit = parse_limit(limit_text, "--limit")
    with temporary_folder("hpml-pull-") as scratch:
        renamed = scratch / "renamed"
        renamed.mkdir()
        found = _Import(name, into, renamed)
        with _limited_time(limit, address):
            source = fetch_results(address, scratch, found.skipped.append)
            if source.resolve() == into.resolve():
                raise UsageError(
                    f"{address} has the results to pull into; name another place"
                )
            found.add(source)
        report = merge_results([renamed], into, dry_run=dry_run)
    for line in [*report.conflicts, *found.skipped, *report.skipped]:
        # names of this command's own copies
        warn(line.replace(f"{renamed}/", "").replace(f"{scratch}/", ""))
    say(*report.list_changes(), *report.describe())
    return 1 if found.skipped or report.skipped else 0
