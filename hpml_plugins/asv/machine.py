"""Facts of the machine for asv: two more facets, a stable name, and the suite of the run that is starting."""

from __future__ import annotations

import atexit
import functools
import os
import shutil
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
from asv import machine as asv_machine
from asv import util
from asv.commands import make_argparser
from asv.config import Config
from asv.console import log

from hpml_plugins.asv.refusals import end, stop_when_records_are_refused
from hpml_plugins.asv.selection import Selection, discover_only, selection_of
from hpml_plugins.errors import HpmlError
from hpml_plugins.host import make_host
from hpml_plugins.isolation.process import Send, run_isolated
from hpml_plugins.model.node import Node
from hpml_plugins.node import detect_node, machine_name, unmet
from hpml_plugins.registry import EVERYTHING, read_registry
from hpml_plugins.store import MachineLocked, lock_machine, read_object_or_empty
from hpml_plugins.suite.declaration import MACHINE_VARIABLE, PROFILE_VARIABLE, SUITE_VARIABLE, declare

#: asv's commands (its classes) that write results; `asv machine` only looks.
_WRITING = ("Run", "Continuous", "Find")
#: Exit status of a run that found its machine taken (EX_TEMPFAIL of sysexits.h: try again later).
TAKEN = 75

#: s that loading all plugins may take; each has a limit of its own (`host.survey`).
_LOADING = 3600.0


def load_machines_with_facts() -> None:
    """Let `Machine.load`, which asv calls first of all when it is about to measure, detect this node by itself.

    asv has no hook there: its loader takes extra facts only from the command line of `asv machine`, and asks at the
    console on a node that it has not seen. Only commands that measure call it, so nothing else pays for it.
    """
    original = asv_machine.Machine.load

    @functools.wraps(original)
    def load(*args: Any, machine_name: str | None = None, **kwargs: Any) -> Any:
        try:
            facts = prepare(machine_name or kwargs.get("machine"))
        except MachineLocked as error:
            end(error, TAKEN)
        except HpmlError as error:
            end(error)
        kwargs.pop("force_interactive", None)
        return original(*args, machine_name=facts["machine"], **{**facts, **kwargs})

    asv_machine.Machine.load = load


def prepare(name: str | None) -> dict[str, str]:
    """Validate the registry, write the suite for the benchmark processes, and return the facets of this machine.

    Nothing of results/ is touched before the registry is known to be good. Raises HpmlError when it is not, and
    MachineLocked when another process, here or on another node, writes this machine's results.
    """
    registry = read_registry()
    node = detect_node()
    machine = name or machine_name(node)
    arguments = _asv_arguments()
    results = Path(_config(arguments.get("config")).results_dir)
    asked = getattr(getattr(arguments.get("func"), "__self__", None), "__name__", "")
    if asked in _WRITING and not arguments.get("dry_run"):
        _keep_machine(results, machine)
    os.environ[MACHINE_VARIABLE] = machine
    scratch = _make_scratch()
    stop_when_records_are_refused(scratch)
    file = scratch / "suite.json"
    profile = os.environ.get(PROFILE_VARIABLE) or EVERYTHING

    def write_suite(send: Send) -> None:
        try:
            host = make_host(registry, facts=True, unmet=functools.partial(unmet, node=node), profile=profile)
            suite = declare(
                host,
                node,
                machine,
                scratch,
                profile=profile,
                previous=read_object_or_empty(results / "benchmarks.json"),
                keep=not arguments.get("dry_run"),
                reuse=_reuse(arguments),
            )
        except HpmlError as error:
            send("error", str(error).encode())
            return
        file.write_bytes(msgspec.json.encode(suite))
        send("selection", msgspec.json.encode(selection_of(suite, host)))
        for problem in [*(plugin.error for plugin in host.broken), *host.offers.problems]:
            send("warning", str(problem).encode())

    told = _in_another_process(write_suite)
    os.environ[SUITE_VARIABLE] = str(file)
    discover_only(msgspec.json.decode(told["selection"], type=Selection))
    facts = facets(node, machine, read_object_or_empty(results / machine / "machine.json"))
    save_machine(facts)
    return facts


def _in_another_process(function: Callable[[Send], None]) -> dict[str, bytes]:
    """Run it in a fork, so that no plugin is ever imported into asv itself; what it told, by kind.

    Its `warning`s are shown. Raises HpmlError for its `error`s.
    """
    errors: list[str] = []
    told: dict[str, bytes] = {}

    def on_message(kind: str, payload: bytes) -> None:
        if kind == "error":
            errors.append(payload.decode())
        elif kind == "warning":
            log.warning(payload.decode())
        else:
            told[kind] = payload

    outcome = run_isolated(function, _LOADING, on_message)
    if errors or outcome.fault:
        raise HpmlError(errors[0] if errors else f"loading the plugins {outcome.fault}: {outcome.output[-500:]}")
    return told


def facets(node: Node, machine: str, known: dict[str, Any]) -> dict[str, str]:
    """asv's six fields, and `gpu` and `num_gpu`.

    Each different value splits asv's graphs, so what changes between two boots of one node type (kernel, a virtual
    machine's memory, the host's CPU) is kept as it was first recorded under this name; every Record has the truth.
    """
    found = {
        "machine": machine,
        "os": node.os.split()[0],
        "arch": node.arch,
        "cpu": node.cpu,
        "num_cpu": str(node.num_cpu),
        "ram": f"{node.ram / 2**30:.0f} GiB",
        "gpu": node.gpu,
        "num_gpu": str(node.num_gpu),
    }
    if all(known.get(key) == found[key] for key in ("gpu", "num_gpu")):
        found |= {key: str(known[key]) for key in found if key in known}
    return found


def save_machine(facts: dict[str, str]) -> None:
    """Write the facts where asv looks for them, ~/.asv-machine.json, beside the machines that are there."""
    asv_machine.MachineCollection.save(facts["machine"], facts)


def _keep_machine(results: Path, machine: str) -> None:
    """Take the machine's folder until this process ends."""
    lock = lock_machine(results, machine)
    atexit.register(lock.release)


def _config(path: str | None) -> Any:
    try:
        return Config.load(path)
    except util.UserError:
        return Config()


def _reuse(arguments: dict[str, Any]) -> list[str]:
    """The statuses that asv was told to skip. A skipped point counts as successful, as asv counts its NaN."""
    everything = arguments.get("skip_existing") or arguments.get("skip_existing_commits")
    successful = ["ok", "skipped"] if everything or arguments.get("skip_existing_successful") else []
    return successful + (["failed"] if everything or arguments.get("skip_existing_failed") else [])


def _make_scratch() -> Path:
    """A folder for this command alone; those of commands that were killed are removed."""
    for left in Path(tempfile.gettempdir()).glob("hpml-[0-9]*-*"):
        owner = left.name.split("-")[1]
        if owner.isdigit() and not Path("/proc", owner).exists():
            shutil.rmtree(left, ignore_errors=True)
    scratch = Path(tempfile.mkdtemp(prefix=f"hpml-{os.getpid()}-"))
    atexit.register(shutil.rmtree, scratch, ignore_errors=True)
    return scratch


def _asv_arguments() -> dict[str, Any]:
    # asv hands its plugins no arguments: read them again with asv's own parser.
    if Path(sys.argv[0]).stem not in ("asv", "__main__"):
        return {}
    try:
        return dict(vars(make_argparser()[0].parse_args(sys.argv[1:])))
    except SystemExit:
        return {}
