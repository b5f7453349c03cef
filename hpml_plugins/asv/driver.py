"""Runs the points of a commit for asv: all points of plugins are measured as one batch, in random
order or within a time limit, and asv gets the result of each when it asks for it."""

from __future__ import annotations

import logging
import math
import shutil
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import msgspec
from asv.console import log
from asv.runner import Spawner
from asv.util import TIMEOUT_RETCODE, UserError

from hpml_plugins.asv.run import AsvTask, Prepared, take_record
from hpml_plugins.errors import Unwritable
from hpml_plugins.model.record import Record
from hpml_plugins.report.progress import WIDTH
from hpml_plugins.run import OutOfTime, measure_rounds
from hpml_plugins.suite.points import (
    UNWRITABLE,
    current_progress,
    last_progress,
    reused_records,
    skip_point,
)
from hpml_plugins.temporary import temporary_folder
from hpml_plugins.terminal import say

#: s between two looks at the progress of the point that is measured. With 1,000 rounds planned a
#: look on a terminal takes 7 ms, which must not disturb points on the CPU.
LOOK_EVERY = 2.0
#: asv's text for no profile path.
NO_PROFILE = "None"


class _PointResult(NamedTuple):
    """The result of a point for asv, by default skipped.  text: JSON, of its result file."""

    output: str = ""
    errcode: int = 0
    text: str = "NaN"


def run_point(
    spawner: Spawner, task: AsvTask, attributes: str = "{}", timeout: float = math.inf
) -> _PointResult:
    """Have asv start a process for one round of a point, which writes its Record.

    attributes: of the benchmark, JSON.  timeout: s, if shorter than the point's own.
    """
    with temporary_folder("hpml-point-") as scratch:
        result = scratch / "result.json"
        result.touch()
        limit = min(task.entry["timeout"], timeout)
        output, errcode = spawner.run(
            task.name, attributes, NO_PROFILE, str(result), limit, str(scratch)
        )
        return _PointResult(output, errcode, result.read_text(encoding="utf-8"))


class Driver(Spawner):  # type: ignore[misc]  # asv is not typed
    """asv's spawner of a commit and environment, which measures all points of plugins as a
    batch."""

    def __init__(self, prepared: Prepared, spawner: Spawner) -> None:
        super().__init__(spawner.env, spawner.benchmark_dir)
        self._prepared = prepared
        self._spawner = spawner
        self._batch = {task.name for task in prepared.tasks}
        self._names = {str(task.entry["name"]) for task in prepared.tasks}
        self._measured: dict[str, tuple[_PointResult, Record | None]] = {}

    @property
    def _commit(self) -> str:
        return self.env.installed_commit_hash or ""

    def preimport(self) -> tuple[bool, str]:
        """Called by asv before it asks for the first point: measures the batch."""
        success, output = self._spawner.preimport()
        if success:
            log.flush()
            logging.getLogger().addFilter(self._is_shown)
            try:
                self._measured = measure_commit(
                    self._prepared,
                    lambda task, timeout: run_point(
                        self._spawner, task, self._prepared.attributes, timeout
                    ),
                    self._commit,
                    self.env.name,
                )
            except KeyboardInterrupt:
                self.interrupt()
                raise UserError("Interrupted.") from None
            if self._prepared.is_last_pass(self._commit, self.env.name):
                self._describe()
        return success, output

    def run(
        self,
        name: str,
        params_str: str,
        profile_path: str,
        result_file_name: str,
        timeout: float,
        cwd: str,
    ) -> tuple[str, int]:
        """The result of a point. A benchmark that is not a plugin's is measured now."""
        if name not in self._batch:
            output, errcode = self._spawner.run(
                name, params_str, profile_path, result_file_name, timeout, cwd
            )
            return output, errcode
        answer = _PointResult()
        if name in self._measured:
            answer, _ = self._measured[name]
        Path(result_file_name).write_text(answer.text, encoding="utf-8")
        return answer.output, answer.errcode

    def create_setup_cache(
        self, benchmark_id: str, timeout: float, params_str: str
    ) -> tuple[str | None, str | None]:
        """For a benchmark that is not a plugin's."""
        folder, output = self._spawner.create_setup_cache(benchmark_id, timeout, params_str)
        return folder, output

    def interrupt(self) -> None:
        """Suppress further output of the processes."""
        self._spawner.interrupt()

    def close(self) -> None:
        """End the processes."""
        logging.getLogger().removeFilter(self._is_shown)
        self._spawner.close()

    def _describe(self) -> None:
        """Print the results of the batch; asv would name each benchmark again, with one metric."""
        run = self._prepared.suite.run
        given = [record for _, record in self._measured.values()]
        # an earlier run described its own results
        records = [record for record in given if record is None or record.run == run]
        report = self._prepared.report
        report.stored += [record for record in given if record and record.run != run]
        report.add(records)
        width = shutil.get_terminal_size().columns if sys.stdout.isatty() else WIDTH
        say(*report.describe(records, width))

    def _is_shown(self, message: logging.LogRecord) -> bool:
        """Whether asv may print a message: not the name of a plugin's benchmark, already described.
        asv truncates the beginning of a long one."""
        text = str(message.msg)
        is_cut = text.startswith("...")
        return text not in self._names and not (
            is_cut and any(name.endswith(text[3:]) for name in self._names)
        )


