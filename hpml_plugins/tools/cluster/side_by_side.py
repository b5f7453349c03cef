"""A job that measures on every GPU of its node at once: one `asv run` (a queue) per GPU, merged at the end.

First it measures how much the GPUs disturb one another: a probe on each alone, then on all at once.
"""

from __future__ import annotations

import shlex
import shutil
import signal
import statistics
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from hpml_plugins.errors import HpmlError, UsageError
from hpml_plugins.model import Gpu, Record
from hpml_plugins.node import read_gpus, visible
from hpml_plugins.store import atomic_write, lock_machine, merge_results, record_file
from hpml_plugins.suite import ASV_ENVIRONMENTS_VARIABLE, ASV_RESULTS_VARIABLE, SHARD_VARIABLE
from hpml_plugins.tools.cluster.job import PATIENCE, SOME_FAILED, AsvRun, prepare_asv
from hpml_plugins.tools.cluster.jobs import COMMITS, read_progress, tail, write_commits

#: What queues would see where there is no GPU, separated by commas: for trying it out there.
QUEUES_VARIABLE = "HPML_QUEUES"
INTERFERENCE = "interference.json"
#: s between two looks at the queues.
INTERVAL = 0.2


@dataclass(frozen=True)
class Queue:
    """One `asv run` beside others. gpu: its CUDA_VISIBLE_DEVICES.  part: of the benchmarks, of `parts`."""

    index: int
    gpu: str
    commits: tuple[str, ...]
    part: int = 0
    parts: int = 1

    @property
    def name(self) -> str:
        """The name of its folder and its log."""
        return f"queue-{self.index}"

    def describe(self) -> str:
        """What it measures, in words."""
        commits = f"{len(self.commits)} commit{'s' * (len(self.commits) != 1)}"
        return commits if self.parts == 1 else f"part {self.part + 1} of {self.parts} of the benchmarks of {commits}"


def share_queues(commits: Sequence[str], gpus: Sequence[str]) -> list[Queue]:
    """A queue for each GPU: whole commits in turn where there are enough for all, else all commits and a part of the
    benchmarks each."""
    count = len(gpus)
    if len(commits) >= count:
        return [Queue(index, gpu, tuple(commits[index::count])) for index, gpu in enumerate(gpus)]
    return [Queue(index, gpu, tuple(commits), index, count) for index, gpu in enumerate(gpus)]


def gpus_side_by_side(environ: Mapping[str, str]) -> list[str]:
    """CUDA_VISIBLE_DEVICES of each queue: a GPU of those that `environ` leaves.

    Raises HpmlError where there is none, or where they are of several types: they share one machine's name.
    """
    found = read_gpus()
    names = gpu_names(visible(found.gpus, environ.get("CUDA_VISIBLE_DEVICES")), found.gpus)
    if not names and QUEUES_VARIABLE in environ:
        names = environ[QUEUES_VARIABLE].split(",")
    if not names:
        because = f" ({found.problem})" if found.problem else ""
        raise HpmlError(f"side_by_side: this node has no GPU{because}")
    return names


def gpu_names(gpus: Sequence[Gpu], of_node: Sequence[Gpu]) -> list[str]:
    """How CUDA_VISIBLE_DEVICES names each: its UUID, or its place in the node where NVML gives none."""
    types = sorted({gpu.name for gpu in gpus})
    if len(types) > 1:
        raise HpmlError(f"side_by_side: this node has GPUs of {len(types)} types ({', '.join(types)}); choose one type")
    return [gpu.uuid or str(of_node.index(gpu)) for gpu in gpus]


class Ratio(msgspec.Struct, frozen=True):
    """One metric of one point: for each GPU, the median with all at once over that alone.

    overlap: share, 0 to 1, of the longest of these points during which all ran.
    """

    benchmark: str
    params: dict[str, str | int | float | bool]
    metric: str
    unit: str
    direction: str | None
    ratios: list[float]
    overlap: float

    def line(self) -> str:
        """In words."""
        point = " ".join([self.benchmark, *(f"{name}={value}" for name, value in self.params.items())])
        return (
            f"interference: {point} {self.metric} ({self.direction} is better): together / alone "
            f"{statistics.median(self.ratios):.4f}, of {len(self.ratios)} GPUs {min(self.ratios):.4f} to "
            f"{max(self.ratios):.4f}; {self.overlap:.0%} of the time at once"
        )


