"""A job that measures on every GPU of its node at once: an `asv run` for each, results apart, merged at the end."""

from __future__ import annotations

import shutil
import signal
import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from hpml_plugins.errors import HpmlError, UsageError
from hpml_plugins.store import atomic_write, lock_machine, merge_results, record_file
from hpml_plugins.suite import ASV_ENVIRONMENTS_VARIABLE, ASV_RESULTS_VARIABLE, SHARD_VARIABLE
from hpml_plugins.tools.cluster import interference
from hpml_plugins.tools.cluster.job import PATIENCE, SOME_FAILED, AsvRun, prepare_asv
from hpml_plugins.tools.cluster.queues import Queue, gpus_side_by_side, share_queues
from hpml_plugins.tools.cluster.state import COMMITS
from hpml_plugins.tools.cluster.watch import read_progress, tail

#: s between two looks at the queues.
LOOK = 0.2


@dataclass
class SideBySide(AsvRun):
    """`asv run` in a queue for each GPU. results: the project's.  probe: words of `hpml run`, to measure interference.

    Each queue has a folder of results in the job's folder: one process writes a machine's results at a time, and what
    a queue that died has left is merged like all others.
    """

    results: str = ""
    probe: str = ""
    _running: list[subprocess.Popen[bytes]] = field(default_factory=list, repr=False)

    def _run(self, *, again: bool) -> tuple[int, str]:
        gpus = gpus_side_by_side(self.environment())
        commits = Path(self.folder, COMMITS).read_text().split()
        queues = share_queues(commits, gpus)
        lock = lock_machine(Path(self.results), self.machine, timeout=PATIENCE)
        try:
            self._merge()  # of an attempt that was killed
            self._measure_interference(queues)
            for queue in queues:
                self._prepare(queue)
            try:
                statuses = self._run_queues(queues, again)
            finally:
                self._stop()
                self._merge()
        finally:
            lock.release()
        return self._outcome(queues, statuses)

    def _stop(self) -> None:
        for process in self._running:
            process.kill()
        for process in self._running:
            process.wait()

    def _run_queues(self, queues: list[Queue], again: bool) -> list[int]:
        """Their exit statuses; shows how far they are, as asv does, for `hpml jobs`."""
        for queue in queues:
            with self._log(queue).open("wb") as log:
                self._running.append(
                    subprocess.Popen(
                        self.queue_command(queue, again=again), cwd=self.project, env=self._environment_of(queue),
                        stdout=log, stderr=subprocess.STDOUT, preexec_fn=prepare_asv,
                    )
                )  # fmt: skip
            print(f"{queue.name}: GPU {queue.gpu or 'none'}, {_what(queue)}, {self._log(queue)}", flush=True)
        shown = -1.0
        ended: set[int] = set()
        while len(ended) < len(queues):
            time.sleep(LOOK)
            for queue, process in zip(queues, self._running, strict=True):
                if process.poll() is not None and queue.index not in ended:
                    ended.add(queue.index)
                    print(f"{queue.name}: ended with status {process.returncode}", flush=True)
            shares = [
                1.0 if queue.index in ended else read_progress(self._log(queue)) or 0.0 for queue in queues
            ]  # fmt: skip
            if (share := sum(shares) / len(shares)) != shown:
                shown = share
                print(f"[{share:7.2%}] " + " ".join(f"{each:.0%}" for each in shares), flush=True)
        return [process.returncode for process in self._running]

    def queue_command(self, queue: Queue, *, again: bool = False) -> list[str]:
        """asv's command, with the folders of this queue."""
        words = self.command(again=again)
        commits = f"HASHFILE:{Path(self.folder, COMMITS)}"
        words[words.index(commits)] = f"HASHFILE:{Path(self.folder, f'{queue.name}-{COMMITS}')}"
        return words

    def _environment_of(self, queue: Queue) -> dict[str, str]:
        own = {
            SHARD_VARIABLE: f"{queue.part}/{queue.parts}",
            ASV_RESULTS_VARIABLE: str(self._folder(queue)),
            ASV_ENVIRONMENTS_VARIABLE: queue.name,
        }
        return {**self.environment(), "CUDA_VISIBLE_DEVICES": queue.gpu, **own}

    def _folder(self, queue: Queue) -> Path:
        return Path(self.folder, queue.name)

    def _log(self, queue: Queue) -> Path:
        return Path(self.folder, f"{queue.name}.log")

    def _prepare(self, queue: Queue) -> None:
        """Give the queue what the machine has of its commits already: what a quick run leaves out stays as it was."""
        atomic_write(
            Path(self.folder, f"{queue.name}-{COMMITS}"), "".join(f"{commit}\n" for commit in queue.commits).encode()
        )
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
        """Put what the queues have measured into the project's results; a queue's folder goes when it is in there."""
        for folder in sorted(path for path in Path(self.folder).glob("queue-*") if path.is_dir()):
            try:
                report = merge_results([folder], Path(self.results), locked=self.machine)
            except UsageError:
                report = None  # it ended before it wrote anything
            for said in [*report.conflicts, *report.skipped] if report else []:
                print(f"hpml-job: {said}", file=sys.stderr, flush=True)
            if report is None or not report.skipped:
                shutil.rmtree(folder, ignore_errors=True)

    def _measure_interference(self, queues: list[Queue]) -> None:
        file = Path(self.folder, interference.FILE)
        if file.exists() or len(queues) < 2:
            return
        environments = [self._environment_of(queue) for queue in queues]
        start = interference.probe_starter(self.probe, Path(self.project), environments)
        try:
            found = interference.measure(start, len(queues))
        except HpmlError as error:
            print(f"interference: not measured: {error}", flush=True)
            return
        atomic_write(file, msgspec.json.encode(found))
        for ratio in found:
            print(ratio.line(), flush=True)

    def _outcome(self, queues: list[Queue], statuses: list[int]) -> tuple[int, str]:
        died = [
            (queue, status) for queue, status in zip(queues, statuses, strict=True) if status not in (0, SOME_FAILED)
        ]
        if not died:
            return max(statuses), ""
        if all(status == -signal.SIGTERM for status in statuses):
            return -signal.SIGTERM, ""
        said = []
        for queue, status in died:
            words = [line for line in tail(self._log(queue), 50) if line.startswith("hpml: ")]
            how = f"was ended by {signal.Signals(-status).name}" if status < 0 else f"ended with status {status}"
            why = words[-1].removeprefix("hpml: ") if words else f"its log: {self._log(queue).name}"
            said.append(f"{queue.name} (GPU {queue.gpu or 'none'}, {_what(queue)}) {how}: {why}")
        kept = f"; what it measured and the other {len(queues) - len(died)} queues' results are kept"
        return 1, "; ".join(said) + kept

    def __getstate__(self) -> dict[str, object]:
        return {**super().__getstate__(), "_running": []}


def _what(queue: Queue) -> str:
    commits = f"{len(queue.commits)} commit{'s' * (len(queue.commits) != 1)}"
    return commits if queue.parts == 1 else f"part {queue.part + 1} of {queue.parts} of the benchmarks of {commits}"
