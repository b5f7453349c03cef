"""Plant faults on the GPUs of this node, have `hpml accept` judge them meanwhile, and keep what it
says as FOLDER/FAULT-CARD-NUMBER.json.

The fault with the fewest files in FOLDER comes next, so that a short time has some of each, and
another node can continue the folder. No setting of the node is changed: the faults are other
programs, and a bit that is flipped.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from hpml_plugins.tools.accept.judging import Acceptance

NEIGHBOUR = Path(__file__).with_name("neighbour.py")
ACCEPT = [sys.executable, "-m", "hpml_plugins", "accept", "--json"]
#: Time for a neighbour to begin, s; it has imported torch already, or does so now.
PATIENCE = 60.0
#: Time for `hpml accept` to end its processes, s.
GRACE = 5.0
#: After this many runs in a row without a file, a fault is not planted again.
FAILURES = 2


@dataclass
class Fault:
    """A fault.  seconds: how long a run takes, the longest one so far.  component: judged alone.
    share: of the time that the neighbour is busy; 0 for none."""

    seconds: float
    component: str = ""
    share: float = 0.0
    runs: int = 0
    failures: int = 0


def faults() -> dict[str, Fault]:
    """Each fault by the name of its files."""
    return {
        "bit": Fault(12.0, "bits"),
        "neighbour": Fault(45.0, "memory", 0.05),
        "kernel": Fault(45.0, "clocks", 0.10),
        "link": Fault(25.0, "link", 1.0),
        "plain": Fault(60.0),
    }


class NotPlanted(Exception):
    """A neighbour did not begin, or ended before the run did."""


@dataclass
class Neighbours:
    """The program of a fault on each GPU.

    It is started while the run before is judged, but opens CUDA only when it begins.
    """

    gpus: Sequence[str]
    folder: Path
    running: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)

    def start(self, fault: Fault) -> None:
        """Start the processes that do not run yet."""
        for gpu in self.gpus if fault.share and not self.running else ():
            self._log(gpu).unlink(missing_ok=True)
            with self._log(gpu).open("wb") as log:
                self.running[gpu] = subprocess.Popen(
                    [
                        sys.executable,
                        NEIGHBOUR,
                        fault.component,
                        str(fault.share),
                        self.folder / "begin",
                        str(os.getpid()),
                    ],
                    env={**os.environ, "CUDA_VISIBLE_DEVICES": gpu},
                    stdout=log,
                    stderr=log,
                )

    def begin(self) -> None:
        """Return when all of them use their GPUs."""
        self.folder.joinpath("begin").touch()
        end = time.monotonic() + PATIENCE
        for gpu in self.running:
            while b" ms of every " not in self._log(gpu).read_bytes():
                self.check()
                if time.monotonic() > end:
                    raise NotPlanted(f"a neighbour did not begin within {PATIENCE:.0f} s")
                time.sleep(0.05)

    def check(self) -> None:
        """Raise NotPlanted if one of them has ended."""
        for gpu, process in self.running.items():
            if process.poll() is not None:
                last = self._log(gpu).read_text(errors="replace").splitlines()[-1:] or [""]
                raise NotPlanted(
                    f"the neighbour ended with status {process.returncode}: {last[0]}"
                )

    def stop(self) -> None:
        """End all of them."""
        for process in self.running.values():
            process.kill()
            process.wait()
        self.running.clear()
        self.folder.joinpath("begin").unlink(missing_ok=True)

    def _log(self, gpu: str) -> Path:
        return self.folder / f"{gpu}.log"


def gpus_of_node() -> list[str]:
    """The UUIDs of the GPUs that CUDA_VISIBLE_DEVICES, indices or UUIDs, names; without it all."""
    chosen = os.environ.get("CUDA_VISIBLE_DEVICES")
    command = ["nvidia-smi", "--query-gpu=uuid", "--format=csv,noheader"]
    try:
        done = subprocess.run(
            [*command, *(["-i", chosen] if chosen else [])],
            capture_output=True,
            text=True,
            check=False,
        )
    except OSError as error:
        sys.exit(f"plant: {error}")
    found = done.stdout.split()
    if done.returncode or not all(each.startswith("GPU-") for each in found) or not found:
        sys.exit(f"plant: nvidia-smi names no GPU: {(done.stdout + done.stderr).strip()}")
    return found


def choose(known: Mapping[str, Fault], left: float) -> str:
    """The fault with the fewest runs that fits into the time left; "" if none fits."""
    fitting = [
        name
        for name, fault in known.items()
        if fault.seconds <= left and fault.failures < FAILURES
    ]
    return min(fitting, key=lambda name: known[name].runs, default="")


def accept(fault: Fault, gpu: str, seconds: float) -> tuple[int, bytes, str]:
    """Its exit status, output and last error.  gpu: whose bit is flipped."""
    words = ["--only", fault.component] if fault.component else []
    flipped = {"HPML_FLIP_BIT": gpu} if fault.component == "bits" else {}
    with subprocess.Popen(
        [*ACCEPT, *words],
        env={**os.environ, **flipped},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    ) as process:
        try:
            out, errors = process.communicate(timeout=max(0.0, seconds))
        except subprocess.TimeoutExpired:
            out, errors = b"", b"no time left"
        finally:
            _end(process)
    last = errors.decode(errors="replace").strip().splitlines()[-1:] or [""]
    return process.returncode, out, last[0]


def _end(process: subprocess.Popen[bytes]) -> None:
    """End it with what it started."""
    process.terminate()
    try:
        process.wait(GRACE)
    except subprocess.TimeoutExpired:
        process.kill()


def row(found: Acceptance) -> str:
    """The verdicts of a run, in one line."""
    said = [
        ": ".join(filter(None, [card.verdict, card.explained_by, card.why]))
        for card in found.cards
    ]
    host = [f"{part.component} fails" for part in found.node if part.verdict == "fail"]
    return " | ".join([*said, *host])


def plant(folder: Path, seconds: float, known: dict[str, Fault]) -> None:
    """Plant one fault after the other until the time is over."""
    end = time.monotonic() + seconds
    gpus = gpus_of_node()
    card = gpus[0].split("-")[1]
    folder.mkdir(parents=True, exist_ok=True)
    for name, fault in known.items():
        fault.runs = len(list(folder.glob(f"{name}-*.json")))
    print(f"{'run':<24}{'at s':>6}{'s':>6}  verdict", flush=True)
    with contextlib.ExitStack() as stack:
        scratch = stack.enter_context(tempfile.TemporaryDirectory(prefix="planted-"))
        beside = {name: Neighbours(gpus, Path(scratch, name)) for name in known}
        for each in beside.values():
            each.folder.mkdir()
            stack.callback(each.stop)
        while name := choose(known, end - time.monotonic()):
            fault = known[name]
            fault.runs += 1
            begun = time.monotonic()
            following = choose(known, end - begun - fault.seconds)
            file = folder / f"{name}-{card}-{fault.runs}.json"
            try:
                beside[name].start(fault)
                beside[name].begin()
                if following:
                    beside[following].start(known[following])
                status, out, error = accept(fault, gpus[0], end - time.monotonic())
                beside[name].check()
                said = row(msgspec.json.decode(out, type=Acceptance))
                partial = file.with_suffix(".partial")
                partial.write_bytes(out)
                partial.replace(file)
                fault.failures = 0
            except NotPlanted as problem:
                said = f"not kept, not planted: {problem}"
                fault.failures += 1
            except msgspec.MsgspecError:
                said = f"not kept, status {status}: {error}"
                fault.failures += 1
            beside[name].stop()
            took = time.monotonic() - begun
            fault.seconds = max(fault.seconds, took)
            at = begun - end + seconds
            print(f"{file.stem:<24}{at:6.0f}{took:6.0f}  {said}", flush=True)


def main() -> None:
    """Read the arguments, and plant."""
    every = faults()
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("seconds", type=float, nargs="?", default=420.0)
    parser.add_argument(
        "fault",
        nargs="*",
        metavar="FAULT",
        help=f"of {', '.join(every)}; without it all but plain",
    )
    given = parser.parse_args()
    if unknown := set(given.fault) - set(every):
        parser.error(f"no fault {', '.join(sorted(unknown))}; there are {', '.join(every)}")
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    chosen = given.fault or [name for name in every if name != "plain"]
    plant(given.folder, given.seconds, {name: every[name] for name in chosen})


if __name__ == "__main__":
    main()