def compare(alone: Sequence[Sequence[Record]], at_once: Sequence[Sequence[Record]]) -> list[Ratio]:
    """The ratio of each metric of each point, from the Records of each GPU."""
    found = []
    for place, first in enumerate(alone[0]):
        records = [each[place] for each in at_once]
        end = min(record.started + record.duration for record in records)
        longest = max(record.duration for record in records)
        overlap = max(0.0, end - max(record.started for record in records)) / longest if longest else 0.0
        for name, metric in first.metrics.items():
            single = [statistics.median(each[place].metrics[name].samples) for each in alone]
            if not all(single):
                continue
            shared = [statistics.median(record.metrics[name].samples) for record in records]
            ratios = [many / one for one, many in zip(single, shared, strict=True)]
            found.append(Ratio(first.benchmark, first.params, name, metric.unit, metric.direction, ratios, overlap))
    return found


def _read_probe(process: subprocess.Popen[bytes]) -> list[Record]:
    output = process.communicate()[0]
    records = [msgspec.json.decode(line, type=Record) for line in output.splitlines() if line.startswith(b"{")]
    for record in records:
        if record.status != "ok":
            raise HpmlError(f"the probe's point {record.benchmark} {record.params} {record.status}: {record.reason}")
    if process.returncode or not records:
        raise HpmlError(f"the probe ended with status {process.returncode}")
    return records


