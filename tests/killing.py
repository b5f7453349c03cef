"""Killing commands at random moments, and looking at what they left."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

from support import PATIENCE, wait_for

from hpml_plugins.model.record import Record
from hpml_plugins.model.serialization import decode
from hpml_plugins.store import decode_file, read_file

#: How many kills in all; `run`, `publish`, `merge` and `submit` have these shares of them.
KILLS = int(os.environ.get("HPML_KILLS", "200"))
SHARES = {"run": 0.4, "publish": 0.2, "merge": 0.2, "submit": 0.2}


def kills_of(command: str) -> int:
    return max(1, round(KILLS * SHARES[command]))


def start(folder: Path, home: Path, *words: str) -> subprocess.Popen[str]:
    """`python -m WORDS` in a session of its own; what it says goes to the file `said` of its
    home."""
    env = {**os.environ, "HOME": str(home), "PYTHONSAFEPATH": "1"}
    env["PYTHONPATH"] = os.pathsep.join([str(folder), *filter(None, sys.path)])
    with (home / "said").open("w") as said:
        return subprocess.Popen(
            [sys.executable, "-m", *words],
            cwd=folder,
            env=env,
            stdout=said,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )


def finish(running: subprocess.Popen[str], home: Path, *statuses: int) -> float:
    """Wait for its end, which must be one of these; the seconds that took."""
    started = time.monotonic()
    assert running.wait(PATIENCE) in (statuses or (0,)), (home / "said").read_text()[-3000:]
    return time.monotonic() - started


def kill_after(
    running: subprocess.Popen[str],
    seconds: float,
    kill: Callable[[int], object] | None = None,
) -> bool:
    """Kill it, with its whole session unless `kill` does otherwise. False: it had ended before."""
    try:
        running.wait(seconds)
        return False
    except subprocess.TimeoutExpired:
        (kill or (lambda pid: os.killpg(pid, signal.SIGKILL)))(running.pid)
        running.wait(PATIENCE)
        return True


def command_lines(naming: Path) -> dict[int, str]:
    """The processes in whose command lines that folder is named."""
    found = {}
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            words = (
                (entry / "cmdline")
                .read_bytes()
                .replace(b"\0", b" ")
                .decode(errors="replace")
            )
        except OSError:
            continue
        if str(naming) in words:
            found[int(entry.name)] = words
    return found


def wait_until_gone(naming: Path) -> None:
    wait_for(
        lambda: not command_lines(naming),
        f"the end of what names {naming}",
        lambda: str(command_lines(naming)),
    )


def whole_files(folder: Path) -> int:
    """Hold every JSON file below to be whole; how many there are."""
    files = [path for path in folder.rglob("*.json") if not path.name.startswith(".")]
    for path in files:
        json.loads(path.read_bytes())
    return len(files)


def records_below(results: Path) -> list[Record]:
    """The whole Records, in the order written: what a reader sees, however the writer ended."""
    return [
        record
        for path in sorted(results.glob("*/records/*.jsonl"))
        for record in read_file(path)
    ]


def rounds_below(results: Path) -> list[Record]:
    """The whole lines, in the order written: rounds, which a resumed run adds to."""
    return [
        each
        for path in sorted(results.glob("*/records/*.jsonl"))
        for _, each in decode_file(path, decode)
    ]


def dice(seed: int) -> random.Random:
    return random.Random(seed)
