from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest
from support import PATIENCE

from hpml_plugins import HpmlError
from hpml_plugins.workloads.ncu import count_kernels, parse

NCU = """==PROF== Connected to process 1234 (/usr/bin/python3)
some words of the program, "quoted", too
==PROF== Profiling "add" - 0: 0%....50%....100% - 1 pass
"ID","Process ID","Process Name","Kernel Name","Metric Name","Metric Unit","Metric Value"
"0","1234","python3","add(float, ""x"")","gpu__time_duration.sum","nsecond","1,035,200"
"0","1234","python3","add(float, ""x"")","dram__bytes.sum","byte","12"
"1","1234","python3","add","gpu__time_duration.sum","usecond","35.5"
"1","1234","python3","add","sm__inst.sum","inst","n/a"
"""


def test_ncus_table_is_read_between_its_other_words() -> None:
    first, second = parse(NCU.splitlines())
    assert first.name == 'add(float, "x")'
    # 1,035,200 ns are 1.0352 ms.
    assert first.counters == {
        "gpu__time_duration.sum": pytest.approx(1.0352e-3),
        "dram__bytes.sum": 12.0,
    }
    assert second.counters == {"gpu__time_duration.sum": pytest.approx(3.55e-5)}


def test_what_is_no_table_gives_nothing() -> None:
    assert parse(["==ERROR== something", ""]) == []


@pytest.mark.parametrize(
    "line",
    ['"ID","Kernel Name"\n"0","add"', NCU.replace("35.5", "many"), '"0"\n"1","2","3"'],
)
def test_a_broken_table_is_one_line_of_error(line: str) -> None:
    with pytest.raises(HpmlError, match="ncu's table is not as expected"):
        parse(line.splitlines())


def fake_ncu(folder: Path, script: str, monkeypatch: pytest.MonkeyPatch) -> None:
    program = folder / "ncu"
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(program.stat().st_mode | stat.S_IXUSR)
    monkeypatch.setenv("PATH", f"{folder}{os.pathsep}{os.environ['PATH']}")


@pytest.mark.parametrize(
    ("script", "message"),
    [
        (
            "echo '==ERROR== ERR_NVGPUCTRPERM - The user does not have permission'; exit 1",
            "may not read the GPU's",
        ),
        (
            "echo first; echo last words; exit 3",
            r"measured nothing \(status 3\): first / last words",
        ),
        ("exec sleep 600", "did not finish within 0.2 s"),
    ],
)
def test_what_ncu_says_when_it_cannot_reaches_the_user(
    script: str, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake_ncu(tmp_path, script, monkeypatch)
    with pytest.raises(HpmlError, match=message):
        timeout = 0.2 if "sleep" in script else PATIENCE
        count_kernels(["true"], ["gpu__time_duration.sum"], timeout=timeout)


def test_a_missing_ncu_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(HpmlError, match="ncu is not on the PATH"):
        count_kernels(["true"], ["x"])
