"""Run an external program repeatedly and sample the numbers it prints, as `Bench.time` samples a
step."""

from __future__ import annotations

import os
import shlex
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

from hpml_plugins import clocks
from hpml_plugins.errors import DefinitionError, HpmlError
from hpml_plugins.isolation import describe_exit
from hpml_plugins.measure.sampling import sample, summarise, warm_up
from hpml_plugins.measure.session import Session
from hpml_plugins.model.program_output import ProgramOutput
from hpml_plugins.model.samples import Samples
from hpml_plugins.terminal import one_line


def run_program(
    session: Session,
    command: Sequence[str],
    outputs: Mapping[str, ProgramOutput],
    environment: Mapping[str, str],
) -> dict[str, Samples]:
    """See Bench.run_program."""
    if not outputs:
        raise DefinitionError("run_program needs at least one ProgramOutput")
    words = [str(word) for word in command]
    first, leading = next(iter(outputs.items()))
    runs: list[dict[str, float]] = []

    def run() -> tuple[float]:
        printed, errors = _run(words, environment)
        try:
            runs.append(
                {name: output.read(printed, errors) for name, output in outputs.items()}
            )
        except HpmlError as error:
            raise HpmlError(f"{words[0]}: {error}") from None
        return (runs[-1][first],)

    def run_timed() -> float:
        started = clocks.perf_counter()
        run()
        return clocks.perf_counter() - started

    session.progress(shlex.join(words))
    info = {
        "timer": f"printed by {Path(words[0]).name}",
        **warm_up(run_timed, session.plan),
    }
    runs.clear()
    taken = sample(run, session.plan, info, batch=1, symbol=leading.unit)
    found = {}
    for name, output in outputs.items():
        samples = Samples.of(
            session.result([each[name] for each in runs]), output.unit, **taken.info
        )
        found[name] = samples.note(**summarise(samples))
        session.warn_if_imprecise(found[name], name)
    return found


def _run(words: list[str], environment: Mapping[str, str]) -> tuple[str, str]:
    """Run a program once. Returns its standard output and standard error."""
    # C: a decimal point, and messages in English
    env = {**os.environ, "LC_ALL": "C", **environment}
    try:
        done = subprocess.run(
            words,
            env=env,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            check=False,
        )
    except OSError as error:
        raise HpmlError(
            f"cannot run {words[0]!r}: {error.strerror}; name it in Requires(tools=…)"
        ) from None
    if done.returncode:
        if done.returncode > 0:
            how = f"ended with status {done.returncode}"
        else:
            how = describe_exit(done.returncode)
        last = one_line((done.stderr or done.stdout)[-300:]) or "it printed nothing"
        raise HpmlError(f"{shlex.join(words)} {how}: {last}")
    return done.stdout, done.stderr