@dataclass
class SideBySide(AsvRun):
    """`asv run` in a queue for each GPU. results: the project's.  probe: words of `hpml run`, to measure interference.

    Each queue has its own results in the job's folder, because one process writes a machine's results at a time. What a
    queue that died has left is merged too.
    """

    results: str = ""
    probe: str = ""
    _running: list[subprocess.Popen[bytes]] = field(default_factory=list, repr=False)

    def _run(self, *, resume: bool) -> tuple[int, str]:
        gpus = gpus_side_by_side(self.environment())
        queues = share_queues(Path(self.folder, COMMITS).read_text().split(), gpus)
        with lock_machine(Path(self.results), self.machine, timeout=PATIENCE):
            self._merge()  # of an attempt that was killed
            self._measure_interference(queues)
            for queue in queues:
                self._prepare(queue)
            try:
                statuses = self._run_queues(queues, resume)
            finally:
                self._stop()
                self._merge()
        return self._outcome(queues, statuses)

    def _stop(self) -> None:
        for process in self._running:
            process.kill()
        for process in self._running:
            process.wait()

    def _run_queues(self, queues: list[Queue], resume: bool) -> list[int]:
        """Their exit statuses; prints their progress as asv does, for `hpml jobs`."""
        for queue in queues:
            command = self.queue_command(queue, resume=resume)
            with self._log(queue).open("wb") as log:
                self._running.append(self._start(command, queue, stdout=log, stderr=subprocess.STDOUT))
            print(f"{queue.name}: GPU {queue.gpu or 'none'}, {queue.describe()}, {self._log(queue)}", flush=True)
        shown = -1.0
        ended: set[int] = set()
        while len(ended) < len(queues):
            time.sleep(INTERVAL)
            for queue, process in zip(queues, self._running, strict=True):
                if process.poll() is not None and queue.index not in ended:
                    ended.add(queue.index)
                    print(f"{queue.name}: ended with status {process.returncode}", flush=True)
            shares = [1.0 if queue.index in ended else read_progress(self._log(queue)) or 0.0 for queue in queues]
            if (share := sum(shares) / len(shares)) != shown:
                shown = share
                print(f"[{share:7.2%}] " + " ".join(f"{each:.0%}" for each in shares), flush=True)
        return [process.returncode for process in self._running]

    def queue_command(self, queue: Queue, *, resume: bool = False) -> list[str]:
        """asv's command, with the folders of this queue."""
        words = self.command(resume=resume)
        commits = f"HASHFILE:{Path(self.folder, COMMITS)}"
        words[words.index(commits)] = f"HASHFILE:{Path(self.folder, f'{queue.name}-{COMMITS}')}"
        return words

    def _start(self, command: list[str], queue: Queue, **streams: object) -> subprocess.Popen[bytes]:
        env = {
            **self.environment(),
            "CUDA_VISIBLE_DEVICES": queue.gpu,
            SHARD_VARIABLE: f"{queue.part}/{queue.parts}",
            ASV_RESULTS_VARIABLE: str(self._folder(queue)),
            ASV_ENVIRONMENTS_VARIABLE: queue.name,
        }
        return subprocess.Popen(command, cwd=self.project, env=env, preexec_fn=prepare_asv, **streams)  # type: ignore[call-overload, no-any-return]

    def _folder(self, queue: Queue) -> Path:
        return Path(self.folder, queue.name)

    def _log(self, queue: Queue) -> Path:
        return Path(self.folder, f"{queue.name}.log")

    def _prepare(self, queue: Queue) -> None:
        """Copy what the machine has of the queue's commits, so that points that a quick run leaves out are kept."""
        write_commits(Path(self.folder, f"{queue.name}-{COMMITS}"), queue.commits)
        ours, theirs = Path(self.results), self._folder(queue)
        machine = ours / self.machine
        known = [ours / "benchmarks.json", machine / "machine.json"]
        for commit in queue.commits:
            known += [*machine.glob(f"{commit[:8]}-*.json"), record_file(ours, self.machine, commit)]
        for path in known:
            if path.exists():
                copy = theirs / path.relative_to(ours)
                copy.parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(path, copy)

    def _merge(self) -> None:
        """Merge what the queues have measured into the project's results, and remove the folders that were merged."""
        for folder in sorted(path for path in Path(self.folder).glob("queue-*") if path.is_dir()):
            try:
                report = merge_results([folder], Path(self.results), locked=self.machine)
            except UsageError:
                report = None  # it ended before it wrote anything
            for line in [*report.conflicts, *report.skipped] if report else []:
                print(f"hpml-job: {line}", file=sys.stderr, flush=True)
            if report is None or not report.skipped:
                shutil.rmtree(folder, ignore_errors=True)

    def _measure_interference(self, queues: list[Queue]) -> None:
        """Run the probe on each GPU alone, one after the other, then on all at once."""
        file = Path(self.folder, INTERFERENCE)
        if file.exists() or len(queues) < 2:
            return
        command = [sys.executable, "-m", "hpml_plugins", "run", *shlex.split(self.probe), "--json"]
        processes = []
        try:
            alone = [_read_probe(self._start(command, queue, stdout=subprocess.PIPE)) for queue in queues]
            processes = [self._start(command, queue, stdout=subprocess.PIPE) for queue in queues]
            found = compare(alone, [_read_probe(process) for process in processes])
        except HpmlError as error:
            print(f"interference: not measured: {error}", flush=True)
            return
        finally:
            for process in processes:
                process.kill()
                process.wait()
        atomic_write(file, msgspec.json.encode(found))
        for ratio in found:
            print(ratio.line(), flush=True)

    def _outcome(self, queues: list[Queue], statuses: list[int]) -> tuple[int, str]:
        failed = [pair for pair in zip(queues, statuses, strict=True) if pair[1] not in (0, SOME_FAILED)]
        if not failed:
            return max(statuses), ""
        if all(status == -signal.SIGTERM for status in statuses):
            return -signal.SIGTERM, ""
        reasons = []
        for queue, status in failed:
            lines = [line for line in tail(self._log(queue), 50) if line.startswith("hpml: ")]
            how = f"was ended by {signal.Signals(-status).name}" if status < 0 else f"ended with status {status}"
            why = lines[-1].removeprefix("hpml: ") if lines else f"its log: {self._log(queue).name}"
            reasons.append(f"{queue.name} (GPU {queue.gpu or 'none'}, {queue.describe()}) {how}: {why}")
        kept = f"; what it measured and the other {len(queues) - len(failed)} queues' results are kept"
        return 1, "; ".join(reasons) + kept

    def __getstate__(self) -> dict[str, object]:
        return {**super().__getstate__(), "_running": []}
