"""What asv's grid of all benchmarks asks for and asv does not write: the summary of one that has no number anywhere."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from asv.graph import Graph


def complete_grid(names: Iterable[str], html_dir: Path) -> None:
    """Write an empty summary for each of these benchmarks that has none: an empty box in place of a failed request."""
    for name in names:
        path = html_dir / f"{Graph.get_file_path({'summary': ''}, name)}.json"
        if not path.exists():
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text("[]", encoding="utf-8")