@contextmanager
def showing_progress(prepared: Prepared) -> Iterator[None]:
    """Meanwhile show how far the point is that another process measures.

    The report decides how often: a status line of a terminal at each look, a log once a minute.
    """
    ended = threading.Event()

    def look() -> None:
        while not ended.wait(LOOK_EVERY):
            prepared.report.progress(*current_progress(prepared.suite))

    looking = threading.Thread(target=look, daemon=True)
    looking.start()
    try:
        yield
    finally:
        ended.set()
        looking.join()


def measure_commit(
    prepared: Prepared,
    measure: Callable[[AsvTask, float], _PointResult],
    commit: str,
    environment: str,
) -> dict[str, tuple[_PointResult, Record | None]]:
    """Measure all rounds of all points of a commit that fit into the run's limit.

    measure: has asv start a process for a point, which writes a Record, and ends it after these
    seconds.  commit, environment: their names, for the Records of points that this node skips.
    Returns for each measured point, by asv's name, the result of its last process for asv, and the
    Record of all rounds. Raises Unwritable if a Record cannot be stored, since later ones would be
    lost too.
    """
    one_pass, answers = prepared.next_pass(commit, environment)

    def measure_round(number: int) -> Record | None:
        task = prepared.tasks[number]
        prepared.check_lock()
        unmet = task.declared.unmet.get(task.number, "")
        if (kept := reused.get(number)) and (unmet or kept.status == "skipped"):
            answers[number] = _PointResult(f"skipped: {unmet or kept.reason}")
            return kept
        if unmet:
            answers[number] = _PointResult(f"skipped: {unmet}")
            return skip_point(
                prepared.suite, task.declared, task.params, unmet, commit, environment
            )
        limit = prepared.report.limit
        with showing_progress(prepared):
            answer = measure(task, limit.left if limit else math.inf)
        reached = last_progress(prepared.suite)
        if answer.errcode == TIMEOUT_RETCODE and limit and limit.left <= 0:
            prepared.report.progress(*reached)
            raise OutOfTime
        answers[number] = answer
        if (refused := prepared.scratch / UNWRITABLE).exists():
            reason = refused.read_text(encoding="utf-8")
            raise Unwritable(
                f"{reason}; measured points are kept; continue with asv run --skip-existing"
            )
        return take_record(prepared.scratch, task.declared.key(task.params))

    tasks = [
        (
            msgspec.structs.replace(
                task.declared, rounds=prepared.rounds or task.declared.rounds
            ),
            task.params,
        )
        for task in prepared.tasks
    ]
    report = prepared.report
    reused = reused_records(prepared.suite, tasks, commit, environment)
    records = measure_rounds(
        tasks,
        prepared.suite.run,
        measure_round,
        report,
        report.limit,
        one_pass,
        reused.keys(),
    )
    measured = {prepared.tasks[number].declared.name for number in answers}
    prepared.left_out = {task.declared.name for task in prepared.tasks} - measured
    return {
        prepared.tasks[number].name: (answer, records[number])
        for number, answer in sorted(answers.items())
    }
