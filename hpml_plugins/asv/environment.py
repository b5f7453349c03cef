"""`environment_type: node`: a commit's package over the node's own Python, built and installed without a network."""

from __future__ import annotations

import hashlib
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from asv import environment, util
from asv.console import log

from hpml_plugins.isolation import parent_death
from hpml_plugins.measure import torch_build
from hpml_plugins.suite.declaration import MACHINE_VARIABLE, RESULTS_VARIABLE

_BUILD = "python -m pip wheel --no-deps --no-build-isolation --no-index -q -w {build_cache_dir} {build_dir}"
_INSTALL = (
    "in-dir={env_dir} python -m pip install --no-deps --no-index -q --upgrade --target {env_dir}/site {wheel_file}"
)
_UNINSTALL = "return-code=any in-dir={env_dir} rm -rf {env_dir}/site"
#: asv's modes that list benchmarks; the others run one.
_DECLARING = ("discover", "check")


def search_path(own: str, env: Mapping[str, str]) -> dict[str, str]:
    """The variables that put `own` in front of what the caller's had.

    asv's benchmark.py imports asv_runner before it looks at ASV_PYTHONPATH, and removes from sys.path what PYTHONPATH
    brought unless ASV_PYTHONPATH is set: on a node whose asv is itself found by such a variable, both are needed.
    """
    theirs = [env.get("ASV_PYTHONPATH"), env.get("PYTHONPATH")]
    path = os.pathsep.join(dict.fromkeys([own, *filter(None, theirs)]))
    return {"PYTHONPATH": path, "ASV_PYTHONPATH": path}


class NodeEnvironment(environment.Environment):  # type: ignore[misc]
    """torch, CUDA and NCCL are the node's; the commit's package is put beside them in a folder of its own."""

    tool_name = "node"

    def __init__(self, conf: Any, python: str, requirements: dict[str, str], tagged_env_vars: Any) -> None:
        if not self.matches(python):
            own = f"{sys.version_info[0]}.{sys.version_info[1]}"
            raise environment.EnvironmentUnavailable(
                f"environment_type 'node' runs the Python that runs asv ({own}); it cannot give Python {python}"
            )
        torch, cuda = torch_build()
        self._stack = (f"-torch{torch}" if torch else "") + (f"-cuda{cuda}" if cuda else "")
        self._root = Path(conf.benchmark_dir).resolve().parent
        self._results = Path(conf.results_dir).resolve()
        self._requirements = requirements
        super().__init__(conf, python, requirements, tagged_env_vars)
        self._build_command = conf.build_command or [_BUILD]
        self._install_command = conf.install_command or [_INSTALL]
        self._uninstall_command = conf.uninstall_command or [_UNINSTALL]

    @classmethod
    def matches(cls, python: str) -> bool:
        """Whether this Python is the one that runs asv."""
        return python in ("same", "python", sys.executable, f"{sys.version_info[0]}.{sys.version_info[1]}")

    @property
    def name(self) -> str:
        """Python, torch and CUDA versions and no path, so that results of one node type share a name."""
        return str(super().name) + self._stack

    @property
    def dir_name(self) -> str:
        """A folder for each machine: nodes of one type that share env/ would build their commits over one another."""
        own = f"{super().dir_name} {os.environ.get(MACHINE_VARIABLE, '')}"
        return hashlib.sha256(own.encode()).hexdigest()[:32]

    def check_presence(self) -> bool:
        """Whether its folder exists and was made for the same settings."""
        return Path(self._path, "asv-env-info.json").is_file()

    def _setup(self) -> None:
        log.info(f"Using this node's Python for {self.name}")
        Path(self._path).mkdir(parents=True, exist_ok=True)

    def find_executable(self, executable: str) -> str:
        """The node's own Python; anything else from the PATH."""
        return sys.executable if executable == "python" else str(util.which(executable))

    def run(self, args: list[str], **kwargs: Any) -> Any:
        """Run the node's Python with the commit's package in front of its own.

        asv passes the mode second. Declaring is done by the working tree's package, whatever the commit, so that
        benchmarks.json is the same on every node and an old commit does not shorten it.
        """
        own = str(self._root if args[1:2] and args[1] in _DECLARING else Path(self._path, "site"))
        env = {**kwargs.pop("env", os.environ), **self._global_env_vars}
        env |= search_path(own, env)
        env[RESULTS_VARIABLE] = str(self._results)
        # Kernels that plugins compile with cache=True are then compiled once a commit, not once a process
        env.setdefault("NUMBA_CACHE_DIR", str(Path(self._path, "numba-cache")))
        log.debug(f"Running '{' '.join(args)}' in {self.name}")
        # -P keeps the launcher's own folder off the path; asv killed outright would leave its fork server for ever
        launcher = [sys.executable, "-P", parent_death.__file__, str(os.getpid())]
        return util.check_output([*launcher, *args], env=env, **kwargs)
