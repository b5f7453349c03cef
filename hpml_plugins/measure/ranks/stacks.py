"""What ranks are doing: asked by a signal, answered by the stack that each writes into its file."""

from __future__ import annotations

import os
import re
import signal
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from hpml_plugins.measure.ranks.group import Team

#: s that a rank has to answer.
PATIENCE = 0.2
_MEASURING = Path(__file__).parents[1]


def where(team: Team, pids: Mapping[int, int]) -> str:
    """`rank 0 in all_reduce (distributed_c10d.py:3061) of step (a.py:9)`.  pids: of the ranks that live, by rank."""
    for index, pid in pids.items():
        if team.stack_of(index).exists():
            with suppress(OSError):
                os.kill(pid, signal.SIGUSR1)
    time.sleep(PATIENCE)
    return ", ".join(f"rank {index} {_frame(team.stack_of(index))}" for index in pids) or "none had started"


def _frame(path: Path) -> str:
    """The innermost frame of a stack, and the function of the plugin that called it."""
    try:
        frames = re.findall(r'File "(.*)", line (\d+) in (\S+)', path.read_text())
    except OSError:
        return "still starting"
    if not frames:
        return "silent"
    own = [frame for frame in frames if "/torch/" not in frame[0] and _MEASURING not in Path(frame[0]).parents]
    shown = [frames[0], *[frame for frame in own[:1] if frame != frames[0]]]
    return "in " + " of ".join(f"{function} ({Path(file).name}:{line})" for file, line, function in shown)
