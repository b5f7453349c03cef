#!/usr/bin/env python3
"""dist.py [FOLDER]: wheel and source distribution of HEAD, the same bytes wherever they are built.

Built is what is committed, without the network, with the setuptools of this Python. Times are that
of the commit (SOURCE_DATE_EPOCH overrides it); owners and permissions are plain. FOLDER: default
dist; earlier files of this project there are removed.
"""

from __future__ import annotations

import gzip
import io
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


def build(target: Path) -> list[Path]:
    """Build both; returns their paths."""
    epoch = (
        os.environ.get("SOURCE_DATE_EPOCH")
        or git("log", "-1", "--format=%ct").decode().strip()
    )
    os.umask(0o022)
    with tempfile.TemporaryDirectory(prefix="hpml-dist-") as scratch:
        source = Path(scratch, "source")
        built = Path(scratch, "built")
        # the modes that tarfile's filter leaves, which Python before 3.11.4 does not have
        tracked = git("-c", "tar.umask=0022", "archive", "HEAD")
        plain = {"filter": "data"} if hasattr(tarfile, "data_filter") else {}
        with tarfile.open(fileobj=io.BytesIO(tracked)) as archive:
            archive.extractall(source, **plain)
        env = {**os.environ, "SOURCE_DATE_EPOCH": epoch, "PYTHONHASHSEED": "0"}
        env.pop("PYTHONPATH", None)
        command = [
            sys.executable,
            "-m",
            "build",
            "--no-isolation",
            "--outdir",
            str(built),
            str(source),
        ]
        done = subprocess.run(
            command, env=env, cwd=scratch, capture_output=True, text=True, check=False
        )
        if done.returncode:
            sys.exit(f"dist: the build failed:\n{done.stdout[-2000:]}{done.stderr[-2000:]}")
        target.mkdir(parents=True, exist_ok=True)
        for old in target.glob("hpml_plugins-*"):
            old.unlink()
        for path in built.glob("*.tar.gz"):
            normalise(path, int(epoch))
        return [Path(shutil.copy(path, target)) for path in sorted(built.iterdir())]


def git(*words: str) -> bytes:
    """What git says of this repository."""
    return subprocess.run(["git", *words], cwd=ROOT, capture_output=True, check=True).stdout


def normalise(sdist: Path, epoch: int) -> None:
    """Write a source distribution anew: sorted, with one time, no owner and plain permissions."""
    content = io.BytesIO()
    with tarfile.open(sdist) as before, tarfile.open(fileobj=content, mode="w") as after:
        for member in sorted(before.getmembers(), key=lambda each: each.name):
            member.mtime = epoch
            member.uid = 0
            member.gid = 0
            member.uname = ""
            member.gname = ""
            member.mode = 0o755 if member.isdir() or member.mode & 0o100 else 0o644
            member.pax_headers = {}
            after.addfile(member, before.extractfile(member) if member.isfile() else None)
    with sdist.open("wb") as file, gzip.GzipFile("", "wb", 9, file, epoch) as packed:
        packed.write(content.getvalue())


if __name__ == "__main__":
    for path in build(Path(sys.argv[1] if len(sys.argv) > 1 else ROOT / "dist")):
        print(path)
