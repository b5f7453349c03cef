"""Damaged files end in one line, whatever they are: see `engine` for what a fault is.

Every run takes QUICK cases of each kind, always the same. The slow tests take HPML_FUZZ_CASES (20,000), others each
time: `HPML_FUZZ_CASES=200000 make test-all` looks longer. HPML_FUZZ_SEED repeats a run.
"""

from __future__ import annotations

import os
import random
from collections.abc import Callable
from pathlib import Path

import pytest
from fuzzing.engine import VARIABLE, Counts, fuzz, hypothesis_cases, show
from fuzzing.kinds import KINDS

QUICK, MANY = 100, int(os.environ.get(VARIABLE, "20000"))


@pytest.mark.parametrize("name", KINDS)
def test_a_few_damaged_files_of_each_kind_end_in_one_line(
    name: str, tmp_path: Path, say_counts: Callable[[Counts], None]
) -> None:
    counts = fuzz(KINDS[name], hypothesis_cases(KINDS[name], QUICK), tmp_path, 300)
    say_counts(counts)
    assert not counts.faults, show(counts.faults)
    assert counts.cases == QUICK


@pytest.mark.slow
@pytest.mark.parametrize("name", KINDS)
def test_thousands_of_damaged_files_of_each_kind_end_in_one_line(
    name: str, tmp_path: Path, say_counts: Callable[[Counts], None]
) -> None:
    seed = int(os.environ.get("HPML_FUZZ_SEED") or random.randrange(2**32))
    counts = fuzz(KINDS[name], hypothesis_cases(KINDS[name], MANY, seed=seed), tmp_path, MANY)
    say_counts(counts)
    assert not counts.faults, f"HPML_FUZZ_SEED={seed}\n{show(counts.faults)}"
    assert counts.cases == MANY
