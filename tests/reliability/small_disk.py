"""A folder that is a small or a read-only file system, for one command alone: a mount namespace of
its own."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

from support import unavailable

SMALL = (
    'mount -t tmpfs -o size="$SIZE" tmpfs "$FOLDER" && { [ -z "$FILLED" ] || cp -a "$FILLED/."'
    ' "$FOLDER"; }'
)
#: Root ignores permission bits, so what is read-only is the mount.
READ_ONLY = 'mount --bind "$FOLDER" "$FOLDER" && mount -o remount,ro,bind "$FOLDER"'
THEN = '"$@"; status=$?; [ -z "$KEPT" ] || cp -a "$FOLDER/." "$KEPT"; exit $status'


def run_on(
    how: str,
    folder: Path,
    cwd: Path,
    home: Path,
    *words: str,
    size: int = 0,
    kept: Path | None = None,
    filled: Path | None = None,
) -> subprocess.CompletedProcess[str]:
    """`python -m WORDS` with `folder` mounted so. size: B.  filled: what is in it before.  kept:
    gets what was in it when the command ended."""
    tried = (
        subprocess.run(
            ["unshare", "-rm", "sh", "-c", "mount -t tmpfs -o size=4k tmpfs /mnt"],
            capture_output=True,
            check=False,
        )
        if shutil.which("unshare")
        else None
    )
    if tried is None or tried.returncode:
        unavailable(
            "FULL AND READ-ONLY DISKS WERE NOT TRIED: this machine lets nobody mount in a namespace"
            " (unshare -rm)"
        )
    for each in (folder, home, *filter(None, [kept])):
        each.mkdir(exist_ok=True)
    env = {
        **os.environ,
        "HOME": str(home),
        "SIZE": str(size),
        "FOLDER": str(folder),
        "KEPT": str(kept or ""),
        "FILLED": str(filled or ""),
        "COLUMNS": "200",
        "PYTHONSAFEPATH": "1",
        "PYTHONPATH": os.pathsep.join([str(cwd), *filter(None, sys.path)]),
    }
    return subprocess.run(
        [
            "unshare",
            "-rm",
            "sh",
            "-c",
            f"{how} && {{ {THEN}; }}",
            "sh",
            sys.executable,
            "-m",
            *words,
        ],
        cwd=cwd,
        env=env,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
