"""The numbers that README.md and docs/ quote are those of results/ as they are committed."""

from __future__ import annotations

import io
import subprocess
import tarfile
from pathlib import Path

from fill_docs import ROOT, filled


def test_no_quoted_number_is_stale(tmp_path: Path) -> None:
    # `make bench` adds results to a checkout, which its texts do not quote.
    command = ["git", "archive", "HEAD", "results"]
    archive = subprocess.run(command, cwd=ROOT, capture_output=True, check=True).stdout
    with tarfile.open(fileobj=io.BytesIO(archive)) as committed:
        committed.extractall(tmp_path, filter="data")
    stale = [str(path.relative_to(ROOT)) for path, old, new in filled(ROOT, tmp_path / "results") if new != old]
    assert not stale, f"{', '.join(stale)}: run `make docs` and commit"
