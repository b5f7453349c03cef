"""Gathering the facts that traps are judged from. What cannot be asked is left empty, not guessed."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import msgspec

from hpml_plugins.tools.doctor.traps import TorchFacts

_ASK_TORCH = """
import json, torch
count = torch.cuda.device_count() if torch.version.cuda else 0
pairs = [(a, b) for a in range(count) for b in range(count) if a != b]
peers = all(torch.cuda.can_device_access_peer(a, b) for a, b in pairs) if pairs else None
flags = torch._C._cuda_getArchFlags() if hasattr(torch._C, "_cuda_getArchFlags") else ""
facts = {"version": torch.__version__.split("+")[0], "cuda": torch.version.cuda or "", "archs": (flags or "").split()}
print(json.dumps({**facts, "peers": peers}))
"""


def ask_torch() -> TorchFacts:
    """torch's own facts, asked in a process of its own; empty where it does not import."""
    try:
        done = subprocess.run(
            [sys.executable, "-c", _ASK_TORCH], capture_output=True, text=True, timeout=120, check=True
        )
        return msgspec.json.decode(done.stdout, type=TorchFacts)
    except (subprocess.SubprocessError, msgspec.DecodeError):
        return TorchFacts()


def shared_memory() -> float:
    """Size of /dev/shm, B; infinite where there is none to be too small."""
    return float(shutil.disk_usage("/dev/shm").total) if Path("/dev/shm").is_dir() else float("inf")


def counters_need_root() -> bool:
    """Whether the driver gives performance counters to root only, as it says itself."""
    try:
        text = Path("/proc/driver/nvidia/params").read_text()
    except OSError:
        return False
    return bool(re.search(r"^RmProfilingAdminOnly:\s*1", text, re.MULTILINE))


def is_root() -> bool:
    """Whether this process runs as root."""
    return os.geteuid() == 0
