"""asv's own result file, written while a run goes on."""

from __future__ import annotations

import functools
import time
from typing import Any

from asv.results import Results

#: s between two writings: a file of thousands of values takes a few hundredths of one.
EVERY = 5.0


def save_as_results_come() -> None:
    """Let asv save a commit's results while it measures it, not only when it has measured all.

    asv has no hook there. A run that is ended by a time limit, and never resumed on that node, would leave its Records
    and nothing for asv's own pages. A benchmark is saved when all its points are done.
    """
    if hasattr(Results.add_result, "__wrapped__"):
        return
    Results.load_data = _loading(Results.load_data)
    Results.add_result = _adding(Results.add_result)


def _loading(load: Any) -> Any:
    @functools.wraps(load)
    def loading(results: Any, result_dir: str) -> None:
        """`asv run` loads what there is where it is going to save, and does neither in a dry run."""
        load(results, result_dir)
        results.saved_to, results.saved_at = result_dir, time.monotonic()

    return loading


def _adding(add: Any) -> Any:
    @functools.wraps(add)
    def adding(results: Any, *arguments: Any, **named: Any) -> None:
        add(results, *arguments, **named)
        if hasattr(results, "saved_to") and time.monotonic() - results.saved_at >= EVERY:
            results.save(results.saved_to)
            results.saved_at = time.monotonic()

    return adding
