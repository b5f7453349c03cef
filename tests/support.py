"""What more than one folder of tests needs."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import importlib.metadata
import io
import os
import signal
import subprocess
import sys
import sysconfig
import time
from collections.abc import Callable, Coroutine, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NoReturn
from unittest import mock

import psutil
import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from hpml_plugins.cli import main
from hpml_plugins.model.record import Record

ROOT = Path(__file__).resolve().parent.parent

TOY = """
from hpml_plugins import Benchmark, Metric, hookimpl

def measure(bench, *, size):
    bench.check(sum(range(size)) == size * (size - 1) // 2, "sum differs from Gauss")
    return {"time": bench.time(lambda: sum(range(size)))}

TOY = Benchmark("toy", measure, [Metric("time", "s", "lower")], grid={"size": [10, 1000]})

@hookimpl
def hpml_benchmarks():
    return [TOY]
"""

#: The toy with two figures: a chart over sizes, and a table alone.
DRAWN = (
    TOY.replace(
        "import Benchmark, Metric, hookimpl",
        "import Axis, Benchmark, Figure, Metric, Table, hookimpl, line_chart",
    )
    + """

def table(records):
    return Table.of_records(records, "time")

def draw(sheet, table):
    axes = sheet.subplots()
    for (machine,), rows in table.groups("machine").items():
        axes.loglog([row["size"] for row in rows], [row["time"] for row in rows], label=machine)
    axes.set(xlabel="size", ylabel="time in s")
    axes.legend()

CHART = line_chart(Axis("size", "size", log=True), Axis("time", "time", "s", log=True), "machine")

@hookimpl
def hpml_figures():
    return [
        Figure("over_size", "Time against size", ("toy",), table, CHART, "One line per machine."),
        Figure("numbers", "The numbers", ("toy",), table),
        Figure("freely", "Time against size, drawn freely", ("toy",), table, draw=draw),
    ]
"""
)


def call_hpml(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """The command in this process, which has imported NumPy and SciPy: in a process of its own each
    call would, for 2 s."""
    output, errors = io.StringIO(), io.StringIO()
    handlers = {
        number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGHUP)
    }
    with (
        contextlib.chdir(folder),
        contextlib.redirect_stdout(output),
        contextlib.redirect_stderr(errors),
        mock.patch.object(sys, "argv", ["hpml", *words]),
        pytest.raises(SystemExit) as ended,
    ):
        main()
    for number, handler in handlers.items():
        signal.signal(number, handler)
    status = int(ended.value.code or 0)
    return subprocess.CompletedProcess(words, status, output.getvalue(), errors.getvalue())


def unavailable(reason: str) -> NoReturn:
    """Skip a test whose program or data set this machine lacks; fail it where none may be
    lacking."""
    if os.environ.get("HPML_REQUIRE_TOOLS") == "1":
        pytest.fail(reason)
    pytest.skip(reason)


#: How long a test waits for what comes at once on an idle machine, s. A busy one may hold a process
#: up for minutes; where all is well, a wait ends as soon as it may.
PATIENCE = 300.0


def wait_for(
    what: Callable[[], object],
    name: str,
    log: Callable[[], str] = str,
    patience: float = PATIENCE,
) -> None:
    """Wait until something is so."""
    deadline = time.monotonic() + patience
    while not what():
        assert time.monotonic() < deadline, f"waited {patience:.0f} s for {name}\n{log()}"
        time.sleep(0.02)


def run_async(call: Coroutine[Any, Any, Any]) -> Any:
    """What the coroutine returns, run in a thread of its own: a browser that another test keeps
    open has this thread's loop."""
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(asyncio.run, call).result()


def assert_nothing_lost(before: Sequence[Record], now: Sequence[Record]) -> None:
    """What was stored is still there, and complete: a point that lacked rounds has got them behind
    its own."""
    found = {(record.commit, record.point): record for record in now}
    assert len(found) == len(now)
    for record in before:
        later = found[record.commit, record.point]
        assert later.is_complete
        if record.status == "ok":
            for name, metric in record.metrics.items():
                assert later.metrics[name].samples[: len(metric.samples)] == metric.samples
        else:
            assert later == record


def still_running(folder: Path, ranks: int | None = None) -> list[int]:
    """The process numbers that ranks left as file names in the folder and that still run. Zombies
    do not count."""
    numbers = [int(path.name) for path in folder.iterdir()]
    assert numbers if ranks is None else len(numbers) == ranks
    return [number for number in numbers if _runs(number)]


def _runs(number: int) -> bool:
    try:
        return bool(psutil.Process(number).status() != psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return False


def closure(names: Iterable[str]) -> set[str]:
    """These distributions and all that they require here."""
    found: set[str] = set()
    ahead = [str(canonicalize_name(name)) for name in names]
    while ahead:
        name = ahead.pop()
        if name in found:
            continue
        found.add(name)
        wanted = [Requirement(text) for text in importlib.metadata.requires(name) or ()]
        ahead += [
            str(canonicalize_name(each.name))
            for each in wanted
            if each.marker is None or each.marker.evaluate({"extra": ""})
        ]
    return found


def link_packages(names: Iterable[str], site: Path) -> None:
    """Links in the folder `site` to what these distributions installed beside this Python."""
    own = Path(sysconfig.get_path("purelib"))
    for name in names:
        for file in importlib.metadata.distribution(name).files or ():
            top = file.parts[0]
            if (
                top not in ("..", "__pycache__")
                and not top.endswith(".pth")
                and not (site / top).exists()
            ):
                (site / top).symlink_to(own / top)


def in_new_process(test: Callable[..., None]) -> Callable[..., None]:
    """Run a test in a process of its own. A process that has computed gradients, or imported what
    does, cannot fork points that compute some, and a fork of one that has started torch's threads
    cannot compute any."""

    @functools.wraps(test)
    def run(*arguments: Any, **options: Any) -> None:
        place = os.environ["PYTEST_CURRENT_TEST"].rpartition(" (")[0]
        if os.environ.get(ALONE) == place:
            test(*arguments, **options)
            return
        command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", place]
        ended = subprocess.run(
            command,
            cwd=ROOT,
            env={**os.environ, ALONE: place},
            capture_output=True,
            text=True,
        )
        assert ended.returncode == 0, ended.stdout + ended.stderr

    return run


#: Names the test that runs in a process of its own.
ALONE = "HPML_TEST_ALONE"


def in_a_child(test: Callable[..., None]) -> Callable[..., None]:
    """The test in a fork of its own: torch's tensors without data, which its compilers use, would
    make this process's next backward pass start threads, after which those of its forks fail.

    The fork computes on one thread: where this process has started OpenMP's threads, a fork that
    asks for several waits for ever for threads it does not have.
    """

    @functools.wraps(test)
    def run(*args: Any, **kwargs: Any) -> None:
        import torch

        from hpml_plugins.isolation import run_isolated

        said: list[bytes] = []

        def body(send: Callable[[bytes], None]) -> None:
            torch.set_num_threads(1)
            test(*args, **kwargs)
            send(b"passed")

        outcome = run_isolated(body, PATIENCE, said.append)
        assert said == [b"passed"], f"{outcome.fault}\n{outcome.output}"

    return run
