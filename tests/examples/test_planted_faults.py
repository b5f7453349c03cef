"""examples/planted_faults: which fault comes when, what is kept, and what is counted. Scripts
replace nvidia-smi, `hpml accept` and the neighbours."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from collections import Counter
from pathlib import Path
from types import ModuleType

import accept_runs
import pytest
from support import ROOT

FOLDER = ROOT / "examples" / "planted_faults"
SMI = """\
#!/bin/sh
case "$*" in
    *"-i 1") echo GPU-bbbbbbbb-2 ;;
    *-i*) echo "No devices were found"; exit 6 ;;
    *) echo GPU-aaaaaaaa-1; echo GPU-bbbbbbbb-2 ;;
esac
"""
NEIGHBOUR = """\
import os, pathlib, sys, time
kind, share, begin, _ = sys.argv[1:]
while not pathlib.Path(begin).exists():
    time.sleep(0.01)
if kind == os.environ.get("FAILING"):
    sys.exit("RuntimeError: out of memory")
with open(os.environ["LOG"], "a") as log:
    print("neighbour", kind, share, os.environ["CUDA_VISIBLE_DEVICES"], os.getpid(), file=log)
print("0.35 ms of every 7 ms", flush=True)
time.sleep(60)
"""
ACCEPT = """\
import json, os, sys
with open(os.environ["LOG"], "a") as log:
    print("accept", *sys.argv[1:], os.environ.get("HPML_FLIP_BIT"), file=log)
if sys.argv[-1] == os.environ.get("BROKEN"):
    sys.exit("hpml: no torch")
card = {"card": "GPU-aaaaaaaa-1", "hardware": "H100", "verdict": "fail", "explained_by": "memory",
        "why": "memory: 1.05 times"}
print(json.dumps({"version": "0", "started": 0, "seconds": 1, "host": "", "cpu": "", "driver": "",
                  "stack": {}, "bands": "", "verdict": "fail", "why": "", "cards": [card]}))
