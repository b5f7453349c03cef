"""A few steps under torch.profiler, as the events of its Chrome trace. Imports torch: imported on use only."""

from __future__ import annotations

import json
import os
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from torch.profiler import ProfilerActivity, profile, schedule

WARM_UP, ACTIVE = 2, 5
#: A folder into which the whole Chrome trace is copied, for chrome://tracing or Perfetto; none is kept without it.
KEEP_TRACE = "HPML_SCALING_TRACES"


def profiled(
    step: Callable[[], None], synchronize: Callable[[], None], *, on_gpu: bool, host: bool, name: str
) -> list[dict[str, Any]]:
    """The events of `ACTIVE` steps, after `WARM_UP` that the profiler watches without keeping. Ranks call it alike.

    host: what the host does too, at some cost to it; without it only the GPU's work is watched.  name: of the trace's
    file, where it is kept.
    """
    activities = [ProfilerActivity.CUDA] * on_gpu + [ProfilerActivity.CPU] * (host or not on_gpu)
    with tempfile.TemporaryDirectory(prefix="hpml-trace-") as folder:
        path = Path(folder, "trace.json")
        with profile(
            activities=activities,
            schedule=schedule(wait=0, warmup=WARM_UP, active=ACTIVE, repeat=1),
            on_trace_ready=lambda profiler: profiler.export_chrome_trace(str(path)),
        ) as profiler:
            for number in range(WARM_UP + ACTIVE):
                step()
                if number in (WARM_UP - 1, WARM_UP + ACTIVE - 1):
                    synchronize()  # no step's work may reach into what is kept, or out of it
                profiler.step()
        events: list[dict[str, Any]] = json.loads(path.read_text())["traceEvents"]
        if kept := os.environ.get(KEEP_TRACE):
            Path(kept).mkdir(parents=True, exist_ok=True)
            shutil.copy(path, Path(kept, f"{name}.json"))
    return events
