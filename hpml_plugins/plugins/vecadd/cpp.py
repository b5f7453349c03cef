"""The plain C++ program: built once for a source and a compiler, run, and its result held against NumPy's."""

from __future__ import annotations

import hashlib
import json
import os
import platform
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import Any

from hpml_plugins import HpmlError, Samples

SOURCE = Path(__file__).with_name("vecadd.cpp")
COMPILERS = ("g++", "c++", "clang++")
#: No -march=native: a cache on a shared home would give one node's instructions to another.
FLAGS = ("-O3", "-std=c++17")


def find_compiler() -> str | None:
    """The C++ compiler: $CXX, else the first of COMPILERS on the PATH; None where there is none."""
    candidates = (os.environ.get("CXX", ""), *COMPILERS)
    return next((found for name in candidates if name and (found := shutil.which(name))), None)


def cache_folder() -> Path:
    """Where built programs are kept: hpml-plugins in $XDG_CACHE_HOME, or in ~/.cache."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "hpml-plugins"


def build(compiler: str, folder: Path) -> Path:
    """The program, compiled into `folder` unless this source was already, by this compiler with these flags.

    It is written beside its place and renamed, so that two points that build at once do not see half of one another's.
    Raises HpmlError with the compiler's first complaint, or where the folder cannot be written.
    """
    key = hashlib.sha256()
    key.update(SOURCE.read_bytes())
    key.update("\0".join((compiler, version(compiler), *FLAGS, platform.machine())).encode())
    program = folder / f"vecadd-{key.hexdigest()[:16]}"
    if program.exists():
        return program
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=folder) as beside:
            fresh = Path(beside) / "vecadd"
            command = [compiler, *FLAGS, str(SOURCE), "-o", str(fresh)]
            done = subprocess.run(command, capture_output=True, text=True, check=False)
            if done.returncode != 0:
                said = (done.stderr.strip() or f"exit status {done.returncode}").splitlines()[0]
                raise HpmlError(f"{compiler} does not compile {SOURCE.name}: {said}")
            fresh.replace(program)
    except OSError as error:
        raise HpmlError(f"cannot build into {folder}: {error}; set XDG_CACHE_HOME to a folder you may write") from None
    return program


def run(program: Path, elements: int, seed: int, *, budget: float, fewest: int, most: int) -> tuple[Samples, int]:
    """Samples of one addition, s, by the program's own clock, and the checksum of its c.

    Raises HpmlError when the program ends badly.
    """
    arguments = [str(value) for value in (elements, seed % 2**32, budget, fewest, most)]
    done = subprocess.run([str(program), *arguments], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise HpmlError(f"{program.name} ended with exit status {done.returncode}: {done.stderr.strip()}")
    told = json.loads(done.stdout)
    seconds = told["seconds"]
    stopped = "most samples" if len(seconds) >= most else "budget"
    info: dict[str, str | float] = {"timer": "std::chrono::steady_clock", "batch": 1, "threads": 1, "stopped": stopped}
    return Samples.of(seconds, "s", **info), int(told["checksum"])


def checksum(elements: int, seed: int) -> int:
    """What NumPy gets for the program's inputs: sum of bits(c[i]) · (2 i + 1), modulo 2⁶⁴."""
    import numpy as np

    total = 0
    part = 1 << 20  # stays in the cache
    for first in range(0, elements, part):
        i = np.arange(first, min(first + part, elements), dtype=np.uint32)
        c = inputs(i, 0, seed) + inputs(i, 1, seed)
        # Wraps at 2⁶⁴, as the program's does.
        total += int(np.sum(c.view(np.uint32) * (2 * i.astype(np.uint64) + 1), dtype=np.uint64))
    return total % 2**64


def inputs(i: Any, which: int, seed: int) -> Any:
    """The elements `i` (uint32) of the program's vector a (0) or b (1): float32 in [0, 1). See vecadd.cpp."""
    import numpy as np

    x = 2 * i + np.uint32((which + seed * 0x9E3779B9) % 2**32)
    x = (x ^ (x >> 16)) * np.uint32(0x7FEB352D)
    x = (x ^ (x >> 15)) * np.uint32(0x846CA68B)
    x ^= x >> 16
    return (x >> 8).astype(np.float32) * np.float32(2**-24)


def version(compiler: str) -> str:
    """The first line of what the compiler says of its version."""
    done = subprocess.run([compiler, "--version"], capture_output=True, text=True, check=False)
    return done.stdout.strip().partition("\n")[0]
