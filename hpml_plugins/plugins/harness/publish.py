"""What `asv publish` costs over a long history: asv alone and with our pages."""

from __future__ import annotations

import json
import os
import re
import resource
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

import hpml_plugins
from hpml_plugins import Bench, Benchmark, HpmlError, Metric, Requires

_CONF = {"version": 1, "project": "made", "repo": ".", "branches": ["main"], "project_url": "#", "show_commit_url": "#"}


@dataclass(frozen=True)
class Published:
    """One `asv publish`. seconds: wall time.  cpu: s of all its processes.  pages: s that it says our pages took, and
    how many of them it was computing.
    """

    seconds: float
    cpu: float
    pages: float
    pages_cpu: float


def measure(bench: Bench, *, commits: int) -> dict[str, float]:
    """Publish a history of commits × 8 machines × 40 benchmarks × 8 points with asv alone and with this package.

    Writing asv's result files from the Records is not timed.

    The two are timed one after the other on the same machine; their ratio says more than either where other work runs.
    """
    from hpml_plugins.plugins.harness.made_history import History, make_history
    from hpml_plugins.store import project as project_results  # not when the plugin is loaded

    history = History(commits)
    with tempfile.TemporaryDirectory(prefix="hpml-publish-") as folder:
        project = Path(folder)
        bench.progress(f"making {history.values} values", 0.05)
        make_history(project, history)
        configure(project)
        project_results(project / "results")
        bench.progress("asv alone", 0.2)
        alone = publish(project, "alone.json")
        bench.progress("with our pages", 0.6)
        whole = publish(project, "asv.conf.json")
        pages = len(list((project / "html" / "history").rglob("*.json")))
        bench.check(pages == 1 + history.benchmarks * history.points, "a point's history was not written")
    return {
        "alone": alone.seconds,
        "alone_cpu": alone.cpu,
        "whole": whole.seconds,
        "whole_cpu": whole.cpu,
        "pages": whole.pages,
        "pages_cpu": whole.pages_cpu,
        "share": whole.seconds / alone.seconds,
    }


def configure(project: Path) -> None:
    """Two configurations of a made history: `alone.json` and, with this package, `asv.conf.json`."""
    (project / "hpml_plugins").symlink_to(Path(hpml_plugins.__file__).parent)
    (project / "registry.yaml").write_text("version: 1\nplugins: []\n")
    (project / "alone.json").write_text(json.dumps({**_CONF, "html_dir": "html-alone"}))
    (project / "asv.conf.json").write_text(json.dumps({**_CONF, "plugins": [".hpml_plugins.asv"]}))


def publish(project: Path, configuration: str) -> Published:
    """Run `asv publish` in a process of its own. Raises HpmlError with what it said when it fails."""
    # Python keeps the compiled modules, as it does for a user; compiling them each time would take half a second.
    left_out = ("ASV", "HPML", "PYTHONDONTWRITEBYTECODE")
    env = {name: value for name, value in os.environ.items() if not name.startswith(left_out)}
    env |= {
        "HOME": str(project),
        "PYTHONPYCACHEPREFIX": str(project / ".pycache"),
        "PYTHONPATH": os.pathsep.join(filter(None, sys.path)),
        "PYTHONSAFEPATH": "1",
    }
    command = [sys.executable, "-m", "asv", "publish", "--config", configuration]
    before, started = _cpu(), time.perf_counter()
    done = subprocess.run(command, cwd=project, env=env, capture_output=True, text=True, check=False)
    seconds, cpu = time.perf_counter() - started, _cpu() - before
    said = done.stdout + done.stderr
    if done.returncode:
        raise HpmlError(f"asv publish ended with status {done.returncode}: {' / '.join(said.splitlines()[-3:])}")
    pages = re.search(r"our pages took ([\d.]+) s \(([\d.]+) s", said)
    return Published(seconds, cpu, float(pages[1]) if pages else 0.0, float(pages[2]) if pages else 0.0)


def _cpu() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


PUBLISH = Benchmark(
    "harness_publish",
    measure,
    [
        Metric("alone", "s", "lower", "asv without us"),
        Metric("alone_cpu", "s", "lower", "CPU time of all its processes"),
        Metric("whole", "s", "lower", "with our pages"),
        Metric("whole_cpu", "s", "lower", "CPU time of all its processes"),
        Metric("pages", "s", "lower", "our pages' part of it"),
        Metric("pages_cpu", "s", "lower", "CPU time of that part"),
        Metric("share", "1", "lower", "with our pages / asv alone"),
    ],
    grid={"commits": [25, 400]},
    requires=Requires(modules=("asv",), tools=("git",)),
    timeout=1800,
    version="4",  # 3: the history was of asv's result files; 2: also timed a second publish from a cache
    description="Time of `asv publish` over a history of 2560 values a commit: 400 commits are 1.02 million.",
    rounds=1,
)