sys.exit(1)
"""


@pytest.fixture
def plant(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    spec = importlib.util.spec_from_file_location("plant", FOLDER / "plant.py")
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, "plant", module)
    spec.loader.exec_module(module)
    for name, text in (
        ("nvidia-smi", SMI),
        ("neighbour.py", NEIGHBOUR),
        ("accept.py", ACCEPT),
    ):
        (tmp_path / name).write_text(text)
        (tmp_path / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    monkeypatch.setenv("LOG", str(tmp_path / "log"))
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    monkeypatch.setattr(module, "NEIGHBOUR", tmp_path / "neighbour.py")
    monkeypatch.setattr(module, "ACCEPT", [sys.executable, str(tmp_path / "accept.py")])
    return module


def rounds(plant: ModuleType, folder: Path, number: int, names: list[str]) -> Counter[str]:
    """Plant each fault as often as given, and return how many files each has."""
    faults = {name: plant.Fault(0.0, *rest(plant, name)) for name in names}

    def choose(known: dict[str, object], left: float) -> str:
        chosen: str = real(known, left)
        return chosen if chosen and faults[chosen].runs < number else ""

    real = plant.choose
    plant.choose = choose
    plant.plant(folder, 600.0, faults)
    return Counter(path.stem.partition("-")[0] for path in folder.glob("*.json"))


def rest(plant: ModuleType, name: str) -> tuple[str, float]:
    fault = plant.faults()[name]
    return fault.component, fault.share


def logged(tmp_path: Path) -> list[list[str]]:
    return [line.split() for line in (tmp_path / "log").read_text().splitlines()]


def test_each_fault_has_its_turn_on_every_gpu_and_no_neighbour_is_left(
    plant: ModuleType, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    names = ["bit", "neighbour", "kernel", "link"]
    found = rounds(plant, tmp_path / "runs", 2, names)
    assert found == dict.fromkeys(names, 2)
    lines = logged(tmp_path)
    judged = [line[2:] for line in lines if line[0] == "accept"]
    assert judged == 2 * [
        ["bits", "GPU-aaaaaaaa-1"],
        ["memory", "None"],
        ["clocks", "None"],
        ["link", "None"],
    ]
    neighbours = [line[1:4] for line in lines if line[0] == "neighbour"]
    assert len(neighbours) == 12
    assert sorted(neighbours[:2]) == [
        ["memory", "0.05", "GPU-aaaaaaaa-1"],
        ["memory", "0.05", "GPU-bbbbbbbb-2"],
    ]
    for line in lines:
        if line[0] == "neighbour":
            assert not Path("/proc", line[4]).exists()
    table = capsys.readouterr().out.splitlines()
    assert len(table) == 9
    assert table[1].startswith("bit-aaaaaaaa-1 ")
    assert table[1].endswith(" fail: memory: memory: 1.05 times")


def test_a_folder_is_continued_with_what_it_has_least_of(
    plant: ModuleType, tmp_path: Path
) -> None:
    runs = tmp_path / "runs"
    runs.mkdir()
    for name in ("bit-1", "bit-2", "kernel-1"):
        (runs / f"{name}.json").write_text("{}")
    assert rounds(plant, runs, 2, ["bit", "kernel"]) == {"bit": 2, "kernel": 2}
    assert (runs / "kernel-aaaaaaaa-2.json").exists()


def test_one_gpu_of_two(
    plant: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "1")
    rounds(plant, tmp_path / "runs", 1, ["neighbour"])
    assert [line[3] for line in logged(tmp_path) if line[0] == "neighbour"] == [
        "GPU-bbbbbbbb-2"
    ]
    assert (tmp_path / "runs" / "neighbour-bbbbbbbb-1.json").exists()
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "7")
    with pytest.raises(SystemExit, match="names no GPU: No devices were found"):
        plant.gpus_of_node()


def test_a_run_without_its_fault_or_without_a_verdict_is_not_kept(
    plant: ModuleType,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("FAILING", "memory")
    monkeypatch.setenv("BROKEN", "bits")
    assert rounds(plant, tmp_path / "runs", 9, ["bit", "neighbour", "kernel"]) == {
        "kernel": 9
    }
    said = Counter(
        line.partition("  not kept")[2] for line in capsys.readouterr().out.splitlines()
    )
    assert (
        said[
            ", not planted: the neighbour ended with status 1: RuntimeError: out of memory"
        ]
        == 2
    )
    assert said[", status 1: hpml: no torch"] == 2


def test_what_does_not_fit_into_the_time_is_not_started(plant: ModuleType) -> None:
    known = plant.faults()
    known["bit"].runs = 3
    assert plant.choose(known, 100.0) == "neighbour"
    assert plant.choose(known, 30.0) == "link"
    assert plant.choose(known, 20.0) == "bit"
    assert plant.choose(known, 5.0) == ""


def test_a_neighbour_ends_with_the_process_that_started_it(tmp_path: Path) -> None:
    (tmp_path / "torch.py").touch()
    start = f"""if True:
        import os, subprocess
        command = {[sys.executable, str(FOLDER / "neighbour.py"), "link", "1", "never"]}
        subprocess.Popen([*command, str(os.getpid())])
    """
    # its output, which the neighbour has too, is read until both have ended
    subprocess.run(
        [sys.executable, "-c", start],
        env={**os.environ, "PYTHONPATH": str(tmp_path)},
        stdout=subprocess.PIPE,
        check=True,
    )


def test_the_script_names_its_faults(tmp_path: Path) -> None:
    done = subprocess.run(
        [FOLDER / "plant.sh", tmp_path, "1", "fire"],
        env={**os.environ, "PYTHON": sys.executable},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 2
    assert done.stderr.endswith(
        "no fault fire; there are bit, neighbour, kernel, link, plain\n"
    )


def test_of_a_flipped_bit_the_first_card_counts_and_another_that_fails(
    tmp_path: Path,
) -> None:
    kept = json.loads((accept_runs.RUNS / "bit-1.json").read_text())
    other = {**kept["cards"][0], "card": "GPU-other", "verdict": "cannot say"}
    kept["cards"].append(other)
    (tmp_path / "bit-1.json").write_text(json.dumps(kept))
    (row,) = accept_runs.accept_runs(tmp_path)
    assert (row["fail"], row["cannot say"]) == ("1", "0")
    other["verdict"] = "fail"
    (tmp_path / "bit-1.json").write_text(json.dumps(kept))
    (row,) = accept_runs.accept_runs(tmp_path)
    assert row["fail"] == "2"
