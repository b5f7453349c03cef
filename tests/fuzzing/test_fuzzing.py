"""Damaged files end in one line, whatever they are: see `engine` for what a fault is.

Every run takes QUICK cases of each kind, always the same. The slow tests take HPML_FUZZ_CASES
(20,000), others each time: `HPML_FUZZ_CASES=200000 make test-all` looks longer. HPML_FUZZ_SEED
repeats a run.
"""

from __future__ import annotations

import importlib.util
import os
import random
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest
from fuzzing.engine import VARIABLE, Counts, fuzz, random_cases, show
from fuzzing.kinds import KINDS
from support import unavailable

SEED, QUICK, MANY = 1, 40, int(os.environ.get(VARIABLE, "20000"))


@pytest.mark.parametrize(
    "name",
    # each case of pages of a record publishes a site
    [
        pytest.param(name, marks=pytest.mark.slow) if name == "pages of a record" else name
        for name in KINDS
    ],
)
def test_a_few_damaged_files_of_each_kind_end_in_one_line(
    name: str, tmp_path: Path, say_counts: Callable[[Counts], None]
) -> None:
    counts = fuzz(KINDS[name], random_cases(KINDS[name], SEED, QUICK), tmp_path, 300)
    say_counts(counts)
    assert not counts.faults, show(counts.faults)
    assert counts.cases == QUICK


@pytest.mark.slow
@pytest.mark.parametrize("name", KINDS)
def test_thousands_of_damaged_files_of_each_kind_end_in_one_line(
    name: str, tmp_path: Path, say_counts: Callable[[Counts], None]
) -> None:
    seed = int(os.environ.get("HPML_FUZZ_SEED") or random.randrange(2**32))
    counts = fuzz(KINDS[name], random_cases(KINDS[name], seed, MANY), tmp_path, MANY)
    say_counts(counts)
    assert not counts.faults, f"HPML_FUZZ_SEED={seed}\n{show(counts.faults)}"
    assert counts.cases == MANY


@pytest.mark.slow
@pytest.mark.parametrize("name", KINDS)
def test_libfuzzer_finds_no_way_past_either(
    name: str, tmp_path: Path, say_counts: Callable[[Counts], None]
) -> None:
    if importlib.util.find_spec("atheris") is None:
        unavailable(
            "atheris is not installed: pip install atheris (Linux, up to Python 3.13)"
        )
    program = Path(__file__).with_name("with_atheris.py")
    done = subprocess.run(
        [sys.executable, str(program), name, str(MANY), str(tmp_path)],
        capture_output=True,
        text=True,
        timeout=MANY,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    counts = msgspec.msgpack.decode((tmp_path / "counts.msgpack").read_bytes(), type=Counts)
    counts.kind += " (atheris)"
    say_counts(counts)
    assert not counts.faults, show(counts.faults)
    assert counts.cases == MANY
