"""`check`: everything that is looked at, in order, as findings that say what to mend."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import msgspec

from hpml_plugins.errors import one_line
from hpml_plugins.node import detect_node
from hpml_plugins.tools.check.judging import judge_definition, judge_loading, judge_points
from hpml_plugins.tools.check.points import Tried
from hpml_plugins.tools.check.probe import Probe
from hpml_plugins.tools.check.target import Target
from hpml_plugins.tools.doctor.finding import Finding

#: s that loading may take in a fresh process, however busy the machine.
_LOADING = 60.0


def check(target: Target, *, limit: float = 120.0, results: Path | None = None) -> Iterator[Finding]:
    """Load the plugin twice in fresh processes, measure its points in another, and hold all of it to the rules.

    limit: s for measuring points; those not reached are named.  results: asv's folder; beside the registry when left
    out. Nothing of the plugin is imported into this process.
    """
    probes = []
    for seed in ("1", "2"):
        code, output, errors = _python("probe", target, PYTHONHASHSEED=seed, timeout=_LOADING)
        if code != 0:
            told = one_line(errors)[-300:]
            yield Finding("loads", "broken", f"the process that imported it {code}: {told}".rstrip(": "))
            return
        probes.append(msgspec.json.decode(output, type=Probe))
    yield from judge_loading(*probes)
    if probes[0].error:
        return
    yield from judge_definition(probes[0], results or target.folder / "results")
    simulated = {} if detect_node().gpus else {"NUMBA_ENABLE_CUDASIM": "1"}
    code, output, errors = _python("points", target, str(limit), timeout=2 * limit + _LOADING, **simulated)
    tried = [msgspec.json.decode(line, type=Tried) for line in output.splitlines()]
    yield from judge_points(probes[0], tried)
    if code != 0:
        yield Finding("points", "broken", f"measuring them {code}: {one_line(errors)[-300:]}")


def _python(module: str, target: Target, *args: str, timeout: float, **env: str) -> tuple[int | str, str, str]:
    """Exit status (or how it ended, in words), stdout and stderr of a module of this package."""
    command = [sys.executable, "-m", f"hpml_plugins.tools.check.{module}", target.spelled(), *args]
    path = os.pathsep.join(filter(None, sys.path))
    variables = {**os.environ, "PYTHONPATH": path, **env}
    try:
        done = subprocess.run(command, env=variables, capture_output=True, text=True, timeout=timeout, check=False)
    except subprocess.TimeoutExpired as stuck:
        out = stuck.stdout if isinstance(stuck.stdout, str) else (stuck.stdout or b"").decode(errors="replace")
        whole = out[: out.rfind("\n") + 1]
        return f"was not done after {timeout:g} s", whole, ""
    if done.returncode == 0:
        return 0, done.stdout, done.stderr
    return f"ended with exit status {done.returncode}", done.stdout[: done.stdout.rfind("\n") + 1], done.stderr
